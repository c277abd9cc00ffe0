// SPDX-License-Identifier: BSD-3-Clause
// netmeter-loader: the one privileged program. Puts the kernel part in place
// and exits.

#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "bpf/internal.h"
#include "lib/core/command_line.h"
#include "lib/core/path.h"
#include "lib/core/text.h"
#include "lib/core/version.h"
#include "lib/loader/config.h"
#include "lib/loader/cost.h"
#include "lib/loader/loader.h"
#include "lib/loader/magma_config.h"
#include "lib/loader/serve.h"
#include "lib/loader/status.h"

namespace netmeter {
namespace internal {
namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;
constexpr int kNotLoaded = 3;  // of `status`, as in the LSB
constexpr int kDamaged = 4;

constexpr char kDescription[] =
    "Installs libnetmeter's kernel part: counts the bytes that each service of\n"
    "this host sends and receives, by destination. One-shot: what it attaches\n"
    "stays until `unload` or a reboot.";

constexpr char kExitStatus[] =
    "Exit status: 0 done; 1 failed, one line on stderr says why; 2 wrong usage;\n"
    "status and cost: 3 not loaded; status: 4 damaged.";

constexpr char kEpilog[] =
    "Examples:\n"
    "  netmeter-loader load                     the whole host, no configuration\n"
    "  netmeter-loader load --config FILE       names services, ports, destinations\n"
    "  netmeter-loader load --magma-config /etc/magma\n"
    "                                           names, ports and cloud of Magma\n"
    "  netmeter-loader status --json            for programs\n"
    "  netmeter-loader unload                   takes everything away\n"
    "  netmeter-loader load --help              options and configuration of load\n"
    "\n"
    "Needs root (CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON, CAP_SYS_ADMIN), kernel 5.10\n"
    "or newer with BTF, and cgroup v2.\n"
    "\n";

constexpr char kLoadEpilog[] =
    "Every load sets the whole configuration anew, but for the cgroup: repeat the\n"
    "options.\n"
    "\n"
    "Configuration (YAML, all keys optional, defaults shown):\n"
    "  pin_dir: /run/netmeter    cgroup: the root of cgroup v2\n"
    "  group: netmeter           may read the counters; '' for root only\n"
    "  max_series: 4096          (service, destination, transport, path)\n"
    "  max_names: 4096           of services, binaries and destinations\n"
    "  max_processes: 16384      max_sockets: 16384\n"
    "  proxy_ports: [8443]       loopback ports that are counted\n"
    "  sni_ports: [443, 7443, 7444, 9443, 9444]  TLS names its destination\n"
    "  destination_suffixes: [.local]            taken off names on the wire\n"
    "  unknown_destinations: keep                or other, without a suffix\n"
    "  services: []              executables that are services\n"
    "  aliases: {}               executable: service\n"
    "  destinations: []          - {name: cloud, address: 10.0.0.0/8,\n"
    "                               port: 443 or 1000-2000, protocol: tcp}\n"
    "\n"
    "Examples:\n"
    "  netmeter-loader load\n"
    "  netmeter-loader load --config /etc/netmeter.yml --max-series 8192\n"
    "  netmeter-loader load --cgroup /sys/fs/cgroup/test --pin-dir /run/test\n"
    "                                           a second, independent meter\n"
    "\n"
    "Exit status: 0 loaded, upgraded, or nothing to do; 1 failed, one line on\n"
    "stderr says why, and nothing was changed; 2 wrong usage.";

constexpr char kUnloadEpilog[] =
    "Open readers are told. Nothing there is no error.\n"
    "\n"
    "Exit status: 0 unloaded, or nothing to do; 1 failed, one line on stderr says\n"
    "why; 2 wrong usage.";

constexpr char kStatusEpilog[] =
    "optional parts  what this kernel has and the configuration wants, or why not\n"
    "tables          how full they are, without what is reserved\n"
    "lost            what was counted, but not under its own name\n"
    "seen            events, none of them a loss\n"
    "\n"
    "Exit status: 0 loaded; 1 failed, one line on stderr says why; 2 wrong usage;\n"
    "3 not loaded; 4 damaged: the next load repairs it.";

constexpr char kCostEpilog[] =
    "Exit status: 0 done; 1 failed, one line on stderr says why; 2 wrong usage;\n"
    "3 not loaded.";

constexpr char kServeEpilog[] =
    "Runs until SIGTERM or SIGINT. Needs root, unless socket-activated with\n"
    "access to the pins.\n"
    "\n"
    "Exit status: 0 after a signal, or idle; 1 failed, one line on stderr says\n"
    "why; 2 wrong usage.";

int Fail(const absl::Status& status, int exit_status = kFailed) {
  std::fprintf(stderr, "netmeter-loader: %s\n",
               ToTerminal(std::string(status.message())).c_str());
  return exit_status;
}

int WrongUsage(const std::string& message) {
  return Fail(absl::InvalidArgumentError(message + " (see --help)"), kUsage);
}

// While this lives, a signal waits: a load is to come to its end.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t signals;
    sigemptyset(&signals);
    for (int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signal);
    sigprocmask(SIG_BLOCK, &signals, &before_);
  }
  ~SignalsBlocked() { sigprocmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

// Of an option: the parser's own words name no range.
CLI::Validator Number(uint32_t lowest, uint32_t highest) {
  return CLI::Validator(
      [=](const std::string& text) {
        uint32_t value = 0;
        if (absl::SimpleAtoi(text, &value) && value >= lowest &&
            value <= highest) {
          return std::string();
        }
        return absl::StrCat("expected a number from ", lowest, " to ", highest,
                            ", not '", text.substr(0, 64), "'");
      },
      "");
}

int RunLoad(const Config& config, bool quiet) {
  SignalsBlocked blocked;
  absl::StatusOr<LoadResult> result = Load(config);
  if (!result.ok()) return Fail(result.status());
  if (quiet) return 0;
  const char* action = "loaded";
  if (result->action == LoadResult::Action::kUpgraded) {
    action = "upgraded, counters kept";
  } else if (result->action == LoadResult::Action::kUnchanged) {
    action = "already loaded, nothing to do";
  }
  std::printf("netmeter-loader: %s: %s, for cgroup %s\n",
              config.pin_dir.c_str(), action, result->cgroup.c_str());
  for (const std::string& note : result->notes) {
    std::printf("netmeter-loader: note: %s\n", note.c_str());
  }
  return 0;
}

int RunUnload(const std::string& pin_dir, bool quiet) {
  bool was_loaded = false;
  SignalsBlocked blocked;
  absl::Status status = Unload(pin_dir, &was_loaded);
  if (!status.ok()) return Fail(status);
  if (!quiet) {
    std::printf("netmeter-loader: %s: %s\n", pin_dir.c_str(),
                was_loaded ? "unloaded" : "was not loaded, nothing to do");
  }
  return 0;
}

int RunStatus(const std::string& pin_dir, bool json) {
  absl::StatusOr<StatusReport> report = GetStatus(pin_dir);
  if (!report.ok()) return Fail(report.status());
  const std::string& out = json ? report->json : report->text;
  if (std::fwrite(out.data(), 1, out.size(), stdout) != out.size() ||
      std::fflush(stdout) != 0) {
    return kFailed;
  }
  switch (report->state) {
    case MeterState::kLoaded:
      return 0;
    case MeterState::kNotLoaded:
      return kNotLoaded;
    case MeterState::kDamaged:
      return kDamaged;
  }
  return kFailed;
}

int RunCost(const std::string& pin_dir, int seconds, bool json,
            bool prometheus) {
  absl::StatusOr<std::string> text = "";
  if (prometheus) {
    absl::StatusOr<Cost> cost = ReadCost(pin_dir);
    text = cost.ok() ? absl::StatusOr<std::string>(CostMetrics(*cost))
                     : cost.status();
    if (cost.ok() && !StatsAreEnabled()) {
      std::fprintf(stderr,
                   "netmeter-loader: note: run times stand still: sysctl "
                   "kernel.bpf_stats_enabled is 0\n");
    }
  } else {
    text = MeasureCost(pin_dir, seconds,
                       json ? CostFormat::kJson : CostFormat::kText);
  }
  if (!text.ok()) {
    Fail(text.status());
    return absl::IsNotFound(text.status()) ? kNotLoaded : kFailed;
  }
  return std::fputs(text->c_str(), stdout) >= 0 && std::fflush(stdout) == 0
             ? 0
             : kFailed;
}

int Main(int argc, char** argv) {
  const std::string wrong =
      CheckCommand(argc, argv, "netmeter-loader",
                   {"load", "unload", "status", "cost", "serve-fds"});
  if (!wrong.empty()) return WrongUsage(wrong);

  CLI::App app(kDescription, "netmeter-loader");
  app.require_subcommand(1);
  app.set_version_flag("--version",
                       std::string("netmeter-loader ") + kVersion);
  app.get_formatter()->column_width(34);

  Config flags;
  std::string config_file, pin_dir, cgroup, group, magma_config;
  std::string magma_overrides = "/var/opt/magma/configs";
  uint32_t max_series = 0, max_names = 0;
  bool verbose = false, quiet = false, json = false;
  ServeOptions serve;

  auto add_pin_dir = [&](CLI::App* command) {
    command
        ->add_option("--pin-dir", pin_dir,
                     "Where the maps are pinned (default /run/netmeter)")
        ->type_name("DIR");
  };
  CLI::App* load = app.add_subcommand(
      "load", "Load and attach, or upgrade what is loaded; counters are kept");
  add_pin_dir(load);
  CLI::Option* cgroup_option = load->add_option(
      "--cgroup", cgroup,
      "Count this cgroup v2 directory and all below (default: that of\n"
      "the meter that is loaded, else the root)");
  cgroup_option->type_name("DIR");
  load->add_option("--config", config_file, "YAML file, see below")
      ->type_name("FILE");
  CLI::Option* magma_option =
      load->add_option("--magma-config", magma_config,
                       "Directory with Magma's service_registry.yml and "
                       "control_proxy.yml, such as /etc/magma");
  magma_option->type_name("DIR");
  CLI::Option* overrides_option =
      load->add_option("--magma-overrides", magma_overrides,
                       "Where Magma looks for newer ones; with --magma-config "
                       "(default /var/opt/magma/configs)");
  overrides_option->type_name("DIR");
  CLI::Option* group_option = load->add_option(
      "--group", group,
      "Group that may read, name or id (default netmeter; '': none)");
  group_option->type_name("GROUP");
  CLI::Option* series_option = load->add_option(
      "--max-series", max_series, "Slots for series (default 4096)");
  series_option->check(Number(NM_SLOT_FIRST + 1, NM_MAX_SERIES_LIMIT))
      ->type_name("N");
  CLI::Option* names_option = load->add_option(
      "--max-names", max_names, "Slots for names (default 4096)");
  names_option->check(Number(NM_NAME_FIRST + 1, NM_MAX_SERIES_LIMIT))
      ->type_name("N");
  CLI::Option* load_quiet =
      load->add_flag("-q,--quiet", quiet, "Print errors only");
  load->add_flag("-v,--verbose", verbose,
                 "Print each step and libbpf's messages on stderr")
      ->excludes(load_quiet);

  CLI::App* unload = app.add_subcommand(
      "unload", "Detach, unpin, unmount: counters are gone");
  add_pin_dir(unload);
  CLI::Option* unload_quiet =
      unload->add_flag("-q,--quiet", quiet, "Print errors only");
  unload->add_flag("-v,--verbose", verbose, "Print each step on stderr")
      ->excludes(unload_quiet);

  CLI::App* status = app.add_subcommand(
      "status", "What is loaded, which parts are active, what was lost");
  add_pin_dir(status);
  status->add_flag("--json", json, "One JSON object");

  CLI::App* cost = app.add_subcommand(
      "cost", "Run time of the meter's programs and memory of its maps");
  add_pin_dir(cost);
  int cost_seconds = 5;
  bool prometheus = false;
  cost->add_option("--seconds", cost_seconds,
                   "Measure for so long (default 5): meanwhile every BPF\n"
                   "program of the host runs some 20 ns longer")
      ->check(Number(1, 3600))
      ->type_name("N");
  CLI::Option* cost_json = cost->add_flag("--json", json, "One JSON object");
  cost->add_flag("--prometheus", prometheus,
                 "Totals at once, as metrics for a textfile collector; run\n"
                 "times need sysctl kernel.bpf_stats_enabled=1")
      ->excludes(cost_json);

  CLI::App* serve_fds = app.add_subcommand(
      "serve-fds",
      "Hand descriptors of the counters to the group (kernels before 5.19)");
  add_pin_dir(serve_fds);
  serve_fds
      ->add_option("--socket", serve.socket,
                   "Unix socket to listen on (default the pin directory's name "
                   "with .sock; unused when socket-activated)")
      ->type_name("FILE");
  CLI::Option* serve_group =
      serve_fds->add_option(
          "--group", serve.group,
          "Group that may connect (default: that of the meter's pins, or\n"
          "netmeter if none is loaded)");
  serve_group->type_name("GROUP");
  serve_fds
      ->add_option("--idle-seconds", serve.idle_seconds,
                   "Exit after so long without a client (default: never)")
      ->check(Number(0, 86400))
      ->type_name("N");

  app.footer(std::string(kEpilog) + kExitStatus);
  load->footer(kLoadEpilog);
  unload->footer(kUnloadEpilog);
  status->footer(kStatusEpilog);
  cost->footer(kCostEpilog);
  serve_fds->footer(kServeEpilog);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    return WrongUsage(error.what());
  }

  // An unset variable in quotes must not mean the default: the whole host.
  for (CLI::App* command : app.get_subcommands()) {
    for (const char* name : {"--pin-dir", "--cgroup", "--config",
                             "--magma-config", "--magma-overrides",
                             "--socket"}) {
      const CLI::Option* option = command->get_option_no_throw(name);
      if (option == nullptr || option->empty()) continue;
      if (option->as<std::string>().empty()) {
        return WrongUsage(std::string(name) + ": expected a path, not ''");
      }
    }
  }
  if (!serve_group->empty() && serve.group.empty()) {
    return WrongUsage("--group: expected the name of a group, not ''");
  }
  if (!overrides_option->empty() && magma_option->empty()) {
    return WrongUsage("--magma-overrides means nothing without --magma-config");
  }

  SetVerbose(verbose);
  if (verbose) {
    SetStepObserver([](const std::string& step) {
      std::fprintf(stderr, "netmeter-loader: %s\n", ToTerminal(step).c_str());
    });
  }
  if (load->parsed()) {
    Config config;
    if (!config_file.empty()) {
      absl::StatusOr<Config> read = ReadConfig(config_file, config);
      if (!read.ok()) return Fail(read.status());
      config = *read;
    }
    if (!magma_config.empty()) {
      absl::StatusOr<Config> read =
          ImportMagmaConfig(magma_config, magma_overrides, config);
      if (!read.ok()) return Fail(read.status());
      config = *read;
    }
    if (!pin_dir.empty()) config.pin_dir = CanonicalPath(pin_dir);
    if (!cgroup_option->empty()) config.cgroup = CanonicalPath(cgroup);
    if (!group_option->empty()) config.group = group;
    if (!series_option->empty()) config.max_series = max_series;
    if (!names_option->empty()) config.max_names = max_names;
    // The files' values were checked: these are the options'.
    const absl::Status checked = CheckConfig(config);
    if (!checked.ok()) return WrongUsage(std::string(checked.message()));
    config.pin_dir = CanonicalPath(config.pin_dir);
    return RunLoad(config, quiet);
  }
  Config config;
  if (!pin_dir.empty()) config.pin_dir = CanonicalPath(pin_dir);
  const absl::Status checked = CheckConfig(config);
  if (!checked.ok()) return WrongUsage(std::string(checked.message()));
  if (unload->parsed()) return RunUnload(config.pin_dir, quiet);
  if (status->parsed()) return RunStatus(config.pin_dir, json);
  if (cost->parsed()) {
    return RunCost(config.pin_dir, cost_seconds, json, prometheus);
  }
  serve.pin_dir = config.pin_dir;
  absl::Status served = ServeDescriptors(serve);
  return served.ok() ? 0 : Fail(served);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter

int main(int argc, char** argv) {
  return netmeter::internal::Main(argc, argv);
}
