// SPDX-License-Identifier: BSD-3-Clause
#include "lib/netlink/interfaces.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <string.h>
#include <sys/stat.h>

#include <cstdint>
#include <fstream>
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

// The kernel marks the rest of a dump during which an interface came or went. What was
// listed then was taken for all there is, with one interface missing.
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

// What is left of an answer to the request before is nobody's.
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

// The last message was read beyond the datagram.
TEST(Interfaces, AnAnswerThatIsCutShortIsRefused) {
  const std::string message = Message(RTM_NEWLINK, 0, 1);
  for (size_t size = 1; size < message.size(); ++size) {
    // As long as it says, or shorter.
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

// The errno of the kernel is a negative number.
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

// A host without IPv6 has no file that says whether it forwards. It was taken for a
// router, and its remainder was called forwarded.
TEST(Interfaces, AHostWithoutIpv6DoesNotForward) {
  std::string root = ::testing::TempDir() + "forwards";
  for (const char* part : {"", "/proc", "/sys", "/net", "/ipv4"}) {
    root += part;
    mkdir(root.c_str(), 0755);
  }
  const std::string file = root + "/ip_forward";
  root.resize(root.size() - strlen("/proc/sys/net/ipv4"));
  std::ofstream(file) << "0\n";
  EXPECT_FALSE(Forwards({}, root));
  std::ofstream(file) << "1\n";
  EXPECT_TRUE(Forwards({}, root));
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
