// SPDX-License-Identifier: BSD-3-Clause
#include "lib/netlink/interfaces.h"

#include <errno.h>
#include <linux/if_arp.h>
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "lib/base/status_util.h"
#include "lib/base/unique_fd.h"
#include "lib/netlink/diag_message.h"

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

namespace netmeter {
namespace internal {
namespace {

constexpr char kWhat[] = "list the interfaces";

int HeaderOf(unsigned short type) {
  switch (type) {
    case ARPHRD_ETHER:
    case ARPHRD_LOOPBACK:
      return 14;
    case ARPHRD_NONE:  // tun, WireGuard
    case ARPHRD_RAWIP:
    case ARPHRD_TUNNEL:
    case ARPHRD_TUNNEL6:
    case ARPHRD_SIT:
    case ARPHRD_IPGRE:
      return 0;
    default:
      return kUnknownHeader;
  }
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
  found->header = HeaderOf(link.ifi_type);
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
      });
    } else if (type == IFLA_STATS64) {
      rtnl_link_stats64 stats = {};
      memcpy(&stats, value.data(), std::min(value.size(), sizeof(stats)));
      found->counts.tx_bytes = stats.tx_bytes;
      found->counts.rx_bytes = stats.rx_bytes;
      found->counts.tx_packets = stats.tx_packets;
      found->counts.rx_packets = stats.rx_packets;
    }
  });
  return true;
}

absl::Status CutShort() {
  return absl::InternalError(absl::StrCat(kWhat, ": a message is cut short"));
}

// Makes one dump. Never returns kMore.
absl::StatusOr<LinkDump> DumpInterfaces(int fd, uint32_t sequence,
                                        std::vector<char>* buffer,
                                        std::vector<Interface>* all) {
  all->clear();
  struct {
    nlmsghdr header;
    ifinfomsg link;
  } request = {};
  request.header.nlmsg_len = sizeof(request);
  request.header.nlmsg_type = RTM_GETLINK;
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  request.header.nlmsg_seq = sequence;
  if (send(fd, &request, sizeof(request), 0) < 0) {
    return ErrnoStatus(errno, kWhat);
  }
  bool changed = false;
  for (;;) {
    iovec part = {buffer->data(), buffer->size()};
    sockaddr_nl sender = {};
    msghdr header = {};
    header.msg_name = &sender;
    header.msg_namelen = sizeof(sender);
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    const ssize_t size = recvmsg(fd, &header, 0);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return ErrnoStatus(errno, kWhat);
    if (size == 0 || (header.msg_flags & MSG_TRUNC) != 0) {
      return CutShort();
    }
    // Any process may send to a netlink socket; the kernel's port is 0.
    if (sender.nl_pid != 0) continue;
    const absl::StatusOr<LinkDump> taken = TakeInterfaces(
        absl::string_view(buffer->data(), static_cast<size_t>(size)), sequence,
        &changed, all);
    if (!taken.ok() || *taken != LinkDump::kMore) return taken;
  }
}

bool IsSet(const std::string& file) {
  std::string text;
  std::ifstream(file) >> text;
  // Without IPv6 this file does not exist.
  return !text.empty() && text != "0";
}

}  // namespace

absl::StatusOr<LinkDump> TakeInterfaces(absl::string_view datagram,
                                        uint32_t sequence, bool* changed,
                                        std::vector<Interface>* all) {
  NetlinkMessages messages(datagram);
  NetlinkMessage message;
  while (messages.Next(&message)) {
    if (message.sequence != sequence) continue;
    // An interface was added, removed or changed since the dump began: one may be
    // missing, or another be listed twice.
    if ((message.flags & NLM_F_DUMP_INTR) != 0) *changed = true;
    const int error = ErrorOf(message);
    if (error != 0) return ErrnoStatus(error, kWhat);
    if (message.type == NLMSG_DONE) {
      return *changed ? LinkDump::kChanged : LinkDump::kDone;
    }
    if (message.type != RTM_NEWLINK) continue;
    Interface found;
    if (!ParseInterface(message.payload, &found)) return CutShort();
    all->push_back(std::move(found));
  }
  if (messages.malformed()) return CutShort();
  return LinkDump::kMore;
}

absl::StatusOr<std::vector<Interface>> ListInterfaces() {
  constexpr uint32_t kMostDumps = 100;
  const UniqueFd fd(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (!fd.ok()) return ErrnoStatus(errno, kWhat);
  std::vector<Interface> all;
  std::vector<char> buffer(1 << 17);
  for (uint32_t sequence = 1; sequence <= kMostDumps; ++sequence) {
    const absl::StatusOr<LinkDump> dump =
        DumpInterfaces(fd.get(), sequence, &buffer, &all);
    if (!dump.ok()) return dump.status();
    if (*dump == LinkDump::kChanged) continue;
    std::sort(all.begin(), all.end(),
              [](const Interface& a, const Interface& b) {
                return a.index < b.index;
              });
    return all;
  }
  return absl::UnavailableError(
      absl::StrCat(kWhat, ": they change all the time: run it again"));
}

bool Forwards(const std::vector<Interface>& interfaces,
              const std::string& root) {
  if (IsSet(root + "/proc/sys/net/ipv4/ip_forward") ||
      IsSet(root + "/proc/sys/net/ipv6/conf/all/forwarding")) {
    return true;
  }
  for (const Interface& interface : interfaces) {
    const std::string port =
        absl::StrCat(root, "/sys/class/net/", interface.name, "/brport");
    if (access(port.c_str(), F_OK) == 0) return true;
  }
  return false;
}

uint32_t NetworkOfSocket(int fd) {
  uint64_t cookie = 0;
  socklen_t size = sizeof(cookie);
  if (getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &size) != 0) {
    return 0;
  }
  return static_cast<uint32_t>(cookie);
}

absl::StatusOr<uint32_t> OwnNetwork(bool by_inode) {
  if (by_inode) {
    struct stat about;
    // The namespace of this thread: another thread may have entered another one.
    if (stat("/proc/thread-self/ns/net", &about) != 0) {
      return ErrnoStatus(errno, "look at /proc/thread-self/ns/net");
    }
    return static_cast<uint32_t>(about.st_ino);
  }
  const UniqueFd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const uint32_t network = fd.ok() ? NetworkOfSocket(fd.get()) : 0;
  if (network == 0) {
    return absl::UnimplementedError(
        "uplinks: the kernel does not tell which network namespace this is "
        "(Linux 5.14 does)");
  }
  return network;
}

}  // namespace internal
}  // namespace netmeter
