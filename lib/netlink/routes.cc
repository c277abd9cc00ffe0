// SPDX-License-Identifier: BSD-3-Clause
#include "lib/netlink/routes.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>

#include "absl/strings/string_view.h"
#include "lib/base/status_util.h"
#include "lib/base/unique_fd.h"
#include "lib/netlink/diag_message.h"
#include "lib/netlink/receive.h"

namespace netmeter {
namespace internal {
namespace {

constexpr char kWhat[] = "look up the default route";

// Addresses of documentation (RFC 5737, RFC 3849), to which no other route leads.
constexpr struct {
  uint8_t family;
  uint8_t size;
  const char* address;
} kLookups[] = {{AF_INET, 4, "203.0.113.1"}, {AF_INET6, 16, "2001:db8::1"}};

void Add(int index, std::vector<uint32_t>* indexes) {
  const auto one = static_cast<uint32_t>(index);
  if (std::find(indexes->begin(), indexes->end(), one) == indexes->end()) {
    indexes->push_back(one);
  }
}

void AddRoute(absl::string_view payload, std::vector<uint32_t>* indexes) {
  rtmsg route;
  if (payload.size() < sizeof(route)) return;
  memcpy(&route, payload.data(), sizeof(route));
  // Another route matches, or the default is "unreachable".
  if (route.rtm_dst_len != 0 || route.rtm_type != RTN_UNICAST) return;
  payload.remove_prefix(sizeof(route));
  ForEachAttribute(payload, [&](int type, absl::string_view value) {
    int index = 0;
    if (type == RTA_OIF && value.size() == sizeof(index)) {
      memcpy(&index, value.data(), sizeof(index));
      Add(index, indexes);
    }
    rtnexthop hop;
    while (type == RTA_MULTIPATH && value.size() >= sizeof(hop)) {
      memcpy(&hop, value.data(), sizeof(hop));
      if (hop.rtnh_len < sizeof(hop)) return;
      Add(hop.rtnh_ifindex, indexes);
      value.remove_prefix(
          std::min<size_t>(RTNH_ALIGN(hop.rtnh_len), value.size()));
    }
  });
}

}  // namespace

absl::StatusOr<std::vector<uint32_t>> FindDefaultRoute() {
  const UniqueFd fd(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (!fd.ok()) return ErrnoStatus(errno, kWhat);
  std::vector<char> buffer(kNetlinkBufferBytes);
  std::vector<uint32_t> indexes;
  for (const auto& lookup : kLookups) {
    struct {
      nlmsghdr header;
      rtmsg route;
      rtattr attribute;
      uint8_t address[16];
    } request = {};
    request.attribute.rta_type = RTA_DST;
    request.attribute.rta_len = static_cast<uint16_t>(RTA_LENGTH(lookup.size));
    inet_pton(lookup.family, lookup.address, request.address);
    request.route.rtm_family = lookup.family;
    request.route.rtm_dst_len = static_cast<uint8_t>(8 * lookup.size);
    // The route itself, and not what a packet would take of it.
    request.route.rtm_flags = RTM_F_FIB_MATCH;
    request.header.nlmsg_len =
        NLMSG_LENGTH(sizeof(request.route)) + request.attribute.rta_len;
    request.header.nlmsg_type = RTM_GETROUTE;
    request.header.nlmsg_flags = NLM_F_REQUEST;
    if (send(fd.get(), &request, request.header.nlmsg_len, 0) < 0) {
      return ErrnoStatus(errno, kWhat);
    }
    const auto datagram = ReceiveFromKernel(fd.get(), kWhat, &buffer);
    NETMETER_RETURN_IF_ERROR(datagram.status());
    NetlinkMessages messages(*datagram);
    NetlinkMessage message;
    // An error means that there is no route, or no IPv6.
    while (messages.Next(&message)) {
      if (message.type == RTM_NEWROUTE) AddRoute(message.payload, &indexes);
    }
  }
  return indexes;
}

}  // namespace internal
}  // namespace netmeter
