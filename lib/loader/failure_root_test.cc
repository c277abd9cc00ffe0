// SPDX-License-Identifier: BSD-3-Clause
// netmeter-loader's calls with an error at one chosen system call: what is said, and
// what stands then. test/convergence interrupts each call.

#include <bpf/bpf.h>
#include <errno.h>
#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <fstream>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/kernel_object.h"
#include "lib/base/privileges.h"
#include "lib/base/unique_fd.h"
#include "lib/loader/load.h"
#include "lib/loader/loader_fixture.h"
#include "lib/loader/status.h"
#include "lib/loader/system.h"
#include "lib/loader/trace.h"
#include "lib/loader/unload.h"
#include "lib/testing/interruption.h"
#include "lib/testing/run_shell.h"
#include "netmeter/abi.h"
#include "netmeter/meter.h"
#include "nlohmann/json.hpp"

namespace netmeter {
namespace internal {
namespace {

using ::testing::AnyOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

// So much address space from here on: what its heap has free is taken first.
void LeaveMemory(size_t bytes) {
  rlim_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t now = pages * static_cast<rlim_t>(getpagesize());
  rlimit limit = {now, RLIM_INFINITY};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
  void* volatile piece;
  do piece = malloc(64 << 10);
  while (piece != nullptr);
  limit.rlim_cur = now + bytes;
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
}

// The kernel loads some tracing programs and does not attach them. The other programs
// were told that exec is traced, so a process kept the name of its previous program.
TEST_F(LoaderRootTest, WhereTracingCannotBeAttachedNobodyReliesOnIt) {
  const auto calls =
      RunInterrupted({}, [&] { return Load(config_).status(); }).calls;
  const bool links = std::count(calls.begin(), calls.end(), "bpf(17)") == 0;
  bool was_loaded = false;
  ASSERT_TRUE(Unload(config_.pin_dir, &was_loaded).ok());
  // The first of them.
  Interruption refused = {-1, EPERM, links ? "bpf(28)" : "bpf(17)"};
  refused.most = 1;
  const Interrupted interrupted =
      RunInterrupted(refused, [&] { return Load(config_).status(); });
  EXPECT_TRUE(interrupted.ok) << interrupted.message;
  const std::string text = MustStatus().text;
  EXPECT_THAT(text, HasSubstr("attach nm_exit: Operation not permitted"));
  EXPECT_THAT(text, HasSubstr("named when they open a socket"));
  for (const char* pin : {"link_exit", "link_fork", "link_exec"}) {
    EXPECT_NE(access(Pin(pin).c_str(), F_OK), 0) << pin;
  }
  EXPECT_EQ(InChild([&] {
              std::ofstream(cgroup_ + "/cgroup.procs") << getpid();
              UniqueFd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
              execl("/bin/bash", "bash", "-c",
                    "echo -n 1234567 > /dev/udp/127.0.0.1/8443", nullptr);
              return 1;
            }),
            0);
  MeterOptions options;
  options.pin_dir = config_.pin_dir;
  const auto meter = Meter::Open(options);
  ASSERT_TRUE(meter.ok()) << meter.status();
  const auto samples = (*meter)->ReadHost();
  ASSERT_TRUE(samples.ok()) << samples.status();
  for (const netmeter::Sample& sample : *samples) {
    if (sample.tx_payload_bytes != 0) {
      EXPECT_EQ(sample.name, "bash");
    }
  }
  EXPECT_EQ(PayloadSent(), 7u);
  // The kernel always refuses it, as far as the loader can tell.
  EXPECT_EQ(MustLoad(), Action::kUnchanged);
}

// The kernel had no memory for a program, twice. The upgrade then took the tracing
// programs away, and said that all was well.
TEST_F(LoaderRootTest, AnUpgradeWithoutMemoryKeepsProcessTracking) {
  MustLoad();
  const std::string tracking = "process_tracking";
  ASSERT_THAT(MustStatus().json, HasSubstr(tracking));
  const auto is_on = [&] {
    return access(Pin("link_exec").c_str(), F_OK) == 0;
  };
  if (!is_on()) return;  // this kernel has none
  for (int most = 1; most <= 6; most++) {
    SCOPED_TRACE(most);
    config_.proxy_ports = {8443, static_cast<uint16_t>(9000 + most)};
    Interruption refused = {-1, ENOMEM, "bpf(5)"};
    refused.most = most;
    const Interrupted interrupted =
        RunInterrupted(refused, [&] { return Load(config_).status(); });
    EXPECT_TRUE(is_on());
    EXPECT_EQ(MustStatus().state, MeterState::kLoaded);
    if (!interrupted.ok) {
      EXPECT_THAT(interrupted.message, HasSubstr("Cannot allocate memory"));
    }
  }
}

// What programs take as constants, such as what the kernel offers, and whether the
// loader shares their variables.
std::string SectionsOf(uint32_t program) {
  const UniqueFd fd(bpf_prog_get_fd_by_id(program));
  uint32_t ids[64];
  bpf_prog_info about = {};
  about.nr_map_ids = 64;
  about.map_ids = reinterpret_cast<uint64_t>(ids);
  EXPECT_TRUE(GetInfo(fd.get(), &about)) << errno;
  std::string sections;
  for (uint32_t i = 0; i < about.nr_map_ids; i++) {
    const UniqueFd map(bpf_map_get_fd_by_id(ids[i]));
    bpf_map_info section = {};
    EXPECT_TRUE(GetInfo(map.get(), &section));
    const std::string name = TextOf(section.name);
    if (absl::EndsWith(name, ".bss")) {
      absl::StrAppend(&sections, name, " ", section.map_flags, " ");
    } else if (absl::EndsWith(name, ".rodata")) {
      std::vector<char> bytes;
      EXPECT_TRUE(ReadWholeValue(map.get(), &bytes));
      absl::StrAppend(&sections, name, " ",
                      absl::BytesToHexString({bytes.data(), bytes.size()}));
    }
  }
  return sections;
}

// The loader asks what the kernel offers. One ENOMEM there turned MPTCP, cgroup names or
// the reasons of resets off ("the kernel has no MPTCP"), or made `adds` atomic. The exit
// status was 0, and the next load found nothing to do.
TEST_F(LoaderRootTest, AFaultOfTheMomentTurnsNothingOff) {
  const auto parts = [this] {
    const auto json = nlohmann::json::parse(MustStatus().json);
    uint32_t program = 0;
    LinkId("link_egress", &program);
    return absl::StrCat(json["features"].dump(), json["adds"].dump(),
                        SectionsOf(program));
  };
  // Always in a child: libbpf asks the kernel once in a process.
  const auto load = [this](const Interruption& interruption) {
    return RunInterrupted(interruption, [&] { return Load(config_).status(); });
  };
  config_.uplinks = {{"satellite", {"sat*"}}};
  ASSERT_TRUE(load({}).ok);
  const std::string expected = parts();
  bool was_loaded = false;
  for (const bool upgrade : {false, true}) {
    // The first maps and all programs: among them are the questions of the loader, and
    // those of libbpf. The program ended by SIGSEGV if libbpf could not ask whether the
    // kernel maps arrays.
    for (const char* call : {"bpf(0)", "bpf(5)"}) {
      for (int but = 0; but < 2 || call[4] == '5'; but++) {
        SCOPED_TRACE(absl::StrCat(call, " after ", but, " in ",
                                  upgrade ? "an upgrade" : "a first load"));
        if (upgrade) {
          config_.services = {absl::StrCat("service", but)};
        } else {
          ASSERT_TRUE(Unload(config_.pin_dir, &was_loaded).ok());
        }
        Interruption refused = {-1, ENOMEM, call, but};
        refused.most = 1;
        const Interrupted refusal = load(refused);
        if (!refusal.reached) break;
        EXPECT_FALSE(refusal.killed) << refusal.message;
        if (refusal.ok || upgrade) {
          EXPECT_EQ(parts(), expected) << refusal.message;
        }
        if (refusal.ok) continue;
        const Interrupted next = load({});
        EXPECT_TRUE(next.ok) << next.message;
        EXPECT_EQ(parts(), expected);
      }
    }
  }
}

// A first load that failed said "the meter goes on as it was before this load": of no
// meter.
TEST_F(LoaderRootTest, AFirstLoadThatFailsSpeaksOfNoMeter) {
  config_.uplinks = {{"satellite", {"sat*"}}};
  const Interrupted interrupted = RunInterrupted(
      {-1, ENOMEM, "bpf(6)"}, [&] { return Load(config_).status(); });
  EXPECT_FALSE(interrupted.ok);
  EXPECT_THAT(interrupted.message,
              EndsWith("Cannot allocate memory; nothing is loaded"));
  EXPECT_NE(access(config_.pin_dir.c_str(), F_OK), 0);
}

// A loader that may not give the larger tables to the group found that out after the
// point of no return: readers stood still, and did so after each further load.
TEST_F(LoaderRootTest, AGrowthThatMayNotSetModesChangesNothing) {
  config_.max_series = 100;
  MustLoad();
  SendFromCgroup(100);
  Config wanted = config_;
  wanted.max_series = 101;
  const Interrupted failed = RunInterrupted({}, [&]() -> absl::Status {
    if (setgroups(0, nullptr) != 0) return absl::InternalError("setgroups");
    const absl::Status dropped = DropPrivileges(
        {CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON, CAP_SYS_ADMIN, CAP_SYS_PTRACE,
         CAP_SYS_RESOURCE, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH});
    return dropped.ok() ? Load(wanted).status() : dropped;
  });
  EXPECT_FALSE(failed.ok);
  // It said "set the mode of", and not what is missing.
  EXPECT_THAT(
      failed.message,
      HasSubstr(absl::StrCat("give ", Pin("counters"), "_1 to group ", kGid,
                             ": Operation not permitted (needs CAP_CHOWN)")));
  EXPECT_THAT(failed.message, EndsWith("only modes of pins were changed"));
  EXPECT_EQ(MustStatus().state, MeterState::kLoaded);
  ExpectModes();
  SendFromCgroup(10);
  EXPECT_EQ(PayloadSent(), 110u);
  EXPECT_EQ(MustLoad(), Action::kUnchanged);
}

// The program itself takes as many as it may have.
TEST_F(LoaderRootTest, TheSoftLimitOfDescriptorsIsNoLimit) {
  MustLoad();
  const ShellResult grown = RunShell(
      "ulimit -Sn 30; exec lib/netmeter_loader/netmeter-loader load "
      "--pin-dir " +
      config_.pin_dir + " --max-series 5000 2>&1");
  EXPECT_EQ(grown.exit_status, 0) << grown.output;
  EXPECT_EQ(MustStatus().state, MeterState::kLoaded);
}

// `ulimit -f 0` ended the loader by a signal, without a word.
TEST_F(LoaderRootTest, AFileThatMayNotGrowIsAnErrorAsAnyOther) {
  const ShellResult failed = RunShell(
      "ulimit -f 0; exec lib/netmeter_loader/netmeter-loader load --pin-dir " +
      config_.pin_dir + " --cgroup " + cgroup_ + " 2>&1");
  EXPECT_EQ(failed.exit_status, 1);
  EXPECT_THAT(failed.output, HasSubstr("File too large"));
  EXPECT_EQ(MustStatus().state, MeterState::kNotLoaded);
}

// Such a load succeeded, with the new configuration in the kernel and the old one, or
// none, for the next load to start from.
TEST_F(LoaderRootTest, AConfigurationThatCannotBeWrittenDownIsNotLoaded) {
  const std::string file = testing::TempDir() + "/big.yml";
  config_.services = {"before"};
  MustLoad();
  const absl::StatusOr<std::string> before = LoadedConfig(config_.pin_dir);
  ASSERT_TRUE(before.ok()) << before.status();
  std::ofstream big(file);
  big << "services:\n";
  for (int i = 0; i < 900; ++i) big << "  - service-" << i << "\n";
  big.close();
  const ShellResult failed = RunShell(
      "ulimit -f 1; exec lib/netmeter_loader/netmeter-loader load --quiet "
      "--pin-dir " +
      config_.pin_dir + " --cgroup " + cgroup_ + " --config " + file + " 2>&1");
  EXPECT_EQ(failed.exit_status, 1);
  EXPECT_THAT(failed.output, HasSubstr("File too large; nothing was changed"));
  const absl::StatusOr<std::string> after = LoadedConfig(config_.pin_dir);
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(*after, *before);
  EXPECT_EQ(MustLoad(), Action::kUnchanged);
}

// `load -v 2>&1 | head` ended the loader by SIGPIPE, in the middle of a growth.
TEST_F(LoaderRootTest, WhoDoesNotReadToTheEndEndsNoLoad) {
  config_.max_series = 100;
  MustLoad();
  for (const int lines : {1, 40, 80, 120}) {
    SCOPED_TRACE(lines);
    config_.max_series += 10;
    RunShell(absl::StrCat(
        "lib/netmeter_loader/netmeter-loader load -v --max-series ",
        config_.max_series, " --pin-dir ", config_.pin_dir, " 2>&1 | head -n ",
        lines));
    EXPECT_EQ(MustStatus().state, MeterState::kLoaded);
    EXPECT_THAT(
        MustStatus().text,
        HasSubstr(absl::StrCat(" of ", config_.max_series - NM_SLOT_FIRST)));
  }
}

// The line stayed in stdio's buffer, and the exit status was 0. Now the line says what
// was done. A caller that closed standard output gets no message.
TEST_F(LoaderRootTest, WhatCannotBeSaidIsAnErrorThatSaysWhatStands) {
  const std::string pins = absl::StrCat(" --pin-dir ", config_.pin_dir);
  const struct {
    std::string arguments, now;
  } calls[] = {
      {"load --cgroup " + cgroup_, " (the meter is loaded)"},
      {"load", " (the meter is loaded)"},
      {"status", ""},
      {"status --json", ""},
      {"status --config", ""},
      {"unload", " (no meter is loaded)"},
  };
  for (const auto& call : calls) {
    SCOPED_TRACE(call.arguments);
    const std::string program = absl::StrCat(
        "lib/netmeter_loader/netmeter-loader ", call.arguments, pins);
    const ShellResult full = RunShell(program + " 2>&1 >/dev/full");
    EXPECT_EQ(full.exit_status, 1);
    EXPECT_THAT(full.output,
                EndsWith("netmeter-loader: write to standard output: No space "
                         "left on device" +
                         call.now + "\n"));
    const bool reads = call.now.empty();
    EXPECT_EQ(RunShell(program + " 2>/dev/null >&-").exit_status, reads);
    EXPECT_EQ(MustStatus().state, call.arguments == "unload"
                                      ? MeterState::kNotLoaded
                                      : MeterState::kLoaded);
  }
}

// A signal waits for the end of a load, and ended the process before its line was
// written: who had pressed Ctrl-C took it for not loaded.
TEST_F(LoaderRootTest, ALoadThatASignalWaitsForSaysWhatItHasDone) {
  int interrupted = 0;
  for (const char* seconds : {"0.02", "0.05", "0.1", "0.2", "0.5", "1", "3"}) {
    SCOPED_TRACE(seconds);
    const ShellResult result = RunShell(
        absl::StrCat("timeout ", seconds,
                     " lib/netmeter_loader/netmeter-loader load --pin-dir ",
                     config_.pin_dir, " --cgroup ", cgroup_, " 2>&1"));
    const bool loaded = MustStatus().state == MeterState::kLoaded;
    EXPECT_EQ(result.output.find(": loaded, for cgroup ") != std::string::npos,
              loaded);
    interrupted += loaded && result.exit_status != 0;
    bool was_loaded = false;
    EXPECT_TRUE(Unload(config_.pin_dir, &was_loaded).ok());
  }
  EXPECT_GT(interrupted, 0);
}

// Without memory for a moment, it was told to unload a meter of another version.
TEST_F(LoaderRootTest, NoMemoryIsNoOtherAbi) {
  MustLoad();
  const Interrupted load = RunInterrupted(
      {-1, ENOMEM, "bpf(1)"}, [&] { return Load(config_).status(); });
  EXPECT_TRUE(load.reached);
  EXPECT_THAT(load.message,
              EndsWith("read " + Pin("info") +
                       ": Cannot allocate memory; nothing was changed"));
}

// libbpf answers ESRCH if it has no memory for the kernel's types: "load the BPF
// programs: No such process (see --verbose)", and for larger tables, once the new
// programs were loaded, "load nm_command: No such process".
TEST_F(LoaderRootTest, NoMemoryForTheKernelsTypesIsNoMissingProcess) {
  struct stat types;
  ASSERT_EQ(stat("/sys/kernel/btf/vmlinux", &types), 0);
  const auto error_after = [&](const std::string& step) {
    const auto load = [&] {
      bool left = false;
      TraceObserver() = [&](const std::string& done) {
        if (left || done.find(step) == std::string::npos) return;
        left = true;
        // libbpf has them twice for a moment. The object itself takes some MB.
        LeaveMemory(static_cast<size_t>(types.st_size) * 3 / 2);
      };
      return Load(config_).status();
    };
    return RunInterrupted({}, load).message;
  };
  const std::string why = ": read the kernel's types: Cannot allocate memory; ";
  EXPECT_EQ(error_after("opened the BPF object"),
            "RESOURCE_EXHAUSTED: load the BPF programs" + why +
                "nothing was changed");
}

// The hint had no pin directory: the unload would have been of another meter.
TEST_F(LoaderRootTest, TheHintAboutAnotherAbiNamesThePinDirectory) {
  MustLoad();
  nm_info info = {};
  info.magic = NM_MAGIC;
  info.abi_major = NM_ABI_MAJOR + 1;
  const uint32_t zero = 0;
  const UniqueFd map(bpf_map_create(BPF_MAP_TYPE_ARRAY, "nm_info", sizeof(zero),
                                    sizeof(info), 1, nullptr));
  ASSERT_TRUE(map.ok());
  ASSERT_EQ(bpf_map_update_elem(map.get(), &zero, &info, BPF_ANY), 0);
  ASSERT_EQ(unlink(Pin("info").c_str()), 0);
  ASSERT_EQ(bpf_obj_pin(map.get(), Pin("info").c_str()), 0);
  EXPECT_EQ(LoadError(),
            Pin("info") +
                " is not of this version's ABI (run the loader that made it: "
                "netmeter-loader unload --pin-dir " +
                config_.pin_dir +
                "; or run: netmeter-loader load --restart --pin-dir " +
                config_.pin_dir +
                ": counters start again); nothing was changed");
}

// The links had mode 0 below `umask 0777`.
TEST_F(LoaderRootTest, TheMaskOfTheShellChangesNoModes) {
  for (const char* mask : {"0777", "077", "0"}) {
    SCOPED_TRACE(mask);
    const ShellResult loaded = RunShell(absl::StrCat(
        "umask ", mask,
        "; exec lib/netmeter_loader/netmeter-loader load --group ", kGroup,
        " --pin-dir ", config_.pin_dir, " --cgroup ", cgroup_, " 2>&1"));
    EXPECT_EQ(loaded.exit_status, 0) << loaded.output;
    ExpectModes();
    struct stat about;
    for (const char* link : {"link_egress", "link_sock_create"}) {
      ASSERT_EQ(stat(Pin(link).c_str(), &about), 0);
      EXPECT_EQ(about.st_mode & 0777, 0600u) << link;
    }
    bool was_loaded = false;
    ASSERT_TRUE(Unload(config_.pin_dir, &was_loaded).ok());
  }
}

// access(2) found no memory, once or for ever, and a pin of work in progress was taken
// for there: the message called a meter damaged, and advised to unload it, of which
// `status` said that it was loaded.
TEST_F(LoaderRootTest, NoMemoryForALookIsNoDamage) {
  config_.max_series = 100;
  MustLoad();
  uint64_t sent = 0;
  for (const int most : {1, INT_MAX}) {
    for (const int but : {0, 2, 8, 24}) {
      SCOPED_TRACE(absl::StrCat(most, " after ", but));
      config_.max_series += 2;
      Interruption refused = {-1, ENOMEM, "access", but};
      refused.most = most;
      const Interrupted grown =
          RunInterrupted(refused, [&] { return Load(config_).status(); });
      EXPECT_THAT(grown.message, Not(HasSubstr("unload")));
      if (!grown.ok) {
        EXPECT_THAT(grown.message,
                    AnyOf(EndsWith("nothing was changed"),
                          EndsWith("only modes of pins were changed"),
                          EndsWith("run load again")));
      }
      const bool unfinished =
          grown.message.find("run load again") != std::string::npos;
      if (unfinished) MustLoad();
      EXPECT_EQ(MustStatus().state, MeterState::kLoaded) << grown.message;
      SendFromCgroup(10);
      EXPECT_EQ(PayloadSent(), sent += 10);
    }
  }
}

// It removed the old meter as soon as the kernel had accepted the new programs. If the
// kernel then refused to attach them, no meter was left.
TEST_F(LoaderRootTest, ARestartThatCannotAttachLeavesTheOldMeterCounting) {
  config_.uplinks = {{"satellite", {"sat*"}}};
  MustLoad();
  SendFromCgroup(100);
  const absl::StatusOr<std::string> before = LoadedConfig(config_.pin_dir);
  ASSERT_TRUE(before.ok()) << before.status();
  MeterOptions options;
  options.pin_dir = config_.pin_dir;
  const auto reader = Meter::Open(options);
  ASSERT_TRUE(reader.ok()) << reader.status();
  const auto restart = [this] {
    return Load(
               config_.pin_dir,
               [](Config* config) { config->max_series = 1000; },
               /*replaces=*/false, /*restart=*/true)
        .status();
  };
  // The kernel refuses all links, or the last ones; or the configuration cannot be kept.
  for (const auto& [call, but] :
       {std::make_pair("bpf(28)", 0), std::make_pair("bpf(28)", 7),
        std::make_pair("rename", 0)}) {
    SCOPED_TRACE(absl::StrCat(call, " after ", but));
    const Interrupted failed = RunInterrupted({-1, EPERM, call, but}, restart);
    EXPECT_FALSE(failed.ok);
    EXPECT_THAT(failed.message, EndsWith("; nothing was changed"));
  }
  EXPECT_EQ(MustStatus().state, MeterState::kLoaded);
  EXPECT_EQ(LoadedConfig(config_.pin_dir).value_or(""), *before);
  SendFromCgroup(10);
  EXPECT_EQ(PayloadSent(), 110u);
  const auto health = (*reader)->ReadHealth();
  ASSERT_TRUE(health.ok()) << health.status();
  EXPECT_EQ(health->max_series, config_.max_series);
  EXPECT_TRUE(restart().ok());
  SendFromCgroup(7);
  EXPECT_EQ(PayloadSent(), 7u);
}

// The configuration that the next load starts from is the old one, too.
TEST_F(LoaderRootTest, AnUpgradeThatFailsSaysThatTheMeterGoesOnAsBefore) {
  config_.max_series = 100;
  MustLoad();
  SendFromCgroup(100);
  const absl::StatusOr<std::string> before = LoadedConfig(config_.pin_dir);
  ASSERT_TRUE(before.ok()) << before.status();
  for (const char* call : {"bpf(6)", "bpf(10)"}) {
    Config wanted = config_;
    wanted.max_series = 200;
    wanted.proxy_ports = {8443, 9443};
    // The kernel pins no map, or does not let the loader say that it has begun.
    const Interrupted interrupted = RunInterrupted(
        {-1, ENOMEM, call}, [&] { return Load(wanted).status(); });
    EXPECT_FALSE(interrupted.ok);
    EXPECT_THAT(interrupted.message,
                EndsWith("Cannot allocate memory; nothing was changed"));
    EXPECT_EQ(MustStatus().state, MeterState::kLoaded);
    const absl::StatusOr<std::string> after = LoadedConfig(config_.pin_dir);
    ASSERT_TRUE(after.ok()) << after.status();
    EXPECT_EQ(*after, *before);
    EXPECT_EQ(MustLoad(), Action::kUnchanged);
    EXPECT_EQ(PayloadSent(), 100u);
  }
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
