// SPDX-License-Identifier: BSD-3-Clause
// Turns the shared maps' memory into Samples. Knows no kernel: tests give it
// plain buffers. Believes nothing that it reads: a cell or a name that makes
// no sense is skipped and looked at again by the next read.
//
//   SeriesReader reader(view);
//   for (const Sample& s : reader.ReadAll()) ...
//
// Throws std::bad_alloc where there is no memory, and can go on then.
//
// Threads: every method may be called from any thread at any time.

#ifndef NETMETER_LIB_CORE_SERIES_READER_H_
#define NETMETER_LIB_CORE_SERIES_READER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/string_view.h"
#include "netmeter/abi.h"
#include "netmeter/meter.h"

namespace netmeter {
namespace internal {

// The maps in memory, and their sizes: those checked at opening, as what
// `info` says may change under us.
struct MapView {
  const nm_info* info = nullptr;
  const nm_u64* counters = nullptr;  // cells of 8 words, slot * num_cpus + cpu
  const nm_name* names = nullptr;
  const nm_stats* stats = nullptr;
  const nm_tcp* tcp = nullptr;  // may be missing
  uint32_t num_cpus = 0;
  uint32_t max_series = 0;
  uint32_t max_names = 0;
};

class SeriesReader {
 public:
  // The memory must outlive the reader.
  explicit SeriesReader(const MapView& view);

  // Every series, one Sample for each key, in the order of appearance.
  std::vector<Sample> ReadAll();

  // The series of one service. Costs no more than these series, the slots
  // handed out since the last read and those not counted in yet.
  std::vector<Sample> ReadService(absl::string_view service);

  Health ReadHealth() const;

 private:
  // One key. Two slots only where two CPUs were the first at one time.
  struct Series {
    Sample identity;
    std::vector<uint32_t> slots;
  };
  using Key = std::tuple<Kind, std::string, std::string, Transport, Path>;

  const nm_u64* Cell(uint32_t slot, uint32_t cpu) const;
  bool DecodeName(uint32_t id, std::string* name) const;
  bool DecodeIdentity(uint32_t slot, Sample* identity) const;
  bool Learn(uint32_t slot);
  void Learn();
  void Update();
  Sample Sum(const Series& series) const;

  const MapView view_;
  const std::vector<std::string> suffixes_;  // of wire names
  const bool fold_unknown_;
  std::mutex mutex_;
  // All below guarded by mutex_. A slot that is in use never changes its
  // series, so what was learned stays true.
  uint32_t next_slot_ = 1;
  std::vector<uint32_t> unknown_;  // below next_slot_, not in use when seen
  std::vector<Series> series_;
  std::map<Key, size_t> by_key_;
  std::map<std::string, std::vector<size_t>> by_service_;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_CORE_SERIES_READER_H_
