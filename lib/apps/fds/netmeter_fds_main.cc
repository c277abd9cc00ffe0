// SPDX-License-Identifier: BSD-3-Clause
// netmeter-fds: passes descriptors of the maps to the group, for kernels before 5.19.

#include <linux/capability.h>

#include <cstdio>
#include <string>

#include "absl/status/status.h"
#include "lib/apps/fds/serve.h"
#include "lib/base/flags.h"
#include "lib/base/path.h"
#include "lib/base/prepare_process.h"
#include "lib/base/privileges.h"
#include "lib/base/standard_output.h"
#include "lib/base/text.h"
#include "lib/base/version.h"

namespace netmeter {
namespace internal {
namespace {

constexpr char kFooter[] =
    R"(Root and the members of the group get descriptors; other clients are refused.
Without --group, the group of the pins counts, as it is at each request.

Runs until SIGTERM or SIGINT. Needs root, or socket activation and access to
the pins.

Exit status: 0 after a signal; 1 failed, one line on stderr says why; 2 wrong
usage.

Examples:
  netmeter-fds                     for the meter of this host, at
                                   /run/netmeter.sock
  netmeter-fds --group wheel       for another group than that of the pins)";

int Fail(const std::string& message, int exit_status) {
  std::fprintf(stderr, "netmeter-fds: %s\n", ToTerminal(message).c_str());
  return exit_status;
}

int WrongUsage(const std::string& message) {
  return Fail(message + " (see --help)", 2);
}

int Main(int argc, char** argv) {
  PrepareProcess();
  ServeOptions options;
  Flags flags(
      "Passes descriptors of the meter's maps to a group (for kernels before "
      "5.19)",
      "netmeter-fds");
  flags.AddVersion(std::string("netmeter-fds ") + kVersion);
  flags.AddOption("--pin-dir", &options.pin_dir, "Where the maps are pinned")
      .Type("DIR")
      .ShowDefault();
  flags
      .AddOption("--socket", &options.socket,
                 "Unix socket to listen on (default: the pin directory\n"
                 "with .sock appended; unused with socket activation)")
      .Type("FILE");
  flags
      .AddOption("--group", &options.group,
                 "Group that gets descriptors (default: the group of the\n"
                 "pins; a socket made before the first load belongs to\n"
                 "netmeter)")
      .Type("GROUP");
  flags.SetFooter(kFooter);
  std::string help;
  const absl::Status parsed = flags.Parse(argc, argv, &help);
  if (!parsed.ok()) return WrongUsage(std::string(parsed.message()));
  if (!help.empty()) {
    const absl::Status written = WriteToStandardOutput(help);
    return written.ok() ? 0 : Fail(std::string(written.message()), 1);
  }
  // An empty value, such as an unset shell variable in quotes, is not the default.
  const std::string empty = flags.FirstGivenEmpty();
  if (!empty.empty()) return WrongUsage(empty + ": expected a value, not ''");
  options.pin_dir = CanonicalPath(options.pin_dir);
  // Keeps the privileges for making the socket. serve.cc keeps only those for reading.
  absl::Status status =
      DropPrivileges({CAP_BPF, CAP_SYS_ADMIN, CAP_DAC_OVERRIDE,
                      CAP_DAC_READ_SEARCH, CAP_CHOWN, CAP_FOWNER});
  if (status.ok()) status = ServeDescriptors(options);
  return status.ok() ? 0 : Fail(std::string(status.message()), 1);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter

int main(int argc, char** argv) { return netmeter::internal::Main(argc, argv); }
