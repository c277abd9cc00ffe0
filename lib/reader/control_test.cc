// SPDX-License-Identifier: BSD-3-Clause
#include "lib/reader/control.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "netmeter/abi.h"

namespace netmeter {
namespace internal {
namespace {

TEST(CheckName, TakesOneToSixtyFourBytesOfAnyKind) {
  EXPECT_TRUE(CheckName("name", "a").ok());
  EXPECT_TRUE(CheckName("name", std::string(NM_NAME_BYTES, 'x')).ok());
  EXPECT_TRUE(CheckName("name", "\xff\x1b\n").ok());
}

TEST(CheckName, RefusesWhatTheKernelCannotKeep) {
  const absl::Status empty = CheckName("service name", "");
  EXPECT_EQ(empty.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(empty.message(), "service name is empty");
  const absl::Status longer =
      CheckName("service name", std::string(NM_NAME_BYTES + 1, 'x'));
  EXPECT_EQ(longer.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(longer.message(), "service name has 65 bytes, at most 64 fit");
  const absl::Status nul = CheckName("service name", std::string("a\0b", 3));
  EXPECT_EQ(nul.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(nul.message(), "service name contains a NUL");
}

TEST(ControlError, SaysWhetherAMeterIsMissingOrRefused) {
  EXPECT_TRUE(absl::IsNotFound(ControlError(ENOPROTOOPT, "x")));
  EXPECT_TRUE(absl::IsNotFound(ControlError(EOPNOTSUPP, "x")));
  EXPECT_TRUE(absl::IsPermissionDenied(ControlError(EPERM, "x")));
  EXPECT_TRUE(absl::IsInvalidArgument(ControlError(ENOTSOCK, "x")));
  EXPECT_NE(
      ControlError(ENOPROTOOPT, "x").message().find("netmeter-loader load"),
      absl::string_view::npos);
}

TEST(RegisterProcess, ChecksTheNameFirst) {
  EXPECT_TRUE(absl::IsInvalidArgument(RegisterProcess("")));
}

TEST(ClaimActivatedSockets, TouchesNothingWithoutAMeter) {
  // LISTEN_PID of another process is ignored, and a wrong count is limited.
  setenv("LISTEN_FDS", "1000000000", 1);
  const std::string own = std::to_string(getpid());
  for (const char* pid : {"1", "x", own.c_str()}) {
    setenv("LISTEN_PID", pid, 1);
    ClaimActivatedSockets("x", 1);
  }
  unsetenv("LISTEN_FDS");
  ClaimActivatedSockets("x", 2);
  unsetenv("LISTEN_PID");
}

TEST(TagDescriptor, RefusesWhatIsNoSocket) {
  EXPECT_TRUE(absl::IsInvalidArgument(TagDescriptor(-1, "x")));
  const int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
  ASSERT_GE(file, 0);
  EXPECT_TRUE(absl::IsInvalidArgument(TagDescriptor(file, "x")));
  close(file);
}

// The bug: the error for a Unix socket said that the meter is full, or not loaded.
TEST(TagDescriptor, SaysThatASocketIsNotOfIp) {
  for (const int family : {AF_UNIX, AF_NETLINK}) {
    const int fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ASSERT_GE(fd, 0);
    const absl::Status tagged = TagDescriptor(fd, "x");
    EXPECT_EQ(tagged.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(tagged.message(), "tag the socket: not an IP socket");
    const absl::Status named = NameServiceOfDescriptor(fd, "x");
    EXPECT_EQ(named.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(named.message(), "name the socket's service: not an IP socket");
    close(fd);
  }
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
