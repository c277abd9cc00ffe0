// SPDX-License-Identifier: BSD-3-Clause
#include "lib/netlink/receive.h"

#include <errno.h>
#include <linux/netlink.h>
#include <string.h>
#include <sys/socket.h>

#include "absl/strings/str_cat.h"
#include "lib/base/status_util.h"

namespace netmeter {
namespace internal {
namespace {

absl::Status CutShort(absl::string_view what) {
  return absl::InternalError(absl::StrCat(what, ": a message is cut short"));
}

}  // namespace

absl::StatusOr<absl::string_view> ReceiveFromKernel(int fd,
                                                    absl::string_view what,
                                                    std::vector<char>* buffer) {
  while (true) {
    iovec part = {buffer->data(), buffer->size()};
    sockaddr_nl sender = {};
    msghdr header = {};
    header.msg_name = &sender;
    header.msg_namelen = sizeof(sender);
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    const ssize_t size = recvmsg(fd, &header, 0);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return ErrnoStatus(errno, what);
    // Any process may send to a netlink socket; the kernel's port is 0.
    if (sender.nl_pid != 0) continue;
    if (size == 0 || (header.msg_flags & MSG_TRUNC) != 0) return CutShort(what);
    return absl::string_view(buffer->data(), static_cast<size_t>(size));
  }
}

absl::StatusOr<bool> DumpFromKernel(
    int fd, absl::string_view request, absl::string_view what,
    const std::function<bool(const NetlinkMessage&)>& body) {
  nlmsghdr header = {};
  memcpy(&header, request.data(), sizeof(header));
  if (send(fd, request.data(), request.size(), 0) < 0) {
    return ErrnoStatus(errno, what);
  }
  std::vector<char> buffer(kNetlinkBufferBytes);
  bool complete = true;
  while (true) {
    NETMETER_ASSIGN_OR_RETURN(const absl::string_view datagram,
                              ReceiveFromKernel(fd, what, &buffer));
    NetlinkMessages messages(datagram);
    NetlinkMessage message;
    while (messages.Next(&message)) {
      if (message.sequence != header.nlmsg_seq) continue;
      if ((message.flags & NLM_F_DUMP_INTR) != 0) complete = false;
      if (message.type == NLMSG_ERROR || message.type == NLMSG_DONE) {
        const int error = ErrorOf(message);
        if (error != 0) return ErrnoStatus(error, what);
        return complete;
      }
      if (!body(message)) return CutShort(what);
    }
    if (messages.malformed()) return CutShort(what);
  }
}

}  // namespace internal
}  // namespace netmeter
