// SPDX-License-Identifier: BSD-3-Clause
// Finds, checks and maps what netmeter-loader pinned. Nothing below this file
// can be out of bounds: every size was compared with the map's own.
//
//   auto maps = SharedMaps::Open("/run/netmeter");
//   if (maps.ok()) SeriesReader reader((*maps)->view());
//
// Threads: any.

#ifndef NETMETER_LIB_CORE_SHARED_MAPS_H_
#define NETMETER_LIB_CORE_SHARED_MAPS_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/core/series_reader.h"
#include "lib/core/unique_fd.h"
#include "netmeter/abi.h"

namespace netmeter {
namespace internal {

// The maps that readers need, in the order in which `netmeter-loader
// serve-fds` sends them. kTcp may be missing: a loader of ABI 1.0 has none.
enum SharedMap { kCounters, kNames, kInfo, kStats, kTcp, kSharedMaps };
using SharedMapFds = std::array<UniqueFd, kSharedMaps>;

// File names of the pins, indexed by SharedMap.
extern const char* const kSharedMapNames[kSharedMaps];

// The message of `netmeter-loader serve-fds`: this one byte of data, and the
// descriptors as SCM_RIGHTS.
constexpr unsigned char kDescriptorProtocol = 1;

// What a map is, as the kernel says.
struct MapShape {
  uint32_t type = 0;
  uint32_t key_size = 0;
  uint32_t value_size = 0;
  uint32_t max_entries = 0;
  uint32_t flags = 0;
};

// The shape in the text of a /proc/self/fdinfo file; all 0 for what is no map.
MapShape ParseFdInfo(const std::string& text);

// FailedPrecondition unless `info` is of a version that this library reads
// and its sizes make sense. `where` is for the message.
absl::Status CheckInfo(const nm_info& info, const std::string& where);

// "netmeter-loader load", with --pin-dir unless that is the default.
std::string LoaderCommand(absl::string_view command,
                          absl::string_view pin_dir);

class SharedMaps {
 public:
  // How long Open() waits in all for an answer at the socket.
  static constexpr std::chrono::milliseconds kPatience{2000};

  // Opens the pins in pin_dir or, if these are missing or refused, asks at the
  // socket <pin_dir>.sock, which takes up to `patience` when nobody answers:
  // Unavailable then. Holds no descriptor afterwards. Errors as Meter::Open().
  static absl::StatusOr<std::shared_ptr<const SharedMaps>> Open(
      const std::string& pin_dir,
      std::chrono::milliseconds patience = kPatience);

  ~SharedMaps();
  SharedMaps(const SharedMaps&) = delete;
  SharedMaps& operator=(const SharedMaps&) = delete;

  const MapView& view() const { return view_; }

  // Whether the meter was unloaded, or replaced by one with other sizes.
  bool retired() const {
    return __atomic_load_n(&view_.info->retired, __ATOMIC_ACQUIRE) != 0;
  }

  // Of another value after an unload and a load, and after nothing else.
  uint64_t created_ns() const {
    return __atomic_load_n(&view_.info->created_ns, __ATOMIC_RELAXED);
  }

 private:
  SharedMaps() = default;
  absl::Status Map(SharedMap map, int fd, size_t entries,
                   const std::string& where);

  struct Mapping {
    void* address = nullptr;
    size_t length = 0;
  };
  std::array<Mapping, kSharedMaps> mappings_;
  MapView view_;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_CORE_SHARED_MAPS_H_
