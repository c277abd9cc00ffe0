// SPDX-License-Identifier: BSD-3-Clause
// Turns the shared maps' memory into Samples; the top of series_reader.cc explains
// how. It knows no kernel: tests give it plain buffers. It believes nothing that
// it reads: a cell or a name that makes no sense is skipped, and the next read
// looks at it again.
//
//   SeriesReader reader(view);
//   std::vector<Sample> samples;  // kept from read to read
//   reader.ReadAll(&samples);
//
// Throws std::bad_alloc where there is no memory, and works again when there is.
//
// Threads: every method may be called from any thread at any time.

#ifndef NETMETER_LIB_READER_SERIES_READER_H_
#define NETMETER_LIB_READER_SERIES_READER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/string_view.h"
#include "lib/reader/sample_rows.h"
#include "netmeter/abi.h"
#include "netmeter/meter.h"

namespace netmeter {
namespace internal {

// The maps in memory, and their sizes: those checked at opening, as what
// `info` says may change under us.
struct MapView {
  const nm_info* info = nullptr;
  const nm_u64* counters =
      nullptr;  // cells of 8 words, slot * cells_per_series + i
  const nm_name* names = nullptr;
  const nm_stats* stats = nullptr;
  const nm_tcp* tcp = nullptr;
  uint32_t cells_per_series = 0;
  uint32_t max_series = 0;  // as far as the maps are mapped
  uint32_t max_names = 0;
  // The first extents are the maps above. Further ones: by extent - 1.
  uint32_t first_series = UINT32_MAX;
  uint32_t first_names = UINT32_MAX;
  std::array<const nm_u64*, NM_MAX_EXTENTS - 1> more_counters = {};
  std::array<const nm_tcp*, NM_MAX_EXTENTS - 1> more_tcp = {};
  std::array<const nm_name*, NM_MAX_EXTENTS - 1> more_names = {};
};

// What is mapped of a slot, or of an id, below max_series (max_names).
const nm_u64* FurtherCell(const MapView& view, uint32_t slot, uint32_t number);
const nm_tcp& FurtherTcp(const MapView& view, uint32_t slot);
const nm_name& FurtherName(const MapView& view, uint32_t id);
inline const nm_u64* CellAt(const MapView& view, uint32_t slot,
                            uint32_t number) {
  if (slot >= view.first_series) return FurtherCell(view, slot, number);
  return view.counters + (size_t{slot} * view.cells_per_series + number) *
                             (sizeof(nm_cell) / sizeof(nm_u64));
}
inline const nm_tcp& TcpAt(const MapView& view, uint32_t slot) {
  return slot < view.first_series ? view.tcp[slot] : FurtherTcp(view, slot);
}
inline const nm_name& NameAt(const MapView& view, uint32_t id) {
  return id < view.first_names ? view.names[id] : FurtherName(view, id);
}

// Whether `info` says that there is more than is mapped.
bool IsBehind(const MapView& view);

// Takes what is mapped by now. False: it could not be mapped.
using Extend = std::function<bool(MapView*)>;

class SeriesReader {
 public:
  // The memory must outlive the reader.
  explicit SeriesReader(const MapView& view, Extend extend = nullptr);

  // Every series, one Sample for each key, in the order of appearance. A read reuses the
  // memory of *samples and of its strings, and allocates nothing if that suffices. After
  // an exception *samples is unchanged or empty.
  void ReadAll(std::vector<Sample>* samples);

  // The same, but what is pending of a service and of a program of one name are two
  // samples of one key; and that of a service is registered if any series of the
  // service is. So it can be left out with its service.
  void ReadAllByOwner(std::vector<Sample>* samples);

  // The series of one service. Costs a visit to these series and to the slots that
  // were handed out since the last read; and, if there are such, or new series in
  // others, also to those that had no key then.
  void ReadService(absl::string_view service, std::vector<Sample>* samples);

  // Both into rows of the C API, without a copy of a string. After an exception *rows
  // is unchanged or empty.
  void ReadAll(SampleRows* rows);
  void ReadService(absl::string_view service, SampleRows* rows);

  // The same into memory of their own.
  std::vector<Sample> ReadAll();
  std::vector<Sample> ReadService(absl::string_view service);

  Health ReadHealth() const;

  // The key of one slot as it is now: kind, name, destination, transport, path and
  // uplink of *sample. False, and *sample unchanged: it is nobody's, or not known
  // yet. May be called without a read before it; what it finds is true as long
  // as nm_stats.moves stays what it was before the call.
  bool ReadKey(uint32_t slot, Sample* sample) const;

  // A name by its id, as a Sample has it. False: there is none.
  bool ReadName(uint32_t id, std::string* name) const;

 private:
  // What the head of a slot's cells says.
  struct Identity {
    std::string name;
    std::string destination;
    std::string uplink;
    Kind kind = Kind::kUnattributed;
    Transport transport = Transport::kOther;
    Path path = Path::kDirect;
    bool of_service = false;  // pending: of a service, whatever else has it
  };
  // One key, without room for counters, and short: a read of all series passes
  // over all of them, and what takes its time is memory. The words are in words_.
  // It has several slots where ids of several names decode to one, as "a.local" and
  // "a.local:443" on the wire do.
  struct Series {
    const std::string* name = nullptr;
    const std::string* destination = nullptr;
    const std::string* uplink = nullptr;
    std::unique_ptr<std::vector<uint32_t>> more_slots;  // null: no more
    uint32_t slot = 0;
    // Pending: the series, if there is one, that differs in of_service only.
    uint32_t twin = kNoTwin;
    Kind kind = Kind::kUnattributed;
    Transport transport = Transport::kOther;
    Path path = Path::kDirect;
    bool of_service = false;
  };
  static constexpr uint32_t kNoTwin = UINT32_MAX;
  // Equal words have one address. At the end: of_service.
  using Key = std::tuple<Kind, const std::string*, const std::string*,
                         Transport, Path, const std::string*, bool>;
  // One sample of both; two; or two, of which the service's is marked as the service.
  enum class Twins { kOne, kApart, kMarked };

  const nm_u64* Cell(uint32_t slot, uint32_t number) const;
  bool DecodeName(uint32_t id, std::string* name) const;
  bool DecodeUplink(uint32_t number, std::string* uplink) const;
  bool DecodeIdentity(uint32_t slot, Identity* identity) const;
  const std::string* Word(std::string word);
  bool Learn(uint32_t slot);
  void Learn();
  void Forget();
  void ReadNaming();
  void Update();
  // Runs the body, which reads and which is told the number of moves, until none
  // came meanwhile.
  template <typename Body>
  void BetweenMoves(const Body& body) const;
  // BetweenMoves(), after having learned what is new. `Out`, here and below, is a Sample
  // or a row.
  template <typename Out, typename Body>
  void ReadSeries(std::vector<Out>* out, const Body& body);
  Health ReadHealthOnce() const;
  template <bool is_first, typename Out>
  void TakeSlot(const Series& series, uint32_t slot, Out* out) const;
  void Prefetch(uint32_t slot) const;
  template <bool is_first, typename Out>
  void Sum(const Series& series, Out* out) const;
  bool IsRegistered(const std::string& service) const;
  static void Name(const Series& series, Sample* sample);
  static void Name(const Series& series, netmeter_sample* row);
  template <typename Out, typename Next>
  void Fill(Twins twins, size_t count, const Next& next,
            std::vector<Out>* out) const;
  template <typename Out>
  void FillAll(Twins twins, std::vector<Out>* out) const;
  template <typename Out>
  void FillService(absl::string_view service, std::vector<Out>* out) const;
  template <typename Body>
  void ReadRows(SampleRows* rows, const Body& body);

  mutable std::mutex mutex_;
  // All below guarded by mutex_. The view's own extents stay.
  MapView view_;
  const Extend extend_;
  // What was learned is true as long as
  // nm_stats.moves is this. No meter begins with an odd number.
  nm_u64 moves_ = 1;
  std::vector<std::string> suffixes_;  // of wire names, by `info`
  bool fold_unknown_ = false;          // the same
  // Null: no program counts connections (the socket table is off).
  const nm_tcp* tcp_ = nullptr;
  nm_u64 heads_ = 0, slots_allocated_ = 0;  // of nm_stats, at the last look
  uint32_t next_slot_ = 1;
  std::vector<uint32_t> unknown_;  // below next_slot_, without a key when seen
  // Of series_: most occur in many of them. Rows share it. Null: no series.
  std::shared_ptr<std::set<std::string>> words_;
  std::vector<Series> series_;
  std::map<Key, size_t> by_key_;
  // With a comparison that takes a string_view without making a string of it.
  std::map<std::string, std::vector<size_t>, std::less<>> by_service_;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_READER_SERIES_READER_H_
