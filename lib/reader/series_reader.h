// SPDX-License-Identifier: BSD-3-Clause
// Turns the shared maps' memory into Samples; the top of series_reader.cc explains how.
// It makes no kernel calls, so tests give it plain buffers. It trusts nothing that it
// reads: it skips an invalid cell or name, and the next read looks at it again.
//
//   SeriesReader reader(view);
//   std::vector<Sample> samples;  // kept from read to read
//   reader.ReadAll(&samples);
//
// Throws std::bad_alloc if there is no memory, and works again when there is.
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

// The maps in memory, and their sizes. The sizes are those checked at opening, because
// `info` may change during use.
struct MapView {
  const nm_info* info = nullptr;
  const nm_u64* counters =
      nullptr;  // cells of 8 words, slot * cells_per_series + i
  const nm_name* names = nullptr;
  const nm_stats* stats = nullptr;
  const nm_tcp* tcp = nullptr;
  uint32_t cells_per_series = 0;
  uint32_t max_series = 0;  // the mapped part
  uint32_t max_names = 0;
  // The maps above are the first extents. Further ones: by extent - 1.
  uint32_t first_series = UINT32_MAX;
  uint32_t first_names = UINT32_MAX;
  std::array<const nm_u64*, NM_MAX_EXTENTS - 1> more_counters = {};
  std::array<const nm_tcp*, NM_MAX_EXTENTS - 1> more_tcp = {};
  std::array<const nm_name*, NM_MAX_EXTENTS - 1> more_names = {};
};

// The memory of a slot below max_series, or of an id below max_names.
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

// Whether `info` announces more extents than are mapped.
bool IsBehind(const MapView& view);

// Gets the extents that are mapped by now. False: they could not be mapped.
using Extend = std::function<bool(MapView*)>;

class SeriesReader {
 public:
  // The memory must outlive the reader.
  explicit SeriesReader(const MapView& view, Extend extend = nullptr);

  // Reads every series, one Sample for each key, in the order of appearance. Reuses the
  // memory of *samples and of its strings, and allocates nothing if that suffices. After
  // an exception *samples is unchanged or empty.
  void ReadAll(std::vector<Sample>* samples);

  // Like ReadAll(), but if a service and a program have one name, their pending traffic
  // is two samples of one key. That of a service is registered if any series of the
  // service is. So a caller can leave it out together with its service.
  void ReadAllByOwner(std::vector<Sample>* samples);

  // Reads the series of one service. Visits only these series and the slots handed out
  // since the last read. If there are such slots, or new series in others, also visits
  // the slots that had no key then.
  void ReadService(absl::string_view service, std::vector<Sample>* samples);

  // Both read into rows of the C API, without a copy of a string. After an exception
  // *rows is unchanged or empty.
  void ReadAll(SampleRows* rows);
  void ReadService(absl::string_view service, SampleRows* rows);

  // Read into a new vector.
  std::vector<Sample> ReadAll();
  std::vector<Sample> ReadService(absl::string_view service);

  Health ReadHealth() const;

  // The present key of one slot: kind, name, destination, transport, path and uplink of
  // *sample. Returns false and leaves *sample unchanged if the slot is free or its key
  // not known yet. Needs no read before it. The result is valid as long as nm_stats.moves
  // stays what it was before the call.
  bool ReadKey(uint32_t slot, Sample* sample) const;

  // A name by its id, as a Sample has it. False: there is none.
  bool ReadName(uint32_t id, std::string* name) const;

  // The destination for a name in a connection's first bytes.
  std::string LabelOf(absl::string_view wire_name, bool huffman) const;

 private:
  // The contents of the head of a slot's cells.
  struct Identity {
    std::string name;
    std::string destination;
    std::string uplink;
    Kind kind = Kind::kUnattributed;
    Transport transport = Transport::kOther;
    Path path = Path::kDirect;
    bool of_service = false;  // pending: belongs to a service
  };
  // One key. It is short and has no room for counters, because a read of all series
  // visits all of them, and memory access takes most of its time. The words are in
  // words_. A key has several slots if several names decode to one, as "a.local" and
  // "a.local:443" on the wire do.
  struct Series {
    const std::string* name = nullptr;
    const std::string* destination = nullptr;
    const std::string* uplink = nullptr;
    std::unique_ptr<std::vector<uint32_t>> more_slots;  // null: no more
    uint32_t slot = 0;
    // Pending: the series, if there is one, that differs only in of_service.
    uint32_t twin = kNoTwin;
    Kind kind = Kind::kUnattributed;
    Transport transport = Transport::kOther;
    Path path = Path::kDirect;
    bool of_service = false;
  };
  static constexpr uint32_t kNoTwin = UINT32_MAX;
  // Equal words have one address. The last element is of_service.
  using Key = std::tuple<Kind, const std::string*, const std::string*,
                         Transport, Path, const std::string*, bool>;
  // kOne: one sample for both. kApart: two. kMarked: two, and the service's pending
  // sample is registered if the service is.
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
  // Runs the body, which gets the number of moves, until no move happened during its run.
  template <typename Body>
  void BetweenMoves(const Body& body) const;
  // Learns new series, and then runs BetweenMoves(). `Out`, here and below, is a Sample
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
  // mutex_ guards everything below. The view's own extents stay.
  MapView view_;
  const Extend extend_;
  // Learned data is valid as long as nm_stats.moves has this value. No meter begins with
  // an odd number.
  nm_u64 moves_ = 1;
  std::vector<std::string> suffixes_;  // of wire names, by `info`
  bool fold_unknown_ = false;          // by `info`
  // Null: no program counts connections (the socket table is off).
  const nm_tcp* tcp_ = nullptr;
  nm_u64 heads_ = 0, slots_allocated_ = 0;  // of nm_stats, at the last look
  uint32_t next_slot_ = 1;
  std::vector<uint32_t>
      unknown_;  // below next_slot_, without a key at the last check
  // Words of series_: most occur in many series. Rows share the set. Null: no series.
  std::shared_ptr<std::set<std::string>> words_;
  std::vector<Series> series_;
  std::map<Key, size_t> by_key_;
  // The comparison accepts a string_view without making a string.
  std::map<std::string, std::vector<size_t>, std::less<>> by_service_;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_READER_SERIES_READER_H_
