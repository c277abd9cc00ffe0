// SPDX-License-Identifier: BSD-3-Clause
#include "lib/netlink/receive.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <string.h>
#include <sys/socket.h>

#include <string>
#include <vector>

#include "lib/base/unique_fd.h"
#include "lib/netlink/diag_message.h"

namespace netmeter {
namespace internal {
namespace {

UniqueFd Open(int protocol) {
  return UniqueFd(
      socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol));
}

TEST(ReceiveFromKernel, IgnoresOtherSenders) {
  // The protocol by which any process may send to another one.
  const UniqueFd receiver = Open(NETLINK_USERSOCK);
  const UniqueFd sender = Open(NETLINK_USERSOCK);
  sockaddr_nl to = {};
  to.nl_family = AF_NETLINK;
  socklen_t size = sizeof(to);
  auto* const address = reinterpret_cast<sockaddr*>(&to);
  ASSERT_EQ(bind(receiver.get(), address, size), 0) << strerror(errno);
  ASSERT_EQ(getsockname(receiver.get(), address, &size), 0);
  ASSERT_EQ(sendto(sender.get(), "forged", 6, 0, address, size), 6);
  std::vector<char> buffer(100);
  const auto received = ReceiveFromKernel(receiver.get(), "test", &buffer);
  EXPECT_EQ(buffer[0], 'f');
  EXPECT_FALSE(received.ok());
  EXPECT_EQ(received.status().message(),
            std::string("test: ") + strerror(EAGAIN));
}

TEST(ReceiveFromKernel, RefusesADatagramThatIsLongerThanTheBuffer) {
  const UniqueFd fd = Open(NETLINK_ROUTE);
  struct {
    nlmsghdr header;
    rtgenmsg all;
  } request = {};
  request.header.nlmsg_len = sizeof(request);
  request.header.nlmsg_type = RTM_GETLINK;
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  for (const size_t size : {kNetlinkBufferBytes, size_t{20}}) {
    ASSERT_EQ(send(fd.get(), &request, sizeof(request), 0),
              static_cast<ssize_t>(sizeof(request)));
    std::vector<char> buffer(size);
    bool done = false;
    while (!done) {
      const auto received = ReceiveFromKernel(fd.get(), "test", &buffer);
      if (!received.ok()) {
        EXPECT_EQ(received.status(), CutShort("test"));
        break;
      }
      NetlinkMessages messages(*received);
      NetlinkMessage message;
      while (messages.Next(&message)) done |= message.type == NLMSG_DONE;
    }
    EXPECT_EQ(done, size == kNetlinkBufferBytes);
  }
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
