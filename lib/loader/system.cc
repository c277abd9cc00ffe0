// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/system.h"

#include <bpf/bpf.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lib/base/kernel_object.h"
#include "lib/base/mounts.h"
#include "lib/base/path.h"
#include "lib/base/status_util.h"
#include "lib/base/unique_fd.h"
#include "lib/loader/trace.h"

namespace netmeter {
namespace internal {
namespace {

// The source of a mount is free text for file systems without a device. It marks our
// mounts for later loaders.
constexpr char kMountSource[] = "netmeter";
constexpr char kNoSource[] = "none";  // of Linux 5.10

// Whether anything is pinned at a path, or below it. Empty folders do not count: iproute2
// creates tc, ip and xdp in the first BPF file system that it finds.
bool HoldsPins(const std::string& path) {
  struct stat about;
  if (lstat(path.c_str(), &about) != 0) return errno != ENOENT;
  if (S_ISLNK(about.st_mode)) return false;
  if (!S_ISDIR(about.st_mode)) return true;
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(path);
  return !names.ok() || std::any_of(names->begin(), names->end(),
                                    [&path](const std::string& name) {
                                      return HoldsPins(path + "/" + name);
                                    });
}

// Whether the kernel made a file: it puts these two into a BPF file system.
bool IsOfKernel(const std::string& name) {
  return name == "maps.debug" || name == "progs.debug";
}

// The first foreign entry that blocks the removal of our mount; "": none.
std::string ForeignThingIn(const std::string& path) {
  for (const Mount& mount : ReadMounts()) {
    if (absl::StartsWith(mount.point, path + "/")) return mount.point;
  }
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(path);
  if (!names.ok()) return path;
  for (const std::string& name : *names) {
    const std::string entry = absl::StrCat(path, "/", name);
    if (!IsOfKernel(name) && HoldsPins(entry)) return entry;
  }
  return "";
}

}  // namespace

bool IsOwnMount(const std::string& path) {
  const std::vector<Mount> mounts = ReadMounts();
  // The last mount on a path is the visible one.
  const auto mount =
      std::find_if(mounts.rbegin(), mounts.rend(),
                   [&](const Mount& one) { return one.point == path; });
  return mount != mounts.rend() && mount->type == "bpf" &&
         (mount->source == kMountSource || mount->source == kNoSource);
}

absl::StatusOr<bool> CheckPinDirectory(const std::string& path) {
  // Listed first, because another loader may mount meanwhile.
  NETMETER_ASSIGN_OR_RETURN(const auto names, ListDirectory(path));
  if (IsOwnMount(path)) return true;
  const auto foreign = std::find_if_not(names.begin(), names.end(), IsOfKernel);
  if (foreign == names.end()) return false;
  return absl::FailedPreconditionError(
      absl::StrCat(path, " has no meter, but foreign files (", *foreign,
                   "): choose another --pin-dir"));
}

// A mount of our own, and not a directory below /sys/fs/bpf: distributions mount that one
// with mode 0700, so the group could not reach the pins; and in a mount of our own, pins
// with our names are ours. SetModes() gives it its group at the end of a load.
absl::Status MakePinDirectory(const std::string& path) {
  if (mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) {
    return ErrnoStatus(errno, absl::StrCat("make ", path),
                       errno == ENOENT ? "make the directory above it first"
                                       : "choose another --pin-dir");
  }
  if (mount(kMountSource, path.c_str(), "bpf", MS_NOSUID | MS_NODEV | MS_NOEXEC,
            "mode=0750") == 0) {
    return absl::OkStatus();
  }
  return ErrnoStatus(errno, absl::StrCat("mount a BPF file system on ", path),
                     errno == ENODEV  ? "the kernel lacks CONFIG_BPF_SYSCALL"
                     : errno == EPERM ? "needs CAP_SYS_ADMIN"
                                      : "");
}

absl::Status RemovePinDirectory(const std::string& path, bool made) {
  if (IsOwnMount(path)) {
    made = true;
    const std::string foreign = ForeignThingIn(path);
    if (!foreign.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat(foreign, " does not belong to the meter: ", path,
                       " stays mounted (remove it, then unload again)"));
    }
    // A process whose working directory is there does not block the unmount.
    if (umount2(path.c_str(), UMOUNT_NOFOLLOW) != 0 &&
        (errno != EBUSY ||
         umount2(path.c_str(), UMOUNT_NOFOLLOW | MNT_DETACH) != 0)) {
      return ErrnoStatus(errno, absl::StrCat("unmount ", path));
    }
    Trace("unmounted ", path);
  }
  return !made || rmdir(path.c_str()) == 0 || errno == ENOENT ||
                 errno == ENOTEMPTY || errno == EBUSY
             ? absl::OkStatus()
             : ErrnoStatus(errno, absl::StrCat("remove ", path));
}

std::string KernelRelease() {
  utsname name;
  return uname(&name) == 0 ? name.release : "unknown";
}

absl::Status CheckProc() {
  if (access("/proc/self/mountinfo", R_OK) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, "read /proc/self/mountinfo",
                     errno == ENOENT ? "mount -t proc proc /proc" : "");
}

absl::Status CheckHost() {
  NETMETER_RETURN_IF_ERROR(CheckProc());
  // Any load starts by creating a map.
  LIBBPF_OPTS(bpf_map_create_opts, options);
  UniqueFd fd(
      bpf_map_create(BPF_MAP_TYPE_QUEUE, "nm_probe", 0, 4, 1, &options));
  if (!fd.ok() && errno == ENOSYS) {
    return absl::UnimplementedError("the kernel has no bpf(2)");
  }
  if (!fd.ok()) {
    return ErrnoStatus(errno, "make a BPF map",
                       errno == EPERM ? "run as root: needs CAP_BPF, "
                                        "CAP_NET_ADMIN, CAP_PERFMON and "
                                        "CAP_SYS_ADMIN"
                                      : "");
  }
  bpf_map_info map = {};
  if (!GetInfo(fd.get(), &map) ||
      !UniqueFd(bpf_map_get_fd_by_id(map.id)).ok()) {
    return ErrnoStatus(errno, "open a BPF map by its id",
                       errno == EPERM ? "needs CAP_SYS_ADMIN" : "");
  }
  return absl::OkStatus();
}

}  // namespace internal
}  // namespace netmeter
