// SPDX-License-Identifier: BSD-3-Clause
// What a user may add to the tables, where a retirement was killed.

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/core/unique_fd.h"
#include "lib/loader/loader_fixture.h"
#include "lib/loader/retire.h"
#include "netmeter/abi.h"
#include "netmeter/meter.h"

namespace netmeter {
namespace internal {
namespace {

// The key of a series says whose share it takes. A retirement that was killed after it
// had removed the key left that share used up until unload.
TEST_F(LoaderRootTest, AUserGetsHisShareBackAfterARetirementThatWasKilled) {
  config_.destinations.clear();  // their names take room
  config_.max_series = 400;
  config_.max_names = 400;  // an eighth: 50
  MustLoad();
  RetireOptions retire;
  retire.pin_dir = config_.pin_dir;
  retire.idle_seconds = 0;
  for (int round = 0; round < 3; round++) {
    SCOPED_TRACE(round);
    ASSERT_EQ(
        InChild([&] {
          std::ofstream(cgroup_ + "/cgroup.procs") << getpid();
          if (!BecomeUser(kGid)) return 1;
          sockaddr_in to = {};
          to.sin_family = AF_INET;
          to.sin_port = htons(8443);
          to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
          for (int i = 0; i < 40; i++) {
            const UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
            const std::string name = absl::StrCat("u", round, "-", i);
            if (setsockopt(fd.get(), NM_SOL, NM_SERVICE, name.data(),
                           static_cast<socklen_t>(name.size())) != 0) {
              return 2;
            }
            if (sendto(fd.get(), "x", 1, 0, reinterpret_cast<sockaddr*>(&to),
                       sizeof(to)) != 1) {
              return 3;
            }
          }
          return 0;
        }),
        0);
    EXPECT_TRUE(absl::StartsWith(
        KilledAfter("unlinked ", 0, [&] { return Retire(retire).ok(); }),
        "unlinked 40 series"));
    const auto retired = Retire(retire);
    ASSERT_TRUE(retired.ok()) << retired.status();
    EXPECT_EQ(retired->series, 40u);
  }
  MeterOptions options;
  options.pin_dir = config_.pin_dir;
  const auto meter = Meter::Open(options);
  ASSERT_TRUE(meter.ok()) << meter.status();
  const auto health = (*meter)->ReadHealth();
  ASSERT_TRUE(health.ok()) << health.status();
  EXPECT_EQ(health->lost_packets_series_capped, 0u);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
