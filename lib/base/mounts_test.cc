// SPDX-License-Identifier: BSD-3-Clause
#include "lib/base/mounts.h"

#include <gtest/gtest.h>
#include <sys/sysmacros.h>

#include <string>
#include <vector>

namespace netmeter {
namespace internal {
namespace {

// The bug: a BPF file system on "/mnt/my pins" was never searched, because its path was
// read as "/mnt/my\040pins".
TEST(MountsTest, EscapesAreUndone) {
  EXPECT_EQ(UnescapeMount("/mnt/my\\040pins"), "/mnt/my pins");
  EXPECT_EQ(UnescapeMount("\\011\\012\\134\\043"), "\t\n\\#");
  EXPECT_EQ(UnescapeMount("\\134040"), "\\040") << "undone once only";
  EXPECT_EQ(UnescapeMount("\\303\\244"), "\xc3\xa4");
  EXPECT_EQ(UnescapeMount(""), "");
}

TEST(MountsTest, WhatIsNoEscapeStays) {
  for (const std::string field : {"\\", "\\0", "\\04", "a\\04", "\\x20",
                                  "\\089", "\\400", "\\99", "/a/b"}) {
    EXPECT_EQ(UnescapeMount(field), field);
  }
}

TEST(MountsTest, ALineIsRead) {
  const std::vector<Mount> mounts = ParseMounts(
      "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 shared:7 - ext3 /dev/root "
      "rw\n"
      "37 35 0:41 / /mnt/my\\040pins rw - bpf net\\011meter rw,mode=750\n"
      "38 35 0:42 / /- rw - cgroup2  rw\n");
  ASSERT_EQ(mounts.size(), 3u);
  EXPECT_EQ(mounts[0].root, "/mnt1");
  EXPECT_EQ(mounts[0].point, "/mnt2");
  EXPECT_EQ(mounts[0].type, "ext3");
  EXPECT_EQ(mounts[0].source, "/dev/root");
  EXPECT_EQ(mounts[0].device, makedev(98, 0));
  EXPECT_EQ(mounts[1].point, "/mnt/my pins");
  EXPECT_EQ(mounts[1].type, "bpf");
  EXPECT_EQ(mounts[1].source, "net\tmeter");
  EXPECT_EQ(mounts[2].point, "/-");
  EXPECT_EQ(mounts[2].type, "cgroup2");
  EXPECT_EQ(mounts[2].source, "");
}

TEST(MountsTest, OtherLinesAreLeftOut) {
  EXPECT_TRUE(ParseMounts("").empty());
  EXPECT_TRUE(ParseMounts("\n-\n - \n36 35 98:0 / /\n").empty());
  EXPECT_TRUE(ParseMounts("36 35 98:0 / /mnt rw -\n").empty());
  EXPECT_TRUE(ParseMounts("36 35 98:0 / /mnt rw - bpf\n").empty());
  EXPECT_TRUE(ParseMounts("36 35 98 / /mnt rw - bpf bpf rw\n").empty());
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
