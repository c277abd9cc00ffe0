// SPDX-License-Identifier: BSD-3-Clause
// Finds, checks and maps what netmeter-loader pinned.
//
//   auto maps = SharedMaps::Open("/run/netmeter");
//   if (maps.ok()) SeriesReader reader((*maps)->view());
//
// A reader needs a descriptor of each shared map (lib/base/pins.h) once, to map it.
// Then it only reads memory. There are two ways to get a descriptor:
//
// 1. The pins, by bpf(BPF_OBJ_GET). The mode of the pin decides. The kernel may refuse
//    the whole system call: before 5.19 to every user without CAP_BPF if
//    kernel.unprivileged_bpf_disabled is set. A container's seccomp filter may refuse it
//    to all users.
// 2. The socket <pin_dir>.sock: `netmeter-fds` opens the pins with its own rights and
//    sends the descriptors (SCM_RIGHTS of unix(7)). Every user may call mmap(2) on a
//    descriptor.
//
// Nothing is trusted in either case. Another process may have pinned, or sent, another
// map of another size, and an access past the end of a mapping is a SIGBUS. So the kernel
// is asked for the shape of each map, which must be the one that `info` and the ABI
// demand. The numbers are then copied into MapView: code that uses a view cannot leave
// the mappings, even if `info` changes later.
//
// The maps are opened for writing and mapped read-only. Without write access to the
// descriptor do_mmap() removes VM_SHARED, and bpf_map_mmap() accepts only shared mappings
// (EINVAL). The loader froze the maps (BPF_MAP_FREEZE), so the right to write has no use.
//
// If the tables grow, new maps are added, and `info` announces them: Extend() maps them.
// An unload marks `info` as closed; closed() tells.
//
// Threads: any.

#ifndef NETMETER_LIB_READER_SHARED_MAPS_H_
#define NETMETER_LIB_READER_SHARED_MAPS_H_

#include <sys/stat.h>
#include <sys/types.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/base/pins.h"
#include "lib/base/unique_fd.h"
#include "lib/reader/series_reader.h"
#include "netmeter/abi.h"

namespace netmeter {
namespace internal {

// Index: SharedMap; then the further extents, in the order of ExtentPins().
constexpr size_t kReadableMaps = kSharedMaps + kExtentPins;
using SharedMapFds = std::array<UniqueFd, kReadableMaps>;

// The message of `netmeter-fds`: this byte, and one more for each descriptor
// (SCM_RIGHTS), which is the descriptor's index in SharedMapFds.
constexpr unsigned char kDescriptorProtocol = 2;
// Sent alone if there is a meter and the client may not read it.
constexpr unsigned char kDescriptorsRefused = 255;

// A hint for a process that may not open the pin `path`, such as "run as root or as a
// member of group netmeter".
std::string WhoMayRead(const std::string& path, const std::string& pin_dir);

// A hint for a refused client in the groups `own`. `pin` is the status of `info`, or of
// the directory; empty if they are not visible, as in a container. If the client is
// already in the group of the pin, or the pin has none, another group decided:
// netmeter-fds has a --group.
std::string WhomServerAnswers(const std::optional<struct stat>& pin,
                              const std::vector<gid_t>& own);

// The shape of a map, as the kernel reports it.
struct MapShape {
  uint32_t type = 0;
  uint32_t key_size = 0;
  uint32_t value_size = 0;
  uint32_t max_entries = 0;
  uint32_t flags = 0;
};

// The shape in the text of a /proc/self/fdinfo file; all 0 if it is not a map.
MapShape ParseFdInfo(const std::string& text);

// Opens the pins in pin_dir, in OpeningOrder(). If `info` is missing, there is no meter,
// an incomplete one, or a damaged one: NotFound, whose message says which. If another map
// is missing, its descriptor is empty. Errors as Meter::Open().
absl::StatusOr<SharedMapFds> OpenSharedPins(const std::string& pin_dir);

// The error if `info` is pinned and another map is missing. NotFound, which says whether
// the meter is damaged or being unloaded. `closed`: whether `info` is marked as closed.
absl::Status WithoutMap(const std::string& pin_dir, bool closed);

// FailedPrecondition unless `info` has a version that this library reads and valid sizes.
// `where` is for the message.
absl::Status CheckInfo(const nm_info& info, const std::string& where);

class SharedMaps {
 public:
  // The total time that Open() waits for an answer at the socket.
  static constexpr std::chrono::milliseconds kOpenTimeout{2000};

  // Opens the pins in pin_dir. If they are missing or refused, asks at the socket
  // <pin_dir>.sock and waits up to `timeout` for an answer: Unavailable without one.
  // Holds no descriptor afterwards. Errors as Meter::Open().
  static absl::StatusOr<std::shared_ptr<const SharedMaps>> Open(
      const std::string& pin_dir,
      std::chrono::milliseconds timeout = kOpenTimeout);

  ~SharedMaps();
  SharedMaps(const SharedMaps&) = delete;
  SharedMaps& operator=(const SharedMaps&) = delete;

  const MapView& view() const { return view_; }

  // The canonical pin directory, also if the descriptors came from the socket.
  const std::string& directory() const { return directory_; }

  // Maps the extents that `info` has announced since; *view has them. Errors as Open().
  absl::Status Extend(MapView* view) const;

  // Whether the meter was unloaded.
  bool closed() const {
    return __atomic_load_n(&view_.info->closed, __ATOMIC_ACQUIRE) != 0;
  }

  // Changes after an unload and a load, and never otherwise.
  uint64_t created_ns() const {
    return __atomic_load_n(&view_.info->created_ns, __ATOMIC_RELAXED);
  }

 private:
  SharedMaps() = default;
  struct Mapping {
    void* address = nullptr;
    size_t length = 0;
  };
  static absl::Status Map(SharedMap map, int fd, size_t entries,
                          const std::string& where, Mapping* mapping);
  absl::Status MapExtents(const SharedMapFds& fds,
                          const std::string& source) const;

  std::array<Mapping, kSharedMaps> mappings_;
  std::string directory_;
  std::chrono::milliseconds timeout_{0};  // for an answer at the socket
  mutable std::mutex mutex_;
  // mutex_ guards these after Open().
  mutable std::array<Mapping, kExtentPins> extents_;
  mutable MapView view_;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_READER_SHARED_MAPS_H_
