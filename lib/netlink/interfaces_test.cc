// SPDX-License-Identifier: BSD-3-Clause
#include "lib/netlink/interfaces.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <string.h>

#include <cstdint>
#include <string>
#include <vector>

namespace netmeter {
namespace internal {
namespace {

constexpr uint32_t kSequence = 7;

// One interface, or the end.
std::string Message(uint16_t type, uint16_t flags, int index,
                    uint32_t sequence = kSequence) {
  struct {
    nlmsghdr header;
    ifinfomsg link;
  } message = {};
  message.header.nlmsg_len = sizeof(message);
  message.header.nlmsg_type = type;
  message.header.nlmsg_flags = static_cast<uint16_t>(NLM_F_MULTI | flags);
  message.header.nlmsg_seq = sequence;
  message.link.ifi_index = index;
  return std::string(reinterpret_cast<const char*>(&message), sizeof(message));
}

// The kernel marks the remaining messages of a dump if an interface changed during it.
// The bug: such a dump, which lacked an interface, was taken as complete.
TEST(Interfaces, ADumpThatWasInterruptedIsNotTaken) {
  bool changed = false;
  std::vector<Interface> all;
  auto taken = TakeInterfaces(
      Message(RTM_NEWLINK, 0, 1) + Message(RTM_NEWLINK, NLM_F_DUMP_INTR, 3),
      kSequence, &changed, &all);
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(*taken, LinkDump::kMore);
  taken = TakeInterfaces(Message(NLMSG_DONE, 0, 0), kSequence, &changed, &all);
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(*taken, LinkDump::kChanged);
}

// Late messages of the answer to the previous request are skipped.
TEST(Interfaces, AnswersToAnotherRequestAreSkipped) {
  bool changed = false;
  std::vector<Interface> all;
  const auto taken = TakeInterfaces(
      Message(RTM_NEWLINK, NLM_F_DUMP_INTR, 2, kSequence - 1) +
          Message(NLMSG_DONE, NLM_F_DUMP_INTR, 0, kSequence - 1) +
          Message(RTM_NEWLINK, 0, 1) + Message(NLMSG_DONE, 0, 0),
      kSequence, &changed, &all);
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(*taken, LinkDump::kDone);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].index, 1u);
}

// The bug: the last message was read beyond the datagram.
TEST(Interfaces, AnAnswerThatIsCutShortIsRefused) {
  const std::string message = Message(RTM_NEWLINK, 0, 1);
  for (size_t size = 1; size < message.size(); ++size) {
    // The message has the length that its header says, or is shorter.
    for (const bool says_so : {false, true}) {
      std::string part = message.substr(0, size);
      if (says_so && size >= sizeof(nlmsghdr)) {
        const auto length = static_cast<uint32_t>(size);
        memcpy(&part[0], &length, sizeof(length));
      }
      bool changed = false;
      std::vector<Interface> all;
      const auto taken = TakeInterfaces(part, kSequence, &changed, &all);
      EXPECT_EQ(taken.status().code(), absl::StatusCode::kInternal) << size;
      EXPECT_TRUE(all.empty());
    }
  }
}

// The kernel's errno is a negative number.
TEST(Interfaces, AnErrorIsNamed) {
  std::string message = Message(NLMSG_ERROR, 0, 0);
  const int error = -EPERM;
  memcpy(&message[sizeof(nlmsghdr)], &error, sizeof(error));
  bool changed = false;
  std::vector<Interface> all;
  const auto taken = TakeInterfaces(message, kSequence, &changed, &all);
  EXPECT_EQ(taken.status().code(), absl::StatusCode::kPermissionDenied)
      << taken.status();
}

TEST(Interfaces, AreThoseOfThisNamespace) {
  const auto all = ListInterfaces();
  ASSERT_TRUE(all.ok()) << all.status();
  ASSERT_FALSE(all->empty());
  EXPECT_EQ((*all)[0].index, kLoopbackIndex);
  EXPECT_EQ((*all)[0].name, "lo");
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
