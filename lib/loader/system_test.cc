// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/system.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace netmeter {
namespace internal {
namespace {

using ::testing::HasSubstr;

TEST(PinDirectoryTest, WhatIsInTheWayIsSaid) {
  EXPECT_TRUE(CheckDirectory("/no-such-directory/x").ok());
  EXPECT_TRUE(CheckContents("/no-such-directory/x").ok());
  EXPECT_TRUE(CheckDirectory("/etc").ok());
  EXPECT_EQ(CheckDirectory("/etc/passwd/x").message(),
            "pin directory /etc/passwd/x: /etc/passwd is a file, expected a "
            "directory");
  EXPECT_THAT(std::string(CheckContents("/etc").message()),
              HasSubstr("): choose another --pin-dir"));
  // As /sys/fs/bpf is where no BPF file system is mounted.
  EXPECT_THAT(std::string(PrepareDirectory("/sys/fs/no-such/x").message()),
              HasSubstr("(mount -t bpf bpf /sys/fs, or choose another "
                        "--pin-dir)"));
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
