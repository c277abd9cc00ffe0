// SPDX-License-Identifier: BSD-3-Clause
// Parses the kernel's description of a socket in messages of netlink(7), as sock_diag(7)
// defines them. Every length is checked: a truncated message, or an attribute that is
// longer than its message, is refused or left out.
//
//   NetlinkMessages messages(buffer);
//   NetlinkMessage message;
//   while (messages.Next(&message)) {
//     DiagSocket socket;
//     if (ParseDiagSocket(message.payload, IPPROTO_TCP, &socket)) ...
//   }
//
// Threads: any; nothing here keeps state.

#ifndef NETMETER_LIB_NETLINK_DIAG_MESSAGE_H_
#define NETMETER_LIB_NETLINK_DIAG_MESSAGE_H_

#include <linux/netlink.h>
#include <string.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace netmeter {
namespace internal {

struct NetlinkMessage {
  uint16_t type = 0;  // NLMSG_DONE, NLMSG_ERROR, or the type of the answers
  uint16_t flags = 0;
  uint32_t sequence = 0;
  absl::string_view payload;
};

// Iterates over the messages of one datagram.
class NetlinkMessages {
 public:
  explicit NetlinkMessages(absl::string_view datagram) : rest_(datagram) {}

  // Returns false at the end, and at a truncated message.
  bool Next(NetlinkMessage* message);

  // Whether a message was truncated.
  bool malformed() const { return malformed_; }

 private:
  absl::string_view rest_;
  bool malformed_ = false;
};

// The error in NLMSG_ERROR or NLMSG_DONE, as a positive errno; 0: none.
int ErrorOf(const NetlinkMessage& message);

// Calls body(type, value) for every attribute of a message. Stops at a truncated one.
template <typename Body>
void ForEachAttribute(absl::string_view bytes, const Body& body) {
  nlattr header;
  while (bytes.size() >= sizeof(header)) {
    memcpy(&header, bytes.data(), sizeof(header));
    if (header.nla_len < sizeof(header) || header.nla_len > bytes.size()) {
      return;
    }
    body(header.nla_type & NLA_TYPE_MASK,
         bytes.substr(sizeof(header), header.nla_len - sizeof(header)));
    bytes.remove_prefix(
        std::min<size_t>(NLA_ALIGN(header.nla_len), bytes.size()));
  }
}

// A number that may be missing.
struct MaybeNumber {
  bool known;
  uint64_t value;
};

// The kernel's description of a socket. The views point into the message.
struct DiagSocket {
  uint16_t protocol = 0;  // IPPROTO_*, IPPROTO_MPTCP included
  uint8_t family = 0;     // AF_INET or AF_INET6
  // TCP_ESTABLISHED and so on, also for other protocols. States that only associations of
  // SCTP have are numbered from 16 on.
  uint8_t state = 0;
  // Only for SCTP: an association of the socket, which has a message of its own.
  bool association = false;
  uint8_t timer = 0;
  uint8_t retrans = 0;
  uint16_t local_port = 0;  // host byte order
  uint16_t remote_port = 0;
  std::array<uint8_t, 16> local_address = {};  // for IPv4 the first four
  std::array<uint8_t, 16> remote_address = {};
  uint32_t interface = 0;  // index; 0: not bound to one
  uint64_t cookie = 0;     // as SO_COOKIE
  uint32_t expires_ms = 0;
  uint32_t rqueue = 0;
  uint32_t wqueue = 0;
  uint32_t uid = 0;
  uint32_t inode = 0;  // 0: no process has it
  MaybeNumber tos = {}, tclass = {}, shutdown = {}, v6only = {}, mark = {},
              class_id = {}, cgroup_id = {};
  absl::string_view info;       // struct tcp_info, or mptcp_info
  absl::string_view skmeminfo;  // SK_MEMINFO_*
  absl::string_view vegas, dctcp, bbr;
  absl::string_view congestion;  // name of the congestion control algorithm
  absl::string_view ulp;         // the upper layer protocol, such as tls
  absl::string_view owner;       // the value in the map of socket storage
};

// Parses one payload of SOCK_DIAG_BY_FAMILY, from the answer to a request for `protocol`.
// Returns false if it is too short for a socket, or its family is not IP.
bool ParseDiagSocket(absl::string_view payload, uint16_t protocol,
                     DiagSocket* socket);

// "192.0.2.1", "2001:db8::1".
std::string AddressText(uint8_t family, const std::array<uint8_t, 16>& address);

// The kernel's names, such as "ESTABLISHED" and "tcp"; a number if the value is new.
std::string StateName(uint8_t state);
std::string ProtocolName(uint16_t protocol);
std::string TimerName(uint8_t timer);

// 0 if `name` is not a state. Accepts upper and lower case, and "-" for "_".
uint8_t StateOfName(absl::string_view name);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_NETLINK_DIAG_MESSAGE_H_
