// SPDX-License-Identifier: BSD-3-Clause
// What looks at the descriptors of other processes, and at pins, beside a file
// system that answers nothing, as NFS and FUSE whose server hangs: stat(2) and
// open(2) of its files never return.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>

#include "lib/apps/netmeter/cost/program_holders.h"
#include "lib/base/unique_fd.h"
#include "lib/loader/processes.h"
#include "lib/netlink/holders.h"
#include "lib/testing/bpffs_fixture.h"

namespace netmeter {
namespace internal {
namespace {

constexpr unsigned kSeconds = 20;

class HungMountTest : public BpffsTest {
 protected:
  // In the BPF file system, so that a look for pins comes by.
  void SetUp() override {
    BpffsTest::SetUp();
    mount_ = pin_dir_ + "/hung";
    ASSERT_EQ(mkdir(mount_.c_str(), 0700), 0);
    server_ = UniqueFd(open("/dev/fuse", O_RDWR | O_CLOEXEC));
    ASSERT_TRUE(server_.ok()) << "open /dev/fuse (modprobe fuse)";
    const std::string options = "fd=" + std::to_string(server_.get()) +
                                ",rootmode=40000,user_id=0,group_id=0";
    ASSERT_EQ(mount("hung", mount_.c_str(), "fuse", 0, options.c_str()), 0);
    holder_ = fork();
    ASSERT_GE(holder_, 0);
    if (holder_ == 0) {
      // The one way to have a descriptor of it: it asks the server nothing.
      if (open(mount_.c_str(), O_PATH) < 0) _exit(1);
      while (true) pause();
    }
    const std::string descriptors = "/proc/" + std::to_string(holder_) + "/fd/";
    for (int i = 0; i < 1000 && !held_; i++) {
      for (int fd = 0; fd < 64; fd++) {
        char link[256] = {};
        held_ = held_ || (readlink((descriptors + std::to_string(fd)).c_str(),
                                   link, sizeof(link) - 1) > 0 &&
                          mount_ == link);
      }
      usleep(10000);
    }
    ASSERT_TRUE(held_);
  }

  void TearDown() override {
    kill(holder_, SIGKILL);
    EXPECT_EQ(waitpid(holder_, nullptr, 0), holder_);
    close(server_.Release());  // no process waits for it any longer
    EXPECT_EQ(umount2(mount_.c_str(), MNT_DETACH), 0);
    BpffsTest::TearDown();
  }

  // Whether it comes back: tried by a process that an alarm ends.
  static bool Returns(const std::function<void()>& body) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(kSeconds);
      body();
      _exit(0);
    }
    int status = 0;
    return waitpid(child, &status, 0) == child && WIFEXITED(status);
  }

  std::string mount_;
  UniqueFd server_;
  pid_t holder_ = -1;
  bool held_ = false;
};

TEST_F(HungMountTest, HoldsUpNobodyWhoLooksAtDescriptorsOrPins) {
  ASSERT_FALSE(Returns([this] {
    alarm(1);
    struct stat about;
    stat(mount_.c_str(), &about);
  })) << "the mount answers";
  EXPECT_TRUE(Returns([] { ReadProgramHolders(); }));
  EXPECT_TRUE(Returns([] { Holders::Read(); }));
  EXPECT_TRUE(Returns([] {
    EXPECT_TRUE(ForEachOpenSocket("", [](const OpenSocket&) {}).ok());
  }));
  EXPECT_TRUE(Returns([] { RunningProcesses(); }));
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
