// SPDX-License-Identifier: BSD-3-Clause
#include "lib/netlink/holders.h"

#include <dirent.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <tuple>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace netmeter {
namespace internal {
namespace {

struct CloseDirectory {
  void operator()(DIR* directory) const { closedir(directory); }
};

// Calls body for each name in the directory that is a number; never if the directory
// cannot be read.
template <typename Body>
void ForEachNumber(const std::string& path, const Body& body) {
  const std::unique_ptr<DIR, CloseDirectory> directory(opendir(path.c_str()));
  if (!directory) return;
  while (const dirent* const entry = readdir(directory.get())) {
    if (entry->d_name[0] < '0' || entry->d_name[0] > '9') continue;
    body(dirfd(directory.get()), entry->d_name);
  }
}

// The number of "socket:[123]", with its prefix "socket:["; false for other files.
template <typename Number>
bool InodeOf(absl::string_view link, absl::string_view prefix, Number* inode) {
  if (!absl::ConsumePrefix(&link, prefix) || !absl::ConsumeSuffix(&link, "]")) {
    return false;
  }
  return absl::SimpleAtoi(link, inode);
}

}  // namespace

void Holders::ReadProcess(const std::string& pid) {
  Process process = {};
  if (!absl::SimpleAtoi(pid, &process.pid)) return;
  const size_t before = entries_.size();
  const uint32_t index = static_cast<uint32_t>(processes_.size());
  ForEachNumber(absl::StrCat("/proc/", pid, "/fd"), [&](int directory,
                                                        const char* number) {
    char buffer[64];
    const ssize_t size = readlinkat(directory, number, buffer, sizeof(buffer));
    if (size <= 0) return;
    const absl::string_view link(buffer, static_cast<size_t>(size));
    Network network;
    if (InodeOf(link, "net:[", &network.inode)) {
      network.path = absl::StrCat("/proc/", pid, "/fd/", number);
      networks_.push_back(std::move(network));
      return;
    }
    Entry entry = {};
    entry.process = index;
    if (!InodeOf(link, "socket:[", &entry.inode) ||
        !absl::SimpleAtoi(number, &entry.fd)) {
      return;
    }
    entries_.push_back(entry);
  });
  if (entries_.size() == before) return;
  std::ifstream comm(absl::StrCat("/proc/", pid, "/comm"));
  std::getline(comm, process.name);
  processes_.push_back(std::move(process));
}

Holders Holders::Read() {
  Holders holders;
  ForEachNumber("/proc",
                [&](int, const char* pid) { holders.ReadProcess(pid); });
  const auto& processes = holders.processes_;
  std::sort(holders.entries_.begin(), holders.entries_.end(),
            [&](const Entry& a, const Entry& b) {
              return std::tie(a.inode, processes[a.process].pid, a.fd) <
                     std::tie(b.inode, processes[b.process].pid, b.fd);
            });
  return holders;
}

}  // namespace internal
}  // namespace netmeter
