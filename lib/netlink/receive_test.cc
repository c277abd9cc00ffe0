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
        EXPECT_EQ(received.status().message(), "test: a message is cut short");
        break;
      }
      NetlinkMessages messages(*received);
      NetlinkMessage message;
      while (messages.Next(&message)) done |= message.type == NLMSG_DONE;
    }
    EXPECT_EQ(done, size == kNetlinkBufferBytes);
  }
}

constexpr uint32_t kSequence = 7;

// One message of an answer.
std::string Message(uint16_t type, uint16_t flags = 0,
                    uint32_t sequence = kSequence, int payload = 0) {
  struct {
    nlmsghdr header;
    int payload;
  } message = {};
  message.header.nlmsg_len = sizeof(message);
  message.header.nlmsg_type = type;
  message.header.nlmsg_flags = static_cast<uint16_t>(NLM_F_MULTI | flags);
  message.header.nlmsg_seq = sequence;
  message.payload = payload;
  return std::string(reinterpret_cast<const char*>(&message), sizeof(message));
}

// What a dump returns if the kernel answers with these datagrams, and how many messages
// it has had. `accepts`: what the caller says of each.
absl::StatusOr<bool> Dump(const std::vector<std::string>& answers,
                          int* messages, bool accepts = true) {
  int pair[2];
  EXPECT_EQ(
      socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair),
      0);
  const UniqueFd kernel(pair[0]), fd(pair[1]);
  for (const std::string& answer : answers) {
    EXPECT_EQ(send(kernel.get(), answer.data(), answer.size(), 0),
              static_cast<ssize_t>(answer.size()));
  }
  *messages = 0;
  return DumpFromKernel(fd.get(), Message(RTM_GETLINK), "test",
                        [&](const NetlinkMessage& message) {
                          EXPECT_EQ(message.type, RTM_NEWLINK);
                          ++*messages;
                          return accepts;
                        });
}

// The kernel marks the remaining messages of a dump if an interface changed during it.
// The bug: such a dump, which lacked an interface, was taken as complete.
TEST(DumpFromKernel, ADumpThatWasInterruptedIsNotComplete) {
  int messages = 0;
  const auto complete =
      Dump({Message(RTM_NEWLINK) + Message(RTM_NEWLINK, NLM_F_DUMP_INTR),
            Message(NLMSG_DONE)},
           &messages);
  ASSERT_TRUE(complete.ok()) << complete.status();
  EXPECT_FALSE(*complete);
  EXPECT_EQ(messages, 2);
}

// Late messages of the answer to the previous request are skipped.
TEST(DumpFromKernel, AnswersToAnotherRequestAreSkipped) {
  int messages = 0;
  const auto complete =
      Dump({Message(RTM_NEWLINK, NLM_F_DUMP_INTR, kSequence - 1) +
                Message(NLMSG_DONE, NLM_F_DUMP_INTR, kSequence - 1) +
                Message(RTM_NEWLINK),
            Message(NLMSG_DONE)},
           &messages);
  ASSERT_TRUE(complete.ok()) << complete.status();
  EXPECT_TRUE(*complete);
  EXPECT_EQ(messages, 1);
}

// The bug: the last message was read beyond the datagram.
TEST(DumpFromKernel, AnAnswerThatIsCutShortIsRefused) {
  const std::string message = Message(RTM_NEWLINK);
  for (size_t size = 1; size < message.size(); ++size) {
    int messages = 0;
    EXPECT_EQ(Dump({message.substr(0, size)}, &messages).status(),
              absl::InternalError("test: a message is cut short"))
        << size;
    EXPECT_EQ(messages, 0);
  }
  // The message is whole, but too short for what it should say.
  int messages = 0;
  EXPECT_EQ(Dump({message}, &messages, /*accepts=*/false).status(),
            absl::InternalError("test: a message is cut short"));
}

// The kernel's errno is a negative number.
TEST(DumpFromKernel, AnErrorIsNamed) {
  int messages = 0;
  const auto complete =
      Dump({Message(NLMSG_ERROR, 0, kSequence, -EPERM)}, &messages);
  EXPECT_EQ(complete.status().code(), absl::StatusCode::kPermissionDenied)
      << complete.status();
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
