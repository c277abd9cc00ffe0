// SPDX-License-Identifier: BSD-3-Clause
#include "lib/testing/bpffs_fixture.h"

#include <stdlib.h>
#include <sys/mount.h>
#include <unistd.h>

#include "lib/testing/fake_meter.h"

namespace netmeter {
namespace internal {

void BpffsTest::SetUp() {
  char name[] = "/tmp/netmeter-test-XXXXXX";
  ASSERT_NE(mkdtemp(name), nullptr);
  pin_dir_ = name;
  ASSERT_EQ(MountBpffs(pin_dir_), "");
}

void BpffsTest::TearDown() {
  // Lazy, because a failed case may have left a process that holds a pin open.
  EXPECT_EQ(umount2(pin_dir_.c_str(), MNT_DETACH), 0);
  EXPECT_EQ(rmdir(pin_dir_.c_str()), 0);
}

}  // namespace internal
}  // namespace netmeter
