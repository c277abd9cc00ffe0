// SPDX-License-Identifier: BSD-3-Clause
#include "lib/netlink/diag_message.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <string.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace netmeter {
namespace internal {
namespace {

// In the order of the kernel's numbers (include/net/tcp_states.h), from 1 on.
constexpr const char* kStates[] = {
    "ESTABLISHED", "SYN_SENT",     "SYN_RECV",      "FIN_WAIT1", "FIN_WAIT2",
    "TIME_WAIT",   "CLOSE",        "CLOSE_WAIT",    "LAST_ACK",  "LISTEN",
    "CLOSING",     "NEW_SYN_RECV", "BOUND_INACTIVE"};

// States of SCTP's associations, from kSctpStates on (enum sctp_state in
// include/net/sctp/constants.h). States without a name here are also TCP's.
constexpr uint8_t kSctpStates = 16;
constexpr uint8_t kSctpEstablished = 3;
constexpr const char* kAssociationStates[] = {nullptr,
                                              "COOKIE_WAIT",
                                              "COOKIE_ECHOED",
                                              nullptr,
                                              "SHUTDOWN_PENDING",
                                              "SHUTDOWN_SENT",
                                              "SHUTDOWN_RECEIVED",
                                              "SHUTDOWN_ACK_SENT"};
constexpr uint8_t kTcpEstablished = 1, kTcpClose = 7;

// idiag_timer of struct inet_diag_msg.
constexpr const char* kTimers[] = {"off", "on", "keepalive", "timewait",
                                   "persist"};

constexpr uint16_t kMptcp = 262;  // IPPROTO_MPTCP, which glibc 2.36 lacks

template <typename T>
bool Read(absl::string_view bytes, T* value) {
  if (bytes.size() < sizeof(*value)) return false;
  memcpy(value, bytes.data(), sizeof(*value));
  return true;
}

template <typename T>
MaybeNumber NumberOf(absl::string_view bytes) {
  T value;
  MaybeNumber number = {};
  number.known = Read(bytes, &value);
  if (number.known) number.value = value;
  return number;
}

// The text before the NUL.
absl::string_view TextOf(absl::string_view bytes) {
  return bytes.substr(0, bytes.find('\0'));
}

// The request asks for one map, so there is only one value.
absl::string_view StorageOf(absl::string_view bytes) {
  absl::string_view found;
  ForEachAttribute(bytes, [&](int type, absl::string_view storage) {
    if (type != SK_DIAG_BPF_STORAGE) return;
    ForEachAttribute(storage, [&](int inner, absl::string_view value) {
      if (inner == SK_DIAG_BPF_STORAGE_MAP_VALUE) found = value;
    });
  });
  return found;
}

absl::string_view UlpOf(absl::string_view bytes) {
  absl::string_view found;
  ForEachAttribute(bytes, [&](int type, absl::string_view value) {
    if (type == INET_ULP_INFO_NAME) found = TextOf(value);
  });
  return found;
}

void TakeAttribute(int type, absl::string_view value, DiagSocket* socket) {
  switch (type) {
    case INET_DIAG_INFO:
      socket->info = value;
      break;
    case INET_DIAG_SKMEMINFO:
      socket->skmeminfo = value;
      break;
    case INET_DIAG_VEGASINFO:
      socket->vegas = value;
      break;
    case INET_DIAG_DCTCPINFO:
      socket->dctcp = value;
      break;
    case INET_DIAG_BBRINFO:
      socket->bbr = value;
      break;
    case INET_DIAG_CONG:
      socket->congestion = TextOf(value);
      break;
    case INET_DIAG_ULP_INFO:
      socket->ulp = UlpOf(value);
      break;
    case INET_DIAG_TOS:
      socket->tos = NumberOf<uint8_t>(value);
      break;
    case INET_DIAG_TCLASS:
      socket->tclass = NumberOf<uint8_t>(value);
      break;
    case INET_DIAG_SHUTDOWN:
      socket->shutdown = NumberOf<uint8_t>(value);
      break;
    case INET_DIAG_SKV6ONLY:
      socket->v6only = NumberOf<uint8_t>(value);
      break;
    case INET_DIAG_MARK:
      socket->mark = NumberOf<uint32_t>(value);
      break;
    case INET_DIAG_CLASS_ID:
      socket->class_id = NumberOf<uint32_t>(value);
      break;
    case INET_DIAG_CGROUP_ID:
      socket->cgroup_id = NumberOf<uint64_t>(value);
      break;
    case INET_DIAG_PEERS:  // only for SCTP's associations
      socket->association = true;
      break;
    case INET_DIAG_SK_BPF_STORAGES:
      socket->owner = StorageOf(value);
      break;
    default:
      break;  // unknown, or not needed
  }
}

// inet_sctp_diag_fill() in net/sctp/diag.c fills these fields with numbers of its own.
void TakeSctp(DiagSocket* socket) {
  if (!socket->association) {
    socket->expires_ms = 0;  // uninitialized in the kernel's buffer
    return;
  }
  socket->timer = socket->timer == 0 ? 0 : 1;  // SCTP_EVENT_TIMEOUT_T3_RTX
  const uint8_t state = socket->state;
  socket->state = state == 0                  ? kTcpClose
                  : state == kSctpEstablished ? kTcpEstablished
                  : state < 128 ? static_cast<uint8_t>(kSctpStates + state)
                                : state;
}

// nullptr if the state has no name here.
const char* AssociationStateName(size_t state) {
  const size_t count =
      sizeof(kAssociationStates) / sizeof(kAssociationStates[0]);
  return state >= kSctpStates && state - kSctpStates < count
             ? kAssociationStates[state - kSctpStates]
             : nullptr;
}

}  // namespace

bool NetlinkMessages::Next(NetlinkMessage* message) {
  nlmsghdr header;
  if (rest_.empty()) return false;
  if (!Read(rest_, &header) || header.nlmsg_len < sizeof(header) ||
      header.nlmsg_len > rest_.size()) {
    malformed_ = true;
    rest_ = absl::string_view();
    return false;
  }
  message->type = header.nlmsg_type;
  message->flags = header.nlmsg_flags;
  message->sequence = header.nlmsg_seq;
  message->payload =
      rest_.substr(sizeof(header), header.nlmsg_len - sizeof(header));
  // 64 bits, so that a length near 2^32 does not overflow to a small one.
  const uint64_t aligned = (uint64_t{header.nlmsg_len} + 3) & ~uint64_t{3};
  rest_.remove_prefix(std::min<uint64_t>(aligned, rest_.size()));
  return true;
}

int ErrorOf(const NetlinkMessage& message) {
  int32_t error = 0;
  if (message.type != NLMSG_ERROR && message.type != NLMSG_DONE) return 0;
  if (!Read(message.payload, &error) || error >= 0) return 0;
  return error == INT32_MIN ? EIO : -error;
}

bool ParseDiagSocket(absl::string_view payload, uint16_t protocol,
                     DiagSocket* socket) {
  *socket = DiagSocket();
  inet_diag_msg message;
  if (!Read(payload, &message)) return false;
  if (message.idiag_family != AF_INET && message.idiag_family != AF_INET6) {
    return false;
  }
  socket->protocol = protocol;
  socket->family = message.idiag_family;
  socket->state = message.idiag_state;
  socket->timer = message.idiag_timer;
  socket->retrans = message.idiag_retrans;
  socket->local_port = ntohs(message.id.idiag_sport);
  socket->remote_port = ntohs(message.id.idiag_dport);
  memcpy(socket->local_address.data(), message.id.idiag_src, 16);
  memcpy(socket->remote_address.data(), message.id.idiag_dst, 16);
  // A dual-stack socket that uses IPv4, as `netmeter flows` shows it. Without a remote
  // end, that is the IPv6 address of zeros.
  in6_addr local;
  memcpy(&local, socket->local_address.data(), sizeof(local));
  if (socket->family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&local)) {
    socket->family = AF_INET;
    for (auto* end : {&socket->local_address, &socket->remote_address}) {
      std::copy(end->begin() + 12, end->end(), end->begin());
    }
  }
  socket->interface = message.id.idiag_if;
  socket->cookie =
      uint64_t{message.id.idiag_cookie[1]} << 32 | message.id.idiag_cookie[0];
  socket->expires_ms = message.idiag_expires;
  socket->rqueue = message.idiag_rqueue;
  socket->wqueue = message.idiag_wqueue;
  socket->uid = message.idiag_uid;
  socket->inode = message.idiag_inode;
  payload.remove_prefix(
      std::min<size_t>(NLMSG_ALIGN(sizeof(message)), payload.size()));
  ForEachAttribute(payload, [&](int type, absl::string_view value) {
    TakeAttribute(type, value, socket);
  });
  if (protocol == IPPROTO_SCTP) TakeSctp(socket);
  return true;
}

std::string AddressText(uint8_t family,
                        const std::array<uint8_t, 16>& address) {
  char text[INET6_ADDRSTRLEN];
  return inet_ntop(family, address.data(), text, sizeof(text)) ? text : "";
}

std::string StateName(uint8_t state) {
  const size_t count = sizeof(kStates) / sizeof(kStates[0]);
  if (state >= 1 && state <= count) return kStates[state - 1];
  const char* const of_sctp = AssociationStateName(state);
  return of_sctp != nullptr ? of_sctp : absl::StrCat(state);
}

uint8_t StateOfName(absl::string_view name) {
  std::string wanted = absl::AsciiStrToUpper(name);
  std::replace(wanted.begin(), wanted.end(), '-', '_');
  uint8_t state = 0;
  for (const char* known : kStates) {
    state++;
    if (wanted == known) return state;
  }
  for (state = kSctpStates; state < 2 * kSctpStates; state++) {
    const char* const known = AssociationStateName(state);
    if (known != nullptr && wanted == known) return state;
  }
  return 0;
}

std::string ProtocolName(uint16_t protocol) {
  switch (protocol) {
    case IPPROTO_TCP:
      return "tcp";
    case IPPROTO_UDP:
      return "udp";
    case IPPROTO_UDPLITE:
      return "udplite";
    case IPPROTO_RAW:
      return "raw";
    case IPPROTO_ICMP:
      return "icmp";
    case IPPROTO_ICMPV6:
      return "icmpv6";
    case IPPROTO_SCTP:
      return "sctp";
    case kMptcp:
      return "mptcp";
    default:
      return absl::StrCat(protocol);
  }
}

std::string TimerName(uint8_t timer) {
  const size_t count = sizeof(kTimers) / sizeof(kTimers[0]);
  return timer < count ? kTimers[timer] : absl::StrCat(timer);
}

}  // namespace internal
}  // namespace netmeter
