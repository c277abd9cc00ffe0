// SPDX-License-Identifier: BSD-3-Clause
// A meter for tests without the loader and BPF programs: the test fills the shared
// maps. Needs root and bpf(2). Threads: one.
//
//   ASSERT_EQ(MountBpffs("/tmp/x"), "");
//   FakeMeter meter((FakeMeter::Options()));
//   meter.SetName(3, NM_KIND_SERVICE, "mme");
//   meter.cell(21, 0)->service = 3;
//   meter.cell(21, 0)->tx_bytes = 5;
//   ASSERT_EQ(meter.Pin("/tmp/x"), "");

#ifndef NETMETER_LIB_TESTING_FAKE_METER_H_
#define NETMETER_LIB_TESTING_FAKE_METER_H_

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <string>

#include "lib/base/unique_fd.h"
#include "lib/reader/shared_maps.h"
#include "netmeter/abi.h"

namespace netmeter {
namespace internal {

// Gives this process its own mount namespace, and a BPF file system at `directory`,
// which must exist. Returns an error message, or "".
std::string MountBpffs(const std::string& directory);

class FakeMeter {
 public:
  struct Options {
    uint32_t cells_per_series = 2;
    uint32_t max_series = 64;
    uint32_t max_names = 32;
    // Differences from the loader's maps, such as a map that is too small.
    uint32_t counters_entries = 0;  // 0: the right size
  };

  explicit FakeMeter(const Options& options);
  ~FakeMeter();
  FakeMeter(const FakeMeter&) = delete;
  FakeMeter& operator=(const FakeMeter&) = delete;

  // The error of the constructor, or "".
  const std::string& error() const { return error_; }

  // Writable until Freeze().
  nm_info* info() { return static_cast<nm_info*>(memory_[kInfo]); }
  nm_stats* stats() { return static_cast<nm_stats*>(memory_[kStats]); }
  nm_cell* cell(uint32_t slot, uint32_t cpu) {
    return static_cast<nm_cell*>(memory_[kCounters]) +
           slot * options_.cells_per_series + cpu;
  }
  nm_tcp* tcp(uint32_t slot) {
    return static_cast<nm_tcp*>(memory_[kTcp]) + slot;
  }
  void SetName(uint32_t id, uint8_t kind, const std::string& name);

  // Unmaps and freezes all maps, as the loader does. Returns an error message, or "".
  std::string Freeze();

  // Pins all maps, `info` last, in place of older pins.
  std::string Pin(const std::string& directory, gid_t group = 0,
                  mode_t mode = 0600);

  // Sends all maps to a connected client, as `netmeter-fds` does. Returns an error
  // message, or "".
  std::string SendTo(int connection) const;

  // The descriptor of a map.
  int fd(SharedMap map) const { return fds_[map].get(); }

 private:
  const Options options_;
  std::string error_;
  std::array<uint32_t, kSharedMaps> value_sizes_;
  std::array<uint32_t, kSharedMaps> entries_;
  SharedMapFds fds_;
  std::array<void*, kSharedMaps> memory_ = {};
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_TESTING_FAKE_METER_H_
