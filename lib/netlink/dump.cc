// SPDX-License-Identifier: BSD-3-Clause
#include "lib/netlink/dump.h"

#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/status_util.h"
#include "lib/netlink/receive.h"

namespace netmeter {
namespace internal {
namespace {

void Append(const void* bytes, size_t size, std::string* to) {
  to->append(static_cast<const char*>(bytes), size);
  to->append(NLMSG_ALIGN(size) - size, '\0');
}

void AppendAttribute(uint16_t type, absl::string_view value, std::string* to) {
  nlattr header = {};
  header.nla_type = type;
  header.nla_len = static_cast<uint16_t>(sizeof(header) + value.size());
  Append(&header, sizeof(header), to);
  Append(value.data(), value.size(), to);
}

absl::string_view BytesOf(const uint32_t& number) {
  return {reinterpret_cast<const char*>(&number), sizeof(number)};
}

std::string MessageOf(const DumpRequest& request, uint32_t sequence) {
  nlmsghdr header = {};
  header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  header.nlmsg_seq = sequence;
  inet_diag_req_v2 query = {};
  query.sdiag_family = request.family;
  // The field has eight bits: a larger number is sent as an attribute.
  query.sdiag_protocol = static_cast<uint8_t>(
      request.protocol > UINT8_MAX ? uint16_t{IPPROTO_RAW} : request.protocol);
  query.idiag_states = request.states;
  for (const int extension :
       {INET_DIAG_INFO, INET_DIAG_VEGASINFO, INET_DIAG_CONG, INET_DIAG_TOS,
        INET_DIAG_TCLASS, INET_DIAG_SKMEMINFO, INET_DIAG_SHUTDOWN}) {
    query.idiag_ext |= static_cast<uint8_t>(1 << (extension - 1));
  }
  std::string message;
  Append(&header, sizeof(header), &message);
  Append(&query, sizeof(query), &message);
  const uint32_t protocol = request.protocol;
  if (protocol > UINT8_MAX) {
    AppendAttribute(INET_DIAG_REQ_PROTOCOL, BytesOf(protocol), &message);
  }
  if (request.owners >= 0) {
    std::string map;
    const uint32_t owners = static_cast<uint32_t>(request.owners);
    AppendAttribute(SK_DIAG_BPF_STORAGE_REQ_MAP_FD, BytesOf(owners), &map);
    AppendAttribute(INET_DIAG_REQ_SK_BPF_STORAGES, map, &message);
  }
  header.nlmsg_len = static_cast<uint32_t>(message.size());
  memcpy(&message[0], &header, sizeof(header));
  return message;
}

}  // namespace

SocketDump::SocketDump(UniqueFd fd) : fd_(std::move(fd)) {}

absl::StatusOr<SocketDump> SocketDump::Open() {
  UniqueFd fd(socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!fd.ok()) {
    return ErrnoStatus(errno, "open a netlink socket",
                       "does the kernel have sock_diag?");
  }
  return SocketDump(std::move(fd));
}

absl::Status SocketDump::Read(
    const DumpRequest& request,
    const std::function<void(const DiagSocket&, absl::string_view)>& body) {
  return request.protocol == IPPROTO_SCTP ? ReadSctp(request, body)
                                          : ReadOnce(request, body);
}

// sctp_diag_dump() in net/sctp/diag.c reports two groups of sockets. With LISTEN among
// the states it reports all listening sockets. With states other than LISTEN and CLOSE it
// reports all sockets with associations, listening or not, and the associations. It
// reports no other sockets.
absl::Status SocketDump::ReadSctp(
    const DumpRequest& request,
    const std::function<void(const DiagSocket&, absl::string_view)>& body) {
  constexpr uint32_t kListeners = 1 << TCP_LISTEN | 1 << TCP_CLOSE;
  DumpRequest part = request;
  for (const bool listen : {true, false}) {
    part.states = listen ? kListeners : ~kListeners;
    const auto take = [&](const DiagSocket& socket, absl::string_view message) {
      const bool listens = !socket.association && socket.state == TCP_LISTEN;
      const bool wanted = socket.state < 32
                              ? (request.states >> socket.state & 1) != 0
                              : request.states == ~uint32_t{0};
      if (wanted && listens == listen) body(socket, message);
    };
    NETMETER_RETURN_IF_ERROR(ReadOnce(part, take));
  }
  return absl::OkStatus();
}

absl::Status SocketDump::ReadOnce(
    const DumpRequest& request,
    const std::function<void(const DiagSocket&, absl::string_view)>& body) {
  const std::string what =
      absl::StrCat("list sockets of ", ProtocolName(request.protocol));
  const std::string message = MessageOf(request, ++sequence_);
  const absl::Status dumped =
      DumpFromKernel(
          fd_.get(), message, what,
          [&](const NetlinkMessage& answer) {
            DiagSocket socket;
            if (answer.type == SOCK_DIAG_BY_FAMILY &&
                ParseDiagSocket(answer.payload, request.protocol, &socket)) {
              body(socket, answer.payload);
            }
            return true;
          })
          .status();
  if (absl::IsNotFound(dumped)) {
    return absl::UnimplementedError(absl::StrCat(what, ": this kernel cannot"));
  }
  return dumped;
}

}  // namespace internal
}  // namespace netmeter
