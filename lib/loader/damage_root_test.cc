// SPDX-License-Identifier: BSD-3-Clause
// Pins of a meter that somebody removed: what `netmeter-loader status`, a load and the
// readers say of it, and that what they say to run mends it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "lib/core/pins.h"
#include "lib/core/unique_fd.h"
#include "lib/loader/load.h"
#include "lib/loader/loader_fixture.h"
#include "lib/loader/status.h"
#include "lib/loader/system.h"
#include "lib/loader/unload.h"
#include "lib/testing/run_shell.h"
#include "nlohmann/json.hpp"

namespace netmeter {
namespace internal {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// An unload was advised, which loses the counters; and of `interfaces` nothing was said.
TEST_F(LoaderRootTest, AMapThatEachLoadMakesAnewIsMendedByALoad) {
  MustLoad();
  SendFromCgroup(100);
  for (const char* map : {"rules", "binaries", "uplink_names", "interfaces"}) {
    SCOPED_TRACE(map);
    ASSERT_EQ(unlink(Pin(map).c_str()), 0);
    const Report report = MustStatus();
    EXPECT_EQ(report.state, MeterState::kDamaged);
    EXPECT_THAT(report.text,
                HasSubstr(absl::StrCat(
                    "  MISSING         ", map, ": a map that each load makes ",
                    "anew (run: netmeter-loader load --pin-dir ",
                    config_.pin_dir, ")\n")));
    EXPECT_THAT(report.text, Not(HasSubstr("unload")));
    EXPECT_EQ(nlohmann::json::parse(report.json)["missing_maps"],
              nlohmann::json::array({map}));
    EXPECT_EQ(RunShell("lib/loader/netmeter-loader load --quiet --pin-dir " +
                       config_.pin_dir)
                  .exit_status,
              0);
    EXPECT_EQ(MustStatus().state, MeterState::kLoaded);
    EXPECT_EQ(PayloadSent(), 100u);
  }
}

// `load` was advised, which refuses.
TEST_F(LoaderRootTest, AMapThatIsMissingIsDamageThatOnlyUnloadMends) {
  for (const char* map : {"owners", "counters"}) {
    SCOPED_TRACE(map);
    MustLoad();
    ASSERT_EQ(unlink(Pin(map).c_str()), 0);
    const Report report = MustStatus();
    EXPECT_EQ(report.state, MeterState::kDamaged);
    EXPECT_THAT(report.text, HasSubstr(map));
    EXPECT_THAT(report.text, HasSubstr("netmeter-loader unload"));
    // In the words of `status`; and all hints have the pin directory, which those of
    // `load` and `retire` had not. To count, and to read, takes no `owners`.
    const std::string what = "(run: netmeter-loader unload --pin-dir " +
                             config_.pin_dir + ", then load again)";
    EXPECT_THAT(report.text, HasSubstr(what));
    EXPECT_EQ(ReadError(), map == std::string("owners")
                               ? ""
                               : "the meter at " + config_.pin_dir +
                                     " is damaged: of its maps are missing: " +
                                     map + " " + what);
    EXPECT_THAT(LoadError(),
                HasSubstr("(the meter is damaged: netmeter-loader unload "
                          "--pin-dir " +
                          config_.pin_dir + ", then load again)"));
    bool was_loaded = false;
    EXPECT_TRUE(Unload(config_.pin_dir, &was_loaded).ok());
    EXPECT_TRUE(was_loaded);
  }
}

// `no meter` was said of it. A load makes a whole meter of what it leaves.
TEST_F(LoaderRootTest, AMeterWithoutItsInfoIsDamagedToReadersToo) {
  MustLoad();
  ASSERT_EQ(unlink(Pin("info").c_str()), 0);
  EXPECT_EQ(MustStatus().state, MeterState::kDamaged);
  EXPECT_EQ(
      ReadError(),
      "the meter at " + config_.pin_dir +
          " is damaged, unless a load is at work: of its maps are missing: "
          "info (see: netmeter-loader status --pin-dir " +
          config_.pin_dir + ")");
  MustLoad();
  EXPECT_EQ(ReadError(), "");
  EXPECT_EQ(MustStatus().state, MeterState::kLoaded);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
