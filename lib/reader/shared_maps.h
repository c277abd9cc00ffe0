// SPDX-License-Identifier: BSD-3-Clause
// Finds, checks and maps what netmeter-loader pinned.
//
//   auto maps = SharedMaps::Open("/run/netmeter");
//   if (maps.ok()) SeriesReader reader((*maps)->view());
//
// A reader needs a descriptor of each shared map (lib/reader/pins.h) once, to map
// it; from then on it reads memory. There are two ways to a descriptor:
//
// 1. The pins, by bpf(BPF_OBJ_GET). The mode of the pin decides, and the kernel
//    may refuse the system call as a whole: before 5.19 to every user without
//    CAP_BPF where kernel.unprivileged_bpf_disabled is set, and a seccomp
//    filter of a container to anybody.
// 2. The socket <pin_dir>.sock: `netmeter-fds` opens the pins with
//    its own rights and sends the descriptors (SCM_RIGHTS of unix(7)). mmap(2)
//    on a descriptor is not refused to anybody.
//
// Whatever the way, nothing is believed. Anybody may have pinned, or sent,
// another map of another size, and an access past the end of a mapping is a
// SIGBUS. So the kernel is asked what each descriptor is, and the shape of the
// map must be the one that `info` and the ABI demand. The numbers are then
// copied into MapView: nothing that uses a view can leave the mappings,
// whatever `info` says later.
//
// The maps are opened for writing and mapped read-only: of a descriptor without
// write access do_mmap() takes VM_SHARED away, and bpf_map_mmap() takes shared
// mappings alone (EINVAL). As the loader froze the maps (BPF_MAP_FREEZE),
// nobody can make use of the right to write.
//
// A growth of the tables adds maps, and `info` says so: Extend() maps them. An unload
// marks `info` as closed; closed() tells.
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
#include "lib/base/unique_fd.h"
#include "lib/reader/pins.h"
#include "lib/reader/series_reader.h"
#include "netmeter/abi.h"

namespace netmeter {
namespace internal {

// By SharedMap; then the further extents, in the order of ExtentPins().
constexpr size_t kReadableMaps = kSharedMaps + kExtentPins;
using SharedMapFds = std::array<UniqueFd, kReadableMaps>;

// The message of `netmeter-fds`: this byte, and one more for each descriptor
// (SCM_RIGHTS), which says what of SharedMapFds it is.
constexpr unsigned char kDescriptorProtocol = 2;
// Or this byte alone: there is a meter, and the client may not read it.
constexpr unsigned char kDescriptorsRefused = 255;

// What helps a client in the groups `own` who was refused so. `pin`: of `info`, or of the
// directory; nothing where they are not to be seen, as in a container. A group that he is
// in, or none, is not the one that decided: netmeter-fds has a --group.
std::string WhomServerAnswers(const std::optional<struct stat>& pin,
                              const std::vector<gid_t>& own);

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

// Opens the pins in pin_dir, in OpeningOrder(). Where `info` is missing there is no
// meter, one that is being made, or a damaged one: NotFound, which says so. Another that
// is missing has no descriptor. Errors as Meter::Open().
absl::StatusOr<SharedMapFds> OpenSharedPins(const std::string& pin_dir);

// The error where `info` is pinned and `closed` is what it says, and another map is not
// there: NotFound, of a damaged meter or one that is being unloaded.
absl::Status WithoutMap(const std::string& pin_dir, bool closed);

// FailedPrecondition unless `info` is of a version that this library reads
// and its sizes make sense. `where` is for the message.
absl::Status CheckInfo(const nm_info& info, const std::string& where);

// "netmeter-loader load", with --pin-dir unless that is the default.
std::string LoaderCommand(absl::string_view command, absl::string_view pin_dir);

class SharedMaps {
 public:
  // How long Open() waits in all for an answer at the socket.
  static constexpr std::chrono::milliseconds kOpenTimeout{2000};

  // Opens the pins in pin_dir or, if these are missing or refused, asks at the
  // socket <pin_dir>.sock, which takes up to `timeout` when nobody answers:
  // Unavailable then. Holds no descriptor afterwards. Errors as Meter::Open().
  static absl::StatusOr<std::shared_ptr<const SharedMaps>> Open(
      const std::string& pin_dir,
      std::chrono::milliseconds timeout = kOpenTimeout);

  ~SharedMaps();
  SharedMaps(const SharedMaps&) = delete;
  SharedMaps& operator=(const SharedMaps&) = delete;

  const MapView& view() const { return view_; }

  // Maps the extents that `info` tells of since; *view has them. Errors as Open().
  absl::Status Extend(MapView* view) const;

  // Whether the meter was unloaded.
  bool closed() const {
    return __atomic_load_n(&view_.info->closed, __ATOMIC_ACQUIRE) != 0;
  }

  // Of another value after an unload and a load, and after nothing else.
  uint64_t created_ns() const {
    return __atomic_load_n(&view_.info->created_ns, __ATOMIC_RELAXED);
  }

  // False where the maps came by the socket and no pins are to be seen, as in a
  // container: that none are there does not tell that the meter was unloaded.
  bool pins_tell() const { return pins_tell_; }

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
  bool pins_tell_ = true;
  std::string directory_;
  std::chrono::milliseconds timeout_{0};  // of an answer at the socket
  mutable std::mutex mutex_;
  // Guarded by it, once opened.
  mutable std::array<Mapping, kExtentPins> extents_;
  mutable MapView view_;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_READER_SHARED_MAPS_H_
