// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/system.h"

#include <bpf/bpf.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "lib/base/mounts.h"
#include "lib/base/status_util.h"
#include "lib/base/unique_fd.h"
#include "lib/base/users.h"

namespace netmeter {
namespace internal {
namespace {

// The source of a mount is free text for file systems without a device. It marks our
// mounts for later loaders.
constexpr char kMountSource[] = "netmeter";
constexpr char kNoSource[] = "none";      // of Linux 5.10
constexpr size_t kMaxCmdline = 80 << 10;  // the kernel part's limit

constexpr int kLooks = 3;  // retries if a file cannot be inspected

// The first bytes of a file; the data of a process may be endless.
std::string ReadSome(const std::string& path, size_t most) {
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  while (fd.ok() && text.size() < most) {
    char buffer[4096];
    const ssize_t got =
        read(fd.get(), buffer, std::min(sizeof(buffer), most - text.size()));
    if (got <= 0) break;
    text.append(buffer, static_cast<size_t>(got));
  }
  return text;
}

std::string BaseName(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

std::string DirName(const std::string& path) {
  size_t slash = path.rfind('/');
  return slash == 0 || slash == std::string::npos ? "/" : path.substr(0, slash);
}

// As mkdir -p. *made: whether the last directory was created.
absl::Status MakeDirectories(const std::string& path, bool* made) {
  *made = false;
  for (const std::string& missing : MissingDirectories(path)) {
    if (mkdir(missing.c_str(), 0755) == 0) {
      *made = missing == path;
    } else if (errno != EEXIST) {  // another process just created it
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
  }
  return absl::OkStatus();
}

}  // namespace

std::string ReadAll(const std::string& path) { return ReadSome(path, 1 << 20); }

// A hierarchy may be mounted several times, and a container may see only a part of it.
// The mount whose root is "/" shows all that this process may see.
absl::StatusOr<std::string> FindCgroupRoot() {
  bool inner = false;
  for (const Mount& mount : ReadMounts()) {
    if (mount.type != "cgroup2") continue;
    if (mount.root == "/") return mount.point;
    inner = true;
  }
  return absl::NotFoundError(
      inner ? "only a part of cgroup v2 is mounted here (in a container? load "
              "on the host, or choose a cgroup with --cgroup)"
            : "cgroup v2 is not mounted (mkdir -p /sys/fs/cgroup/unified && "
              "mount -t cgroup2 none "
              "/sys/fs/cgroup/unified, or boot with "
              "systemd.unified_cgroup_hierarchy=1)");
}

absl::StatusOr<UniqueFd> OpenCgroup(const std::string& path, uint64_t* id) {
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.ok()) return ErrnoStatus(errno, absl::StrCat("cgroup ", path));
  struct statfs fs;
  struct stat about;
  if (fstatfs(fd.get(), &fs) != 0 || fstat(fd.get(), &about) != 0) {
    return ErrnoStatus(errno, absl::StrCat("cgroup ", path));
  }
  if (static_cast<unsigned long>(fs.f_type) != CGROUP2_SUPER_MAGIC) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, " is not a cgroup v2 directory (see: findmnt -t cgroup2)"));
  }
  *id = about.st_ino;  // on 64-bit kernels the inode number is the id
  return fd;
}

namespace {

// A cgroup id is a file handle for any mount of the hierarchy (FILEID_KERNFS in
// include/linux/exportfs.h, since 5.5).
UniqueFd OpenCgroupOfMount(int mount, uint64_t id) {
  constexpr int kFileidKernfs = 0xfe;
  alignas(file_handle) char buffer[sizeof(file_handle) + sizeof(id)] = {};
  auto* handle = reinterpret_cast<file_handle*>(buffer);
  handle->handle_bytes = sizeof(id);
  handle->handle_type = kFileidKernfs;
  memcpy(handle->f_handle, &id, sizeof(id));
  return UniqueFd(
      open_by_handle_at(mount, handle, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

}  // namespace

UniqueFd OpenCgroupById(uint64_t id) {
  // By numbers: a libc's sys/mount.h need not have them (linux/mount.h).
  constexpr unsigned kCloexec = 1, kConfigCreate = 6;
  const UniqueFd context(
      static_cast<int>(syscall(SYS_fsopen, "cgroup2", kCloexec)));
  if (!context.ok() || syscall(SYS_fsconfig, context.get(), kConfigCreate,
                               nullptr, nullptr, 0) != 0) {
    return UniqueFd();
  }
  const UniqueFd mount(
      static_cast<int>(syscall(SYS_fsmount, context.get(), kCloexec, 0)));
  // fsmount(2) opens it like O_PATH, which does not work for looking up a handle.
  const UniqueFd root(
      openat(mount.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return root.ok() ? OpenCgroupOfMount(root.get(), id) : UniqueFd();
}

bool CgroupIsGone(uint64_t id) {
  for (const Mount& mount : ReadMounts()) {
    if (mount.type != "cgroup2") continue;
    UniqueFd root(
        open(mount.point.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!root.ok()) continue;
    return !OpenCgroupOfMount(root.get(), id).ok() && errno == ESTALE;
  }
  return false;
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

bool IsBpffs(const std::string& path) {
  return LookForBpffs(path).value_or(false);
}

namespace {

// The BPF file system that is mounted there; nullptr if there is none. The last mount on
// a path is the visible one.
const Mount* FindBpffs(const std::vector<Mount>& mounts,
                       const std::string& path) {
  const auto last =
      std::find_if(mounts.rbegin(), mounts.rend(),
                   [&](const Mount& mount) { return mount.point == path; });
  return last != mounts.rend() && last->type == "bpf" ? &*last : nullptr;
}

}  // namespace

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

absl::Status CheckIsNoAlias(const std::string& path) {
  const std::vector<Mount> mounts = ReadMounts();
  const Mount* const bpffs = FindBpffs(mounts, path);
  if (bpffs == nullptr) return absl::OkStatus();
  const uint64_t device = bpffs->device;
  const auto is_loaders = [device](const std::string& point) {
    const absl::StatusOr<LoaderState> state = PeekState(point);
    return state.ok() && state->mounted && state->device == device;
  };
  if (is_loaders(path)) return absl::OkStatus();
  for (const Mount& mount : mounts) {
    if (mount.device != device || mount.point == path ||
        !is_loaders(mount.point)) {
      continue;
    }
    return absl::FailedPreconditionError(absl::StrCat(
        path, " is another mount of ", mount.point,
        ", where the meter is loaded (give: --pin-dir ", mount.point, ")"));
  }
  return absl::OkStatus();
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
  const absl::StatusOr<bool> bpffs = LookForBpffs(path);
  if (!bpffs.ok() || *bpffs) return bpffs.status();
  DIR* dir = opendir(path.c_str());
  if (dir == nullptr) {
    return errno == ENOENT ? absl::OkStatus()
                           : ErrnoStatus(errno, absl::StrCat("open ", path));
  }
  // Check again with the open directory: another loader may have mounted and pinned
  // meanwhile.
  struct statfs fs = {};
  const bool mounted = fstatfs(dirfd(dir), &fs) == 0 &&
                       static_cast<unsigned long>(fs.f_type) == BPF_FS_MAGIC;
  std::string foreign;
  while (dirent* entry = mounted ? nullptr : readdir(dir)) {
    if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
      foreign = entry->d_name;
      break;
    }
  }
  closedir(dir);
  if (foreign.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(path, " is no BPF file system and holds foreign files (",
                   foreign, "): choose another --pin-dir"));
}

// A mount of our own, and not a directory below /sys/fs/bpf: distributions mount that one
// with mode 0700, so the group could not reach the pins. This mode is for the root
// directory; SetModes() gives it its group at the end of a load.
absl::Status PrepareDirectory(const std::string& path, bool* made_directory,
                              bool* mounted) {
  *made_directory = *mounted = false;
  absl::Status status = CheckDirectory(path);
  if (status.ok()) status = MakeDirectories(path, made_directory);
  if (!status.ok()) return status;
  const absl::StatusOr<bool> bpffs = LookForBpffs(path);
  if (!bpffs.ok() || *bpffs) return bpffs.status();
  status = CheckContents(path);
  if (!status.ok()) return status;
  if (mount(kMountSource, path.c_str(), "bpf", MS_NOSUID | MS_NODEV | MS_NOEXEC,
            "mode=0750") != 0) {
    int error = errno;
    if (*made_directory) rmdir(path.c_str());
    return ErrnoStatus(error, absl::StrCat("mount a BPF file system on ", path),
                       error == ENODEV  ? "the kernel lacks CONFIG_BPF_SYSCALL"
                       : error == EPERM ? "needs CAP_SYS_ADMIN"
                                        : "");
  }
  *mounted = true;
  return absl::OkStatus();
}

namespace {

// Whether anything is pinned at a path, or below it. Empty folders do not count: iproute2
// creates tc, ip and xdp in the first BPF file system that it finds.
bool HoldsPins(const std::string& path) {
  struct stat about;
  if (lstat(path.c_str(), &about) != 0) return errno != ENOENT;
  if (S_ISLNK(about.st_mode)) return false;
  if (!S_ISDIR(about.st_mode)) return true;
  DIR* const dir = opendir(path.c_str());
  if (dir == nullptr) return true;
  bool found = false;
  while (const dirent* entry = found ? nullptr : readdir(dir)) {
    const std::string name = entry->d_name;
    found =
        name != "." && name != ".." && HoldsPins(absl::StrCat(path, "/", name));
  }
  closedir(dir);
  return found;
}

// The first foreign entry that blocks the removal of our mount; "": none. The kernel puts
// two files of its own into the first BPF file system of each user namespace.
std::string ForeignThingIn(const std::string& path) {
  for (const Mount& mount : ReadMounts()) {
    if (absl::StartsWith(mount.point, path + "/")) return mount.point;
  }
  std::string foreign;
  DIR* const dir = opendir(path.c_str());
  while (const dirent* entry = dir == nullptr ? nullptr : readdir(dir)) {
    const std::string name = entry->d_name;
    // Left by an interrupted pin swap: empty, or with links to pins that go anyway.
    if (name == "." || name == ".." || name == "maps.debug" ||
        name == "progs.debug" || absl::StartsWith(name, "netmeter_switch")) {
      continue;
    }
    if (!HoldsPins(absl::StrCat(path, "/", name))) continue;
    foreign = absl::StrCat(path, "/", name);
    break;
  }
  if (dir != nullptr) closedir(dir);
  return foreign;
}

}  // namespace

absl::Status RemoveDirectory(const std::string& path,
                             const LoaderState& state) {
  const std::string foreign =
      IsOwnMount(path, state) ? ForeignThingIn(path) : "";
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
      return ErrnoStatus(
          errno, absl::StrCat("unmount ", path),
          errno == EBUSY ? "a process has its working directory there" : "");
    }
  }
  if (rmdir(path.c_str()) != 0 && errno != ENOENT && errno != ENOTEMPTY &&
      errno != EBUSY) {
    return ErrnoStatus(errno, absl::StrCat("remove ", path));
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

void RemoveDirectories(const std::vector<std::string>& made) {
  for (auto path = made.rbegin(); path != made.rend(); ++path) {
    rmdir(path->c_str());
  }
}

std::string NameOfRunning(const std::string& comm, const std::string& arguments,
                          const std::string& exe) {
  // The exe of a memfd is all name, even with slashes in it.
  const std::string of_file =
      absl::StartsWith(exe, "/memfd:") ? exe.substr(1) : BaseName(exe);
  // comm is the first 15 bytes of the executed name, unless the process renamed itself.
  // Before 6.14 it may be the number of an executed descriptor, and argv[0] may end with
  // the same number.
  if (comm.empty() ||
      std::all_of(comm.begin(), comm.end(), absl::ascii_isdigit))
    return of_file;
  // The path of a script follows its interpreter and at most one argument of the "#!"
  // line.
  const std::vector<std::string> argv =
      absl::StrSplit(arguments, absl::MaxSplits('\0', 3));
  for (size_t i = 0; i < std::min<size_t>(argv.size(), 3); i++) {
    const std::string name = BaseName(argv[i]);
    const bool may_be = i == 0 || name.size() != argv[i].size();
    if (may_be && name.substr(0, 15) == comm) return name;
  }
  return of_file;
}

namespace {

// The processes of the machine. Empty in a private PID namespace: /proc has that
// namespace's numbers, and the kernel part uses those of the initial one.
std::vector<uint32_t> RunningTgids() {
  std::vector<uint32_t> tgids;
  struct stat about;
  constexpr ino_t kInitialPidNamespace = 0xEFFFFFFC;  // include/linux/proc_ns.h
  if (stat("/proc/self/ns/pid", &about) != 0 ||
      about.st_ino != kInitialPidNamespace) {
    return tgids;
  }
  DIR* dir = opendir("/proc");
  if (dir == nullptr) return tgids;
  while (dirent* entry = readdir(dir)) {
    uint32_t tgid;
    if (absl::SimpleAtoi(entry->d_name, &tgid)) tgids.push_back(tgid);
  }
  closedir(dir);
  return tgids;
}

// The path below cgroup v2; empty: not known. Its line begins with "0::", cgroups(7).
// Other lines are for v1 hierarchies.
std::string CgroupOf(uint32_t tgid) {
  std::ifstream file(absl::StrCat("/proc/", tgid, "/cgroup"));
  std::string line;
  while (std::getline(file, line)) {
    if (absl::StartsWith(line, "0::/")) return line.substr(3);
  }
  return "";
}

}  // namespace

std::vector<RunningProcess> RunningProcesses() {
  std::vector<RunningProcess> processes;
  for (const uint32_t tgid : RunningTgids()) {
    const std::string base = absl::StrCat("/proc/", tgid);
    char exe[4096];
    ssize_t length = readlink((base + "/exe").c_str(), exe,
                              sizeof(exe));  // fails for kernel threads
    if (length <= 0) continue;
    // An update may have replaced the file since the exec.
    std::string path(exe, static_cast<size_t>(length));
    path = std::string(absl::StripSuffix(path, " (deleted)"));
    std::string comm = ReadAll(base + "/comm");
    comm = std::string(absl::StripSuffix(comm, "\n"));
    std::string arguments = ReadSome(base + "/cmdline", kMaxCmdline);
    processes.push_back(
        {tgid, NameOfRunning(comm, arguments, path), "", CgroupOf(tgid)});
    // Arguments matter only for these programs.
    const std::string& name = processes.back().name;
    if (absl::StartsWith(name, "python") || name == "main.py") {
      processes.back().arguments = std::move(arguments);
    }
  }
  return processes;
}

namespace {

// Whether a process is in `cgroup` or below; "" is the root.
bool IsInCgroup(uint32_t tgid, const std::string& cgroup) {
  const std::string path = CgroupOf(tgid);
  if (path.empty()) return false;
  return cgroup.empty() ||
         (absl::StartsWith(path, cgroup) &&
          (path.size() == cgroup.size() || path[cgroup.size()] == '/'));
}

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

}  // namespace

std::string PathInHierarchy(const std::string& cgroup) {
  std::string path;
  size_t longest = 0;
  for (const Mount& mount : ReadMounts()) {
    absl::string_view rest = cgroup;
    if (mount.type != "cgroup2" || mount.point.size() < longest ||
        !absl::ConsumePrefix(&rest, mount.point) ||
        (!rest.empty() && rest[0] != '/')) {
      continue;
    }
    longest = mount.point.size();
    path = absl::StrCat(mount.root == "/" ? "" : mount.root, rest);
  }
  while (absl::EndsWith(path, "/")) path.pop_back();
  return path;
}

void ForEachOpenSocket(const std::string& below,
                       const std::function<void(const OpenSocket&)>& body) {
  std::vector<uint32_t> tgids = RunningTgids();
  std::sort(tgids.begin(), tgids.end(), std::greater<uint32_t>());
  for (const uint32_t tgid : tgids) {
    if (!IsInCgroup(tgid, below)) continue;
    // If a process ends meanwhile, its pidfd fails (ESRCH), so a reused number is not
    // confused with it.
    UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, tgid, 0)));
    const std::string base = absl::StrCat("/proc/", tgid, "/fd");
    DIR* dir = pidfd.ok() ? opendir(base.c_str()) : nullptr;
    if (dir == nullptr) continue;
    while (dirent* entry = readdir(dir)) {
      int number;
      char target[16];
      if (!absl::SimpleAtoi(entry->d_name, &number) ||
          readlinkat(dirfd(dir), entry->d_name, target, sizeof(target)) < 8 ||
          memcmp(target, "socket:[", 8) != 0) {
        continue;
      }
      // This is a duplicate, so the other process does not notice. Sockets of other
      // families come this far, too, because the link in /proc does not show the family.
      OpenSocket found;
      found.tgid = tgid;
      found.fd = UniqueFd(
          static_cast<int>(syscall(SYS_pidfd_getfd, pidfd.get(), number, 0)));
      int domain = 0;
      socklen_t size = sizeof(domain), protocol = sizeof(found.protocol),
                cookie = sizeof(found.cookie);
      if (!found.fd.ok() ||
          getsockopt(found.fd.get(), SOL_SOCKET, SO_DOMAIN, &domain, &size) !=
              0 ||
          (domain != AF_INET && domain != AF_INET6) ||
          getsockopt(found.fd.get(), SOL_SOCKET, SO_PROTOCOL, &found.protocol,
                     &protocol) != 0 ||
          getsockopt(found.fd.get(), SOL_SOCKET, SO_COOKIE, &found.cookie,
                     &cookie) != 0) {
        continue;
      }
      body(found);
    }
    closedir(dir);
  }
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
