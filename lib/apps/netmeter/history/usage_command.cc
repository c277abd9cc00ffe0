// SPDX-License-Identifier: BSD-3-Clause
// `netmeter usage`: the traffic of a billing period.
#include <time.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/apps/budgets/budget.h"
#include "lib/apps/budgets/plan.h"
#include "lib/apps/clients/clients.h"
#include "lib/apps/history/bill.h"
#include "lib/apps/history/samples.h"
#include "lib/apps/history/usage.h"
#include "lib/apps/netmeter/commands.h"
#include "lib/apps/netmeter/history/usage_text.h"
#include "lib/apps/netmeter/options.h"
#include "lib/base/status_util.h"
#include "lib/base/text.h"
#include "lib/base/text_table.h"
#include "lib/reader/difference.h"
#include "lib/reader/words.h"

namespace netmeter {
namespace internal {
namespace {

constexpr char kUsageFooter[] = R"(
Without --month and --from: the billing period of today. All days are local days
of the host that recorded. A period of --reset-day 31 begins on the last day of a
shorter month. Bytes are those of `netmeter list`: without layer-2 headers.

The sum is the bill: the total of each uplink, which is what its interfaces counted, if
root records. Rows are services; forwarded traffic, by the interface at its other side;
and `tunnels and kernel`, which is all that remains. `not in the sum` are the side of the
clients (forwarded_clients of the configuration), interfaces that are no uplink, and
containers behind a bridge, whose bytes an uplink has as forwarded. --uplink NAME shows
them, and --uplink - those without an uplink. --service, --destination and a --kind also
select traffic outside of uplinks. Without uplinks, the sum is that of all rows.
--path proxy shows what went over loopback to a proxy; the proxy then sent it over the
link. --path interface shows what each interface counted.
The column SERVICE has the name of any series: a service, a program, a unit, a
container or an interface, as KIND says. Two kinds of one name are two rows.

If the budget file has plans, COST is what the provider bills, in whole billing
periods: a plan of --reset-day 15 has no cost of other days. A row has the share of its
bytes, also of the fee, and the sum of the rows is the bill; a period without traffic has
a row of kind `fee`. --service, --destination and --kind have no cost. --csv and --json
have it exactly, in millionths (cost_micros).

The line `estimated` has the sum of a period that runs, if it goes on as it did so far;
it needs one recorded day, or a quarter of a shorter period. AVERAGE is the rate of both
directions in the part of a row's time that is over. Times are local; an hour that
clocks show again is marked (2nd). In CSV and JSON, an hour has its offset, and all have
`start` and `end` in UTC.

What is not known exactly stands below the table:
  lost     a reboot or an unload: at most what was counted since the last record
  unnamed  an unload and a load: the bytes of uplinks are in `tunnels and kernel`,
           others in no sum
  delayed  nothing was recorded for a time: its bytes stand in the hour of its end
  clock    the clock was set: the bytes are right, their day is that of the clock

Exit status: 0 printed; 1 failed, one line on stderr says why; 2 wrong usage.

Examples:
  netmeter usage
  netmeter usage --month 2026-10 --by destination
  netmeter usage --reset-day 15 --by day --csv
  netmeter usage --by day --top 10
  netmeter usage --percentile 95 --uplink fibre
  netmeter usage --kind forwarded --by destination --clients mac
  netmeter usage --from 2026-11-01 --to 2026-11-07 --service magmad
)";

class UsageCommand : public Command {
 public:
  std::string Name() const override { return "usage"; }

  std::string Description() const override {
    return "Prints the traffic of a billing period, from the history";
  }

  void Declare(Flags* flags) override {
    AddDatabase(flags, &database_);
    period_.Declare(flags);
    const Option by =
        flags
            ->AddChoice("--by", &query_.by,
                        std::map<std::string, UsageBy>{
                            {"service", UsageBy::kService},
                            {"destination", UsageBy::kDestination},
                            {"uplink", UsageBy::kUplink},
                            {"hour", UsageBy::kHour},
                            {"day", UsageBy::kDay},
                            {"week", UsageBy::kWeek},
                            {"month", UsageBy::kMonth},
                            {"year", UsageBy::kYear}},
                        "The rows of the table")
            .Type("WHAT")
            .Default("service");
    const Option path =
        flags
            ->AddOption(
                "--path", &query_.path,
                "direct, proxy, or interface: what each interface counted")
            .Type("PATH")
            .OneOf({"direct", "proxy", kInterfacePath})
            .ShowDefault();
    const Option service = flags
                               ->AddOption("--service", &query_.service,
                                           "Only this name, whatever its kind")
                               .Type("NAME");
    const Option destination =
        flags
            ->AddOption("--destination", &query_.destination,
                        "Only this destination")
            .Type("NAME");
    std::vector<std::string> kinds = KindNames();
    kinds.push_back(kForwardedKind);
    kinds.push_back(kUnnamedKind);
    const Option kind =
        flags->AddOption("--kind", &query_.kind, "Only this kind")
            .Type("KIND")
            .OneOf(kinds);
    flags->AddOption("--uplink", &query_.uplink, "Only this uplink")
        .Type("NAME");
    flags_ = flags;
    flags->AddOption("--budgets", &budgets_, "The file with plans, for costs")
        .Type("FILE")
        .ShowDefault();
    const Option json =
        flags->AddFlag("--json", &json_, "Print one JSON object");
    const Option csv =
        flags->AddFlag("--csv", &csv_, "Print comma-separated values")
            .Excludes(json);
    AddSizes(flags, {json, csv}, &sizes_);
    const Option top =
        flags
            ->AddOption("--top", &top_,
                        "The N rows with most bytes, and one with the rest")
            .Type("N")
            .InRange(1, 1000000, Option::InHelp::kNo);
    Option percentile =
        flags
            ->AddOption("--percentile", &percentile_,
                        "Instead: the rate that this part of the five-minute\n"
                        "samples of each uplink does not exceed, such as 95")
            .Type("PERCENT")
            .InRange(1, 100, Option::InHelp::kNo);
    for (const Option& other : {by, path, service, destination, kind, top}) {
      percentile.Excludes(other);
    }
    AddClientOptions(flags, &client_options_);
    flags->SetFooter(kUsageFooter);
  }

  absl::Status CheckOptions() override {
    NETMETER_RETURN_IF_ERROR(CheckDatabase(database_));
    const auto period = period_.Get(Today());
    if (!period.ok()) return period.status();
    query_.period = *period;
    query_.now = time(nullptr);
    if (client_options_.any() && query_.by != UsageBy::kDestination) {
      return absl::InvalidArgumentError(
          "--clients and --client-names need --by destination");
    }
    return absl::OkStatus();
  }

  int Run() override {
    const auto history = OpenHistory(database_, Database::Mode::kRead);
    if (!history.ok()) return Fail(history.status().message());
    const absl::Status known =
        CheckRecordedUplink(history->get(), query_.uplink);
    if (!known.ok()) return Fail(known.message());
    if (percentile_ != 0) return PrintRates(history->get());
    auto usage = ReadUsage(history->get(), query_);
    if (!usage.ok()) return Fail(usage.status().message());
    const auto costs = ReadCosts(history->get(), &*usage);
    if (!costs.ok()) return Fail(costs.status().message());
    const absl::Status named = NameClients(&*usage);
    if (!named.ok()) return Fail(named.message());
    if (top_ != 0) KeepLargest(static_cast<size_t>(top_), &usage->rows);
    if (json_) return Print(FormatUsageJson(*usage, query_, *costs));
    if (csv_) return Print(FormatUsageCsv(*usage, query_, *costs));
    const auto units = ReadSizeUnits(history->get());
    if (!units.ok()) return Fail(units.status().message());
    return Print(FormatUsageTable(*usage, query_, sizes_.Or(*units),
                                  TerminalWidth(), *costs));
  }

 private:
  // The traffic is printed all the same if the default file is wrong.
  absl::StatusOr<UsageCosts> ReadCosts(Database* history, Usage* usage) const {
    const auto file = ReadBudgetFile(budgets_);
    if (file.ok()) {
      return ReadUsageCosts(history, file->plans, query_, usage);
    }
    if (flags_->WasGiven("--budgets")) return file.status();
    UsageCosts none;
    if (!absl::IsNotFound(file.status())) {
      none.unknown = std::string(file.status().message());
    }
    return none;
  }

  // Addresses of one client behind this host become one row.
  absl::Status NameClients(Usage* usage) const {
    if (!client_options_.any()) return absl::OkStatus();
    NETMETER_ASSIGN_OR_RETURN(const Clients clients,
                              Clients::Read(client_options_));
    std::vector<UsageRow> rows;
    std::map<std::string, size_t> merged;
    for (UsageRow& row : usage->rows) {
      if (row.kind == kForwardedKind) {
        row.name = clients.IdentityOf(row.name, /*interface=*/"");
        row.client_name = clients.NameOf(row.name);
        const auto [found, is_new] = merged.emplace(row.name, rows.size());
        if (!is_new) {
          rows[found->second].counters += row.counters;
          rows[found->second].cost_micros += row.cost_micros;
          continue;
        }
      }
      rows.push_back(std::move(row));
    }
    std::stable_sort(rows.begin(), rows.end(), HasMoreBytes);
    usage->rows = std::move(rows);
    usage->has_client_names = !client_options_.name_files.empty();
    return absl::OkStatus();
  }

  static bool HasMoreBytes(const UsageRow& a, const UsageRow& b) {
    return a.counters.bytes() > b.counters.bytes();
  }

  // The rest is one row, so that rows add up to their sum in each format.
  static void KeepLargest(size_t count, std::vector<UsageRow>* rows) {
    std::stable_sort(rows->begin(), rows->end(), HasMoreBytes);
    if (rows->size() <= count) return;
    UsageRow rest;
    rest.kind = "rest";
    rest.name = absl::StrCat("(", rows->size() - count, " more)");
    for (size_t i = count; i < rows->size(); ++i) {
      rest.counters += (*rows)[i].counters;
      rest.cost_micros += (*rows)[i].cost_micros;
    }
    rows->resize(count);
    rows->push_back(std::move(rest));
  }

  int PrintRates(Database* history) const {
    auto rates =
        ReadPercentiles(history, query_.period, percentile_, time(nullptr));
    if (!rates.ok()) return Fail(rates.status().message());
    // Without a name, those on a bill.
    UsageQuery by_uplink;
    by_uplink.period = query_.period;
    by_uplink.by = UsageBy::kNothing;
    const auto bills = ReadUsage(history, by_uplink);
    if (!bills.ok()) return Fail(bills.status().message());
    const auto is_other = [&](const UplinkRate& rate) {
      if (!query_.uplink.empty()) {
        return query_.uplink != (rate.uplink.empty() ? "-" : rate.uplink);
      }
      return std::none_of(
          bills->uplinks.begin(), bills->uplinks.end(),
          [&](const UsageRow& row) { return row.name == rate.uplink; });
    };
    rates->erase(std::remove_if(rates->begin(), rates->end(), is_other),
                 rates->end());
    if (json_) {
      return Print(FormatRatesJson(*rates, query_.period, percentile_));
    }
    if (csv_) return Print(FormatRatesCsv(*rates));
    return Print(
        FormatRatesTable(*rates, query_.period, percentile_, TerminalWidth()));
  }

  const Flags* flags_ = nullptr;
  std::string database_;
  std::string budgets_ = kDefaultBudgets;
  PeriodOptions period_;
  UsageQuery query_;
  ClientOptions client_options_;
  int top_ = 0;         // 0: all rows
  int percentile_ = 0;  // 0: not asked for
  bool json_ = false;
  bool csv_ = false;
  SizeOptions sizes_;
};

}  // namespace

std::unique_ptr<Command> NewUsageCommand() {
  return std::make_unique<UsageCommand>();
}

}  // namespace internal
}  // namespace netmeter
