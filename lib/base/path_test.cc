// SPDX-License-Identifier: BSD-3-Clause
#include "lib/base/path.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <string>

namespace netmeter {
namespace internal {
namespace {

TEST(CanonicalPathTest, ResolvesWhatExists) {
  EXPECT_EQ(CanonicalPath("/"), "/");
  EXPECT_EQ(CanonicalPath("/proc/"), "/proc");
  EXPECT_EQ(CanonicalPath("/proc/./no-such/dir/"), "/proc/no-such/dir");
  EXPECT_EQ(CanonicalPath("/no-such//dir//"), "/no-such/dir");
  char dir[] = "/tmp/netmeter-path-XXXXXX";
  ASSERT_NE(mkdtemp(dir), nullptr);
  const std::string link = std::string(dir) + "/link";
  ASSERT_EQ(symlink("/proc", link.c_str()), 0);
  EXPECT_EQ(CanonicalPath(link + "/x"), "/proc/x");
  // A relative path is below the working directory.
  char before[4096];
  ASSERT_NE(getcwd(before, sizeof(before)), nullptr);
  ASSERT_EQ(chdir(dir), 0);
  EXPECT_EQ(CanonicalPath("x/y/"), std::string(dir) + "/x/y");
  EXPECT_EQ(CanonicalPath("link"), "/proc");
  EXPECT_EQ(CanonicalPath("."), dir);
  EXPECT_EQ(CanonicalPath(""), "");
  ASSERT_EQ(chdir(before), 0);
  unlink(link.c_str());
  rmdir(dir);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
