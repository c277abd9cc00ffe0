// SPDX-License-Identifier: BSD-3-Clause
// All program tests run in a network namespace of their own: the test run
// wants an interface other than loopback, and the machine may have none.
#include <gtest/gtest.h>

#include "lib/testing/net_namespace.h"

namespace netmeter {
namespace internal {
namespace {

class OwnNetwork : public testing::Environment {
 public:
  void SetUp() override {
    NetNamespace network;
    network.AddVeth({&network, "nm0", MacAddress(1), {}},
                    {&network, "nm1", MacAddress(2), {}});
    network.Enter();
  }
};

const testing::Environment* const kOwnNetwork =
    testing::AddGlobalTestEnvironment(new OwnNetwork);

}  // namespace
}  // namespace internal
}  // namespace netmeter
