// SPDX-License-Identifier: BSD-3-Clause
// Pins that change while they are opened.
#include "lib/core/shared_maps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <string>
#include <thread>

#include "lib/core/unique_fd.h"
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

// Of a meter of which pins had gone `no meter` was said, and to load one: which was
// refused. See also LoaderRootTest.WhatStatusSaysOfALostMapBringsTheMeterBack.
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
  EXPECT_THAT(OpenError(), StartsWith("the meter at " + pin_dir_ +
                                      " is damaged: of its maps are missing: "
                                      "counters, "));
  EXPECT_THAT(OpenError(),
              HasSubstr(" (see: netmeter-loader status" + command + ")"));
  // As an unload does it, which is at work or was killed.
  meter.info()->closed = 1;
  EXPECT_THAT(OpenError(), StartsWith(no_meter));
  meter.info()->closed = 0;
  // A first load pins `info` last.
  ASSERT_EQ(unlink(info.c_str()), 0);
  EXPECT_THAT(OpenError(), StartsWith(no_meter));
  // What counts is there, whatever it is.
  ASSERT_EQ(rename(kept.c_str(), egress.c_str()), 0);
  EXPECT_THAT(
      OpenError(),
      StartsWith("the meter at " + pin_dir_ +
                 " is damaged, unless a "
                 "load is at work: of its maps are missing: counters, "));
  EXPECT_THAT(OpenError(),
              HasSubstr(", info (see: netmeter-loader status" + command + ")"));
}

// While tables are switched, `info` is a symbolic link through another one. Who had read
// it and looked for where it leads when the switch was over was told that there is no
// meter. An hour of soak found it once, in 500 growths.
TEST_F(SharedMapsRootTest, AreFoundWhileASwitchEnds) {
  FakeMeter meter((FakeMeter::Options()));
  ASSERT_EQ(meter.Pin(pin_dir_), "");
  const std::string info = pin_dir_ + "/info", way = pin_dir_ + "/way";
  const std::string tables = pin_dir_ + "/tables", kept = pin_dir_ + "/kept";
  ASSERT_EQ(link(info.c_str(), kept.c_str()), 0);
  // A long way gives the switch time to end.
  ASSERT_EQ(mkdir((pin_dir_ + "/long").c_str(), 0755), 0);
  std::string target;
  for (int i = 0; i < 400; ++i) target += "long/../";
  target += "way/info";
  std::atomic<bool> done{false};
  std::atomic<int> switches{0};
  std::thread loader([&] {
    const std::string next = pin_dir_ + "/next";
    for (; !done; ++switches) {
      mkdir(tables.c_str(), 0755);
      if (link(kept.c_str(), (tables + "/info").c_str()) != 0) break;
      if (symlink("tables", way.c_str()) != 0) break;
      if (symlink(target.c_str(), next.c_str()) != 0) break;
      if (rename(next.c_str(), info.c_str()) != 0) break;
      if (link(kept.c_str(), next.c_str()) != 0) break;
      if (rename(next.c_str(), info.c_str()) != 0) break;
      unlink(way.c_str());
      unlink((tables + "/info").c_str());
      rmdir(tables.c_str());
    }
  });
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(6);
  int opened = 0;
  for (; std::chrono::steady_clock::now() < end; ++opened) {
    const auto found = OpenSharedPins(pin_dir_);
    EXPECT_TRUE(found.ok()) << found.status() << " after " << opened;
    if (!found.ok()) break;
  }
  done = true;
  loader.join();
  EXPECT_GT(opened, 100);
  EXPECT_GT(switches, 100);
}

// As `netmeter-loader serve-fds` answers; where there are none to give it closes.
void AnswerNext(int listener, const FakeMeter* meter) {
  const UniqueFd client(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
  EXPECT_TRUE(client.ok());
  if (meter == nullptr) return;
  int fds[kSharedMaps];
  for (size_t i = 0; i < kSharedMaps; ++i) {
    fds[i] = meter->fd(static_cast<SharedMap>(i));
  }
  unsigned char version = kDescriptorProtocol;
  iovec data = {&version, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(fds))] = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* const part = CMSG_FIRSTHDR(&message);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(sizeof(fds));
  memcpy(CMSG_DATA(part), fds, sizeof(fds));
  EXPECT_EQ(sendmsg(client.get(), &message, MSG_NOSIGNAL), 1);
}

// A server that closes without an answer, as where too many are unread, was taken for
// one without a meter. A reader that looked for the larger tables just then said for good
// that the meter was unloaded.
TEST_F(SharedMapsRootTest, AServerWithoutAnAnswerHasUnloadedNothing) {
  FakeMeter old((FakeMeter::Options())), grown((FakeMeter::Options()));
  ASSERT_EQ(grown.Pin(pin_dir_), "");
  ASSERT_EQ(chmod(pin_dir_.c_str(), 0700), 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const std::string path = pin_dir_ + ".sock";
  strcpy(address.sun_path, path.c_str());
  const UniqueFd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<const sockaddr*>(&address),
                 sizeof(address)),
            0);
  ASSERT_EQ(chmod(path.c_str(), 0666), 0);
  ASSERT_EQ(listen(listener.get(), 3), 0);
  const pid_t reader = fork();
  if (reader == 0) {
    alarm(30);
    if (setresuid(65534, 65534, 65534) != 0) _exit(2);
    MeterOptions options;
    options.pin_dir = pin_dir_;
    const auto meter = Meter::Open(options);
    if (!meter.ok()) _exit(3);
    old.info()->closed = 1;
    const absl::Status refused = (*meter)->ReadHost().status();
    if (!absl::IsUnavailable(refused) ||
        refused.message().find(path + " gave no maps: ") == std::string::npos) {
      _exit(4);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1100));
    _exit((*meter)->ReadHost().ok() ? 0 : 5);
  }
  const FakeMeter* const answers[] = {&old, nullptr, &grown};
  for (const FakeMeter* const meter : answers) {
    pollfd client = {listener.get(), POLLIN, 0};
    EXPECT_EQ(poll(&client, 1, 10000), 1);
    if (client.revents == 0) break;
    AnswerNext(listener.get(), meter);
  }
  int status = 0;
  EXPECT_EQ(waitpid(reader, &status, 0), reader);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  unlink(path.c_str());
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
