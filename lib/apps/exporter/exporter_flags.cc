// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/exporter/exporter_flags.h"

#include <cstdio>
#include <utility>

#include "lib/base/flags.h"
#include "lib/base/standard_output.h"
#include "lib/base/text.h"
#include "lib/base/version.h"

namespace netmeter {
namespace internal {
namespace {

constexpr char kDescription[] =
    "Publishes the bytes that the processes of this host sent and received.\n"
    "Runs until SIGTERM; waits for netmeter-loader and follows its reloads.";

constexpr char kEpilog[] =
    R"(Prometheus scrapes /metrics, as text or OpenMetrics, with gzip if it asks for it.
With --service303, magmad polls the exporter in place of kernsnoopd, and gets the
same metric names. Series that do not fit into a reply of 4 MB are summed under
the name "overflow". With --allow-stop, any local user can stop the exporter by
StopService.

--families is a list of metrics and sets, separated by commas. The sets are
default (all metrics except the histogram of round-trip times, resets, timeouts
and retransmitted segments), netmeter (default without magma_ and linux_), all,
bytes, bill and kernsnoopd.
magmad uploads its replies over the paid link, so their families are separate:
--service303-families. --estimate prints the size of the replies for each set,
with the present series, and exits.

Magma's NMS queries magma_bytes_sent, without _total. --names-without-total
removes _total from the names of all counters.

A registered service may publish its own metrics. If Prometheus scrapes it as
well, use --omit-registered: it leaves registered services out, so that no sum
counts them twice. The metric netmeter_omitted_services is their number.

/metrics also has the budgets and costs of docs/history.md
(netmeter_budget_limit_bytes, netmeter_budget_used_bytes and netmeter_cost_micros),
from the budget file and from the history that `netmeter record` keeps. Both are read at most once a minute.

Needs no root, only membership in the group of the meter's pins, usually netmeter.
There is no authentication: everyone who reaches the ports can read the metrics.
So only loopback addresses are accepted, unless --allow-public is given. A Unix
socket lets only root and the members of --socket-group read /metrics.

Examples:
  netmeter-exporter
  netmeter-exporter --omit-registered
  netmeter-exporter --service303 127.0.0.1:50084
  netmeter-exporter --families kernsnoopd,netmeter_wire_bytes_total
  netmeter-exporter --estimate
  netmeter-exporter --listen unix:/run/netmeter-exporter/metrics.sock
  curl http://127.0.0.1:9384/metrics

The first line on stderr has the addresses and ports. Further lines say that the
exporter waits for the meter, or why budgets are missing.

Exit status: 0 after SIGTERM or SIGINT; 1 failed, one line on stderr says why;
2 wrong usage.)";

// Returns false and prints why if the list is wrong. The message begins with
// "families", so `prefix` turns it into the name of an option.
bool ParseFamilies(const char* prefix, const std::string& list,
                   FamilySet* families) {
  const auto chosen = FamilySet::Parse(list);
  if (chosen.ok()) {
    *families = *chosen;
    return true;
  }
  std::fprintf(stderr, "netmeter-exporter: %s%s\n", prefix,
               ToTerminal(std::string(chosen.status().message())).c_str());
  return false;
}

void AddPaths(ExporterFlags* flags, Flags* app) {
  app->AddOption("--pin-dir", &flags->pin_dir,
                 "Where netmeter-loader pinned the maps")
      .Type("DIR")
      .ShowDefault();
  app->AddOption("--budgets", &flags->budgets,
                 "Budget file for /metrics, or off; the default file\n"
                 "may be missing")
      .Type("FILE")
      .ShowDefault();
  app->AddOption("--database", &flags->database,
                 "The history, which has the used bytes of budgets")
      .Type("FILE")
      .ShowDefault();
}

// An empty value, such as an unset shell variable in quotes, is not the default.
bool CheckPaths(const ExporterFlags& flags) {
  const struct {
    const char* option;
    const std::string& path;
  } paths[] = {{"--pin-dir", flags.pin_dir},
               {"--budgets", flags.budgets},
               {"--database", flags.database}};
  for (const auto& path : paths) {
    if (!path.path.empty()) continue;
    std::fprintf(stderr,
                 "netmeter-exporter: %s: expected a path, not '' (see "
                 "--help)\n",
                 path.option);
    return false;
  }
  return true;
}

// A string of proto3 is UTF-8. With other bytes in it a peer refuses every reply.
bool CheckServiceName(const std::string& name) {
  if (!name.empty() && ToUtf8(name) == name) return true;
  std::fprintf(stderr,
               "netmeter-exporter: --service-name: expected a name in UTF-8, "
               "not '%s' (see --help)\n",
               ToTerminal(name).c_str());
  return false;
}

}  // namespace

bool ParseExporterFlags(int argc, char** argv, ExporterFlags* flags,
                        int* exit_status) {
  Flags app(kDescription, "netmeter-exporter");
  app.SetFooter(kEpilog);
  app.AddVersion(std::string("netmeter-exporter ") + kVersion);
  app.SetColumnWidth(34);
  app.AddOption("--listen", &flags->listen,
                "Address of /metrics, unix:/PATH, or off; port 0: any\n"
                "free port")
      .Type("HOST:PORT")
      .ShowDefault();
  app.AddOption("--socket-group", &flags->socket_group,
                "Group that may read from unix:/PATH, by name or id")
      .Type("GROUP")
      .ShowDefault();
  app.AddOption("--service303", &flags->service303,
                "Address of magma.orc8r.Service303, or off")
      .Type("HOST:PORT")
      .ShowDefault();
  app.AddOption("--service-name", &flags->service_name,
                "Service name in the reply to GetServiceInfo")
      .Type("NAME")
      .ShowDefault();
  std::string families = "netmeter";
  app.AddOption("--families", &families, "Metrics and sets to publish")
      .Type("LIST")
      .ShowDefault();
  std::string magma_families = "kernsnoopd";
  app.AddOption("--service303-families", &magma_families,
                "Metrics and sets for magmad")
      .Type("LIST")
      .ShowDefault();
  app.AddFlag("--omit-zeros", &flags->publish.omit_zeros,
              "Leave out counters that never changed");
  app.AddFlag("--names-without-total", &flags->publish.names_without_total,
              "Remove _total from the names of counters");
  app.AddFlag("--estimate", &flags->estimate,
              "Print the cost of replies in bytes and GB a month");
  bool omit_registered = false;
  app.AddFlag("--omit-registered", &omit_registered,
              "Leave out services that registered themselves");
  app.AddFlag("--allow-stop", &flags->allow_stop,
              "Let every client of Service303 stop the exporter");
  app.AddFlag("--allow-public", &flags->allow_public,
              "Accept addresses that other hosts can reach");
  AddPaths(flags, &app);
  std::string help;
  const absl::Status parsed = app.Parse(argc, argv, &help);
  if (!parsed.ok()) {
    std::fprintf(stderr, "netmeter-exporter: %s (see --help)\n",
                 ToTerminal(parsed.message()).c_str());
    *exit_status = kExporterUsage;
    return false;
  }
  if (!help.empty()) {
    *exit_status = PrintFromExporter(help);
    return false;
  }
  flags->publish.scope = omit_registered ? Scope::kUnregistered : Scope::kHost;
  if (!ParseFamilies("--", families, &flags->publish.families)) {
    *exit_status = kExporterUsage;
    return false;
  }
  static_cast<PublishOptions&>(flags->magma) = flags->publish;
  if (!ParseFamilies("--service303-", magma_families, &flags->magma.families)) {
    *exit_status = kExporterUsage;
    return false;
  }
  if (!CheckPaths(*flags) || !CheckServiceName(flags->service_name)) {
    *exit_status = kExporterUsage;
    return false;
  }
  return true;
}

int PrintFromExporter(absl::string_view text) {
  constexpr int kFailed = 1;
  const absl::Status written = WriteToStandardOutput(text);
  if (written.ok()) return 0;
  if (!absl::IsCancelled(written)) {
    std::fprintf(stderr, "netmeter-exporter: %s\n",
                 ToTerminal(written.message()).c_str());
  }
  return kFailed;
}

}  // namespace internal
}  // namespace netmeter
