// SPDX-License-Identifier: BSD-3-Clause
// Tests what `netmeter-loader status` says to a caller who sees no pins.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "lib/apps/fds/serve.h"
#include "lib/loader/loader_fixture.h"
#include "lib/loader/lock_file.h"
#include "lib/loader/status.h"
#include "lib/loader/system.h"
#include "nlohmann/json.hpp"

namespace netmeter {
namespace internal {
namespace {

using ::testing::HasSubstr;

class UnseenPinsTest : public LoaderRootTest {
 protected:
  // Calls `hide` to become a client that gets the maps from the server. Returns what
  // status says wrongly to that client, or "".
  std::string UnseenError(const std::function<bool()>& hide) {
    const std::string told = config_.pin_dir + ".told";
    EXPECT_EQ(
        InChild([&] {
          std::ofstream file(told);
          if (!hide()) return 2;
          const absl::StatusOr<MeterStatus> status = GetStatus(config_.pin_dir);
          if (!status.ok()) {
            file << status.status();
          } else if (status->state != MeterState::kLoaded ||
                     status->sees_pins || status->config_is_lost ||
                     nlohmann::json::parse(
                         StatusAsJson(*status))["pins_seen"] != false ||
                     !absl::StrContains(StatusAsText(*status),
                                        "\n  UNSEEN          the pins, ")) {
            file << StatusAsText(*status);
          }
          return 0;
        }),
        0);
    std::ifstream file(told);
    const std::string all(std::istreambuf_iterator<char>(file), {});
    unlink(told.c_str());
    return all;
  }
};

bool BecomeMember() { return BecomeUser(kGid); }
bool RefuseBpf() { return RefuseCall(SYS_bpf, EPERM); }

// `status` called all links and maps missing for three callers: one without maps, one in
// a container that cannot call bpf(2), and one that has the maps from netmeter-fds but
// cannot look into the directory.
TEST_F(UnseenPinsTest, WhoSeesNoPinsIsNotToldThatTheyAreMissing) {
  config_.group = "";
  MustLoad();
  ServeOptions serve;
  serve.pin_dir = config_.pin_dir;
  serve.group = kGroup;
  const std::string socket_path = config_.pin_dir + ".sock";
  const pid_t server = fork();
  if (server == 0) {
    alarm(300);  // with loads in a slow guest
    _exit(ServeDescriptors(serve).ok() ? 0 : 1);
  }
  AwaitListener(socket_path);
  EXPECT_EQ(UnseenError(BecomeMember), "");
  EXPECT_EQ(UnseenError([this] {
              return unshare(CLONE_NEWNS) == 0 &&
                     mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) ==
                         0 &&
                     umount2(config_.pin_dir.c_str(), MNT_DETACH) == 0 &&
                     BecomeMember();
            }),
            "");
  EXPECT_EQ(UnseenError(RefuseBpf), "");
  const std::string lock = LockFile(config_.pin_dir), kept = lock + ".kept";
  ASSERT_EQ(rename(lock.c_str(), kept.c_str()), 0);
  EXPECT_EQ(UnseenError(RefuseBpf), "");
  ASSERT_EQ(rename(kept.c_str(), lock.c_str()), 0);
  EXPECT_EQ(nlohmann::json::parse(MustStatus().json)["pins_seen"], true);
  config_.group = kGroup;
  MustLoad();
  ASSERT_EQ(chmod(config_.pin_dir.c_str(), 0700), 0);
  EXPECT_EQ(UnseenError(BecomeMember), "");
  // For a damaged meter, status told this user that no group may read it.
  ASSERT_EQ(unlink(Pin("counters").c_str()), 0);
  EXPECT_EQ(UnseenError(BecomeMember),
            "UNAVAILABLE: " + socket_path +
                " gave no maps: the meter is not loaded, or damaged, or too "
                "many answers are unread (run on the host as root: "
                "netmeter-loader status --pin-dir " +
                config_.pin_dir + "; and see the log of netmeter-fds)");
  // A user who sees the names of pins knows more, even without opening one.
  const std::string damaged =
      ": these maps are missing: counters (run: netmeter-loader ";
  EXPECT_THAT(UnseenError(RefuseBpf), HasSubstr(damaged));
  ASSERT_EQ(chmod(config_.pin_dir.c_str(), 0750), 0);
  EXPECT_THAT(UnseenError([] { return BecomeMember() && RefuseBpf(); }),
              HasSubstr(damaged));
  kill(server, SIGTERM);
  int status = 0;
  waitpid(server, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
