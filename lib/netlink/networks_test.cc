// SPDX-License-Identifier: BSD-3-Clause
#include "lib/netlink/networks.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace netmeter {
namespace internal {
namespace {

absl::Status Enter(const std::string& path) {
  Network network;
  network.path = path;
  return InNetwork(network, [] { return absl::OkStatus(); });
}

// "ip netns delete" removes the mount, and then the name. In between the name is an empty
// file. The bug: a program that met it ended with "Invalid argument".
TEST(Networks, ANameWhoseNamespaceIsBeingRemovedHasGone) {
  std::string path = testing::TempDir() + "/netns.XXXXXX";
  const int fd = mkstemp(path.data());
  ASSERT_GE(fd, 0);
  close(fd);
  EXPECT_EQ(Enter(path).code(), absl::StatusCode::kNotFound) << Enter(path);
  unlink(path.c_str());
  EXPECT_EQ(Enter(path).code(), absl::StatusCode::kNotFound) << Enter(path);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
