// SPDX-License-Identifier: BSD-3-Clause
// Pins that change while they are opened.
#include "lib/reader/shared_maps.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "lib/base/pins.h"
#include "lib/base/unique_fd.h"
#include "lib/testing/bpffs_fixture.h"
#include "lib/testing/fake_meter.h"
#include "netmeter/meter.h"

namespace netmeter {
namespace internal {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class SharedMapsRootTest : public BpffsTest {
 protected:
  std::string OpenError() {
    const absl::Status status = SharedMaps::Open(pin_dir_).status();
    EXPECT_TRUE(absl::IsNotFound(status)) << status;
    return std::string(status.message());
  }
};

// The bug: if pins of a meter had gone, the error was `no meter`, with the advice to load
// one, and that load was refused. See also
// LoaderRootTest.WhatStatusSaysOfALostMapBringsTheMeterBack.
TEST_F(SharedMapsRootTest, AMeterOfWhichPinsAreMissingIsDamaged) {
  const std::string no_meter = "no meter at " + pin_dir_ + " (run: ";
  const std::string command = " --pin-dir " + pin_dir_;
  EXPECT_THAT(OpenError(), StartsWith(no_meter));
  FakeMeter meter((FakeMeter::Options()));
  ASSERT_EQ(meter.Pin(pin_dir_), "");
  ASSERT_TRUE(SharedMaps::Open(pin_dir_).ok());
  const std::string counters = pin_dir_ + "/counters",
                    info = pin_dir_ + "/info";
  const std::string kept = pin_dir_ + "/kept",
                    egress = pin_dir_ + "/link_egress";
  ASSERT_EQ(rename(counters.c_str(), kept.c_str()), 0);
  EXPECT_THAT(OpenError(),
              StartsWith("the meter at " + pin_dir_ +
                         " is damaged: these maps are missing: counters, "));
  EXPECT_THAT(OpenError(),
              HasSubstr(" (see: netmeter-loader status" + command + ")"));
  // An unload does this. It is running or was killed.
  meter.info()->closed = 1;
  EXPECT_THAT(OpenError(), StartsWith(no_meter));
  meter.info()->closed = 0;
  // A first load pins `info` last.
  ASSERT_EQ(unlink(info.c_str()), 0);
  EXPECT_THAT(OpenError(), StartsWith(no_meter));
  // The link exists, whatever it holds.
  ASSERT_EQ(rename(kept.c_str(), egress.c_str()), 0);
  EXPECT_THAT(OpenError(), StartsWith("the meter at " + pin_dir_ +
                                      " is damaged, unless a load is running: "
                                      "these maps are missing: counters, "));
  EXPECT_THAT(OpenError(),
              HasSubstr(", info (see: netmeter-loader status" + command + ")"));
}

// Acts as `netmeter-fds`; closes the connection if there are no descriptors to give.
void AnswerNext(int listener, const FakeMeter* meter) {
  const UniqueFd client(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
  EXPECT_TRUE(client.ok());
  if (meter != nullptr) {
    EXPECT_EQ(meter->SendTo(client.get()), "");
  }
}

// A reader without privileges, in a process of its own, that gets its maps from a server.
// Its steps are a second apart, because a meter does not look more often.
class ServedReaderRootTest : public SharedMapsRootTest {
 protected:
  void SetUp() override {
    SharedMapsRootTest::SetUp();
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, steps_), 0);
  }
  void TearDown() override {
    for (const int end : steps_) close(end);
    SharedMapsRootTest::TearDown();
  }

  // Serves the meter at `pin_dir`, on a new socket.
  void Listen(const std::string& pin_dir) {
    path_ = pin_dir + ".sock";
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    strcpy(address.sun_path, path_.c_str());
    unlink(path_.c_str());
    listener_ = UniqueFd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address),
                   sizeof(address)),
              0);
    ASSERT_EQ(chmod(path_.c_str(), 0666), 0);
    ASSERT_EQ(listen(listener_.get(), 3), 0);
  }

  // Acts as a `netmeter-fds` that was stopped, or is about to be restarted.
  void StopListening() { listener_ = UniqueFd(); }

  // Answers the next client.
  void Answer(const FakeMeter* meter) {
    pollfd client = {listener_.get(), POLLIN, 0};
    ASSERT_EQ(poll(&client, 1, 10000), 1);
    AnswerNext(listener_.get(), meter);
  }

  // `old` is closed as soon as the reader has it. Each of `expected` is the result of a
  // read; those after the first wait for Proceed().
  void StartReader(const std::string& pin_dir, FakeMeter* old,
                   const std::vector<absl::StatusCode>& expected) {
    reader_ = fork();
    if (reader_ != 0) return;
    alarm(30);
    StopListening();
    if (setresuid(65534, 65534, 65534) != 0) _exit(100);
    if (prctl(PR_SET_DUMPABLE, 1) != 0) _exit(101);
    MeterOptions options;
    options.pin_dir = pin_dir;
    const auto meter = Meter::Open(options);
    if (!meter.ok()) _exit(102);
    old->info()->closed = 1;
    int step = 1;
    for (const absl::StatusCode code : expected) {
      if (step != 1) {
        char byte;
        if (read(steps_[1], &byte, 1) != 1) _exit(104);
        // Until it looks again.
        std::this_thread::sleep_for(std::chrono::milliseconds(1100));
      }
      const absl::Status status = (*meter)->ReadHost().status();
      if (status.code() != code) {
        fprintf(stderr, "step %d: %s\n", step, status.ToString().c_str());
        _exit(step);
      }
      if (write(steps_[1], "", 1) != 1) _exit(103);
      step++;
    }
    _exit(0);
  }

  void AwaitStep() {
    pollfd step = {steps_[0], POLLIN, 0};
    ASSERT_EQ(poll(&step, 1, 10000), 1);
    char byte;
    ASSERT_EQ(read(steps_[0], &byte, 1), 1);
  }

  void Proceed() { ASSERT_EQ(write(steps_[0], "", 1), 1); }

  void AwaitReader() {
    int status = 0;
    EXPECT_EQ(waitpid(reader_, &status, 0), reader_);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
    unlink(path_.c_str());
  }

 private:
  std::string path_;
  UniqueFd listener_;
  int steps_[2] = {-1, -1};
  pid_t reader_ = -1;
};

// The bug: a container has only the socket, and no pins. If the server was silent or
// restarting just when the maps had been closed, the reader reported an unload for good.
TEST_F(ServedReaderRootTest, AReaderInAContainerWaitsForTheServer) {
  FakeMeter old((FakeMeter::Options())), grown((FakeMeter::Options()));
  const std::string pin_dir = pin_dir_ + "-of-the-host";
  Listen(pin_dir);
  StartReader(pin_dir, &old,
              {absl::StatusCode::kUnavailable, absl::StatusCode::kUnavailable,
               absl::StatusCode::kOk});
  Answer(&old);
  Answer(nullptr);
  StopListening();
  AwaitStep();
  Proceed();
  AwaitStep();
  Listen(pin_dir);
  Proceed();
  Answer(&grown);
  AwaitReader();
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
