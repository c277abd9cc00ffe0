// SPDX-License-Identifier: BSD-3-Clause
// The program `netmeter` from outside: exit status, standard output and error.
// No meter is needed; see netmeter_root_test.cc for one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "lib/base/version.h"
#include "lib/testing/run_shell.h"

namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using netmeter::internal::RunShell;
using Result = netmeter::internal::ShellResult;

// Runs `netmeter ` + arguments by the shell.
Result RunNetmeter(const std::string& arguments) {
  return RunShell("lib/apps/netmeter/netmeter " + arguments);
}

TEST(Netmeter, HelpExplainsAndHasExamples) {
  for (const char* arguments : {"--help 2>&1", "list --help 2>&1"}) {
    const Result result = RunNetmeter(arguments);
    EXPECT_EQ(result.exit_status, 0);
    EXPECT_THAT(result.output, HasSubstr("Examples:"));
    EXPECT_THAT(result.output, HasSubstr("netmeter list --json"));
  }
  EXPECT_THAT(RunNetmeter("list --help").output, HasSubstr("--pin-dir"));
  EXPECT_THAT(RunNetmeter("list --help").output, HasSubstr("/run/netmeter"));
}

TEST(Netmeter, VersionIsOneLine) {
  const Result result = RunNetmeter("--version 2>&1");
  EXPECT_EQ(result.exit_status, 0);
  EXPECT_EQ(result.output,
            std::string("netmeter ") + netmeter::internal::kVersion + "\n");
}

TEST(Netmeter, WrongUseIsOneLineAndExitStatus2) {
  for (const char* arguments : {"",
                                "nonsense",
                                "list --nonsense",
                                "list extra",
                                "list --pin-dir",
                                "list --pin-dir ''",
                                "list --bytes --json",
                                "list --units metric",
                                "list --units decimal --bytes",
                                "sockets --units decimal --exact",
                                "flows --duration 1 --json --units binary",
                                "record --database ''",
                                "record --keep-hours 0",
                                "forget",
                                "forget --service a --destination b",
                                "forget --service forgotten",
                                "usage extra",
                                "usage --month 2026-13",
                                "usage --month 2026-11 --from 2026-11-01",
                                "usage --to 2026-11-01",
                                "usage --from 2026-02-30",
                                "usage --from tomorrow",
                                "usage --from -3d",
                                "usage --from today --to yesterday",
                                "usage --from 2026-11-02 --to 2026-11-01",
                                "usage --reset-day 32",
                                "usage --from 2026-11-02 --reset-day 15",
                                "list --since soon",
                                "list --since 2100-01-01",
                                "list --watch 0",
                                "list --watch 1 --json",
                                "list --top 0",
                                "list --sort nonsense",
                                "list --sort rate",
                                "budget extra",
                                "report",
                                "report --html ''",
                                "report --html x --path up",
                                "budget --run-as nobody",
                                "budget --bytes --json",
                                "list --kind nonsense",
                                "usage --by nonsense",
                                "usage --json --csv"}) {
    const Result result =
        RunNetmeter(std::string(arguments) + " 2>&1 >/dev/null");
    EXPECT_EQ(result.exit_status, 2) << arguments;
    EXPECT_THAT(result.output, StartsWith("netmeter: "));
    EXPECT_THAT(result.output, EndsWith(" --help)\n"));
    EXPECT_EQ(result.output.find('\n'), result.output.size() - 1);
  }
}

// The bug: with an unset variable they printed another period, the totals since the load,
// or all services, without a warning.
TEST(Netmeter, AnEmptyValueDoesNotMeanTheDefault) {
  for (const char* const arguments :
       {"usage --from '' --to 2020-01-01", "usage --month ''",
        "usage --month=", "report --html page --from ''", "list --since ''",
        "list --service ''", "budget --run '' --run-as nobody"}) {
    const Result result =
        RunNetmeter(std::string(arguments) + " 2>&1 >/dev/null");
    EXPECT_EQ(result.exit_status, 2) << arguments;
    EXPECT_THAT(result.output, AllOf(StartsWith("netmeter: --"),
                                     HasSubstr(": expected a value, not ''")));
  }
}

// It was told when a budget was crossed, once for each level.
TEST(Netmeter, ABudgetsUserIsLookedUpEachTime) {
  const Result result = RunNetmeter(
      "budget --run true --run-as no-such-user --database /nonexistent 2>&1");
  EXPECT_EQ(result.exit_status, 2);
  EXPECT_EQ(result.output,
            "netmeter: --run-as: unknown user 'no-such-user' (see: "
            "netmeter budget --help)\n");
}

TEST(Netmeter, MissingMeterIsOneLineAndExitStatus1) {
  const Result result = RunNetmeter("list --pin-dir /nonexistent 2>&1");
  EXPECT_EQ(result.exit_status, 1);
  EXPECT_EQ(result.output,
            "netmeter: no meter at /nonexistent (run: netmeter-loader load "
            "--pin-dir /nonexistent)\n");
  // Relative names the same directory as for netmeter-loader.
  EXPECT_THAT(RunNetmeter("list --pin-dir no-such 2>&1").output,
              AllOf(HasSubstr("no meter at /"), HasSubstr("/no-such (run: ")));
}

TEST(Netmeter, MissingHistoryIsOneLineAndExitStatus1) {
  const Result result = RunNetmeter("usage --database /nonexistent/db 2>&1");
  EXPECT_EQ(result.exit_status, 1);
  EXPECT_EQ(result.output,
            "netmeter: no history at /nonexistent/db (netmeter record makes "
            "it)\n");
  EXPECT_EQ(RunNetmeter("budget --budgets /nonexistent 2>&1").output,
            "netmeter: open /nonexistent: No such file or directory (an "
            "example: netmeter budget --help)\n");
  // As it was called before it had the name of report's and of the exporter's.
  EXPECT_EQ(RunNetmeter("budget --config /nonexistent 2>&1").exit_status, 1);
  // Without a meter no history is made.
  EXPECT_THAT(RunNetmeter("record --pin-dir /nonexistent --database "
                          "/nonexistent/db 2>&1")
                  .output,
              HasSubstr("no meter at /nonexistent"));
}

TEST(Netmeter, LostOutputIsAnError) {
  Result result = RunNetmeter("--help 2>&1 >&-");
  EXPECT_EQ(result.exit_status, 1);
  EXPECT_EQ(result.output, "");
  result = RunNetmeter("--help 2>&1 >/dev/full");
  EXPECT_EQ(result.exit_status, 1);
  EXPECT_EQ(result.output,
            "netmeter: write to standard output: No space left on device\n");
}

}  // namespace
