// SPDX-License-Identifier: BSD-3-Clause
// `netmeter cost`: the cost of the meter's BPF programs, or of all programs of the
// host.

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "lib/apps/netmeter/commands.h"
#include "lib/apps/netmeter/cost/host_cost.h"
#include "lib/apps/netmeter/cost/meter_cost.h"
#include "lib/apps/netmeter/options.h"
#include "lib/base/text_table.h"
#include "lib/base/unique_fd.h"

namespace netmeter {
namespace internal {
namespace {

constexpr char kCostFooter[] = R"(
Columns of --all:
  ATTACHED TO  the hook, and its cgroup, tracepoint, or interface of this network
               namespace; the number of further ones
  RUNS/S, NS/RUN, OF A CPU  during the measurement
  SINCE LOAD   time that the program ran since its load, while the kernel measured
  MAPS         kernel memory of the program's maps. A shared map counts for each
               program, and once in the last line
  HELD BY      a process (PID/NAME) that has the program or a link to it open, or a pin;
               the number of further ones. (not found): the attachment holds the
               program, or a pin of another mount namespace does
On a terminal, lines fit the width: a narrow one shows fewer columns.
The kernel measures only while this process runs, which adds about 20 ns to each run
of every BPF program.

Needs root. Exit status: 0 printed; 1 failed, one line on stderr says why; 2 wrong
usage.

Examples:
  netmeter cost                    the meter of this host
  netmeter cost --all --live       all programs, every 5 seconds, until Ctrl-C
  netmeter cost --all --filter eth0 --sort maps --top 5
  netmeter cost --all --columns name,attached,cpu
  netmeter cost --all --seconds 1 --json | python3 -m json.tool
)";

class CostCommand : public Command {
 public:
  std::string Name() const override { return "cost"; }

  std::string Description() const override {
    return "Prints the cost of BPF programs: the meter's, or all of the host";
  }

  void Declare(Flags* flags) override {
    AddPinDir(flags, &pin_dir_);
    const Option all =
        flags->AddFlag("--all", &all_, "Every BPF program of the host");
    flags->AddOption("--seconds", &seconds_, "Measure for N seconds")
        .Type("N")
        .InRange(1, 3600, Option::InHelp::kNo)
        .ShowDefault();
    flags->AddFlag("--live", &live_, "With --all: repeat until a signal")
        .Needs(all);
    const Option json = flags->AddFlag(
        "--json", &json_, "One JSON object; with --live one per line");
    const Option prometheus =
        flags
            ->AddFlag(
                "--prometheus", &prometheus_,
                "Totals at once, as metrics for a textfile\n"
                "collector; run times need sysctl kernel.bpf_stats_enabled=1")
            .Excludes(json);
    flags
        ->AddOption("--filter", &view_.filter,
                    "With --all: programs with TEXT in their name, type,\n"
                    "attachment or holder")
        .Type("TEXT")
        .Needs(all);
    flags
        ->AddOption("--sort", &view_.sort,
                    "With --all: numbers downwards, text upwards")
        .OneOf(HostCostColumns())
        .Needs(all);
    flags->AddOption("--top", &top_, "With --all: only the first N programs")
        .Type("N")
        .InRange(1, 1000000, Option::InHelp::kNo)
        .Needs(all);
    flags
        ->AddOption("--columns", &columns_,
                    "With --all: the columns of the table: " +
                        absl::StrJoin(HostCostColumns(), ","))
        .Type("LIST")
        .Check([](const std::string& list) { return WrongColumn(list); })
        .Needs(all)
        .Excludes(json)
        .Excludes(prometheus);
    AddSizes(flags, {json, prometheus}, &sizes_);
    flags->SetFooter(kCostFooter);
  }

  absl::Status CheckOptions() override { return CheckPinDir(pin_dir_); }

  int Run() override {
    units_ = sizes_.Or(MeterUnits(pin_dir_));
    if (prometheus_) return RunPrometheus();
    if (all_) return RunAll();
    const absl::StatusOr<std::string> text =
        MeasureCost(pin_dir_, seconds_,
                    json_ ? CostFormat::kJson : CostFormat::kText, units_);
    return text.ok() ? Print(*text) : Fail(text.status().message());
  }

 private:
  // "" if each word of the list is a column.
  static std::string WrongColumn(const std::string& list) {
    const std::vector<std::string> known = HostCostColumns();
    for (const absl::string_view word : absl::StrSplit(list, ',')) {
      if (std::count(known.begin(), known.end(), word) == 0) {
        return absl::StrCat("'", word, "' is no column");
      }
    }
    return "";
  }

  absl::StatusOr<std::string> Metrics() {
    if (all_) {
      absl::StatusOr<HostCost> cost = ReadHostCost();
      if (!cost.ok()) return cost.status();
      return HostCostMetrics(Select(*std::move(cost), view_));
    }
    const absl::StatusOr<MeterCost> cost = ReadMeterCost(pin_dir_);
    if (!cost.ok()) return cost.status();
    return CostMetrics(*cost);
  }

  int RunPrometheus() {
    const absl::StatusOr<std::string> text = Metrics();
    if (!text.ok()) return Fail(text.status().message());
    if (!StatsAreEnabled()) {
      std::cerr << "netmeter: note: the kernel does not measure run times: "
                   "sysctl kernel.bpf_stats_enabled is 0\n";
    }
    return Print(*text);
  }

  int RunAll() {
    if (top_ != 0) view_.most = static_cast<size_t>(top_);
    if (!columns_.empty()) view_.columns = absl::StrSplit(columns_, ',');
    // The kernel closes it when the process ends, and then stops measuring.
    const absl::StatusOr<UniqueFd> stats = MeasureRunTimes();
    if (!stats.ok()) return Fail(stats.status().message());
    absl::StatusOr<HostCost> before = ReadHostCost();
    auto begin = std::chrono::steady_clock::now();
    do {
      if (!before.ok()) return Fail(before.status().message());
      std::this_thread::sleep_for(std::chrono::seconds(seconds_));
      absl::StatusOr<HostCost> after = ReadHostCost();
      const auto now = std::chrono::steady_clock::now();
      if (!after.ok()) return Fail(after.status().message());
      const std::chrono::duration<double> took = now - begin;
      const HostCost cost =
          Select(CostBetween(*before, *after, took.count()), view_);
      // Clear a terminal, so that the table stays in place.
      const bool clear = live_ && !json_ && isatty(STDOUT_FILENO);
      const int exit_status =
          Print((clear ? "\033[H\033[2J" : "") +
                (json_ ? HostCostJson(cost, view_)
                       : HostCostTable(cost, view_, units_, TerminalWidth())));
      if (exit_status != 0) return exit_status;
      before = std::move(after);
      begin = now;
    } while (live_);
    return 0;
  }

  std::string pin_dir_;
  bool all_ = false;
  bool live_ = false;
  bool json_ = false;
  bool prometheus_ = false;
  int seconds_ = 5;
  int top_ = 0;
  std::string columns_;
  HostCostView view_;
  SizeOptions sizes_;
  SizeUnits units_ = SizeUnits::kBinary;
};

}  // namespace

std::unique_ptr<Command> NewCostCommand() {
  return std::make_unique<CostCommand>();
}

}  // namespace internal
}  // namespace netmeter
