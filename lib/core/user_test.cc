// SPDX-License-Identifier: BSD-3-Clause
#include "lib/core/user.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace netmeter {
namespace internal {
namespace {

TEST(UserTest, FindsRoot) {
  EXPECT_EQ(FindUserByName("root"), std::optional<uid_t>(0));
}

TEST(UserTest, FindsNoUserThatIsNotThere) {
  EXPECT_FALSE(FindUserByName("no such user").has_value());
  EXPECT_FALSE(FindUserByName("").has_value());
}

TEST(UserTest, ReadsAFileOfUsers) {
  const std::string path = std::string(getenv("TEST_TMPDIR")) + "/passwd";
  std::ofstream(path)
      << "root:x:0:0:root:/root:/bin/sh\n\n# a comment\nno entry\n"
      << "long:x:7:7:" << std::string(20000, 'g')
      << ":/:/bin/sh\nmagma:x:987:986::/:/usr/sbin/nologin\n";
  EXPECT_EQ(FindUserInFile(path, "magma"), std::optional<uid_t>(987));
  EXPECT_EQ(FindUserInFile(path, "long"), std::optional<uid_t>(7));
  EXPECT_FALSE(FindUserInFile(path, "no entry").has_value());
  EXPECT_FALSE(FindUserInFile(path + "-missing", "root").has_value());
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
