// SPDX-License-Identifier: BSD-3-Clause
#include "lib/base/cgroup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/status/status.h"

namespace netmeter {
namespace internal {
namespace {

using ::testing::HasSubstr;

TEST(OpenCgroupTest, RefusesWhatIsNoCgroup) {
  EXPECT_EQ(OpenCgroup("/nonexistent").status().code(),
            absl::StatusCode::kNotFound);
  const absl::StatusOr<Cgroup> proc = OpenCgroup("/proc");
  EXPECT_EQ(proc.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(proc.status().message()),
              HasSubstr("not a cgroup v2 directory"));
}

// The sockets of a cgroup had no service if its name came from another mount than the
// first one.
TEST(PathInHierarchyTest, IsTheOneOfItsOwnMount) {
  const absl::StatusOr<std::string> root = FindCgroupRoot();
  ASSERT_TRUE(root.ok()) << root.status();
  EXPECT_EQ(PathInHierarchy(*root), "");
  EXPECT_EQ(PathInHierarchy(*root + "/"), "");
  EXPECT_EQ(PathInHierarchy(*root + "/a/b"), "/a/b");
  EXPECT_EQ(PathInHierarchy(*root + "-other/a"), "");
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
