// SPDX-License-Identifier: BSD-3-Clause
#include "lib/reader/shared_maps.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "lib/base/bpf_call.h"
#include "lib/base/loader_command.h"
#include "lib/base/path.h"
#include "lib/base/status_util.h"
#include "lib/base/text.h"
#include "lib/base/users.h"
#include "netmeter/meter.h"

namespace netmeter {
namespace internal {
namespace {

using Clock = std::chrono::steady_clock;

// " --pin-dir DIR", unless that is the default.
absl::Status NoMeter(const std::string& pin_dir) {
  return absl::NotFoundError(absl::StrCat(
      "no meter at ", pin_dir, " (run: ", LoaderCommand("load", pin_dir), ")"));
}

// Does not open the pins: callers may lack the right.
std::vector<std::string> FindMissingMaps(const std::string& pin_dir) {
  std::vector<std::string> missing;
  for (const MapPin& map : MapPins()) {
    const std::string path = absl::StrCat(pin_dir, "/", map.pin);
    if (access(path.c_str(), F_OK) != 0) missing.push_back(map.pin);
  }
  return missing;
}

// The error if `info` is not pinned. Links still prove that there is a meter, as they do
// for `netmeter-loader status`. Either `info` was removed, or a load was killed, or the
// first load is running, which pins `info` last.
absl::Status WithoutInfo(const std::string& pin_dir) {
  struct statfs file_system;
  if (statfs(pin_dir.c_str(), &file_system) != 0 ||
      file_system.f_type != BPF_FS_MAGIC) {
    return NoMeter(pin_dir);
  }
  for (const LinkPin& link : LinkPins()) {
    const std::string path = absl::StrCat(pin_dir, "/", link.pin);
    if (access(path.c_str(), F_OK) != 0) continue;
    return absl::NotFoundError(absl::StrCat(
        "the meter at ", pin_dir,
        " is damaged, unless a load is running: these ",
        "maps are missing: ", absl::StrJoin(FindMissingMaps(pin_dir), ", "),
        " (see: ", LoaderCommand("status", pin_dir), ")"));
  }
  return NoMeter(pin_dir);
}

}  // namespace

absl::Status WithoutMap(const std::string& pin_dir, bool closed) {
  const std::vector<std::string> missing = FindMissingMaps(pin_dir);
  // An unload closes `info`, and removes it last. So it is running, or was killed.
  const bool unloaded = closed || missing.empty() || missing.back() == "info";
  if (unloaded) return NoMeter(pin_dir);
  return absl::NotFoundError(absl::StrCat(
      "the meter at ", pin_dir,
      " is damaged: these maps are missing: ", absl::StrJoin(missing, ", "),
      " (see: ", LoaderCommand("status", pin_dir), ")"));
}

namespace {

// For a process that sees the names and may not open the pins.
bool MissesSharedPin(const std::string& pin_dir) {
  for (const SharedMap map : OpeningOrder()) {
    const std::string path = absl::StrCat(pin_dir, "/", PinOf(map));
    struct stat about;
    if (stat(path.c_str(), &about) != 0 && errno == ENOENT) return true;
  }
  return false;
}

absl::Status NotOurs(const std::string& where, const std::string& why) {
  return absl::FailedPreconditionError(
      absl::StrCat(where, " is no map of a netmeter: ", why));
}

// Status of the pin, or of the directory if it is not accessible: its group may read.
std::optional<struct stat> StatPin(const std::string& path,
                                   const std::string& pin_dir) {
  struct stat about;
  if (stat(path.c_str(), &about) != 0 && stat(pin_dir.c_str(), &about) != 0) {
    return std::nullopt;
  }
  return about;
}

bool GroupMayRead(const struct stat& pin) {
  return pin.st_gid != 0 && (pin.st_mode & S_IRGRP) != 0;
}

std::string JoinGroup(gid_t id) {
  const std::optional<Group> group = FindGroupById(id);
  return absl::StrCat("run as root or as a member of group ",
                      group.has_value() ? group->name : absl::StrCat(id));
}

// The groups by which the server knows this process: SO_PEERCRED and SO_PEERGROUPS.
std::vector<gid_t> OwnGroups() {
  const int most = std::max(getgroups(0, nullptr), 0);
  std::vector<gid_t> groups(static_cast<size_t>(most));
  const int count = most == 0 ? 0 : getgroups(most, groups.data());
  groups.resize(static_cast<size_t>(std::max(count, 0)));
  groups.push_back(getegid());
  return groups;
}

absl::Status PinError(int error, const std::string& path,
                      const std::string& pin_dir) {
  const std::string what = absl::StrCat("open ", path);
  switch (error) {
    case ENOENT:
      return WithoutInfo(pin_dir);
    case EPERM:
    case EACCES: {
      // EACCES also means a path outside of a bpffs. EPERM is returned before the path is
      // looked at: by kernels before 5.19 with kernel.unprivileged_bpf_disabled, or by a
      // seccomp filter.
      struct statfs file_system;
      if (statfs(path.c_str(), &file_system) == 0) {
        if (file_system.f_type != BPF_FS_MAGIC) {
          return NotOurs(path, "it is not on a BPF file system");
        }
      } else if (errno == ENOENT) {
        return WithoutInfo(pin_dir);
      }
      struct stat about;
      if (stat(path.c_str(), &about) == 0 && S_ISDIR(about.st_mode)) {
        return NotOurs(path, "it is a directory");
      }
      if (error == EPERM) {
        return ErrnoStatus(error, what,
                           absl::StrCat("bpf(2) is refused here: run as root "
                                        "or start netmeter-fds",
                                        PinDirOption(pin_dir)));
      }
      return ErrnoStatus(error, what, WhoMayRead(path, pin_dir));
    }
    case ENOTDIR:
      return ErrnoStatus(error, what, "give the pin directory of the loader");
    default:
      return ErrnoStatus(error, what);
  }
}

// All descriptors of a received message. They are open from recvmsg(2) on, even if the
// message is invalid, so they must be closed.
std::vector<UniqueFd> TakeDescriptors(msghdr* message) {
  std::vector<UniqueFd> fds;
  for (cmsghdr* part = CMSG_FIRSTHDR(message); part != nullptr;
       part = CMSG_NXTHDR(message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      fds.emplace_back(fd);
    }
  }
  return fds;
}

// Makes calls for `option`, SO_SNDTIMEO or SO_RCVTIMEO, end at the deadline. Uses no
// alarm and no signal, because both belong to the host process.
void LimitTo(Clock::time_point deadline, int option, int fd) {
  const auto left = std::chrono::duration_cast<std::chrono::microseconds>(
      deadline - Clock::now());
  // 0 would mean no limit.
  const int64_t us = left.count() < 1 ? 1 : left.count();
  timeval timeout = {};
  timeout.tv_sec = static_cast<time_t>(us / 1000000);
  timeout.tv_usec = static_cast<suseconds_t>(us % 1000000);
  setsockopt(fd, SOL_SOCKET, option, &timeout, sizeof(timeout));
}

absl::Status Refused(const std::string& what, const std::string& pin_dir) {
  struct statfs file_system;
  std::optional<struct stat> pin;
  if (statfs(pin_dir.c_str(), &file_system) == 0 &&
      file_system.f_type == BPF_FS_MAGIC) {
    pin = StatPin(absl::StrCat(pin_dir, "/", PinOf(kInfo)), pin_dir);
  }
  return ErrnoStatus(EACCES, what, WhomServerAnswers(pin, OwnGroups()));
}

// NotFound: no process serves this socket. PermissionDenied: the server has a meter,
// which this process may not read. Unavailable: no answer within `timeout`, or no answer
// at all (*silent). Whether there is a meter is not known.
absl::StatusOr<SharedMapFds> ReceiveDescriptors(
    const std::string& pin_dir, const std::string& path,
    std::chrono::milliseconds timeout, bool* silent) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return absl::NotFoundError(absl::StrCat(path, ": too long for a socket"));
  }
  memcpy(address.sun_path, path.data(), path.size());

  const std::string what = absl::StrCat("receive the maps from ", path);
  const UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.ok()) return ErrnoStatus(errno, what);
  // One deadline for all steps together. A process with a periodic timer is interrupted
  // again and again, and continues with the remaining time.
  const Clock::time_point deadline = Clock::now() + timeout;
  int error;
  do {
    // The limit for sending also applies to connect(2), which waits while the listener's
    // queue is full.
    LimitTo(deadline, SO_SNDTIMEO, fd.get());
    error = connect(fd.get(), reinterpret_cast<const sockaddr*>(&address),
                    sizeof(address)) == 0
                ? 0
                : errno;
  } while (error == EINTR && Clock::now() < deadline);
  if (error == EAGAIN || error == EINTR) return ErrnoStatus(ETIMEDOUT, what);
  if (error != 0) {
    return absl::NotFoundError(absl::StrCat("no process serves ", path));
  }

  std::array<unsigned char, 1 + kReadableMaps> bytes = {};
  iovec data = {bytes.data(), bytes.size()};
  // Has room for one descriptor too many. The kernel closes those that do not fit, and
  // sets MSG_CTRUNC.
  alignas(cmsghdr) char control[CMSG_SPACE((kReadableMaps + 1) * sizeof(int))];
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t received;
  do {
    LimitTo(deadline, SO_RCVTIMEO, fd.get());
    received = recvmsg(fd.get(), &message, MSG_CMSG_CLOEXEC);
  } while (received < 0 && errno == EINTR && Clock::now() < deadline);
  if (received < 0) {
    return ErrnoStatus(errno == EAGAIN || errno == EINTR ? ETIMEDOUT : errno,
                       what);
  }
  if (received == 0) {
    *silent = true;
    return absl::UnavailableError(absl::StrCat(
        path,
        " gave no maps: the meter is not loaded, or damaged, or too many "
        "answers are unread (run on the host as root: ",
        LoaderCommand("status", pin_dir),
        "; and see the log of netmeter-fds)"));
  }
  std::vector<UniqueFd> taken = TakeDescriptors(&message);
  if (bytes[0] == kDescriptorsRefused) return Refused(what, pin_dir);
  if (bytes[0] != kDescriptorProtocol) {
    return absl::FailedPreconditionError(absl::StrCat(
        what, ": protocol ", static_cast<int>(bytes[0]),
        ", this library speaks ", static_cast<int>(kDescriptorProtocol)));
  }
  SharedMapFds fds;
  bool fits = (message.msg_flags & MSG_CTRUNC) == 0 &&
              static_cast<size_t>(received) == 1 + taken.size();
  for (size_t i = 0; fits && i < taken.size(); ++i) {
    fits = bytes[1 + i] < fds.size();
    if (fits) fds[bytes[1 + i]] = std::move(taken[i]);
  }
  for (size_t i = 0; i < kSharedMaps; ++i) fits = fits && fds[i].ok();
  if (!fits) {
    return absl::FailedPreconditionError(
        absl::StrCat(what, ": ", taken.size(),
                     " descriptors, which are not all maps of a meter"));
  }
  return fds;
}

// fdinfo does not need bpf(2), which may be forbidden; bpf(2) does not need /proc, which
// a chroot may lack.
absl::StatusOr<MapShape> ShapeOf(int fd, const std::string& where) {
  const std::string path = absl::StrCat("/proc/thread-self/fdinfo/", fd);
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.ok()) {
    std::string text;
    char buffer[1024];
    ssize_t count;
    while ((count = read(file.get(), buffer, sizeof(buffer))) > 0) {
      text.append(buffer, static_cast<size_t>(count));
    }
    if (count == 0) return ParseFdInfo(text);
  }
  const int fdinfo_error = errno;
  bpf_map_info info = {};
  if (DescribeMap(fd, &info) != 0) {
    return ErrnoStatus(fdinfo_error,
                       absl::StrCat("look at ", where, " by ", path),
                       "mount /proc");
  }
  MapShape shape;
  shape.type = info.type;
  shape.key_size = info.key_size;
  shape.value_size = info.value_size;
  shape.max_entries = info.max_entries;
  shape.flags = info.map_flags;
  return shape;
}

// An array map that can be mapped has its values side by side, from the start of the
// mapping. No other type of map has this layout.
absl::Status CheckShape(SharedMap map, const MapShape& shape,
                        const std::string& where) {
  if (shape.type != BPF_MAP_TYPE_ARRAY || shape.key_size != sizeof(uint32_t) ||
      (shape.flags & BPF_F_MMAPABLE) == 0) {
    return NotOurs(where, "it is not a BPF array that can be mapped");
  }
  const bool may_differ = map == kInfo || map == kStats;
  const uint32_t least = LeastValueSizeOf(map);
  // Fields beyond the end of a shorter record are 0: the kernel maps whole pages.
  static_assert(sizeof(nm_info) <= 4096 && sizeof(nm_stats) <= 4096);
  if (may_differ ? shape.value_size < least : shape.value_size != least) {
    return NotOurs(where, absl::StrCat("its values have ", shape.value_size,
                                       " bytes, expected ", least));
  }
  return absl::OkStatus();
}

}  // namespace

std::string WhoMayRead(const std::string& path, const std::string& pin_dir) {
  const std::optional<struct stat> pin = StatPin(path, pin_dir);
  if (!pin) return "run as root";
  return GroupMayRead(*pin) ? JoinGroup(pin->st_gid)
                            : "run as root: no group may read";
}

std::string WhomServerAnswers(const std::optional<struct stat>& pin,
                              const std::vector<gid_t>& own) {
  if (pin && GroupMayRead(*pin) &&
      std::find(own.begin(), own.end(), pin->st_gid) == own.end()) {
    return JoinGroup(pin->st_gid);
  }
  return "run as root or as a member of the group that netmeter-fds answers; "
         "its "
         "log says which";
}

// The kernel prints one "key:\tvalue" per line (bpf_map_show_fdinfo()), and the flags in
// hexadecimal. A missing line leaves a 0, which no check accepts.
MapShape ParseFdInfo(const std::string& text) {
  MapShape shape;
  const std::pair<absl::string_view, uint32_t*> fields[] = {
      {"map_type:", &shape.type},
      {"key_size:", &shape.key_size},
      {"value_size:", &shape.value_size},
      {"max_entries:", &shape.max_entries},
  };
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    for (const auto& field : fields) {
      absl::string_view value = line;
      if (absl::ConsumePrefix(&value, field.first) &&
          !absl::SimpleAtoi(value, field.second)) {
        return MapShape();
      }
    }
    if (absl::ConsumePrefix(&line, "map_flags:") &&
        !absl::SimpleHexAtoi(line, &shape.flags)) {
      return MapShape();
    }
  }
  return shape;
}

absl::StatusOr<SharedMapFds> OpenSharedPins(const std::string& pin_dir) {
  SharedMapFds fds;
  for (const SharedMap map : OpeningOrder()) {
    const std::string path = absl::StrCat(pin_dir, "/", PinOf(map));
    // Opened for writing: see shared_maps.h. bpf(2) sets O_CLOEXEC itself.
    fds[map] = UniqueFd(OpenPinnedMap(path.c_str()));
    if (fds[map].ok() || (map != kInfo && errno == ENOENT)) continue;
    return PinError(errno, path, pin_dir);
  }
  // Opened after `info`: every extent that it announces exists.
  for (size_t i = 0; i < kExtentPins; ++i) {
    const std::string path = absl::StrCat(pin_dir, "/", ExtentPins()[i].pin);
    UniqueFd& fd = fds[kSharedMaps + i];
    fd = UniqueFd(OpenPinnedMap(path.c_str()));
    if (!fd.ok() && errno != ENOENT) return PinError(errno, path, pin_dir);
  }
  return fds;
}

absl::Status CheckInfo(const nm_info& info, const std::string& where) {
  if (info.magic != NM_MAGIC) return NotOurs(where, "wrong magic");
  if (info.abi_major != NM_ABI_MAJOR) {
    return absl::FailedPreconditionError(
        absl::StrCat(where, " has ABI ", info.abi_major, ".", info.abi_minor,
                     ", this library reads ", NM_ABI_MAJOR, ".x (install a ",
                     info.abi_major > NM_ABI_MAJOR ? "newer libnetmeter"
                                                   : "newer netmeter-loader",
                     ")"));
  }
  if (info.tcp_size != sizeof(nm_tcp)) {
    // Versions before the release of ABI 1 had no connections.
    return absl::FailedPreconditionError(
        absl::StrCat(where, " has no map `tcp` of ABI ", NM_ABI_MAJOR, ".",
                     NM_ABI_MINOR, " (install a newer netmeter-loader)"));
  }
  if (info.info_size < NM_INFO_LEAST_BYTES ||
      info.stats_size < NM_STATS_LEAST_BYTES ||
      info.cell_size != sizeof(nm_cell) || info.name_size != sizeof(nm_name)) {
    return NotOurs(where, absl::StrCat("sizes info=", info.info_size, " cell=",
                                       info.cell_size, " name=", info.name_size,
                                       " stats=", info.stats_size,
                                       " are not those of ABI 1"));
  }
  if (info.cells_per_series == 0 || info.max_series < NM_SLOT_FIRST ||
      info.max_names < NM_NAME_FIRST) {
    return NotOurs(where,
                   absl::StrCat("cells_per_series=", info.cells_per_series,
                                " max_series=", info.max_series,
                                " max_names=", info.max_names, " cannot be"));
  }
  return absl::OkStatus();
}

absl::Status SharedMaps::Map(SharedMap map, int fd, size_t entries,
                             const std::string& where, Mapping* to) {
  const absl::StatusOr<MapShape> shape = ShapeOf(fd, where);
  if (!shape.ok()) return shape.status();
  const absl::Status fits = CheckShape(map, *shape, where);
  if (!fits.ok()) return fits;
  if (shape->max_entries != entries) {
    return NotOurs(
        where, absl::StrCat("it has ", shape->max_entries,
                            " entries, by `info` it should have ", entries));
  }
  Mapping& mapping = *to;
  // The kernel rounds the size of a value up to 8. The sizes of cells, names and
  // connections are multiples of 8 already, and the other maps have only one value.
  mapping.length = entries * shape->value_size;
  void* address =
      mmap(nullptr, mapping.length, PROT_READ, MAP_SHARED, fd, /*offset=*/0);
  if (address == MAP_FAILED) {
    return ErrnoStatus(errno, absl::StrCat("map ", where));
  }
  mapping.address = address;
  return absl::OkStatus();
}

SharedMaps::~SharedMaps() {
  for (const Mapping& mapping : mappings_) {
    if (mapping.address != nullptr) munmap(mapping.address, mapping.length);
  }
  for (const Mapping& mapping : extents_) {
    if (mapping.address != nullptr) munmap(mapping.address, mapping.length);
  }
}

// Called under the mutex, or before the object is shared. Existing mappings do not move.
absl::Status SharedMaps::MapExtents(const SharedMapFds& fds,
                                    const std::string& source) const {
  const uint32_t max_series =
      __atomic_load_n(&view_.info->max_series, __ATOMIC_ACQUIRE);
  const uint32_t max_names =
      __atomic_load_n(&view_.info->max_names, __ATOMIC_ACQUIRE);
  TableSizes sizes;
  sizes.cells_per_series = view_.cells_per_series;
  sizes.first_series = view_.first_series;
  sizes.first_names = view_.first_names;
  for (size_t i = 0; i < kExtentPins; ++i) {
    const ExtentPin& pin = ExtentPins()[i];
    const bool names = pin.map == kNames;
    if (extents_[i].address != nullptr ||
        nm_extent_start(names ? sizes.first_names : sizes.first_series,
                        pin.extent) >= (names ? max_names : max_series)) {
      continue;
    }
    const std::string path = absl::StrCat(source, "/", pin.pin);
    const UniqueFd& fd = fds[kSharedMaps + i];
    // `info` has announced it since these were opened: the next try maps it.
    if (!fd.ok()) return absl::UnavailableError(absl::StrCat("no ", path));
    const absl::Status status =
        Map(pin.map, fd.get(), CountEntries(pin, sizes), path, &extents_[i]);
    if (!status.ok()) return status;
    const void* const address = extents_[i].address;
    if (pin.map == kCounters) {
      view_.more_counters[pin.extent - 1] = static_cast<const nm_u64*>(address);
    } else if (pin.map == kTcp) {
      view_.more_tcp[pin.extent - 1] = static_cast<const nm_tcp*>(address);
    } else {
      view_.more_names[pin.extent - 1] = static_cast<const nm_name*>(address);
    }
  }
  view_.max_series = std::min(max_series, CeilingOf(view_.first_series));
  view_.max_names = std::min(max_names, CeilingOf(view_.first_names));
  return absl::OkStatus();
}

namespace {

// Open descriptors of a meter, and their source.
struct Found {
  SharedMapFds fds;
  std::string source;  // the directory, or the socket
};

absl::StatusOr<Found> Find(const std::string& directory,
                           std::chrono::milliseconds timeout) {
  Found found;
  found.source = directory;
  absl::StatusOr<SharedMapFds> fds = OpenSharedPins(directory);
  if (absl::IsNotFound(fds.status()) ||
      absl::IsPermissionDenied(fds.status()) ||
      absl::IsUnimplemented(fds.status())) {
    const std::string path = absl::StrCat(directory, ".sock");
    bool silent = false;
    absl::StatusOr<SharedMapFds> received =
        ReceiveDescriptors(directory, path, timeout, &silent);
    if (received.ok()) found.source = path;
    // Only the pins tell whether there is no meter or a damaged one.
    if (silent && absl::IsPermissionDenied(fds.status()) &&
        MissesSharedPin(directory)) {
      fds = WithoutMap(directory, /*closed=*/false);
    } else if (!absl::IsNotFound(received.status()) &&
               !(silent && absl::IsNotFound(fds.status()))) {
      fds = std::move(received);
    }
  }
  if (!fds.ok()) return fds.status();
  found.fds = *std::move(fds);
  return found;
}

}  // namespace

absl::Status SharedMaps::Extend(MapView* view) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const absl::StatusOr<Found> found = Find(directory_, timeout_);
  if (!found.ok()) return found.status();
  const absl::Status status = MapExtents(found->fds, found->source);
  if (status.ok()) *view = view_;
  return status;
}

absl::StatusOr<std::shared_ptr<const SharedMaps>> SharedMaps::Open(
    const std::string& pin_dir, std::chrono::milliseconds timeout) {
  if (pin_dir.empty()) {
    return absl::InvalidArgumentError("the pin directory is empty");
  }
  // As in the loader: <pin_dir>.sock is beside the canonical directory.
  const std::string directory = CanonicalPath(pin_dir);
  const absl::StatusOr<Found> found = Find(directory, timeout);
  if (!found.ok()) return found.status();
  const SharedMapFds& fds = found->fds;

  // `info` determines the sizes of the others, so it is mapped and checked first.
  const auto where = [&found](SharedMap map) {
    return absl::StrCat(found->source, "/", PinOf(map));
  };
  // Not make_shared: the constructor is private.
  std::shared_ptr<SharedMaps> maps(new SharedMaps());
  maps->timeout_ = timeout;
  maps->directory_ = directory;
  absl::Status status =
      Map(kInfo, fds[kInfo].get(), 1, where(kInfo), &maps->mappings_[kInfo]);
  if (!status.ok()) return status;
  MapView& view = maps->view_;
  view.info = static_cast<const nm_info*>(maps->mappings_[kInfo].address);
  status = CheckInfo(*view.info, where(kInfo));
  if (!status.ok()) return status;
  // Read once: from here on the maps' own sizes apply, even if `info` changes.
  view.cells_per_series = view.info->cells_per_series;
  // An older loader's tables have one extent each.
  view.first_series = view.info->first_series != 0 ? view.info->first_series
                                                   : view.info->max_series;
  view.first_names = view.info->first_names != 0 ? view.info->first_names
                                                 : view.info->max_names;
  TableSizes sizes;
  sizes.cells_per_series = view.cells_per_series;
  sizes.first_series = view.first_series;
  sizes.first_names = view.first_names;
  for (const SharedMap map : OpeningOrder()) {
    if (map == kInfo) continue;
    // It was pinned before `info`, so it was removed since.
    if (!fds[map].ok()) return WithoutMap(directory, maps->closed());
    status = Map(map, fds[map].get(), CountEntries(EntriesOf(map), sizes),
                 where(map), &maps->mappings_[map]);
    if (!status.ok()) return status;
  }
  view.counters =
      static_cast<const nm_u64*>(maps->mappings_[kCounters].address);
  view.names = static_cast<const nm_name*>(maps->mappings_[kNames].address);
  view.stats = static_cast<const nm_stats*>(maps->mappings_[kStats].address);
  view.tcp = static_cast<const nm_tcp*>(maps->mappings_[kTcp].address);
  status = maps->MapExtents(fds, found->source);
  // The tables may have grown meanwhile.
  if (absl::IsUnavailable(status)) status = maps->Extend(&view);
  if (!status.ok()) return status;
  return std::shared_ptr<const SharedMaps>(std::move(maps));
}

}  // namespace internal
}  // namespace netmeter
