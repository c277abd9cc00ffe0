// SPDX-License-Identifier: BSD-3-Clause
// The program `netmeter`: shows what the meter of this host counted. This file is the
// table of its commands. Exit status: 0, 1 after an error, 2 for wrong usage.

#include <signal.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lib/apps/netmeter/command.h"
#include "lib/apps/netmeter/commands.h"
#include "lib/base/flags.h"
#include "lib/base/version.h"

namespace {

using netmeter::internal::Command;
using netmeter::internal::Fail;
using netmeter::internal::Flags;
using netmeter::internal::kExitUsage;
using netmeter::internal::Print;

constexpr char kDescription[] =
    "Shows how many bytes each service of this host sent and received, and\n"
    "the state of its connections.";

constexpr char kFooter[] = R"(
The meter must be loaded (netmeter-loader load). Reading needs root or
membership in the group of its pins, usually netmeter.

Exit status: 0 done; 1 failed, one line on stderr says why; 2 wrong usage;
budget: 3 a level is crossed, 4 used up.

Examples:
  netmeter list            a table
  netmeter list --bytes    a table with exact numbers
  netmeter list --json     JSON, for programs
  netmeter list --help     what columns and kinds mean
  netmeter sockets         connections, with the state of TCP
  netmeter flows --follow  each connection, when it ends
  netmeter record          save the counts in the history; a timer runs it each minute
  netmeter usage           which services used the link in this billing period
  netmeter export          the history for a store that has many gateways
  netmeter forget          take the name of a client out of the history
  netmeter top             services and destinations live
  netmeter cost --all      the cost of every BPF program of the host
  netmeter budget          how much of each budget is used
  netmeter report --html FILE
                           this billing period as a page
  netmeter uplinks         the bytes of each uplink, and their origin
)";

std::vector<std::unique_ptr<Command>> Commands() {
  std::vector<std::unique_ptr<Command>> commands;
  commands.push_back(netmeter::internal::NewListCommand());
  commands.push_back(netmeter::internal::NewSocketsCommand());
  commands.push_back(netmeter::internal::NewFlowsCommand());
  commands.push_back(netmeter::internal::NewRecordCommand());
  commands.push_back(netmeter::internal::NewUsageCommand());
  commands.push_back(netmeter::internal::NewExportCommand());
  commands.push_back(netmeter::internal::NewForgetCommand());
  commands.push_back(netmeter::internal::NewTopCommand());
  commands.push_back(netmeter::internal::NewCostCommand());
  commands.push_back(netmeter::internal::NewBudgetCommand());
  commands.push_back(netmeter::internal::NewReportCommand());
  commands.push_back(netmeter::internal::NewUplinksCommand());
  return commands;
}

// `command`: the command in the hint, such as "list "; "" for the general help.
int WrongUsage(absl::string_view message, absl::string_view command) {
  return Fail(absl::StrCat(message, " (see: netmeter ", command, "--help)"),
              kExitUsage);
}

}  // namespace

int main(int argc, char** argv) {
  // Print() handles EPIPE.
  signal(SIGPIPE, SIG_IGN);
  // If the caller ignored SIGCHLD, the kernel would reap children, such as the command of
  // a budget, and none could be waited for.
  signal(SIGCHLD, SIG_DFL);

  const std::vector<std::unique_ptr<Command>> commands = Commands();
  std::vector<std::string> names;
  for (const auto& command : commands) names.push_back(command->Name());
  const std::string wrong =
      netmeter::internal::CheckCommand(argc, argv, "netmeter", names);
  if (!wrong.empty()) return WrongUsage(wrong, "");

  Flags flags(kDescription, "netmeter");
  flags.AddVersion(absl::StrCat("netmeter ", netmeter::internal::kVersion),
                   "Print the version and exit");
  flags.SetFooter(kFooter);
  for (const auto& command : commands) {
    command->Declare(flags.AddCommand(command->Name(), command->Description()));
  }

  // CheckCommand() has made sure that a command comes first.
  const std::string named =
      argc > 1 && std::find(names.begin(), names.end(), argv[1]) != names.end()
          ? absl::StrCat(argv[1], " ")
          : "";
  std::string help;
  const absl::Status parsed = flags.Parse(argc, argv, &help);
  if (!parsed.ok()) return WrongUsage(parsed.message(), named);
  if (!help.empty()) return Print(help);
  for (const auto& command : commands) {
    if (flags.command()->name() != command->Name()) continue;
    const absl::Status options = command->CheckOptions();
    if (!options.ok()) return WrongUsage(options.message(), named);
    // An empty value, such as an unset shell variable in quotes, must not mean the
    // default, which is another period or no filter.
    const std::string empty = flags.command()->FirstGivenEmpty();
    if (!empty.empty()) {
      return WrongUsage(absl::StrCat(empty, ": expected a value, not ''"),
                        named);
    }
    return command->Run();
  }
  return kExitUsage;  // not reached: Parse() requires one
}
