// SPDX-License-Identifier: BSD-3-Clause
// The command line of netmeter-exporter: options, their defaults, --help.
//
//   ExporterFlags flags;
//   int exit_status;
//   if (!ParseExporterFlags(argc, argv, &flags, &exit_status)) {
//     return exit_status;
//   }
//
// Threads: one.

#ifndef NETMETER_LIB_APPS_EXPORTER_EXPORTER_FLAGS_H_
#define NETMETER_LIB_APPS_EXPORTER_EXPORTER_FLAGS_H_

#include <string>

#include "absl/strings/string_view.h"
#include "lib/apps/budgets/budget.h"
#include "netmeter/magma.h"
#include "netmeter/meter.h"
#include "netmeter/publish.h"

namespace netmeter {
namespace internal {

// The exit status after wrong usage.
constexpr int kExporterUsage = 2;

// A value of --listen, --service303 and --budgets that turns the service off.
constexpr char kOff[] = "off";

struct ExporterFlags {
  std::string listen = "127.0.0.1:9384";
  std::string socket_group = "netmeter";  // if `listen` is a Unix socket
  std::string service303 = kOff;
  std::string service_name = "kernsnoopd";
  std::string pin_dir = MeterOptions().pin_dir;
  PublishOptions publish;                 // for /metrics
  MagmaOptions magma;                     // for Service303
  std::string budgets = kDefaultBudgets;  // or kOff
  std::string database = kDefaultHistory;
  bool allow_public = false;
  bool allow_stop = false;  // answer StopService
  bool estimate = false;
};

// Returns false, with the program's exit status, after --help and --version, and after
// a wrong command line, which one line on stderr explains.
bool ParseExporterFlags(int argc, char** argv, ExporterFlags* flags,
                        int* exit_status);

// Writes `text` to standard output. Returns the exit status; a failure is one line on
// stderr.
int PrintFromExporter(absl::string_view text);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_EXPORTER_EXPORTER_FLAGS_H_
