// SPDX-License-Identifier: BSD-3-Clause
// Finds the processes that have a socket open. Like ss(8), reads the descriptors of all
// processes that this user may see, but of all their threads. A process that starts or
// ends meanwhile may be missing.
//
//   const Holders holders = Holders::Read();
//   holders.ForEach(socket.inode, [](const Holder& holder) { ... });
//
// Threads: any, once it is read.

#ifndef NETMETER_LIB_NETLINK_HOLDERS_H_
#define NETMETER_LIB_NETLINK_HOLDERS_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "lib/netlink/networks.h"

namespace netmeter {
namespace internal {

struct Holder {
  uint32_t pid = 0;
  uint32_t tid = 0;  // a thread that has this descriptor
  uint32_t fd = 0;
  const std::string* name = nullptr;  // the process's name: /proc/PID/comm
};

class Holders {
 public:
  // Costs a system call for each descriptor and each thread of each process, and 16 bytes
  // for each socket among them.
  static Holders Read();

  // Calls body in the order of pid and fd. A descriptor that several tables of a process
  // have comes once.
  template <typename Body>
  void ForEach(uint32_t inode, const Body& body) const {
    if (inode == 0) return;
    auto entry = std::lower_bound(
        entries_.begin(), entries_.end(), inode,
        [](const Entry& a, uint32_t b) { return a.inode < b; });
    for (; entry != entries_.end() && entry->inode == inode; ++entry) {
      Holder holder;
      holder.pid = processes_[entry->process].pid;
      holder.tid = entry->tid;
      holder.fd = entry->fd;
      holder.name = &processes_[entry->process].name;
      body(holder);
    }
  }

  // The network namespaces that processes have open as files. Some appear more than once.
  const std::vector<Network>& networks() const { return networks_; }

 private:
  struct Entry {
    uint32_t inode;
    uint32_t process;  // index in processes_
    uint32_t fd;
    uint32_t tid;
  };
  struct Process {
    uint32_t pid;
    std::string name;
  };

  void ReadProcess(uint32_t pid);

  std::vector<Entry> entries_;
  std::vector<Process> processes_;
  std::vector<Network> networks_;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_NETLINK_HOLDERS_H_
