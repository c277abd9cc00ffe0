// SPDX-License-Identifier: BSD-3-Clause
// All program tests run in a network namespace of their own: the test run
// wants an interface other than loopback, and the machine may have none.
#include <gtest/gtest.h>

#include <string>

#include "test/program/sandbox.h"

namespace netmeter {
namespace internal {
namespace {

class OwnNetwork : public testing::Environment {
 public:
  void SetUp() override {
    std::string error;
    ASSERT_TRUE(EnterOwnNetwork(&error)) << error << " (run as root)";
  }
};

const testing::Environment* const kOwnNetwork =
    testing::AddGlobalTestEnvironment(new OwnNetwork);

}  // namespace
}  // namespace internal
}  // namespace netmeter
