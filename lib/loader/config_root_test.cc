// SPDX-License-Identifier: BSD-3-Clause
// What a load does to the configuration that is loaded.
#include <gmock/gmock.h>
#include <grp.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/prepare_process.h"
#include "lib/base/privileges.h"
#include "lib/base/unique_fd.h"
#include "lib/loader/load.h"
#include "lib/loader/loader_fixture.h"
#include "lib/loader/status.h"
#include "lib/loader/system.h"
#include "lib/loader/unload.h"
#include "lib/testing/interruption.h"

namespace netmeter {
namespace internal {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class ConfigRootTest : public LoaderRootTest {
 protected:
  LoadResult MustChange(const ConfigChange& change) {
    absl::StatusOr<LoadResult> result = Load(config_.pin_dir, change);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *result : LoadResult();
  }

  std::string Loaded() {
    absl::StatusOr<std::string> yaml = LoadedConfig(config_.pin_dir);
    EXPECT_TRUE(yaml.ok()) << yaml.status();
    return yaml.ok() ? *yaml : "";
  }
};

void ChangeNothing(Config*) {}

TEST_F(ConfigRootTest, StatusHasTheHashOfTheLoadedConfiguration) {
  const auto hash = [&] {
    const auto status = GetStatus(config_.pin_dir);
    EXPECT_TRUE(status.ok()) << status.status();
    return status.ok() ? status->info.config_hash : 0;
  };
  config_.services = {"mme"};
  ASSERT_EQ(MustLoad(), Action::kLoaded);
  EXPECT_EQ(hash(), HashOfConfig(config_));
  MustChange([](Config* config) { config->services = {"pipelined"}; });
  EXPECT_NE(hash(), HashOfConfig(config_));
  MustChange([](Config* config) { config->services = {"mme"}; });
  EXPECT_EQ(hash(), HashOfConfig(config_));
}

// `load --max-series 8192`, which the documentation recommends, dropped the
// services, aliases and destinations that were loaded, without a word.
TEST_F(ConfigRootTest, ALoadKeepsWhatItIsNotToldToChange) {
  config_.services = {"mme"};
  config_.aliases = {{"python3", "state"}};
  config_.max_series = 100;
  ASSERT_EQ(MustLoad(), Action::kLoaded);
  const std::string before = Loaded();
  EXPECT_THAT(before, AllOf(HasSubstr("pin_dir: \"" + config_.pin_dir + "\""),
                            HasSubstr("cgroup: \"" + cgroup_ + "\""),
                            HasSubstr("max_series: 100\n"),
                            HasSubstr("services: [\"mme\"]\n"),
                            HasSubstr("\"python3\": \"state\"\n")));

  LoadResult result =
      MustChange([](Config* config) { config->max_series = 200; });
  EXPECT_EQ(result.action, Action::kUpgraded);
  EXPECT_THAT(result.notes,
              ElementsAre("the configuration changed: max_series"));
  EXPECT_THAT(Loaded(), AllOf(HasSubstr("max_series: 200\n"),
                              HasSubstr("services: [\"mme\"]\n"),
                              HasSubstr("\"python3\": \"state\"\n")));
  result = MustChange(ChangeNothing);
  EXPECT_EQ(result.action, Action::kUnchanged);
  EXPECT_THAT(result.notes, IsEmpty());

  // What `status --config` prints is a file for `load --config`.
  const absl::StatusOr<Config> file = ParseConfig(Loaded(), "f", Config());
  ASSERT_TRUE(file.ok()) << file.status();
  absl::StatusOr<LoadResult> again = Load(*file);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->action, Action::kUnchanged);

  // A whole configuration replaces it.
  config_.services = {"sessiond"};
  config_.aliases.clear();
  config_.max_series = 200;
  EXPECT_EQ(MustLoad(), Action::kUpgraded);
  EXPECT_THAT(Loaded(), AllOf(HasSubstr("services: [\"sessiond\"]\n"),
                              Not(HasSubstr("python3"))));

  // An unload ends it.
  bool was_loaded;
  ASSERT_TRUE(Unload(config_.pin_dir, &was_loaded).ok());
  EXPECT_EQ(LoadedConfig(config_.pin_dir).status().code(),
            absl::StatusCode::kNotFound);
}

// Both started from what was loaded before the other one.
TEST_F(ConfigRootTest, TwoLoadsAtOnceDoNotUndoEachOther) {
  config_.max_series = 100;
  ASSERT_EQ(MustLoad(), Action::kLoaded);
  const ConfigChange changes[] = {
      [](Config* config) { config->services.push_back("one"); },
      [](Config* config) { config->services.push_back("two"); },
      [](Config* config) { config->max_series = 101; },
  };
  std::vector<pid_t> children;
  for (const ConfigChange& change : changes) {
    const pid_t child = fork();
    if (child == 0) _exit(Load(config_.pin_dir, change).ok() ? 0 : 1);
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_THAT(Loaded(), AllOf(HasSubstr("\"one\""), HasSubstr("\"two\""),
                              HasSubstr("max_series: 101\n")));
}

TEST_F(ConfigRootTest, AKilledLoadLeavesTheOldConfigurationOrTheNewOne) {
  config_.services = {"old"};
  ASSERT_EQ(MustLoad(), Action::kLoaded);
  config_.services = {"new"};
  ASSERT_TRUE(LoadKilledAt("opened the BPF object"));
  EXPECT_THAT(Loaded(), HasSubstr("services: [\"old\"]"));
  EXPECT_EQ(MustChange(ChangeNothing).action, Action::kUnchanged);
  EXPECT_THAT(Loaded(), HasSubstr("services: [\"old\"]"));

  ASSERT_TRUE(LoadKilledAt("began: "));
  EXPECT_EQ(MustChange(ChangeNothing).action, Action::kUpgraded);
  EXPECT_THAT(Loaded(), HasSubstr("services: [\"new\"]"));
  EXPECT_EQ(MustLoad(), Action::kUnchanged);
}

// The load started from the defaults, with a note. A user who had given register_by, and
// then loaded with another option alone, had allowed every user to register.
TEST_F(ConfigRootTest, WithoutTheLockFileALoadWantsTheWholeConfiguration) {
  config_.services = {"mme"};
  ASSERT_EQ(MustLoad(), Action::kLoaded);
  // Not removed: the directory's mount is known by it on 5.10.
  absl::StatusOr<UniqueFd> lock =
      LockDirectory(config_.pin_dir, LOCK_EX, kLockTime);
  ASSERT_TRUE(lock.ok()) << lock.status();
  LoaderState state = *ReadState(lock->get(), "lock");
  state.config = "services: {";
  ASSERT_TRUE(WriteState(LockFile(config_.pin_dir), state, &*lock).ok());
  *lock = UniqueFd();
  EXPECT_FALSE(LoadedConfig(config_.pin_dir).ok());
  const absl::Status refused = Load(config_.pin_dir, ChangeNothing).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("the loaded configuration is unknown"));
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("give --config FILE, or --defaults"));
  // The meter itself is as it was, and a whole configuration may be the same.
  MustLoad();
  EXPECT_THAT(Loaded(), HasSubstr("services: [\"mme\"]"));
}

// A meter had lost a pin, or its first load was killed. A plain load then counted the
// whole host, and dropped the meter's configuration.
TEST_F(ConfigRootTest, WhatIsLeftOfAMeterIsLoadedAsItWas) {
  const auto expect_as_it_was =
      [&](const std::string& note =
              "found an incomplete meter: loaded a new one") {
        const LoadResult again = MustChange(ChangeNothing);
        EXPECT_EQ(again.action, Action::kLoaded);
        EXPECT_EQ(again.cgroup, cgroup_);
        EXPECT_THAT(again.notes, Contains(note + ", with its configuration, "
                                                 "counters start again"));
        EXPECT_THAT(Loaded(), HasSubstr("services: [\"mme\"]"));
      };
  config_.services = {"mme"};
  // The first of these were not known at all: nothing was pinned yet.
  for (const std::string& step :
       {std::string("wrote "), "made " + config_.pin_dir,
        std::string("pinned ")}) {
    SCOPED_TRACE(step);
    ASSERT_TRUE(LoadKilledAt(step));
    expect_as_it_was(step == "pinned "
                         ? "found an incomplete meter: loaded a new one"
                         : "found only a configuration: loaded a new meter");
    bool was_loaded = false;
    ASSERT_TRUE(Unload(config_.pin_dir, &was_loaded).ok() && was_loaded);
  }
  MustLoad();
  ASSERT_EQ(unlink(Pin("info").c_str()), 0);
  expect_as_it_was();

  // A wrong option removed what was left; what fails later still has to.
  ASSERT_EQ(unlink(Pin("info").c_str()), 0);
  const absl::Status refused = Load(config_.pin_dir, [](Config* config) {
                                 config->group = "no-such-group";
                                 config->group_required = true;
                               }).status();
  EXPECT_THAT(std::string(refused.message()),
              EndsWith("; nothing was changed"));
  EXPECT_EQ(MustStatus().state, MeterState::kWithoutInfo);
  const Interrupted failed = RunInterrupted({-1, ENOMEM, "bpf(22)"}, [this] {
    return Load(config_.pin_dir, ChangeNothing).status();
  });
  EXPECT_THAT(failed.message, EndsWith("; nothing was changed"));
  EXPECT_EQ(MustStatus().state, MeterState::kWithoutInfo);
  expect_as_it_was();
  // The whole of another configuration takes nothing from it but the cgroup.
  ASSERT_EQ(unlink(Pin("info").c_str()), 0);
  config_.services = {};
  config_.cgroup = "";
  const absl::StatusOr<LoadResult> other = Load(config_);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(other->cgroup, cgroup_);
  EXPECT_THAT(Loaded(), Not(HasSubstr("mme")));
  EXPECT_THAT(
      other->notes,
      Contains(
          "found an incomplete meter: loaded a new one, counters start again"));
  bool was_loaded = false;
  EXPECT_TRUE(Unload(config_.pin_dir, &was_loaded).ok() && was_loaded);
  EXPECT_NE(access(LockFile(config_.pin_dir).c_str(), F_OK), 0);
}

// It started from the defaults, without a word: register_by was gone.
TEST_F(ConfigRootTest, WhatIsLeftWithoutALockFileWantsTheWholeConfiguration) {
  config_.services = {"mme"};
  MustLoad();
  ASSERT_EQ(unlink(Pin("info").c_str()), 0);
  // Not removed: the directory's mount is known by it on 5.10.
  absl::StatusOr<UniqueFd> lock =
      LockDirectory(config_.pin_dir, LOCK_EX, kLockTime);
  ASSERT_TRUE(lock.ok()) << lock.status();
  LoaderState state = *ReadState(lock->get(), "lock");
  state.config = state.cgroup = "";
  ASSERT_TRUE(WriteState(LockFile(config_.pin_dir), state, &*lock).ok());
  *lock = UniqueFd();
  const std::string cgroup = cgroup_;
  const auto only_the_cgroup = [cgroup](Config* config) {
    config->cgroup = cgroup;
  };
  const absl::Status refused = Load(config_.pin_dir, only_the_cgroup).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("give --config FILE, or --defaults"));
  EXPECT_EQ(MustStatus().state, MeterState::kWithoutInfo);
  EXPECT_EQ(MustLoad(), Action::kLoaded);
  EXPECT_THAT(Loaded(), HasSubstr("services: [\"mme\"]"));
}

// It left word of the upgrade to the next load, which made another one.
TEST_F(ConfigRootTest, ALoadOfWhatIsLeftHasNothingToFinish) {
  config_.services = {"old"};
  MustLoad();
  config_.services = {"new"};
  ASSERT_TRUE(LoadKilledAt("began: "));
  ASSERT_EQ(unlink(Pin("info").c_str()), 0);
  EXPECT_EQ(MustChange(ChangeNothing).action, Action::kLoaded);
  const LoadResult again = MustChange(ChangeNothing);
  EXPECT_EQ(again.action, Action::kUnchanged);
  EXPECT_THAT(again.notes, IsEmpty());
  EXPECT_THAT(Loaded(), HasSubstr("services: [\"new\"]"));
}

// A full /run kept it from saying so.
TEST_F(ConfigRootTest, NothingToDoNeedsNoRoomForALockFile) {
  MustLoad();
  Interruption full = {-1, ENOSPC, "rename"};
  full.most = INT_MAX;
  const Interrupted load = RunInterrupted(
      full, [this] { return Load(config_.pin_dir, ChangeNothing).status(); });
  EXPECT_TRUE(load.ok) << load.message;
  EXPECT_FALSE(load.reached);
}

// A first load that failed forgot the configuration before it took its pins away. Killed
// in between, it left links for which no load knew what to load.
TEST_F(ConfigRootTest, AFirstLoadThatIsKilledWhileItIsUndoneIsKnownStill) {
  config_.services = {"mme"};
  config_.max_series = config_.max_names = 100;
  // It fails with all maps pinned.
  const auto load = [this]() -> absl::Status {
    if (setgroups(0, nullptr) != 0) return absl::InternalError("setgroups");
    const absl::Status dropped = DropPrivileges(
        {CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON, CAP_SYS_ADMIN, CAP_SYS_PTRACE,
         CAP_SYS_RESOURCE, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH});
    return dropped.ok() ? Load(config_).status() : dropped;
  };
  const Interrupted failed = RunInterrupted({-1, 0, "-"}, load);
  ASSERT_FALSE(failed.ok);
  ASSERT_THAT(failed.message, HasSubstr("CAP_CHOWN"));
  // BPF_OBJ_PIN
  const auto pinned =
      std::find(failed.calls.rbegin(), failed.calls.rend(), "bpf(6)").base() -
      failed.calls.begin();
  int recovered = 0;
  for (auto i = static_cast<size_t>(pinned); i < failed.calls.size(); i += 3) {
    const std::string& call = failed.calls[i];
    // By its name: how many there are of bpf(2) depends on the processes that run.
    // By its number it was another call where some of them had ended, or none.
    if (call.compare(0, 3, "bpf") == 0) continue;
    const auto before =
        std::count(failed.calls.begin(),
                   failed.calls.begin() + static_cast<long>(i), call);
    SCOPED_TRACE(absl::StrCat(before, " ", call));
    const Interruption killed = {-1, 0, call, static_cast<int>(before)};
    EXPECT_TRUE(RunInterrupted(killed, load).killed);
    // If the lock file is missing, all else is missing, too.
    if (access(LockFile(config_.pin_dir).c_str(), F_OK) != 0) continue;
    EXPECT_EQ(MustChange(ChangeNothing).cgroup, cgroup_);
    EXPECT_THAT(Loaded(), HasSubstr("services: [\"mme\"]"));
    bool was_loaded = false;
    ASSERT_TRUE(Unload(config_.pin_dir, &was_loaded).ok());
    recovered++;
  }
  EXPECT_GT(recovered, 3);
}

// It was the root of the host's cgroups, or an error that did not say whose.
TEST_F(ConfigRootTest, ACgroupThatHasGoneIsNamedAsTheMetersOwn) {
  MustLoad();
  ASSERT_EQ(unlink(Pin("info").c_str()), 0);
  ASSERT_EQ(rmdir(cgroup_.c_str()), 0);
  EXPECT_EQ(Load(config_.pin_dir, ChangeNothing).status().message(),
            "cgroup " + cgroup_ +
                ": No such file or directory (the meter here counted for it: "
                "give --cgroup, or netmeter-loader unload --pin-dir " +
                config_.pin_dir + " first); nothing was changed");
  ASSERT_EQ(mkdir(cgroup_.c_str(), 0755), 0);
  EXPECT_EQ(MustChange(ChangeNothing).cgroup, cgroup_);
  // An unload was advised, without the directory: that is of the host's own meter.
  const absl::Status elsewhere = Load(config_.pin_dir, [](Config* config) {
                                   config->cgroup = CgroupRoot();
                                 }).status();
  EXPECT_THAT(
      std::string(elsewhere.message()),
      HasSubstr(" (netmeter-loader unload --pin-dir " + config_.pin_dir +
                " first, or choose another --pin-dir)"));
}

// It went on to wait, and Ctrl-C did nothing for half a minute.
TEST_F(ConfigRootTest, ASignalEndsTheWaitForTheLock) {
  absl::StatusOr<UniqueFd> lock =
      LockDirectory(config_.pin_dir, LOCK_EX, kLockTime);
  ASSERT_TRUE(lock.ok()) << lock.status();
  EXPECT_EQ(InChild([this] {
              const SignalsBlocked blocked;
              kill(getpid(), SIGTERM);
              const absl::Status status =
                  Load(config_.pin_dir, ChangeNothing).status();
              const std::string expected =
                  "lock " + LockFile(config_.pin_dir) +
                  ": interrupted by a signal while another netmeter-loader "
                  "held it; nothing was changed";
              // Not returned: the signal waits for the end of `blocked`.
              _exit(absl::IsCancelled(status) && status.message() == expected);
              return 0;
            }),
            1);
  unlink(LockFile(config_.pin_dir).c_str());
}

TEST_F(ConfigRootTest, AGroupThatWasAskedForMustExist) {
  config_.group = "no-such-group";
  config_.group_required = true;
  EXPECT_THAT(LoadError(), HasSubstr("no group no-such-group"));
  EXPECT_NE(access(config_.pin_dir.c_str(), F_OK), 0);
  config_.group = kGroup;
  ASSERT_EQ(MustLoad(), Action::kLoaded);
  absl::StatusOr<LoadResult> result =
      Load(config_.pin_dir, [](Config* config) { config->group = "nobody-s"; });
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(std::string(result.status().message()),
              HasSubstr("no group nobody-s"));
  EXPECT_THAT(Loaded(), HasSubstr(std::string("group: \"") + kGroup));
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
