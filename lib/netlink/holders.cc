// SPDX-License-Identifier: BSD-3-Clause
#include "lib/netlink/holders.h"

#include <algorithm>
#include <fstream>
#include <tuple>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "lib/base/proc.h"

namespace netmeter {
namespace internal {
namespace {

// The number of "socket:[123]", with its prefix "socket:["; false for other files.
template <typename Number>
bool InodeOf(absl::string_view link, absl::string_view prefix, Number* inode) {
  if (!absl::ConsumePrefix(&link, prefix) || !absl::ConsumeSuffix(&link, "]")) {
    return false;
  }
  return absl::SimpleAtoi(link, inode);
}

}  // namespace

void Holders::ReadProcess(uint32_t pid) {
  Process process = {};
  process.pid = pid;
  const size_t before = entries_.size();
  ForEachTable(pid, [&](const Thread& thread) {
    ForEachDescriptor(thread, [&](uint32_t fd, absl::string_view link) {
      Network network;
      if (InodeOf(link, "net:[", &network.inode)) {
        network.path = absl::StrCat(thread.folder, "/fd/", fd);
        networks_.push_back(std::move(network));
        return;
      }
      Entry entry = {};
      entry.process = static_cast<uint32_t>(processes_.size());
      entry.fd = fd;
      entry.tid = thread.tid;
      if (InodeOf(link, "socket:[", &entry.inode)) entries_.push_back(entry);
    });
  });
  if (entries_.size() == before) return;
  std::ifstream comm(absl::StrCat("/proc/", pid, "/comm"));
  std::getline(comm, process.name);
  processes_.push_back(std::move(process));
}

Holders Holders::Read() {
  Holders holders;
  ForEachProcess([&](uint32_t pid) { holders.ReadProcess(pid); });
  const auto place = [&holders](const Entry& entry) {
    return std::make_tuple(entry.inode, holders.processes_[entry.process].pid,
                           entry.fd);
  };
  auto& entries = holders.entries_;
  std::sort(
      entries.begin(), entries.end(),
      [&](const Entry& a, const Entry& b) { return place(a) < place(b); });
  entries.erase(std::unique(entries.begin(), entries.end(),
                            [&](const Entry& a, const Entry& b) {
                              return place(a) == place(b);
                            }),
                entries.end());
  return holders;
}

}  // namespace internal
}  // namespace netmeter
