// SPDX-License-Identifier: BSD-3-Clause
#include "test/program/sandbox.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "lib/base/cgroup.h"

namespace netmeter {
namespace internal {
namespace {

bool MoveInto(const std::string& cgroup) {
  std::ofstream procs(cgroup + "/cgroup.procs");
  procs << getpid() << std::endl;
  return procs.good();
}

// The cgroup v2 of this process, below the mount point.
std::string OwnPath() {
  std::ifstream file("/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    if (line.compare(0, 3, "0::") == 0) return line.substr(3);
  }
  return "/";
}

void Remove(const std::string& path) {
  rmdir((path + "/" + OwnCgroup::kThreads).c_str());
  rmdir(path.c_str());
}

// Cgroups of processes that are gone; rmdir(2) refuses one that is in use.
void RemoveStale(const std::string& root, const std::string& prefix) {
  DIR* handle = opendir(root.c_str());
  if (handle == nullptr) return;
  while (const dirent* entry = readdir(handle)) {
    const std::string name = entry->d_name;
    if (name.compare(0, prefix.size() + 1, prefix + "-") != 0) continue;
    const int pid = std::atoi(name.c_str() + prefix.size() + 1);
    if (pid > 0 && kill(pid, 0) != 0 && errno == ESRCH) {
      Remove(root + "/" + name);
    }
  }
  closedir(handle);
}

}  // namespace

bool RunCommand(const std::string& command, std::string* error) {
  if (std::system((command + " >&2").c_str()) == 0) return true;
  *error = command + " failed";
  return false;
}

std::unique_ptr<OwnCgroup> OwnCgroup::Make(const std::string& prefix,
                                           std::string* error) {
  auto root = FindCgroupRoot();
  if (!root.ok()) {
    *error = std::string(root.status().message());
    return nullptr;
  }
  RemoveStale(*root, prefix);
  std::unique_ptr<OwnCgroup> self(new OwnCgroup);
  const std::string path =
      *root + "/" + prefix + "-" + std::to_string(getpid());
  if (mkdir(path.c_str(), 0755) != 0) {
    *error = "make " + path + ": " + std::strerror(errno);
    return nullptr;
  }
  self->path_ = path;
  self->home_ = *root + OwnPath();
  self->fd_ = UniqueFd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!self->fd_.ok()) {
    *error = "open " + path + ": " + std::strerror(errno);
    return nullptr;
  }
  return self;
}

OwnCgroup::~OwnCgroup() {
  Leave();
  Remove(path_);
}

bool OwnCgroup::Enter(std::string* error) {
  if (MoveInto(path_)) return true;
  *error = "enter " + path_ + ": " + std::strerror(errno);
  return false;
}

bool OwnCgroup::Leave() { return MoveInto(home_); }

UniqueFd OwnCgroup::MakeForThreads(std::string* error) {
  const std::string path = path_ + "/" + kThreads;
  mkdir(path.c_str(), 0755);
  std::ofstream type(path + "/cgroup.type");
  type << "threaded" << std::endl;
  *error = "make the threaded cgroup " + path + ": " + std::strerror(errno);
  return UniqueFd(type.good()
                      ? open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)
                      : -1);
}

}  // namespace internal
}  // namespace netmeter
