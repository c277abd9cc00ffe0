// SPDX-License-Identifier: BSD-3-Clause
#include "lib/core/command_line.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace netmeter {
namespace internal {
namespace {

std::string Check(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "program");
  return CheckCommand(static_cast<int>(arguments.size()), arguments.data(),
                      "program", {"load", "unload", "status", "serve-fds"});
}

TEST(CheckCommand, TakesACommandFirst) {
  EXPECT_EQ(Check({"load"}), "");
  EXPECT_EQ(Check({"load", "--config", "status"}), "");
  EXPECT_EQ(Check({"--help"}), "");
  EXPECT_EQ(Check({"-h"}), "");
  EXPECT_EQ(Check({"--version"}), "");
}

TEST(CheckCommand, SaysWhatIsWrong) {
  const std::string expected =
      "expected a command: load, unload, status, serve-fds";
  EXPECT_EQ(Check({}), expected);
  EXPECT_EQ(Check({"--json"}), expected);
  EXPECT_EQ(Check({"laod"}), "unknown command 'laod' (did you mean load?)");
  EXPECT_EQ(Check({"nonsense"}), "unknown command 'nonsense'; " + expected);
  EXPECT_EQ(Check({"--pin-dir", "/run/x", "status", "--json"}),
            "the command comes first: program status --pin-dir /run/x --json");
  EXPECT_EQ(Check({""}), "unknown command ''; " + expected);
}

// No program of ours, but execve(2) allows it.
TEST(CheckCommand, NeedsNoName) {
  EXPECT_NE(CheckCommand(0, nullptr, "program", {"load"}), "");
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
