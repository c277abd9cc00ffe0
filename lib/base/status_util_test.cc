// SPDX-License-Identifier: BSD-3-Clause
#include "lib/base/status_util.h"

#include <errno.h>
#include <gtest/gtest.h>

namespace netmeter {
namespace internal {
namespace {

TEST(CodeOfErrno, IsThatOfTheHouseStyle) {
  EXPECT_EQ(CodeOfErrno(EPERM), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(CodeOfErrno(EACCES), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(CodeOfErrno(ENOENT), absl::StatusCode::kNotFound);
  EXPECT_EQ(CodeOfErrno(EMFILE), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(CodeOfErrno(ENOSYS), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(CodeOfErrno(524), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(CodeOfErrno(ENOTSOCK), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CodeOfErrno(ETIMEDOUT), absl::StatusCode::kUnavailable);
  EXPECT_EQ(CodeOfErrno(EFAULT), absl::StatusCode::kInternal);
  EXPECT_EQ(CodeOfErrno(0), absl::StatusCode::kOk);
}

TEST(CodeOfErrno, TakesLibbpfsNegativeOnes) {
  EXPECT_EQ(CodeOfErrno(-ENOENT), absl::StatusCode::kNotFound);
}

TEST(ErrnoStatus, SaysWhatFailedWhyAndWhatToDo) {
  EXPECT_EQ(ErrnoStatus(EPERM, "attach x", "needs CAP_BPF").message(),
            "attach x: Operation not permitted (needs CAP_BPF)");
  EXPECT_EQ(ErrnoStatus(-EPERM, "attach x").message(),
            "attach x: Operation not permitted");
}

TEST(ErrnoStatus, OfNoErrorIsOk) { EXPECT_TRUE(ErrnoStatus(0, "x").ok()); }

}  // namespace
}  // namespace internal
}  // namespace netmeter
