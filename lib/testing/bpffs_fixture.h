// SPDX-License-Identifier: BSD-3-Clause
// A test with its own BPF file system, in which it pins a meter. Only the test and its
// children see this file system.
//
//   class ListTest : public BpffsTest {};
//   TEST_F(ListTest, ShowsASeries) {
//     FakeMeter meter((FakeMeter::Options()));
//     ASSERT_EQ(meter.Pin(pin_dir_), "");
//   }
//
// Needs root.

#ifndef NETMETER_LIB_TESTING_BPFFS_FIXTURE_H_
#define NETMETER_LIB_TESTING_BPFFS_FIXTURE_H_

#include <gtest/gtest.h>

#include <string>

namespace netmeter {
namespace internal {

class BpffsTest : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  std::string pin_dir_;  // empty
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_TESTING_BPFFS_FIXTURE_H_
