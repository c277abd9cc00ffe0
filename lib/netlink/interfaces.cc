// SPDX-License-Identifier: BSD-3-Clause
#include "lib/netlink/interfaces.h"

#include <errno.h>
#include <linux/ethtool.h>
#include <linux/if.h>
#include <linux/if_arp.h>
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "lib/base/status_util.h"
#include "lib/base/unique_fd.h"
#include "lib/netlink/diag_message.h"
#include "lib/netlink/receive.h"

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

namespace netmeter {
namespace internal {
namespace {

constexpr char kWhat[] = "list the interfaces";

// Device types of Ethernet that do not count 14 bytes in both directions. Measured by
// uplinks_root_test.py, and team by test/accuracy/topologies.sh.
constexpr struct {
  absl::string_view kind;
  LinkHeader header;
} kEthernetKinds[] = {
    {"bridge", {14, 0}},   {"team", {14, 0}},  {"vlan", {14, 0}},
    {"vxlan", {0, 0}},     {"geneve", {0, 0}}, {"gretap", {0, 14}},
    {"ip6gretap", {0, 0}},
};

LinkHeader HeaderOf(unsigned short type, absl::string_view kind) {
  // It counts encrypted messages: their header and authentication tag have 32 bytes. The
  // padding to a multiple of 16 bytes remains.
  if (kind == "wireguard") return {32, 32};
  switch (type) {
    case ARPHRD_ETHER:
      for (const auto& known : kEthernetKinds) {
        if (known.kind == kind) return known.header;
      }
      return {14, 14};
    case ARPHRD_LOOPBACK:
      return {14, 14};
    case ARPHRD_NONE:  // tun
    case ARPHRD_PPP:
    case ARPHRD_RAWIP:
    case ARPHRD_TUNNEL:
    case ARPHRD_TUNNEL6:
    case ARPHRD_SIT:
    case ARPHRD_IPGRE:
    case ARPHRD_IP6GRE:
      return {0, 0};
    default:
      return {};
  }
}

// With GRO, a veth device counts some received packets without their header: which ones
// depends on the offloads of its peer.
bool MergesPackets(int fd, const std::string& name) {
  ethtool_value value = {};
  value.cmd = ETHTOOL_GGRO;
  ifreq request = {};
  memcpy(request.ifr_name, name.data(),
         std::min(name.size(), sizeof(request.ifr_name) - 1));
  request.ifr_data = reinterpret_cast<char*>(&value);
  return ioctl(fd, SIOCETHTOOL, &request) == 0 && value.data != 0;
}

std::string TextOf(absl::string_view value) {
  return std::string(value.substr(0, value.find('\0')));
}

// Returns false if the payload is too short for an interface.
bool ParseInterface(absl::string_view payload, Interface* found) {
  ifinfomsg link;
  if (payload.size() < sizeof(link)) return false;
  memcpy(&link, payload.data(), sizeof(link));
  found->index = static_cast<uint32_t>(link.ifi_index);
  bool elsewhere = false;
  payload.remove_prefix(
      std::min<size_t>(NLMSG_ALIGN(sizeof(link)), payload.size()));
  ForEachAttribute(payload, [&](int type, absl::string_view value) {
    if (type == IFLA_IFNAME) {
      found->name = TextOf(value);
    } else if (type == IFLA_PROP_LIST) {
      ForEachAttribute(value, [&](int property, absl::string_view name) {
        if (property == IFLA_ALT_IFNAME) {
          found->alternatives.push_back(TextOf(name));
        }
      });
    } else if (type == IFLA_MASTER) {
      memcpy(&found->master, value.data(),
             std::min(value.size(), sizeof(found->master)));
    } else if (type == IFLA_LINKINFO) {
      ForEachAttribute(value, [&](int info, absl::string_view kind) {
        if (info == IFLA_INFO_SLAVE_KIND) found->port_of = TextOf(kind);
        if (info == IFLA_INFO_KIND) found->kind = TextOf(kind);
      });
    } else if (type == IFLA_LINK) {
      memcpy(&found->lower, value.data(),
             std::min(value.size(), sizeof(found->lower)));
    } else if (type == IFLA_LINK_NETNSID) {
      elsewhere = true;
    } else if (type == IFLA_STATS64) {
      rtnl_link_stats64 stats = {};
      memcpy(&stats, value.data(), std::min(value.size(), sizeof(stats)));
      found->counts.tx_bytes = stats.tx_bytes;
      found->counts.rx_bytes = stats.rx_bytes;
      found->counts.tx_packets = stats.tx_packets;
      found->counts.rx_packets = stats.rx_packets;
    }
  });
  found->header = HeaderOf(link.ifi_type, found->kind);
  // The two ends of a veth pair each name the other.
  if (elsewhere || found->kind == "veth") found->lower = 0;
  return true;
}

}  // namespace

absl::StatusOr<std::vector<Interface>> ListInterfaces() {
  constexpr uint32_t kMostDumps = 100;
  const UniqueFd fd(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (!fd.ok()) return ErrnoStatus(errno, kWhat);
  std::vector<Interface> all;
  struct {
    nlmsghdr header;
    ifinfomsg link;
  } request = {};
  request.header.nlmsg_len = sizeof(request);
  request.header.nlmsg_type = RTM_GETLINK;
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  const absl::string_view bytes(reinterpret_cast<const char*>(&request),
                                sizeof(request));
  const auto take = [&all](const NetlinkMessage& message) {
    if (message.type != RTM_NEWLINK) return true;
    all.emplace_back();
    return ParseInterface(message.payload, &all.back());
  };
  for (uint32_t sequence = 1; sequence <= kMostDumps; ++sequence) {
    request.header.nlmsg_seq = sequence;
    all.clear();
    NETMETER_ASSIGN_OR_RETURN(const bool complete,
                              DumpFromKernel(fd.get(), bytes, kWhat, take));
    if (!complete) continue;
    for (Interface& interface : all) {
      if (interface.kind == "veth" && MergesPackets(fd.get(), interface.name)) {
        interface.header.rx = kUnknownHeader;
      }
    }
    std::sort(all.begin(), all.end(),
              [](const Interface& a, const Interface& b) {
                return a.index < b.index;
              });
    return all;
  }
  return absl::UnavailableError(
      absl::StrCat(kWhat, ": they change all the time: run it again"));
}

LinkHeader HeaderOf(const nm_interface& stay) {
  const auto size = [](nm_u8 bytes) {
    return bytes == NM_HEADER_UNKNOWN ? kUnknownHeader : bytes;
  };
  return {size(stay.tx_header), size(stay.rx_header)};
}

void SetHeader(const LinkHeader& header, nm_interface* stay) {
  const auto byte = [](int bytes) {
    return static_cast<nm_u8>(
        bytes < 0 || bytes >= NM_HEADER_UNKNOWN ? NM_HEADER_UNKNOWN : bytes);
  };
  stay->tx_header = byte(header.tx);
  stay->rx_header = byte(header.rx);
}

std::string NameOf(const nm_interface& stay) {
  return std::string(stay.name, strnlen(stay.name, sizeof(stay.name)));
}

uint32_t NetworkOfSocket(int fd) {
  uint64_t cookie = 0;
  socklen_t size = sizeof(cookie);
  if (getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &size) != 0) {
    return 0;
  }
  return static_cast<uint32_t>(cookie);
}

absl::StatusOr<uint32_t> OwnNetworkInode() {
  struct stat about;
  // The namespace of this thread: another thread may have entered another one.
  if (stat("/proc/thread-self/ns/net", &about) != 0) {
    return ErrnoStatus(errno, "look at /proc/thread-self/ns/net");
  }
  return static_cast<uint32_t>(about.st_ino);
}

}  // namespace internal
}  // namespace netmeter
