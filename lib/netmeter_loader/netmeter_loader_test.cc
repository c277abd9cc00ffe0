// SPDX-License-Identifier: BSD-3-Clause
// The program `netmeter-loader` from outside, as far as it needs no root: wrong
// usage, help and configuration. See the *_root_test.cc for the rest.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "absl/strings/str_replace.h"
#include "lib/testing/run_shell.h"

namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;

using netmeter::internal::RunShell;
using Result = netmeter::internal::ShellResult;

// Runs `netmeter-loader ` + arguments by the shell in /tmp, as a pin directory
// has a short path; both outputs together.
Result RunLoader(const std::string& arguments) {
  return RunShell(
      "program=$PWD/lib/netmeter_loader/netmeter-loader; cd /tmp && "
      "exec \"$program\" " +
      arguments + " 2>&1");
}

// Each of these was accepted, failed with 1, or was told something else.
TEST(NetmeterLoader, WrongUseIsOneLineAndExitStatus2) {
  const struct {
    const char* arguments;
    const char* message;
  } cases[] = {
      {"", "expected a command: load, check, unload, evict, status"},
      {"laod", "unknown command 'laod' (did you mean load?)"},
      {"--json status",
       "the command comes first: netmeter-loader status --json"},
      {"load --nonsense", "--nonsense"},
      {"load --max-series 5",
       "--max-series: expected a number from 22 to 65535, not '5'"},
      {"load --max-series many",
       "--max-series: expected a number from 22 to 65535, not 'many'"},
      {"load --max-names -1", "expected a number from 4 to 65535, not '-1'"},
      {"evict --idle x", "--idle: Value x not in range 0 to 31536000"},
      {"evict --full 101", "--full: Value 101 not in range 0 to 100"},
      {"evict -q -v", "--quiet excludes --verbose"},
      {"load -q -v", "--quiet excludes --verbose"},
      {"load --pin-dir ''", "--pin-dir: expected a path, not ''"},
      {"load --pin-dir here",
       "--pin-dir: expected an absolute path, not 'here'"},
      {"status --pin-dir \"$(printf '/a\\nb')\"", "control characters"},
  };
  for (const auto& wrong : cases) {
    const Result result = RunLoader(wrong.arguments);
    EXPECT_EQ(result.exit_status, 2) << wrong.arguments;
    EXPECT_THAT(result.output, StartsWith("netmeter-loader: "));
    // Debian 13's CLI11 writes "[0 - 100]".
    EXPECT_THAT(absl::StrReplaceAll(result.output, {{"range [", "range "},
                                                    {" - ", " to "},
                                                    {"] (see", " (see"}}),
                HasSubstr(wrong.message));
    EXPECT_THAT(result.output, HasSubstr(" (see --help)\n"));
    EXPECT_EQ(result.output.find('\n'), result.output.size() - 1);
  }
}

// The help of every command repeated that of all, configuration included, and
// options took INT and TEXT.
TEST(NetmeterLoader, HelpOfACommandIsAboutThatCommand) {
  for (const char* command :
       {"", "load", "check", "unload", "evict", "status"}) {
    const Result result = RunLoader(std::string(command) + " --help");
    EXPECT_EQ(result.exit_status, 0) << command;
    EXPECT_THAT(result.output, HasSubstr("Exit status: 0")) << command;
    EXPECT_THAT(result.output, Not(HasSubstr(" TEXT "))) << command;
    EXPECT_THAT(result.output, Not(HasSubstr("INT "))) << command;
    const bool load = command == std::string("load");
    EXPECT_EQ(result.output.find("max_processes") != std::string::npos, load)
        << command;
  }
}

TEST(NetmeterLoader, ABadConfigurationIsAFailureWithFileAndLine) {
  const std::string file = testing::TempDir() + "/netmeter.yml";
  std::ofstream(file) << "services: [mme]\nmax_serie: 5\n";
  const Result result = RunLoader("load --config " + file);
  EXPECT_EQ(result.exit_status, 1);
  EXPECT_EQ(result.output, "netmeter-loader: " + file +
                               ":2: unknown key 'max_serie' (did you mean "
                               "max_series?); nothing was changed\n");
  unlink(file.c_str());
  EXPECT_EQ(RunLoader("load --config /tmp").output,
            "netmeter-loader: /tmp: is a directory, expected a YAML file; "
            "nothing was changed\n");
}

// Nothing but a load told whether a file is right, and that says nothing of an empty one.
TEST(NetmeterLoader, CheckTellsWhatAFileSetsAndWhatCountsNothing) {
  const std::string file = testing::TempDir() + "/checked.yml";
  const auto check = [&](const char* text) {
    std::ofstream(file) << text;
    return RunLoader("check " + file);
  };
  // The hash is that of the settings, not of the file.
  const auto hash_of = [](const Result& checked) {
    const size_t start = checked.output.find("; hash ");
    return start == std::string::npos ? ""
                                      : checked.output.substr(start + 7, 16);
  };
  const std::string hash = hash_of(check("services: [mme]\nmax_series: 99\n"));
  EXPECT_THAT(hash, MatchesRegex("[0-9a-f]{16}"));
  EXPECT_EQ(hash_of(check("# later\nmax_series: 99\nmax_names: 4096\n"
                          "pin_dir: /run/other\nservices: [\"mme\"]\n")),
            hash);
  EXPECT_NE(hash_of(check("services: [mme]\nmax_series: 98\n")), hash);
  Result result = check("# services: [mme]\n");
  EXPECT_EQ(result.exit_status, 0);
  // A host with a default route is offered an uplink.
  EXPECT_THAT(result.output, StartsWith("netmeter-loader: " + file +
                                        ": no errors: only defaults; hash "));
  EXPECT_THAT(
      check("pin_dir: /run/other\n").output,
      StartsWith("netmeter-loader: " + file + ": no errors: pin_dir; hash "));
  result = check(
      "services: [mme]\n"
      "uplinks: {satellite: [nosuch0, lo]}\n"
      "forwarded_clients: [satellite, lan, other]\n"
      "destinations: [{name: all}, {name: dns, port: 53}]\n");
  EXPECT_EQ(result.exit_status, 0);
  EXPECT_EQ(
      result.output,
      "netmeter-loader: " + file +
          ": no errors: services, destinations, uplinks, forwarded_clients; "
          "hash " +
          hash_of(result) +
          "\n"
          "netmeter-loader: note: destinations: rule 2 (dns) has no effect: "
          "rule 1 (all) comes first and matches everything that it matches\n"
          "netmeter-loader: note: forwarded_clients: lan: no such uplink\n"
          "netmeter-loader: note: uplinks: satellite: nosuch0: no such "
          "interface\n"
          "netmeter-loader: note: uplinks: satellite: lo: loopback is in no "
          "uplink\n");
  const struct {
    const char* text;
    const char* error;
  } wrong[] = {
      {"services: [mme]\ngroup: no-such-group\n",
       ":2: group: no group no-such-group (groupadd --system no-such-group)\n"},
      {"\nregister_by: {mme: \"uid:no-such-user\"}\n",
       ":2: register_by: mme: no user no-such-user\n"},
      {"cgroup: /no/where\n",
       ":1: cgroup /no/where: No such file or directory\n"},
      {"budgets: {lte: 1 GB}\n",
       ":1: budgets: budgets have a file of their own, "
       "/etc/netmeter-budgets.yml (see: netmeter budget --help)\n"},
  };
  for (const auto& one : wrong) {
    result = check(one.text);
    EXPECT_EQ(result.exit_status, 1) << one.text;
    EXPECT_EQ(result.output, "netmeter-loader: " + file + one.error);
  }
  unlink(file.c_str());
  result = RunLoader("check --config " + file);
  EXPECT_EQ(result.exit_status, 1);
  EXPECT_EQ(result.output,
            "netmeter-loader: read " + file + ": No such file or directory\n");
  EXPECT_EQ(RunLoader("check a b").exit_status, 2);
}

// `status > /dev/full` ended without a word, and `--help` with 0: the text was lost in
// the buffer of stdio.
TEST(NetmeterLoader, LostOutputIsAnError) {
  for (const char* arguments :
       {"--help", "--version", "load --help", "status --pin-dir /no/where",
        "status --json --pin-dir /no/where"}) {
    SCOPED_TRACE(arguments);
    const std::string program =
        std::string("lib/netmeter_loader/netmeter-loader ") + arguments;
    const Result full = RunShell(program + " 2>&1 >/dev/full");
    EXPECT_EQ(full.exit_status, 1);
    EXPECT_EQ(full.output,
              "netmeter-loader: write to standard output: No space left on "
              "device\n");
    const Result closed = RunShell(program + " 2>&1 >&-");
    EXPECT_EQ(closed.exit_status, 1);
    EXPECT_EQ(closed.output, "");
  }
}

TEST(NetmeterLoader, HintsNameThePinDirectory) {
  const Result result = RunLoader("status --pin-dir no-such-directory");
  EXPECT_EQ(result.exit_status, 3);
  EXPECT_THAT(result.output, StartsWith("not loaded: no meter at /"));
  EXPECT_THAT(result.output,
              HasSubstr("/no-such-directory (run: netmeter-loader load "
                        "--pin-dir /"));
  // That would be refused.
  const Result etc = RunLoader("status --pin-dir /etc");
  EXPECT_EQ(etc.exit_status, 3);
  EXPECT_THAT(etc.output,
              StartsWith("not loaded: /etc has no meter, but foreign files ("));
}

}  // namespace
