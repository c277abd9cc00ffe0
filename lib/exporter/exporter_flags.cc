// SPDX-License-Identifier: BSD-3-Clause
#include "lib/exporter/exporter_flags.h"

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
    "Prometheus scrapes /metrics (text or OpenMetrics, with or without gzip, "
    "as "
    "it\n"
    "asks). With --service303, magmad polls that in place of kernsnoopd, under "
    "the\n"
    "same names of metrics; series that do not fit into a reply of 4 MB are "
    "summed\n"
    "under the name \"overflow\". With --allow-stop, any local user may end "
    "the\n"
    "exporter by StopService.\n"
    "\n"
    "--families takes names of metrics, or of sets of them, with commas "
    "between\n"
    "them: default (all but the histogram of round-trip times and the four of\n"
    "resets, timeouts and retransmitted segments), netmeter (the same without\n"
    "magma_ and linux_), all, bytes, kernsnoopd.\n"
    "magmad sends what it polls over the link that is paid for. So its "
    "replies\n"
    "have families of their own, --service303-families. --estimate prints\n"
    "what each set costs this host, with its series as they are, and exits.\n"
    "\n"
    "Magma's NMS asks for magma_bytes_sent, without _total. "
    "--names-without-total\n"
    "publishes all counters so.\n"
    "\n"
    "A service that registers may publish itself. Where Prometheus scrapes it, "
    "too,\n"
    "--omit-registered leaves it out here, so that no sum has it twice. The "
    "metric\n"
    "netmeter_omitted_services then says how many services are left out.\n"
    "\n"
    "/metrics also has the budgets of docs/history.md: "
    "netmeter_budget_limit_bytes "
    "and\n"
    "netmeter_budget_used_bytes, from the file of the budgets and the history "
    "that\n"
    "`netmeter record` keeps. Both are read once a minute at most.\n"
    "\n"
    "Needs no root: membership in the group of the meter's pins, usually "
    "netmeter.\n"
    "There is no authentication: who reaches the ports reads the metrics. "
    "Only\n"
    "addresses of loopback are accepted unless --allow-public is given.\n"
    "\n"
    "Examples:\n"
    "  netmeter-exporter\n"
    "  netmeter-exporter --omit-registered\n"
    "  netmeter-exporter --service303 127.0.0.1:50084\n"
    "  netmeter-exporter --families kernsnoopd,netmeter_wire_bytes_total\n"
    "  netmeter-exporter --estimate\n"
    "  curl http://127.0.0.1:9384/metrics\n"
    "\n"
    "One line on stderr says where it serves, with the true ports; a second "
    "one "
    "that\n"
    "it waits for the meter, if so; another one why there are no budgets.\n"
    "\n"
    "Exit status: 0 after SIGTERM or SIGINT; 1 failed, one line on stderr "
    "says\n"
    "why; 2 wrong usage.";

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
  app->AddOption(
         "--budgets", &flags->budgets,
         "Budgets for /metrics, or off; none if the default file is not "
         "there")
      .Type("FILE")
      .ShowDefault();
  app->AddOption("--database", &flags->database,
                 "The history, for what budgets have used")
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
                "Address of /metrics, or off; port 0: any")
      .Type("HOST:PORT")
      .ShowDefault();
  app.AddOption("--service303", &flags->service303,
                "Address of magma.orc8r.Service303, or off")
      .Type("HOST:PORT")
      .ShowDefault();
  app.AddOption("--service-name", &flags->service_name,
                "What GetServiceInfo answers")
      .Type("NAME")
      .ShowDefault();
  std::string families = "netmeter";
  app.AddOption("--families", &families,
                "Which metrics: names of them or of sets")
      .Type("LIST")
      .ShowDefault();
  std::string magma_families = "kernsnoopd";
  app.AddOption("--service303-families", &magma_families,
                "The same, of what magmad polls")
      .Type("LIST")
      .ShowDefault();
  app.AddFlag("--omit-zeros", &flags->publish.omit_zeros,
              "Leave out counters that never changed");
  app.AddFlag("--names-without-total", &flags->publish.names_without_total,
              "Names of counters without _total");
  app.AddFlag("--estimate", &flags->estimate,
              "Print what a reply costs, in bytes and GB a month");
  bool omit_registered = false;
  app.AddFlag("--omit-registered", &omit_registered,
              "Leave out services that registered themselves");
  app.AddFlag("--allow-stop", &flags->allow_stop,
              "Answer StopService, for who may reach Service303");
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
