// SPDX-License-Identifier: BSD-3-Clause
// Pins of a meter were removed: tests what `netmeter-loader status`, a load and the
// readers say, and that the command that they name repairs the meter.

#include <bpf/bpf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <fstream>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "lib/base/loader_command.h"
#include "lib/base/pins.h"
#include "lib/loader/load.h"
#include "lib/loader/loader_fixture.h"
#include "lib/loader/status.h"
#include "lib/loader/system.h"
#include "lib/loader/unload.h"
#include "lib/testing/interruption.h"
#include "lib/testing/run_shell.h"
#include "netmeter/meter.h"
#include "nlohmann/json.hpp"

namespace netmeter {
namespace internal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
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
                HasSubstr(absl::StrCat("  MISSING         ", map,
                                       ": a map (run: netmeter-loader load "
                                       "--pin-dir ",
                                       config_.pin_dir, ")\n")));
    EXPECT_THAT(report.text, Not(HasSubstr("unload")));
    EXPECT_EQ(nlohmann::json::parse(report.json)["missing_maps"],
              nlohmann::json::array({map}));
    EXPECT_EQ(
        RunShell("lib/netmeter_loader/netmeter-loader load --quiet --pin-dir " +
                 config_.pin_dir)
            .exit_status,
        0);
    EXPECT_EQ(MustStatus().state, MeterState::kLoaded);
    EXPECT_EQ(PayloadSent(), 100u);
  }
}

// A load said that there is nothing to do.
TEST_F(LoaderRootTest, ALostCommandComesBackAndALostExtentIsNamed) {
  config_.max_series = config_.max_names = 64;
  MustLoad();
  config_.max_series = config_.max_names = 200;
  MustLoad();
  ASSERT_EQ(unlink(Pin("command").c_str()), 0);
  MustLoad();
  EXPECT_EQ(access(Pin("command").c_str(), F_OK), 0);
  ASSERT_EQ(unlink(Pin("counters_1").c_str()), 0);
  EXPECT_THAT(std::string(Load(config_).status().message()),
              AllOf(HasSubstr("the meter is damaged: open "),
                    HasSubstr("/counters_1: "), HasSubstr("load --restart")));
  // It failed with "no .../counters_1", and named no repair.
  const Report report = MustStatus();
  EXPECT_EQ(report.state, MeterState::kLost);
  EXPECT_EQ(nlohmann::json::parse(report.json)["missing_maps"],
            nlohmann::json::array({"counters_1"}));
  EXPECT_THAT(report.text, HasSubstr("counters_1 (run: netmeter-loader load "
                                     "--restart --pin-dir "));
}

// The first command after "(run: ", of these programs and with this file.
std::string AdviceOf(const std::string& text, const std::string& file) {
  const size_t begin = text.find("(run: ");
  if (begin == std::string::npos) return "false";
  const std::string advice = text.substr(begin + 6);
  return absl::StrReplaceAll(
      advice.substr(0, advice.find_first_of(":;)")),
      {{"netmeter-loader ", "lib/netmeter_loader/netmeter-loader "},
       {"FILE", file}});
}

// A load was advised, which refuses; then "unload, then load again", which made a meter
// of the whole machine with the default configuration.
TEST_F(LoaderRootTest, WhatStatusSaysOfALostMapBringsTheMeterBack) {
  config_.services = {"mme"};
  config_.max_series = 300;
  const struct {
    const char* lost;
    bool can_read;   // to count, and to read, takes no `owners`
    bool has_links;  // without any, too: it was said not to be loaded
  } cases[] = {{"owners", true, true},
               {"counters", false, true},
               {"stats", false, false}};
  for (const auto& [lost, can_read, has_links] : cases) {
    SCOPED_TRACE(lost);
    MustLoad();
    const absl::StatusOr<std::string> before = LoadedConfig(config_.pin_dir);
    ASSERT_TRUE(before.ok()) << before.status();
    EXPECT_THAT(*before, HasSubstr("cgroup: \"" + cgroup_ + "\""));
    ASSERT_EQ(unlink(Pin(lost).c_str()), 0);
    for (const LinkPin& link : LinkPins()) {
      if (!has_links) unlink(Pin(link.pin).c_str());
    }
    const std::string pins = "--pin-dir " + config_.pin_dir;
    const std::string see = " (see: netmeter-loader status " + pins + ")";
    EXPECT_EQ(ReadError(),
              can_read
                  ? ""
                  : "the meter at " + config_.pin_dir +
                        " is damaged: these maps are missing: " + lost + see);
    EXPECT_THAT(LoadError(),
                HasSubstr("the meter is damaged: open " + Pin(lost) +
                          ": No such file or directory" + see));

    const Report report = MustStatus();
    EXPECT_EQ(report.state,
              can_read ? MeterState::kDamaged : MeterState::kLost);
    EXPECT_THAT(report.text, HasSubstr(lost));
    EXPECT_THAT(report.text,
                HasSubstr("(run: netmeter-loader load --restart " + pins +
                          ": counters start again; or netmeter-loader unload " +
                          pins + ")\n"));
    const std::string advice = AdviceOf(report.text, "");
    const ShellResult mended = RunShell(advice + " 2>&1");
    EXPECT_EQ(mended.exit_status, 0) << advice << "\n" << mended.output;
    EXPECT_EQ(MustStatus().state, MeterState::kLoaded);
    EXPECT_EQ(LoadedConfig(config_.pin_dir).value_or(""), *before);
    EXPECT_EQ(MustLoad(), Action::kUnchanged);
  }
}

// "run: ... load, with the other options that it had" was said, which a load keeps.
TEST_F(LoaderRootTest, WhatStatusSaysOfALostLinkOrInfoBringsTheMeterBack) {
  config_.services = {"mme"};
  const std::string load =
      "(run: netmeter-loader load --pin-dir " + config_.pin_dir;
  for (const std::string pin : {"link_egress", "info"}) {
    SCOPED_TRACE(pin);
    MustLoad();
    const absl::StatusOr<std::string> before = LoadedConfig(config_.pin_dir);
    ASSERT_TRUE(before.ok()) << before.status();
    ASSERT_EQ(unlink(Pin(pin).c_str()), 0);
    const absl::StatusOr<std::string> damaged = LoadedConfig(config_.pin_dir);
    ASSERT_TRUE(damaged.ok()) << damaged.status();
    EXPECT_EQ(*damaged, *before);
    EXPECT_THAT(
        MustStatus().text,
        HasSubstr(load + (pin == "info"
                              ? ": counters start again; or netmeter-loader "
                                "unload --pin-dir " +
                                    config_.pin_dir + ")\n"
                              : ")\n")));
    EXPECT_EQ(
        RunShell("lib/netmeter_loader/netmeter-loader load --quiet --pin-dir " +
                 config_.pin_dir)
            .exit_status,
        0);
    EXPECT_EQ(MustStatus().state, MeterState::kLoaded);
    EXPECT_EQ(LoadedConfig(config_.pin_dir).value_or(""), *before);
  }
}

// Status advised a load, which refuses without a configuration. It named --defaults, with
// which a load without `info` counted the whole host.
TEST_F(LoaderRootTest, WithoutTheLockFileALoadIsToldWhatAndForWhichCgroup) {
  const std::string file = testing::TempDir() + "/what.yml";
  std::ofstream(file) << "services: [mme]\n";
  EXPECT_TRUE(absl::IsNotFound(LoadedConfig(config_.pin_dir).status()));
  for (const std::string lost : {"link_egress", "counters", "info"}) {
    SCOPED_TRACE(lost);
    MustLoad();
    // It comes back: the directory's mount is known by it on 5.10.
    const std::string lock = LockFile(config_.pin_dir), kept = lock + ".kept";
    ASSERT_EQ(rename(lock.c_str(), kept.c_str()), 0);
    ASSERT_EQ(unlink(Pin(lost).c_str()), 0);
    EXPECT_EQ(LoadedConfig(config_.pin_dir).status(),
              absl::FailedPreconditionError(
                  "the loaded configuration is unknown (" + lock +
                  " does not have it): give --config FILE, or --defaults, to "
                  "netmeter-loader load --pin-dir " +
                  config_.pin_dir));
    const Report report = MustStatus();
    EXPECT_EQ(report.state, lost == "info"       ? MeterState::kWithoutInfo
                            : lost == "counters" ? MeterState::kLost
                                                 : MeterState::kDamaged);
    if (lost == "info") {
      EXPECT_EQ(nlohmann::json::parse(report.json)["missing_maps"],
                nlohmann::json::array({"info"}));
      const ShellResult defaults = RunShell(
          "lib/netmeter_loader/netmeter-loader load --defaults --pin-dir " +
          config_.pin_dir + " 2>&1");
      EXPECT_EQ(defaults.exit_status, 1);
      EXPECT_THAT(defaults.output, HasSubstr("give --cgroup; nothing was"));
    }
    const std::string advice =
        absl::StrReplaceAll(AdviceOf(report.text, file), {{"CGROUP", cgroup_}});
    EXPECT_THAT(advice, HasSubstr(" --config " + file + " --cgroup "));
    ASSERT_EQ(rename(kept.c_str(), lock.c_str()), 0);
    const ShellResult mended = RunShell(advice + " 2>&1");
    EXPECT_EQ(mended.exit_status, 0) << advice << "\n" << mended.output;
    EXPECT_EQ(MustStatus().state, MeterState::kLoaded);
    const std::string loaded = LoadedConfig(config_.pin_dir).value_or("");
    EXPECT_THAT(loaded, HasSubstr("cgroup: \"" + cgroup_ + "\""));
    EXPECT_THAT(loaded, HasSubstr("mme"));
    bool was_loaded = false;
    ASSERT_TRUE(Unload(config_.pin_dir, &was_loaded).ok());
  }
}

// The exit status was 3 for a meter that counts but has lost `info`. It was 1 after an
// unload that was killed, which leaves no meter.
TEST_F(LoaderRootTest, EvictTellsAMeterWithoutItsInfoFromTheRestOfAnUnload) {
  const auto evict = [this] {
    return RunShell("lib/netmeter_loader/netmeter-loader evict --pin-dir " +
                    config_.pin_dir + " 2>&1");
  };
  MustLoad();
  ASSERT_EQ(unlink(Pin("info").c_str()), 0);
  const ShellResult without_info = evict();
  EXPECT_EQ(without_info.exit_status, 1) << without_info.output;
  EXPECT_THAT(without_info.output,
              HasSubstr("these maps are missing: info (see: netmeter-loader "
                        "status --pin-dir " +
                        config_.pin_dir + ")"));
  MustLoad();
  const auto unload = [this] {
    bool was_loaded = false;
    return Unload(config_.pin_dir, &was_loaded).ok();
  };
  ASSERT_THAT(KilledAfter("unpinned counters", 0, unload),
              HasSubstr("counters"));
  ASSERT_EQ(access(Pin("info").c_str(), F_OK), 0);
  const ShellResult unloaded = evict();
  EXPECT_EQ(unloaded.exit_status, 3) << unloaded.output;
  EXPECT_EQ(MustStatus().state, MeterState::kNotLoaded);
}

// The exit status was 3, as if nothing were loaded, if one of root's maps was missing,
// and 0 if a link was missing. If egress' link was missing, the advice loaded another
// meter.
TEST_F(LoaderRootTest, EvictFailsWhereAnyPinIsMissing) {
  MustLoad();
  SendFromCgroup(100);
  for (const std::string pin : {"counters", "free_names", "owners",
                                "link_egress", "link_sock_create"}) {
    SCOPED_TRACE(pin);
    const std::string kept = Pin("kept");
    ASSERT_EQ(rename(Pin(pin).c_str(), kept.c_str()), 0);
    const ShellResult evicted = RunShell(
        "lib/netmeter_loader/netmeter-loader evict --idle 0 --pin-dir " +
        config_.pin_dir + " 2>&1");
    EXPECT_EQ(evicted.exit_status, 1) << evicted.output;
    EXPECT_THAT(evicted.output, HasSubstr("damaged"));
    EXPECT_THAT(evicted.output, HasSubstr(pin));
    EXPECT_THAT(evicted.output,
                HasSubstr("status --pin-dir " + config_.pin_dir));
    ASSERT_EQ(rename(kept.c_str(), Pin(pin).c_str()), 0);
  }
}

// It was advised to load, which said to ask status.
TEST_F(LoaderRootTest, AMapThatIsMissingIsSaidOfAChangeThatWasCutShort) {
  MustLoad();
  config_.proxy_ports.push_back(7001);
  ASSERT_TRUE(LoadKilledAt("replaced the program at "));
  ASSERT_EQ(unlink(Pin("counters").c_str()), 0);
  EXPECT_THAT(LoadError(), HasSubstr("the meter is damaged: open "));
  const Report report = MustStatus();
  EXPECT_EQ(report.state, MeterState::kLost);
  EXPECT_THAT(report.text,
              HasSubstr(": these maps are missing: counters (run: "
                        "netmeter-loader load --restart --pin-dir " +
                        config_.pin_dir));
  const std::string advice = AdviceOf(report.text, "");
  const ShellResult mended = RunShell(advice + " 2>&1");
  EXPECT_EQ(mended.exit_status, 0) << advice << "\n" << mended.output;
  EXPECT_EQ(MustStatus().state, MeterState::kLoaded);
}

// Status said "damaged" without a reason and without advice. Or it named missing links,
// which a load would not have created.
TEST_F(LoaderRootTest, AnUnloadThatIsKilledIsSaidToBeOne) {
  const auto unload = [this] {
    bool was_loaded = false;
    return Unload(config_.pin_dir, &was_loaded).ok();
  };
  config_.services = {"mme"};
  for (const std::string step : {"closed info", "unpinned "}) {
    SCOPED_TRACE(step);
    MustLoad();
    EXPECT_EQ(nlohmann::json::parse(MustStatus().json)["closed"], false);
    ASSERT_THAT(KilledAfter(step, 0, unload), HasSubstr(step));
    const Report report = MustStatus();
    EXPECT_EQ(report.state, MeterState::kClosed);
    EXPECT_EQ(nlohmann::json::parse(report.json)["closed"], true);
    EXPECT_THAT(
        report.text,
        HasSubstr("  CLOSED          an unload or a first load is running, was "
                  "killed or failed (run: netmeter-loader load --pin-dir " +
                  config_.pin_dir +
                  ": counters start again; or netmeter-loader unload"));
    EXPECT_THAT(report.text, Not(HasSubstr("MISSING")));
    const ShellResult mended = RunShell(AdviceOf(report.text, "") + " 2>&1");
    EXPECT_EQ(mended.exit_status, 0) << mended.output;
    EXPECT_EQ(MustStatus().state, MeterState::kLoaded);
    EXPECT_THAT(LoadedConfig(config_.pin_dir).value_or(""),
                HasSubstr("services: [\"mme\"]"));
    ASSERT_TRUE(unload());
  }
}

// Status said `no meter`. A load makes a whole meter of the rest.
TEST_F(LoaderRootTest, AMeterWithoutItsInfoIsDamagedToReadersToo) {
  MustLoad();
  ASSERT_EQ(unlink(Pin("info").c_str()), 0);
  EXPECT_EQ(MustStatus().state, MeterState::kWithoutInfo);
  EXPECT_EQ(ReadError(),
            "the meter at " + config_.pin_dir +
                " is damaged, unless a load is running: these maps are "
                "missing: info (see: netmeter-loader status --pin-dir " +
                config_.pin_dir + ")");
  MustLoad();
  EXPECT_EQ(ReadError(), "");
  EXPECT_EQ(MustStatus().state, MeterState::kLoaded);
}

// It said what had failed, and not that half of the meter was gone.
TEST_F(LoaderRootTest, AnUnloadThatFailsSaysWhetherAPartIsLeft) {
  MustLoad();
  bool was_loaded = false;
  const auto unload = [&] { return Unload(config_.pin_dir, &was_loaded); };
  const std::string left =
      absl::StrCat("Cannot allocate memory; a part of the meter is left (run: ",
                   LoaderCommand("unload", config_.pin_dir), ")");
  // The first pin is opened, and nothing is removed yet.
  const Interrupted first = RunInterrupted({-1, ENOMEM, "bpf(7)"}, unload);
  EXPECT_FALSE(first.ok);
  EXPECT_THAT(first.message, Not(HasSubstr("a part of the meter is left")));
  EXPECT_EQ(MustStatus().state, MeterState::kLoaded);
  // The links are gone, the counters are not.
  Interruption later = {-1, ENOMEM, "unlink"};
  later.but = 4;
  const Interrupted second = RunInterrupted(later, unload);
  EXPECT_FALSE(second.ok);
  EXPECT_THAT(second.message, HasSubstr(left));
  EXPECT_EQ(access(Pin("counters").c_str(), F_OK), 0);
  ASSERT_TRUE(unload().ok());
  EXPECT_TRUE(was_loaded);
  EXPECT_NE(access(config_.pin_dir.c_str(), F_OK), 0);
}

// A reader that is not told reads the old counters for good.
TEST_F(LoaderRootTest, AnUnloadThatCannotTellTheReadersRemovesNothing) {
  MustLoad();
  // BPF_PROG_TEST_RUN
  const Interrupted failed = RunInterrupted({-1, ENOMEM, "bpf(10)"}, [&] {
    bool was_loaded = false;
    return Unload(config_.pin_dir, &was_loaded);
  });
  EXPECT_TRUE(failed.reached);
  EXPECT_FALSE(failed.ok);
  EXPECT_EQ(MustStatus().state, MeterState::kLoaded);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
