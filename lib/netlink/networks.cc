// SPDX-License-Identifier: BSD-3-Clause
#include "lib/netlink/networks.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/statfs.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "lib/base/path.h"
#include "lib/base/proc.h"
#include "lib/base/status_util.h"
#include "lib/base/unique_fd.h"

namespace netmeter {
namespace internal {
namespace {

constexpr char kOwn[] = "/proc/thread-self/ns/net";

// A file of /run/netns is not a namespace if its mount has gone.
bool IsNamespace(const std::string& path) {
  struct statfs about;
  return statfs(path.c_str(), &about) == 0 && about.f_type == NSFS_MAGIC;
}

}  // namespace

Network OwnNetwork() {
  Network network;
  network.path = kOwn;
  struct stat about;
  if (stat(kOwn, &about) == 0) network.inode = about.st_ino;
  return network;
}

std::vector<Network> AllNetworks(const std::vector<Network>& open,
                                 bool* hidden) {
  *hidden = false;
  std::vector<Network> networks = {OwnNetwork()};
  std::set<uint64_t> seen = {networks[0].inode};
  const auto add = [&](const std::string& path) {
    struct stat about;
    if (stat(path.c_str(), &about) != 0) {
      *hidden |= errno == EACCES || errno == EPERM;
      return;
    }
    if (seen.count(about.st_ino) != 0 || !IsNamespace(path)) return;
    seen.insert(about.st_ino);
    Network network;
    network.inode = about.st_ino;
    network.path = path;
    networks.push_back(network);
  };
  const auto named = ListDirectory("/run/netns");
  for (const std::string& name :
       named.ok() ? *named : std::vector<std::string>()) {
    add(absl::StrCat("/run/netns/", name));
  }
  ForEachProcess([&](uint32_t pid) {
    ForEachThread(
        pid, [&](const Thread& thread) { add(thread.folder + "/ns/net"); });
  });
  for (const Network& network : open) {
    if (seen.count(network.inode) == 0) add(network.path);
  }
  return networks;
}

namespace {

// Whether opening or entering a namespace failed because the namespace has gone. Between
// umount and unlink a name of /run/netns is an empty file, which cannot be entered
// (EINVAL) and has no permissions (EACCES).
bool HasGone(int error) {
  return error == ENOENT || error == ESRCH || error == EINVAL ||
         error == EACCES;
}

absl::Status NotEntered(int error, const std::string& what) {
  if (HasGone(error)) {
    return absl::NotFoundError(absl::StrCat(what, ": it has gone"));
  }
  return ErrnoStatus(error, what, "run as root");
}

}  // namespace

absl::Status InNetwork(const Network& network,
                       const std::function<absl::Status()>& body) {
  if (network.path == kOwn) return body();
  const UniqueFd own(open(kOwn, O_RDONLY | O_CLOEXEC));
  if (!own.ok()) return ErrnoStatus(errno, absl::StrCat("open ", kOwn));
  // The number of an open file may belong to another file by now. Opening a device may
  // have side effects, so the file is checked before it is opened.
  const UniqueFd place(open(network.path.c_str(), O_PATH | O_CLOEXEC));
  if (!place.ok()) {
    return NotEntered(errno, absl::StrCat("open ", network.path));
  }
  const std::string same = absl::StrCat("/proc/thread-self/fd/", place.get());
  if (!IsNamespace(same)) {
    return absl::NotFoundError(absl::StrCat(network.path, ": it has gone"));
  }
  const UniqueFd other(open(same.c_str(), O_RDONLY | O_CLOEXEC));
  if (!other.ok()) {
    return NotEntered(errno, absl::StrCat("open ", network.path));
  }
  if (setns(other.get(), CLONE_NEWNET) != 0) {
    return NotEntered(errno, absl::StrCat("enter ", network.path));
  }
  const absl::Status status = body();
  if (setns(own.get(), CLONE_NEWNET) != 0) {
    return ErrnoStatus(errno, "go back to the network namespace");
  }
  return status;
}

}  // namespace internal
}  // namespace netmeter
