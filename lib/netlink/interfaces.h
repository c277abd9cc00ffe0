// SPDX-License-Identifier: BSD-3-Clause
// Describes the host facts on which `uplinks` depends: the interfaces of this process's
// network namespace, and how they count. Netlink tells them, and not /sys, which has the
// interfaces of the namespace of its mount, as after `nsenter --net`.
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
#include "netmeter/abi.h"

namespace netmeter {
namespace internal {

constexpr int kUnknownHeader = -1;
constexpr uint32_t kLoopbackIndex = 1;  // in every network namespace

// An element of the map `interfaces`.
using InterfaceEntry = std::pair<nm_interface_key, nm_interface>;

// Bytes that an interface counts for each packet besides the IP packet. Some kinds of
// devices count a sent packet before they remove its header, and a received one after.
struct LinkHeader {
  int tx = kUnknownHeader;
  int rx = kUnknownHeader;

  bool operator==(const LinkHeader& other) const {
    return tx == other.tx && rx == other.rx;
  }
  bool known() const { return tx != kUnknownHeader && rx != kUnknownHeader; }
};

// The layer-2 header in a stay that has ended.
LinkHeader HeaderOf(const nm_interface& stay);
void SetHeader(const LinkHeader& header, nm_interface* stay);

// The name that the interface had in a stay.
std::string NameOf(const nm_interface& stay);

struct Interface {
  uint32_t index = 0;
  std::string name;
  std::string kind;  // "veth", "vxlan"; "" for a card
  nm_interface_counts counts = {};
  LinkHeader header;
  // The interface of this namespace that this one is on, such as that of a VLAN. 0: none.
  uint32_t lower = 0;
  // The names from `ip link property add`, of up to 127 bytes.
  std::vector<std::string> alternatives;
  // The interface that this one is a port of, and its kind, such as "bridge" or "bond". 0
  // and "" if this is not a port.
  uint32_t master = 0;
  std::string port_of;
};

// Lists interfaces, ascending by index. Makes one request to the kernel, which needs no
// privilege, and repeats it if interfaces change meanwhile. Unavailable if they change
// all the time.
absl::StatusOr<std::vector<Interface>> ListInterfaces();

// The low bits of the cookie of a socket's network namespace. 0 if the kernel does not
// report it (before Linux 5.14).
uint32_t NetworkOfSocket(int fd);

// The value of nm_socket.network for sockets of this namespace: its inode.
absl::StatusOr<uint32_t> OwnNetworkInode();

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_NETLINK_INTERFACES_H_
