// SPDX-License-Identifier: BSD-3-Clause
// `netmeter record` and `usage` on real maps: from the meter to the bill, for those
// who may read it, on a disk without room.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "lib/testing/bpffs_fixture.h"
#include "lib/testing/fake_meter.h"
#include "lib/testing/run_shell.h"

namespace netmeter {
namespace internal {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr gid_t kGroup = 4242;

class HistoryTest : public BpffsTest {
 protected:
  void SetUp() override {
    BpffsTest::SetUp();
    char name[] = "/tmp/netmeter-history-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    directory_ = name;
    ASSERT_EQ(chmod(name, 0755), 0);
    Load();
  }
  void TearDown() override {
    RunShell("rm -rf " + directory_);
    BpffsTest::TearDown();
  }

  // A new meter, as after an unload and a load.
  void Load() {
    meter_ = std::make_unique<FakeMeter>(FakeMeter::Options());
    ASSERT_EQ(meter_->error(), "");
    meter_->info()->created_ns += ++loads_;
    meter_->SetName(3, NM_KIND_SERVICE, "mme");
    nm_cell* cell = meter_->cell(NM_SLOT_FIRST, 0);
    cell->service = 3;
    cell->kind = NM_KIND_SERVICE;
    cell->transport = NM_TRANSPORT_TCP;
    meter_->stats()->slots_allocated = 1;
    ASSERT_EQ(meter_->Pin(pin_dir_, kGroup, 0640), "");
    ASSERT_EQ(chown(pin_dir_.c_str(), 0, kGroup), 0);
  }
  nm_cell* cell() { return meter_->cell(NM_SLOT_FIRST, 0); }

  std::string database() const { return directory_ + "/history/history.db"; }
  ShellResult Record(const std::string& before = "") {
    return RunShell(before + "lib/apps/netmeter/netmeter record --pin-dir " +
                    pin_dir_ + " --database " + database() + " 2>&1");
  }
  std::string Usage(const std::string& options,
                    const std::string& before = "") {
    return RunShell(before + "lib/apps/netmeter/netmeter usage --database " +
                    database() + " " + options + " 2>&1")
        .output;
  }
  int64_t Total(const std::string& before = "") {
    const std::string text = Usage("--json", before);
    const auto json = nlohmann::json::parse(text, nullptr, false);
    if (json.is_discarded()) ADD_FAILURE() << text;
    return json.is_discarded() ? -1 : json["sum"]["tx_bytes"].get<int64_t>();
  }

  std::string directory_;
  std::unique_ptr<FakeMeter> meter_;
  uint64_t loads_ = 0;
};

TEST_F(HistoryTest, RecordsEachByteOnceAcrossLoads) {
  cell()->tx_bytes = 1000;
  EXPECT_EQ(Record().exit_status, 0);
  cell()->tx_bytes = 1500;
  EXPECT_EQ(Record().output, "");
  EXPECT_EQ(Record().output, "");
  EXPECT_EQ(Total(), 1500);
  Load();
  cell()->tx_bytes = 70;
  EXPECT_EQ(Record().output, "");
  EXPECT_EQ(Total(), 1570);
  EXPECT_THAT(Usage("--bytes"), AllOf(HasSubstr("\nmme      service  1570"),
                                      HasSubstr("lost: ")));
  EXPECT_THAT(Usage("--csv"), HasSubstr("\nservice,mme,1570,0,"));
  EXPECT_THAT(Usage("--by year --top 1 --csv"), HasSubstr(",1570,0,"));
  nm_cell* other = meter_->cell(NM_SLOT_FIRST + 1, 0);
  *other = *cell();
  meter_->SetName(4, NM_KIND_SERVICE, "other");
  other->service = 4;
  other->tx_bytes = 500;
  meter_->stats()->slots_allocated = 2;
  EXPECT_EQ(Record().output, "");
  EXPECT_THAT(Usage("--top 1 --csv"),
              AllOf(HasSubstr("\nservice,mme,1570,0,"),
                    HasSubstr("\nrest,(1 more),500,0,")));
  EXPECT_THAT(
      Usage("--percentile 100 --csv"),
      StartsWith("uplink,tx_bits_per_second,rx_bits_per_second,samples\n,"));
  EXPECT_THAT(Usage("--percentile 95 --by day"), HasSubstr("excludes"));
  // vnStat's users name an interface.
  EXPECT_THAT(Usage("--uplink eth0"),
              StartsWith("netmeter: no uplink 'eth0'; there is no uplink"));
}

// As root records, and the group of the pins reads: it may not write anywhere.
TEST_F(HistoryTest, TheGroupOfThePinsReadsAndOthersDoNot) {
  cell()->tx_bytes = 1000;
  ASSERT_EQ(Record().output, "");
  const std::string member =
      "setpriv --reuid=65534 --regid=4242 --clear-groups ";
  EXPECT_EQ(Total(member), 1000);
  RunShell("chmod -R g+rwX " + pin_dir_);
  EXPECT_THAT(Record(member).output,
              HasSubstr("history.db: Permission denied (run as root)\n"));
  EXPECT_THAT(
      Usage("", "setpriv --reuid=65534 --regid=65534 --clear-groups "),
      AllOf(StartsWith("netmeter: open "), HasSubstr("Permission denied")));
  // A record that was killed leaves its log behind.
  cell()->tx_bytes = 1001;
  RunShell("cp " + database() + " " + directory_ + "/old");
  ASSERT_EQ(Record().output, "");
  EXPECT_EQ(Total(member), 1001);
}

// systemd made the directory for the group, and root recorded by hand before the timer
// did: the file was root's alone for good, and so was each copy of it beside it. Members
// of the group had "Permission denied", and the exporter no netmeter_budget_used_bytes.
TEST_F(HistoryTest, WhoeverRecordsFirstTheGroupOfTheDirectoryReads) {
  const std::string directory = directory_ + "/history";
  const std::string budgets = directory_ + "/budgets.yml";
  const std::string log = directory_ + "/log";
  const std::string member =
      "setpriv --reuid=65534 --regid=65534 --groups=4242 --inh-caps=-all ";
  // netmeter-record.service: root in the group, with CAP_BPF alone.
  const std::string unit =
      "setpriv --regid=4242 --clear-groups --bounding-set=-all,+bpf "
      "--inh-caps=-all ";
  RunShell("echo 'budgets: [{name: all, limit: 100 MB}]' > " + budgets);
  RunShell("touch " + log + "; chmod 666 " + log);
  ASSERT_EQ(mkdir(directory.c_str(), 0750), 0);
  ASSERT_EQ(chown(directory.c_str(), 0, kGroup), 0);
  const auto read_as_member = [&] {
    EXPECT_EQ(Total(member), 1000);
    EXPECT_THAT(
        RunShell(member + "lib/apps/netmeter/netmeter budget --database " +
                 database() + " --budgets " + budgets + " 2>&1")
            .output,
        HasSubstr(" ok\n"));
    // Emptied first: the shell waits for this exporter's line, not for the last one's.
    const std::string page =
        RunShell(
            ": > " + log + "; " + member +
            "lib/apps/exporter/netmeter-exporter --service303 off " +
            "--listen 127.0.0.1:0 --pin-dir " + pin_dir_ + " --budgets " +
            budgets + " --database " + database() + " 2> " + log +
            " & until grep -q serving " + log +
            "; do kill -0 $! || break; sleep 0.05; done; curl -s $(grep -o "
            "'http://[^ ]*' " +
            log + "); kill $!; wait")
            .output;
    EXPECT_THAT(page, HasSubstr("\nnetmeter_budget_used_bytes{budget=\"all\""));
  };
  cell()->tx_bytes = 1000;
  ASSERT_EQ(Record().output, "");
  read_as_member();

  // As an earlier version left it.
  for (const std::string& before : {std::string(), unit}) {
    RunShell("chown root:root " + database() + "*; chmod 600 " + database() +
             "*");
    ASSERT_THAT(Usage("", member), HasSubstr("Permission denied"));
    ASSERT_EQ(Record(before).output, "");
    read_as_member();
  }

  // A record that may not give the file away records all the same.
  RunShell("chown root:root " + database() + "*");
  EXPECT_EQ(Record("setpriv --bounding-set=-all,+bpf --inh-caps=-all ").output,
            "");
}

// size_units of the configuration. A reader of the history needs no meter for it.
TEST_F(HistoryTest, TheConfigurationSaysWhichUnitsAreShown) {
  const auto list = [this](const std::string& options) {
    return RunShell("lib/apps/netmeter/netmeter list --pin-dir " + pin_dir_ +
                    options)
        .output;
  };
  cell()->tx_bytes = 1500000;
  ASSERT_EQ(Record().output, "");
  EXPECT_THAT(list(""), HasSubstr(" 1.4 MiB "));
  EXPECT_THAT(Usage(""), HasSubstr(" 1.4 MiB "));
  meter_->info()->decimal_sizes = 1;
  EXPECT_THAT(list(""), HasSubstr(" 1.5 MB "));
  EXPECT_THAT(list(" --units binary"), HasSubstr(" 1.4 MiB "));
  ASSERT_EQ(Record().output, "");
  EXPECT_THAT(Usage(""), HasSubstr(" 1.5 MB "));
  EXPECT_THAT(Usage("--units binary"), HasSubstr(" 1.4 MiB "));
  const std::string page =
      RunShell("lib/apps/netmeter/netmeter report --html - --database " +
               database())
          .output;
  EXPECT_THAT(page, HasSubstr("<p class=\"big\">1.5 MB</p>"));
}

TEST_F(HistoryTest, AFullDiskIsOneLineAndTheNextRecordHasAll) {
  ASSERT_EQ(mkdir((directory_ + "/history").c_str(), 0755), 0);
  ASSERT_EQ(mount("tmpfs", (directory_ + "/history").c_str(), "tmpfs", 0,
                  "size=256k"),
            0);
  cell()->tx_bytes = 1000;
  EXPECT_EQ(Record().output, "");
  const std::string filler = directory_ + "/history/filler";
  RunShell("dd if=/dev/zero of=" + filler + " bs=4k 2>&1");
  cell()->tx_bytes = 2000;
  const ShellResult full = Record();
  EXPECT_EQ(full.exit_status, 1) << full.output;
  EXPECT_THAT(full.output, StartsWith("netmeter: " + database() + ": "));
  EXPECT_EQ(full.output.find('\n'), full.output.size() - 1) << full.output;
  EXPECT_EQ(Total(), 1000);
  ASSERT_EQ(unlink(filler.c_str()), 0);
  EXPECT_EQ(Record().output, "");
  EXPECT_EQ(Total(), 2000);
  EXPECT_EQ(umount2((directory_ + "/history").c_str(), MNT_DETACH), 0);
}

// 80 % of a 100 MB budget: one warning, by the record after it, by a user that is not
// root, and the exit status for scripts.
TEST_F(HistoryTest, ABudgetWarnsOnceAtEachLevel) {
  const std::string config = directory_ + "/budgets.yml";
  const std::string log = directory_ + "/log";
  RunShell("echo 'budgets: [{name: satellite, limit: 100 MB}]' > " + config +
           "; touch " + log + "; chmod 666 " + log);
  const auto budget = [&](const std::string& options) {
    return RunShell("lib/apps/netmeter/netmeter budget --budgets " + config +
                    " --database " + database() + " " + options + " 2>&1");
  };
  const std::string run =
      "--run 'echo \"$NETMETER_BUDGET $NETMETER_PERCENT "
      "$NETMETER_USED_BYTES $(id -u) $(id -G)\" >> " +
      log + "' --run-as nobody";
  const auto logged = [&log] { return RunShell("cat " + log).output; };
  for (const uint64_t bytes : {79999999, 80000000, 80000001, 100000000}) {
    cell()->tx_bytes = bytes;
    ASSERT_EQ(Record().output, "");
    const int status = bytes < 80000000 ? 0 : bytes < 100000000 ? 3 : 4;
    EXPECT_EQ(budget(run).exit_status, status) << bytes;
    EXPECT_EQ(budget(run).exit_status, status) << bytes;
    EXPECT_EQ(budget("").exit_status, status) << bytes;
  }
  EXPECT_EQ(logged(),
            "satellite 80 80000000 65534 65534\n"
            "satellite 100 100000000 65534 65534\n");
  EXPECT_THAT(budget("--json").output,
              AllOf(HasSubstr("\"used_bytes\": 100000000"),
                    HasSubstr("\"state\": \"used up\"")));
  const auto one_line = [&](const std::string& options) {
    return RunShell("lib/apps/netmeter/netmeter budget --database " +
                    database() + " " + options + " 2>&1");
  };
  EXPECT_EQ(one_line("--limit '125 MB'").exit_status, 3);
  EXPECT_EQ(one_line("--limit 1GB --service mme --days 1").exit_status, 0);
  const ShellResult all = one_line("--limit '99 MB' --json");
  EXPECT_EQ(all.exit_status, 4);
  EXPECT_THAT(all.output, HasSubstr("\"limit_bytes\": 99000000"));
  EXPECT_THAT(one_line("--limit '1 MB' --service none").output,
              HasSubstr("(none: it selects no recorded traffic"));
  const ShellResult typo = one_line("--limit '1 MB' --uplink satelite");
  EXPECT_EQ(typo.exit_status, 1);
  EXPECT_EQ(
      typo.output,
      "netmeter: budget satelite: no uplink 'satelite'; there is no uplink (a "
      "new one is known after the next netmeter record)\n");
  // The bug: it ended before the other budgets, whose commands did not run.
  RunShell(
      "echo 'budgets: [{name: typo, limit: 1 MB, uplink: satelite}, {name: "
      "small, limit: 1 MB}]' > " +
      config);
  const ShellResult both = budget(run);
  EXPECT_EQ(both.exit_status, 1);
  EXPECT_THAT(both.output,
              AllOf(HasSubstr("netmeter: budget typo: no uplink 'satelite'"),
                    ContainsRegex("small .*used up")));
  EXPECT_THAT(logged(), HasSubstr("small 100 100000000"));
  EXPECT_EQ(one_line("--limit 99").exit_status, 2);
  EXPECT_EQ(one_line("--limit '1 MB' --run true").exit_status, 2);
  EXPECT_EQ(one_line("--uplink satellite").exit_status, 2);
  const ShellResult as_root = budget("--run true");
  EXPECT_EQ(as_root.exit_status, 2);
  EXPECT_THAT(as_root.output, HasSubstr("--run as root needs --run-as"));
}

// A plan of 100 GB was shown as 93.1 GiB, and FORECAST was "-" without a reason.
TEST_F(HistoryTest, ABudgetIsShownInItsUnitsAndSaysWhyItHasNoForecast) {
  const std::string config = directory_ + "/budgets.yml";
  RunShell(
      "echo 'budgets: [{name: plan, limit: 100 GB}, {name: backups, limit: "
      "5 GiB}]' > " +
      config);
  cell()->tx_bytes = 1500000;
  ASSERT_EQ(Record().output, "");
  const auto budget = [&](const std::string& options) {
    return RunShell("lib/apps/netmeter/netmeter budget --database " +
                    database() + " --config " + config + options + " 2>&1")
        .output;
  };
  const std::string text = budget("");
  EXPECT_THAT(text, AllOf(HasSubstr(" 100.0 GB "), HasSubstr(" 1.5 MB "),
                          HasSubstr(" 5.0 GiB "), HasSubstr(" 1.4 MiB ")));
  EXPECT_THAT(text, HasSubstr("\n(no forecast for plan, backups: too little of "
                              "this period is recorded (it comes at "));
  EXPECT_THAT(budget(" --units binary"), HasSubstr(" 93.1 GiB "));
  const auto json = nlohmann::json::parse(budget(" --json"));
  EXPECT_TRUE(json[0]["forecast_bytes"].is_null());
  EXPECT_THAT(json[0]["forecast_unknown"], StartsWith("too little"));
}

// The usage was that of the calendar month, and the budgets were always the present ones.
TEST_F(HistoryTest, APageAndItsBudgetsHaveOnePeriod) {
  const std::string config = directory_ + "/budgets.yml";
  RunShell("echo '{reset_day: 15, budgets: [{name: plan, limit: 1 MB}]}' > " +
           config);
  cell()->tx_bytes = 500000;
  ASSERT_EQ(Record().output, "");
  const auto page = [&](const std::string& options) {
    return RunShell("lib/apps/netmeter/netmeter report --html - --database " +
                    database() + " --budgets " + config + options)
        .output;
  };
  const std::string now = page("");
  EXPECT_THAT(now, ContainsRegex("<title>[^<]*-15 to [^<]*-14</title>"));
  EXPECT_THAT(now, HasSubstr("<td>plan</td><td>500.0 kB (50%)</td>"));
  const std::string past = page(" --month 2020-01");
  EXPECT_THAT(past, HasSubstr("2020-01-15 to 2020-02-14</title>"));
  EXPECT_THAT(past, HasSubstr("<td>plan</td><td>0 B (0%)</td>"));
  const std::string other = page(" --reset-day 1");
  EXPECT_THAT(other, Not(HasSubstr("<td>plan</td>")));
  EXPECT_THAT(other, HasSubstr("Budgets of other periods: plan ("));
}

TEST_F(HistoryTest, ACommandThatFailsIsTriedAgain) {
  const std::string config = directory_ + "/budgets.yml";
  RunShell("echo 'budgets: [{name: b, limit: 100 B, warn: [1]}]' > " + config);
  cell()->tx_bytes = 50;
  ASSERT_EQ(Record().output, "");
  const auto budget = [&](const std::string& command) {
    return RunShell("lib/apps/netmeter/netmeter budget --budgets " + config +
                    " --database " + database() + " --run-as root --run '" +
                    command + "' 2>&1 >/dev/null");
  };
  for (int i = 0; i < 2; ++i) {
    const ShellResult failed = budget("exit 7");
    EXPECT_EQ(failed.exit_status, 1);
    EXPECT_EQ(failed.output,
              "netmeter: --run: the command for b at 1 % exited with 7\n");
  }
  EXPECT_EQ(budget("true").exit_status, 3);
  EXPECT_EQ(budget("exit 7").exit_status, 3);
}

// The level was noted as warned of before the command ran: one that was killed with its
// call, as by a shutdown, was never tried again. Two calls at once still warn once.
TEST_F(HistoryTest, ACommandWhoseCallWasKilledIsTriedAgain) {
  const std::string config = directory_ + "/budgets.yml";
  const std::string log = directory_ + "/log";
  RunShell("echo 'budgets: [{name: b, limit: 100 B, warn: [1]}]' > " + config);
  cell()->tx_bytes = 50;
  ASSERT_EQ(Record().output, "");
  const auto budget = [&](const std::string& command) {
    return "lib/apps/netmeter/netmeter budget --budgets " + config +
           " --database " + database() + " --run-as root --run '" + command +
           "'";
  };
  const std::string pid = directory_ + "/pid";
  RunShell(budget("echo $$ > " + pid + "; exec sleep 60") + " & until [ -s " +
           pid + " ]; do sleep 0.1; done; kill -9 $! $(cat " + pid + ")");
  const std::string warn = budget("sleep 1; echo warned >> " + log);
  RunShell(warn + " & " + warn + " & wait");
  EXPECT_EQ(RunShell("cat " + log).output, "warned\n");
}

// It held the timer's unit for good, and nothing was recorded any more.
TEST_F(HistoryTest, ACommandThatDoesNotEndIsKilledWithItsChildren) {
  const std::string config = directory_ + "/budgets.yml";
  RunShell("echo 'budgets: [{name: b, limit: 100 B, warn: [1]}]' > " + config);
  cell()->tx_bytes = 50;
  ASSERT_EQ(Record().output, "");
  const std::string budget = "lib/apps/netmeter/netmeter budget --budgets " +
                             config + " --database " + database() +
                             " --run-as root ";
  // In a number of its own: another run of this test may be beside it.
  const std::string sleeps = absl::StrCat("sleep 3", getpid());
  const ShellResult killed = RunShell(absl::StrCat(
      budget, "--run-seconds 1 --run '", sleeps, "; true' 2>&1 >/dev/null"));
  EXPECT_EQ(killed.exit_status, 1);
  EXPECT_EQ(killed.output,
            "netmeter: --run: the command for b at 1 % ran longer than 1 s "
            "(--run-seconds)\n");
  EXPECT_EQ(RunShell("timeout 60 sh -c 'while pgrep -x sleep -a | grep \"" +
                     sleeps + "$\"; do sleep 0.1; done'")
                .exit_status,
            0);
  // If the caller ignores SIGCHLD, it gets no status of a child: each call ran the
  // command again.
  EXPECT_EQ(RunShell("python3 -c 'import os, signal, sys; "
                     "signal.signal(signal.SIGCHLD, signal.SIG_IGN); "
                     "os.execvp(sys.argv[1], sys.argv[1:])' " +
                     budget + "--run true > /dev/null 2>&1")
                .exit_status,
            3);
  EXPECT_EQ(RunShell(budget + "--run 'exit 7' >/dev/null 2>&1").exit_status, 3);
}

// "database is locked" was all that it said, or "locking protocol".
TEST_F(HistoryTest, WhoKeepsALockOfTheHistoryIsLookedFor) {
  cell()->tx_bytes = 50;
  ASSERT_EQ(Record().output, "");
  // A reader may lock what SQLite locks: bytes 120 to 128 of the file beside it.
  const ShellResult locked = Record(
      "python3 -c 'import fcntl, os, sys, time; "
      "fcntl.lockf(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_SH, 9, 120); "
      "print(flush=True); time.sleep(60)' " +
      database() + "-shm > " + directory_ +
      "/locked & trap \"kill $!\" EXIT; " + "while ! [ -s " + directory_ +
      "/locked ]; do sleep 0.1; done; ");
  EXPECT_EQ(locked.exit_status, 1);
  EXPECT_EQ(
      locked.output,
      "netmeter: " + database() +
          ": another program has kept its lock for 10 seconds (see: fuser " +
          database() + " " + database() + "-shm)\n");
}

// As root the command replaced what was at the path, once /dev/null.
TEST_F(HistoryTest, AReportReplacesNothingButFiles) {
  cell()->tx_bytes = 50;
  ASSERT_EQ(Record().output, "");
  const auto report = [&](const std::string& file) {
    return RunShell("lib/apps/netmeter/netmeter report --database " +
                    database() + " --html " + file + " 2>&1")
        .exit_status;
  };
  const std::string page = directory_ + "/page.html";
  ASSERT_EQ(
      RunShell("touch " + page + "; chmod 600 " + page + "; ln -s page.html " +
               directory_ + "/link; mknod " + directory_ +
               "/null c 1 3; mkfifo " + directory_ + "/fifo; cat " +
               directory_ + "/fifo > " + directory_ + "/read &")
          .exit_status,
      0);
  for (const char* file : {"/page.html", "/link", "/null", "/fifo"}) {
    EXPECT_EQ(report(directory_ + file), 0) << file;
  }
  EXPECT_EQ(report("/dev/fd/1 | cat > /dev/null"), 0);
  EXPECT_EQ(RunShell("cd " + directory_ +
                     "; stat -c '%n %F %a' page.html link null fifo; grep -l "
                     "'</html>' page.html")
                .output,
            "page.html regular file 600\nlink symbolic link 777\n"
            "null character special file 644\nfifo fifo 644\npage.html\n");
}

// From the history, and what the meter has counted since its last record.
TEST_F(HistoryTest, ListSinceHasWhatIsRecordedAndWhatIsNot) {
  cell()->tx_bytes = 1000;
  ASSERT_EQ(Record().output, "");
  Load();
  cell()->tx_bytes = 10;
  ASSERT_EQ(Record().output, "");
  cell()->tx_bytes = 15;
  const auto list = [this](const std::string& options) {
    return RunShell("lib/apps/netmeter/netmeter list --bytes --pin-dir " +
                    pin_dir_ + " --database " + database() + " " + options +
                    " 2>&1")
        .output;
  };
  EXPECT_THAT(list("--since 2h"),
              AllOf(StartsWith("since 20"), HasSubstr(" direct  1015 ")));
  EXPECT_THAT(list(""), HasSubstr("direct  15 "));
  EXPECT_THAT(list("--since 1800-01-01"), HasSubstr("--since: expected"));
  // It was "nothing counted yet", which is another thing.
  EXPECT_THAT(list("--service other"), HasSubstr("\n(no such series)\n"));
}

TEST_F(HistoryTest, WatchPrintsRatesUntilNobodyReads) {
  cell()->tx_bytes = 1000;
  const std::string output =
      RunShell(
          "timeout 20 lib/apps/netmeter/netmeter list --watch 0.1 --bytes "
          "--pin-dir " +
          pin_dir_ + " | head -n 12")
          .output;
  EXPECT_THAT(output, AllOf(HasSubstr("TX/S"), HasSubstr("every 0.1 s"),
                            HasSubstr("total, direct")));
}

// 4295 seconds are more microseconds than 32 bits have: it printed thirty times a second.
TEST_F(HistoryTest, WatchEndsAfterItsCount) {
  const ShellResult twice = RunShell(
      "timeout 60 lib/apps/netmeter/netmeter list --watch 0.1 --count 2 "
      "--pin-dir " +
      pin_dir_ + " | grep -c 'every 0.1 s'");
  EXPECT_EQ(twice.output, "2\n");
  EXPECT_EQ(RunShell("lib/apps/netmeter/netmeter list --count 2 --pin-dir " +
                     pin_dir_)
                .exit_status,
            2);
}

TEST_F(HistoryTest, WatchSleepsForMoreThanAnHour) {
  const std::string table = directory_ + "/table";
  EXPECT_EQ(
      RunShell("lib/apps/netmeter/netmeter list --watch 4295 --pin-dir " +
               pin_dir_ + " > " + table + " & until grep -q TX/S " + table +
               "; do sleep 0.1; done; sleep 1; kill $!; grep -c TX/S " + table)
          .output,
      "1\n");
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
