// SPDX-License-Identifier: BSD-3-Clause
// The interfaces of this process's network namespace, and what they count.
//
//   absl::StatusOr<std::vector<Interface>> all = ListInterfaces();
//
// Threads: any.

#ifndef NETMETER_LIB_NETLINK_INTERFACES_H_
#define NETMETER_LIB_NETLINK_INTERFACES_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "bpf/internal.h"

namespace netmeter {
namespace internal {

constexpr int kUnknownHeader = -1;
constexpr uint32_t kLoopbackIndex = 1;  // in every network namespace

// An element of the map `interfaces`.
using InterfaceEntry = std::pair<nm_interface_key, nm_interface>;

struct Interface {
  uint32_t index = 0;
  std::string name;
  nm_interface_counts counts = {};
  // Bytes of the link header of a packet, as the interface counts it: 14 of Ethernet, 0
  // of one that carries IP alone; kUnknownHeader of other kinds of links.
  int header = kUnknownHeader;
  // Those of `ip link property add`, of up to 127 bytes.
  std::vector<std::string> alternatives;
  // The interface that this one is a port of, and its kind, such as "bridge" or "bond";
  // 0 and "": it is no port.
  uint32_t master = 0;
  std::string port_of;
};

// By one request to the kernel, which needs no privilege; by more where interfaces come
// and go meanwhile. Ascending by index. Unavailable: they do all the time.
absl::StatusOr<std::vector<Interface>> ListInterfaces();

// What one datagram of the kernel's answer says.
enum class LinkDump {
  kMore,
  kDone,
  kChanged,  // done, and not one state of the interfaces: ask again
};

// Adds to *all what a datagram has of the answer to request `sequence`. *changed is
// kept from datagram to datagram, and false at first.
absl::StatusOr<LinkDump> TakeInterfaces(absl::string_view datagram,
                                        uint32_t sequence, bool* changed,
                                        std::vector<Interface>* all);

// Whether packets may pass this namespace that are for no socket of it. `root` is
// where /proc and /sys are: "" but in tests.
bool Forwards(const std::vector<Interface>& interfaces,
              const std::string& root);

// The low bits of the cookie of a socket's network namespace; 0: the kernel does not
// tell (Linux 5.14 does).
uint32_t NetworkOfSocket(int fd);

// What nm_socket.network is for sockets of this namespace: by the inode, or by the
// cookie (Linux 5.14). Unimplemented: the kernel tells no cookie.
absl::StatusOr<uint32_t> OwnNetwork(bool by_inode);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_NETLINK_INTERFACES_H_
