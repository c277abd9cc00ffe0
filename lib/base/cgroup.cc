// SPDX-License-Identifier: BSD-3-Clause
#include "lib/base/cgroup.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "lib/base/mounts.h"
#include "lib/base/status_util.h"

namespace netmeter {
namespace internal {

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

absl::StatusOr<Cgroup> OpenCgroup(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct statfs fs;
  struct stat about;
  if (!fd.ok() || fstatfs(fd.get(), &fs) != 0 || fstat(fd.get(), &about) != 0) {
    return ErrnoStatus(errno, absl::StrCat("cgroup ", path));
  }
  if (static_cast<unsigned long>(fs.f_type) != CGROUP2_SUPER_MAGIC) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, " is not a cgroup v2 directory (see: findmnt -t cgroup2)"));
  }
  // On 64-bit kernels the inode number is the id.
  return Cgroup{path, std::move(fd), about.st_ino};
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

}  // namespace internal
}  // namespace netmeter
