// SPDX-License-Identifier: BSD-3-Clause
// For tests of readers: the contents of a meter's shared maps, on the heap.
//
//   Buffers buffers(/*cells_per_series=*/2, /*max_series=*/64, /*max_names=*/8);
//   buffers.SetName(3, "mme");
//   buffers.SetHead(21, 0, 3, 0);
//   SeriesReader reader(buffers.view());
//
// Threads: any may write to a word while others read it.

#ifndef NETMETER_LIB_READER_SERIES_BUFFERS_H_
#define NETMETER_LIB_READER_SERIES_BUFFERS_H_

#include <string.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lib/reader/series_reader.h"
#include "netmeter/abi.h"

namespace netmeter {
namespace internal {

// The five maps on the heap. Their size is exactly that of the view, so that
// AddressSanitizer detects reads out of bounds.
class Buffers {
 public:
  Buffers(uint32_t cells_per_series, uint32_t max_series, uint32_t max_names)
      : info_(1),
        words_(size_t{cells_per_series} * max_series * kWords),
        names_(max_names),
        stats_(1),
        tcp_(max_series) {
    view_.info = info_.data();
    view_.counters = words_.data();
    view_.names = names_.data();
    view_.stats = stats_.data();
    view_.tcp = tcp_.data();
    view_.cells_per_series = cells_per_series;
    view_.max_series = max_series;
    view_.max_names = max_names;
    info_[0].features = NM_FEATURE_SOCKET_TABLE;
    SetName(NM_NAME_UNATTRIBUTED, "unattributed");
    SetName(NM_NAME_OVERFLOW, "overflow");
  }

  const MapView& view() const { return view_; }
  nm_info& info() { return info_[0]; }
  nm_stats& stats() { return stats_[0]; }
  nm_tcp& tcp(uint32_t slot) { return tcp_[slot]; }
  nm_name& name(uint32_t id) { return names_[id]; }
  std::vector<nm_u64>& words() { return words_; }
  std::vector<nm_name>& names() { return names_; }

  nm_u64* Word(uint32_t slot, uint32_t cpu, size_t offset) {
    return &words_[(size_t{slot} * view_.cells_per_series + cpu) * kWords +
                   offset / sizeof(nm_u64)];
  }

  void SetName(uint32_t id, const std::string& name) {
    memcpy(names_[id].bytes, name.data(), name.size());
    __atomic_store_n(&names_[id].length, static_cast<nm_u16>(name.size()),
                     __ATOMIC_RELEASE);
  }

  void SetWireName(uint32_t id, const std::string& name) {
    names_[id].kind = NM_KIND_WIRE;
    SetName(id, name);
  }

  void SetHead(uint32_t slot, uint32_t cpu, nm_u16 service, nm_u16 destination,
               uint8_t kind = NM_KIND_SERVICE,
               uint8_t transport = NM_TRANSPORT_TCP,
               uint8_t path = NM_PATH_DIRECT, uint8_t flags = 0) {
    nm_cell cell = {};
    cell.service = service;
    cell.destination = destination;
    cell.kind = kind;
    cell.transport = transport;
    cell.path = path;
    cell.flags = flags;
    nm_u64 head;
    memcpy(&head, &cell, sizeof(head));
    __atomic_store_n(Word(slot, cpu, 0), head, __ATOMIC_RELEASE);
  }

  void Add(uint32_t slot, uint32_t cpu, size_t offset, nm_u64 value) {
    __atomic_fetch_add(Word(slot, cpu, offset), value, __ATOMIC_RELAXED);
  }

  static constexpr size_t kWords = sizeof(nm_cell) / sizeof(nm_u64);

 private:
  std::vector<nm_info> info_;
  std::vector<nm_u64> words_;
  std::vector<nm_name> names_;
  std::vector<nm_stats> stats_;
  std::vector<nm_tcp> tcp_;
  MapView view_;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_READER_SERIES_BUFFERS_H_
