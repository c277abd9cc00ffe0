// SPDX-License-Identifier: BSD-3-Clause
// The program `netmeter`: shows what the meter of this host counted. Reads
// only. Exit status: 0, 1 after an error, 2 if called wrongly.

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lib/core/command_line.h"
#include "lib/core/parse_error.h"
#include "lib/core/shared_maps.h"
#include "lib/core/status_util.h"
#include "lib/core/text.h"
#include "lib/core/version.h"
#include "lib/tools/list.h"
#include "netmeter/meter.h"

namespace {

constexpr int kExitError = 1;
constexpr int kExitUsage = 2;

constexpr char kDescription[] =
    "Shows how many bytes each service of this host sent and received.";

constexpr char kListDescription[] =
    "Prints every series, that with most traffic first";

constexpr char kListFooter[] = R"(
Columns:
  TX, RX          bytes on the network layer, as on the link: IP header and up,
                  TCP retransmissions included
  TX/RX PKTS      packets on the link
  TX/RX PAYLOAD   bytes of the transport's payload, each TCP byte once
  RETRANSMIT      TCP payload bytes that were sent again
Units are binary: 1 KiB is 1024 bytes. --bytes and --json have exact numbers.
PATH is proxy for traffic over loopback to or from a proxy port, else direct.

KIND:
  service         registered, or named by its command line or the configuration
  binary          any other program, by the name of its executable
  pending         of any of these, on connections that have not named their
                  destination yet; moves to their own kind when they have
  unattributed    of sockets that no process owns, such as the kernel's own
  overflow        what found no room for a series or a name of its own
The sum over all kinds with PATH direct is what the interfaces counted, less
their link headers.

Exit status: 0 printed; 1 failed, one line on stderr says why; 2 wrong usage.

Examples:
  netmeter list
  netmeter list --json | python3 -m json.tool
  netmeter list --pin-dir /run/netmeter-test
)";

constexpr char kFooter[] = R"(
The meter must have been loaded (netmeter-loader load). Reading needs root or
membership in the group of its pins, usually netmeter.

Exit status: 0 done; 1 failed, one line on stderr says why; 2 wrong usage.

Examples:
  netmeter list           a table
  netmeter list --bytes   the same with exact numbers
  netmeter list --json    the same for programs
  netmeter list --help    what columns and kinds mean
)";

int Fail(const std::string& message, int exit_status) {
  std::cerr << "netmeter: " << netmeter::internal::ToTerminal(message) << "\n";
  return exit_status;
}

// Writes all of text; the exit status. Nobody needs to be told that the reader
// of a pipe has gone.
int Print(const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t count =
        write(STDOUT_FILENO, text.data() + done, text.size() - done);
    if (count >= 0) {
      done += static_cast<size_t>(count);
    } else if (errno == EPIPE || errno == EBADF) {
      return kExitError;
    } else if (errno != EINTR) {
      const absl::Status status =
          netmeter::internal::ErrnoStatus(errno, "write to standard output");
      return Fail(std::string(status.message()), kExitError);
    }
  }
  return 0;
}

int List(const std::string& pin_dir, bool json,
         netmeter::internal::ByteFormat format) {
  netmeter::MeterOptions options;
  options.pin_dir = pin_dir;
  const auto meter = netmeter::Meter::Open(options);
  if (!meter.ok()) {
    return Fail(std::string(meter.status().message()), kExitError);
  }
  auto samples = (*meter)->ReadHost();
  if (!samples.ok()) {
    return Fail(std::string(samples.status().message()), kExitError);
  }
  netmeter::internal::SortByTraffic(&*samples);
  return Print(json
                   ? netmeter::internal::FormatJson(*samples)
                   : netmeter::internal::FormatTable(
                         *samples, format,
                         netmeter::internal::LoaderCommand("status", pin_dir)));
}

}  // namespace

int main(int argc, char** argv) {
  // Print() sees EPIPE instead.
  signal(SIGPIPE, SIG_IGN);

  const std::string wrong =
      netmeter::internal::CheckCommand(argc, argv, "netmeter", {"list"});
  if (!wrong.empty()) {
    return Fail(absl::StrCat(wrong, " (see: netmeter --help)"), kExitUsage);
  }

  CLI::App app(kDescription, "netmeter");
  app.set_version_flag("--version",
                       absl::StrCat("netmeter ", netmeter::internal::kVersion),
                       "Print the version and exit");
  app.require_subcommand(1);
  app.footer(kFooter);

  std::string pin_dir = netmeter::MeterOptions().pin_dir;
  bool json = false;
  bool exact = false;
  CLI::App* list = app.add_subcommand("list", kListDescription);
  list->add_option("--pin-dir", pin_dir,
                   "Where netmeter-loader pinned the meter's maps")
      ->type_name("DIR")
      ->capture_default_str();
  CLI::Option* as_json =
      list->add_flag("--json", json, "Print one JSON array of objects");
  list->add_flag("--bytes", exact, "Print exact bytes, not KiB or MiB")
      ->excludes(as_json);
  list->footer(kListFooter);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::ostringstream out;
    std::ostringstream ignored;
    if (app.exit(error, out, ignored) == 0) return Print(out.str());
    return Fail(absl::StrCat(netmeter::internal::DescribeParseError(app, error),
                             " (see: netmeter --help)"),
                kExitUsage);
  }
  // An unset variable in quotes must not mean the default.
  if (pin_dir.empty()) {
    return Fail("--pin-dir: expected a path, not '' (see: netmeter --help)",
                kExitUsage);
  }
  return List(pin_dir, json,
              exact ? netmeter::internal::ByteFormat::kExact
                    : netmeter::internal::ByteFormat::kHuman);
}
