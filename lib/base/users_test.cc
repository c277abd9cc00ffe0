// SPDX-License-Identifier: BSD-3-Clause
#include "lib/base/users.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace netmeter {
namespace internal {
namespace {

std::string FileWith(const std::string& text) {
  const std::string path = std::string(getenv("TEST_TMPDIR")) + "/group";
  std::ofstream(path) << text;
  return path;
}

std::optional<Group> FindInFile(const std::string& path,
                                const std::string& name) {
  return FindGroupInFile(
      path, [&](const Group& group) { return group.name == name; });
}

TEST(GroupTest, FindsRootByNameAndById) {
  const auto by_name = FindGroupByName("root"), by_id = FindGroupById(0);
  ASSERT_TRUE(by_name.has_value());
  EXPECT_EQ(by_name->id, 0u);
  ASSERT_TRUE(by_id.has_value());
  EXPECT_EQ(by_id->name, "root");
}

TEST(GroupTest, FindsNoGroupThatIsNotThere) {
  EXPECT_FALSE(FindGroupByName("no such group").has_value());
  EXPECT_FALSE(FindGroupByName("").has_value());
  EXPECT_FALSE(FindGroupById(4294967294u).has_value());
}

TEST(GroupTest, ReadsAFileOfGroups) {
  const std::string path =
      FileWith("root:x:0:\n\n# a comment\nno entry\nnetmeter:x:987:a,b\n");
  const auto group = FindInFile(path, "netmeter");
  ASSERT_TRUE(group.has_value());
  EXPECT_EQ(group->id, 987u);
  EXPECT_FALSE(FindInFile(path, "no entry").has_value());
  EXPECT_FALSE(FindInFile(path + "-missing", "root").has_value());
}

TEST(GroupTest, ReadsAnEntryWithThousandsOfMembers) {
  std::string members = "m0";
  for (int i = 1; i < 20000; i++) members += ",member" + std::to_string(i);
  const std::string path =
      FileWith("first:x:1:\ncrowd:x:2:" + members + "\nlast:x:3:\n");
  const auto crowd = FindInFile(path, "crowd"), last = FindInFile(path, "last");
  ASSERT_TRUE(crowd.has_value());
  EXPECT_EQ(crowd->id, 2u);
  ASSERT_TRUE(last.has_value());
  EXPECT_EQ(last->id, 3u);
}

TEST(FindGroupTest, SaysHowToMakeIt) {
  EXPECT_TRUE(FindGroup("root").ok());
  EXPECT_EQ(FindGroup("no-such-group").status().message(),
            "no group no-such-group (groupadd --system no-such-group)");
  // The bug: the message advised "groupadd 1000".
  EXPECT_EQ(*FindGroup("12345"), 12345u);
  EXPECT_EQ(FindGroup("4294967295").status().message(),
            "no group 4294967295 (ids are below 4294967295)");
}

}  // namespace

namespace {

TEST(UserTest, FindsRoot) {
  EXPECT_EQ(FindUserByName("root")->id, 0u);
  EXPECT_EQ(UserName(0), "root");
}

TEST(UserTest, FindsNoUserThatIsNotThere) {
  EXPECT_FALSE(FindUserByName("no such user").has_value());
  EXPECT_FALSE(FindUserByName("").has_value());
  EXPECT_EQ(UserName(4294967290), "");
}

TEST(UserTest, ReadsAFileOfUsers) {
  const std::string path = std::string(getenv("TEST_TMPDIR")) + "/passwd";
  std::ofstream(path)
      << "root:x:0:0:root:/root:/bin/sh\n\n# a comment\nno entry\n"
      << "long:x:7:7:" << std::string(20000, 'g')
      << ":/:/bin/sh\nmagma:x:987:986::/:/usr/sbin/nologin\n";
  EXPECT_EQ(FindUserInFile(path, "magma")->id, 987u);
  EXPECT_EQ(FindUserInFile(path, "magma")->group, 986u);
  EXPECT_EQ(FindUserInFile(path, "long")->id, 7u);
  EXPECT_FALSE(FindUserInFile(path, "no entry").has_value());
  EXPECT_FALSE(FindUserInFile(path + "-missing", "root").has_value());
}

}  // namespace

}  // namespace internal
}  // namespace netmeter
