// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/system.h"

#include <bpf/bpf.h>
#include <dirent.h>
#include <linux/magic.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lib/base/mounts.h"
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

constexpr int kLooks = 3;  // retries if a file cannot be inspected

std::string DirName(const std::string& path) {
  size_t slash = path.rfind('/');
  return slash == 0 || slash == std::string::npos ? "/" : path.substr(0, slash);
}

// The BPF file system that is mounted there; nullptr if there is none. The last mount on
// a path is the visible one.
const Mount* FindBpffs(const std::vector<Mount>& mounts,
                       const std::string& path) {
  const auto last =
      std::find_if(mounts.rbegin(), mounts.rend(),
                   [&](const Mount& mount) { return mount.point == path; });
  return last != mounts.rend() && last->type == "bpf" ? &*last : nullptr;
}

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

// The first foreign entry that blocks the removal of our mount; "": none. The kernel puts
// two files of its own into the first BPF file system of each user namespace.
std::string ForeignThingIn(const std::string& path) {
  for (const Mount& mount : ReadMounts()) {
    if (absl::StartsWith(mount.point, path + "/")) return mount.point;
  }
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(path);
  if (!names.ok()) return path;
  for (const std::string& name : *names) {
    const std::string entry = absl::StrCat(path, "/", name);
    if (name != "maps.debug" && name != "progs.debug" && HoldsPins(entry)) {
      return entry;
    }
  }
  return "";
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ListDirectory(
    const std::string& path) {
  std::vector<std::string> names;
  DIR* const handle = opendir(path.c_str());
  if (handle == nullptr) {
    if (errno == ENOENT || errno == ENOTDIR) return names;
    return ErrnoStatus(errno, absl::StrCat("open ", path),
                       errno == EACCES ? "run as root" : "");
  }
  errno = 0;
  while (const dirent* entry = readdir(handle)) {
    const absl::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  const int error = errno;
  closedir(handle);
  if (error != 0) return ErrnoStatus(error, absl::StrCat("read ", path));
  return names;
}

// Looks at the file system that is mounted on the directory, not at the one that contains
// it.
absl::StatusOr<bool> LookForBpffs(const std::string& path) {
  struct statfs fs = {};
  for (int i = 0; i < kLooks; i++) {
    if (statfs(path.c_str(), &fs) == 0) {
      return static_cast<unsigned long>(fs.f_type) == BPF_FS_MAGIC;
    }
    if (errno == ENOENT || errno == ENOTDIR || errno == EACCES ||
        errno == ELOOP || errno == ENAMETOOLONG) {
      return false;
    }
  }
  return ErrnoStatus(errno, absl::StrCat("look at ", path));
}

bool IsOwnMount(const std::string& path, const LoaderState& state) {
  const std::vector<Mount> mounts = ReadMounts();
  const Mount* const mount = FindBpffs(mounts, path);
  if (mount == nullptr) return false;
  // If the source name is kept, the device number proves nothing: the kernel soon reuses
  // it.
  return mount->source == kMountSource ||
         (mount->source == kNoSource && state.mounted &&
          (state.device == 0 || state.device == mount->device));
}

absl::Status CheckDirectory(const std::string& path) {
  for (std::string at = path; at.size() > 1; at = DirName(at)) {
    struct stat about;
    if (stat(at.c_str(), &about) != 0) {
      if (errno != ENOENT || lstat(at.c_str(), &about) != 0 ||
          !S_ISLNK(about.st_mode)) {  // missing, or created just now
        continue;
      }
      return absl::FailedPreconditionError(absl::StrCat(
          "pin directory ", path, ": ", at, " is a dangling link"));
    }
    if (S_ISDIR(about.st_mode)) break;
    return absl::FailedPreconditionError(
        absl::StrCat("pin directory ", path, at == path ? "" : ": ",
                     at == path ? "" : at, " is a file, expected a directory"));
  }
  return absl::OkStatus();
}

absl::Status CheckContents(const std::string& path) {
  // Listed first, because another loader may mount meanwhile.
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(path);
  const absl::StatusOr<bool> bpffs = LookForBpffs(path);
  if (!bpffs.ok() || *bpffs) return bpffs.status();
  if (!names.ok() || names->empty()) return names.status();
  return absl::FailedPreconditionError(
      absl::StrCat(path, " is no BPF file system and holds foreign files (",
                   names->front(), "): choose another --pin-dir"));
}

// A mount of our own, and not a directory below /sys/fs/bpf: distributions mount that one
// with mode 0700, so the group could not reach the pins. This mode is for the root
// directory; SetModes() gives it its group at the end of a load.
absl::Status PrepareDirectory(const std::string& path) {
  NETMETER_RETURN_IF_ERROR(CheckDirectory(path));
  for (const std::string& missing : MissingDirectories(path)) {
    // EEXIST: another process just created it.
    if (mkdir(missing.c_str(), 0755) == 0 || errno == EEXIST) continue;
    const int error = errno;
    const std::string parent = DirName(missing);
    struct statfs fs;
    // If no BPF file system is mounted, /sys/fs/bpf is in sysfs.
    const bool sysfs = statfs(parent.c_str(), &fs) == 0 &&
                       static_cast<unsigned long>(fs.f_type) == SYSFS_MAGIC;
    return ErrnoStatus(error, absl::StrCat("make ", missing),
                       sysfs ? absl::StrCat("mount -t bpf bpf ", parent,
                                            ", or choose another --pin-dir")
                             : std::string("choose another --pin-dir"));
  }
  const absl::StatusOr<bool> bpffs = LookForBpffs(path);
  if (!bpffs.ok() || *bpffs) return bpffs.status();
  NETMETER_RETURN_IF_ERROR(CheckContents(path));
  if (mount(kMountSource, path.c_str(), "bpf", MS_NOSUID | MS_NODEV | MS_NOEXEC,
            "mode=0750") == 0) {
    return absl::OkStatus();
  }
  return ErrnoStatus(errno, absl::StrCat("mount a BPF file system on ", path),
                     errno == ENODEV  ? "the kernel lacks CONFIG_BPF_SYSCALL"
                     : errno == EPERM ? "needs CAP_SYS_ADMIN"
                                      : "");
}

absl::Status RemoveDirectory(const std::string& path,
                             const LoaderState& state) {
  if (IsOwnMount(path, state)) {
    const std::string foreign = ForeignThingIn(path);
    if (!foreign.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat(foreign, " does not belong to the meter: ", path,
                       " stays mounted (remove it, then unload again)"));
    }
    for (LoaderState known = state; IsOwnMount(path, known);
         known.mounted = false) {
      // A process whose working directory is there does not block the unmount.
      if (umount2(path.c_str(), UMOUNT_NOFOLLOW) != 0 &&
          (errno != EBUSY ||
           umount2(path.c_str(), UMOUNT_NOFOLLOW | MNT_DETACH) != 0)) {
        return ErrnoStatus(errno, absl::StrCat("unmount ", path));
      }
    }
    if (rmdir(path.c_str()) != 0 && errno != ENOENT && errno != ENOTEMPTY &&
        errno != EBUSY) {
      return ErrnoStatus(errno, absl::StrCat("remove ", path));
    }
    Trace("unmounted ", path);
  }
  for (auto made = state.made.rbegin(); made != state.made.rend(); ++made) {
    rmdir(made->c_str());
  }
  return absl::OkStatus();
}

std::vector<std::string> MissingDirectories(const std::string& path) {
  std::vector<std::string> missing;
  for (std::string at = path; at.size() > 1; at = DirName(at)) {
    // A path that cannot be inspected counts as existing. Otherwise an unload would
    // remove it as ours.
    if (access(at.c_str(), F_OK) == 0 || errno != ENOENT) break;
    missing.insert(missing.begin(), at);
  }
  return missing;
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
  return absl::OkStatus();
}

}  // namespace internal
}  // namespace netmeter
