// SPDX-License-Identifier: BSD-3-Clause
// `netmeter usage`: the traffic of a billing period.
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/status_util.h"
#include "lib/base/text_table.h"
#include "lib/history/usage.h"
#include "lib/reader/difference.h"
#include "lib/reader/words.h"
#include "lib/tools/commands.h"
#include "lib/tools/history/usage_text.h"
#include "lib/tools/options.h"

namespace netmeter {
namespace internal {
namespace {

constexpr char kUsageFooter[] = R"(
Without --month and --from: the billing period of today. All days are local days
of the host that recorded. A period of --reset-day 31 begins on the last day of a
shorter month. Bytes are those of `netmeter list`: without layer-2 headers.

--by uplink and --uplink have the bill: the total of an uplink is what its interfaces
counted, if root records. The rows of one uplink add up to it: services; forwarded
traffic, by the interface that it came from or went to; and `tunnels and kernel`, which
is all that remains. Forwarded traffic is in two uplinks, so a sum over all of them has
it twice. --path proxy shows what went over loopback to a proxy; the proxy then sent it
over the link. --path interface shows what each interface counted.
The column SERVICE has the name of any series: a service, a program, a unit, a
container or an interface, as KIND says. Two kinds of one name are two rows.

What is not known exactly stands below the table:
  lost    a reboot or an unload: at most what was counted since the last record
  late    nothing was recorded for a time: its bytes stand in the hour of its end
  clock   the clock was set: the bytes are right, their day is that of the clock

Exit status: 0 printed; 1 failed, one line on stderr says why; 2 wrong usage.

Examples:
  netmeter usage
  netmeter usage --month 2026-10 --by destination
  netmeter usage --reset-day 15 --by day --csv
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
    flags
        ->AddChoice("--by", &query_.by,
                    std::map<std::string, UsageBy>{
                        {"service", UsageBy::kService},
                        {"destination", UsageBy::kDestination},
                        {"uplink", UsageBy::kUplink},
                        {"day", UsageBy::kDay}},
                    "The rows of the table")
        .Type("WHAT")
        .Default("service");
    flags
        ->AddOption("--path", &query_.path,
                    "direct, proxy, or interface: what each interface counted")
        .Type("PATH")
        .OneOf({"direct", "proxy", kInterfacePath})
        .ShowDefault();
    flags
        ->AddOption("--service", &query_.service,
                    "Only this name, whatever its kind")
        .Type("NAME");
    flags
        ->AddOption("--destination", &query_.destination,
                    "Only this destination")
        .Type("NAME");
    std::vector<std::string> kinds = KindNames();
    kinds.push_back(kForwardedKind);
    kinds.push_back(kUncountedKind);
    flags->AddOption("--kind", &query_.kind, "Only this kind")
        .Type("KIND")
        .OneOf(kinds);
    flags->AddOption("--uplink", &query_.uplink, "Only this uplink")
        .Type("NAME");
    const Option json =
        flags->AddFlag("--json", &json_, "Print one JSON object");
    const Option csv =
        flags->AddFlag("--csv", &csv_, "Print comma-separated values")
            .Excludes(json);
    AddSizes(flags, {json, csv}, &sizes_);
    flags->SetFooter(kUsageFooter);
  }

  absl::Status CheckOptions() override {
    NETMETER_RETURN_IF_ERROR(CheckDatabase(database_));
    const auto period = period_.Get(Today());
    if (!period.ok()) return period.status();
    query_.period = *period;
    return absl::OkStatus();
  }

  int Run() override {
    const auto history = OpenHistory(database_, Database::Mode::kRead);
    if (!history.ok()) return Fail(history.status().message());
    const auto usage = ReadUsage(history->get(), query_);
    if (!usage.ok()) return Fail(usage.status().message());
    if (json_) return Print(FormatUsageJson(*usage, query_));
    if (csv_) return Print(FormatUsageCsv(*usage, query_));
    const auto units = ReadSizeUnits(history->get());
    if (!units.ok()) return Fail(units.status().message());
    return Print(
        FormatUsageTable(*usage, query_, sizes_.Or(*units), TerminalWidth()));
  }

 private:
  std::string database_;
  PeriodOptions period_;
  UsageQuery query_;
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
