// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/netmeter/history/usage_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lib/apps/history/calendar.h"
#include "lib/base/csv.h"
#include "lib/base/text.h"
#include "lib/base/text_table.h"
#include "lib/base/users.h"

namespace netmeter {
namespace internal {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostGaps = 4;  // in a table

// As in `netmeter list`: "1000 (alice)".
std::string NameOf(const UsageRow& row) {
  const std::string readable =
      row.kind == "user" ? UserName(row.name) : row.client_name;
  if (row.name.empty()) return "-";
  if (readable.empty()) return ToTerminal(row.name);
  return absl::StrCat(ToTerminal(row.name), " (", ToTerminal(readable), ")");
}

// Two hours of one night may have one name.
std::string NameForPrograms(const UsageRow& row) {
  return row.hour != 0 ? FormatWithOffset(row.hour) : row.name;
}

std::string DescribeGap(const Gap& gap) {
  if (gap.what == "clock") {
    return absl::StrCat("clock: it was set from ", FormatTime(gap.begin),
                        " to ", FormatTime(gap.end));
  }
  std::string end = FormatTime(gap.end);
  if (HourOf(gap.begin).day == HourOf(gap.end).day) {
    end.erase(0, end.find(' ') + 1);
  }
  const std::string times = absl::StrCat(FormatTime(gap.begin), " to ", end);
  if (gap.what == "delayed") {
    return absl::StrCat("delayed: ", times,
                        ", no record; its bytes are in the hour of its end");
  }
  if (gap.what == "unnamed") {
    return absl::StrCat("unnamed: ", times,
                        ", an unload and a load; the bytes of uplinks are in ",
                        "the row ", kUnnamedName, ", others in no sum");
  }
  return absl::StrCat("lost: ", times,
                      ", a reboot or an unload; its bytes are in no sum");
}

// "12.345 Mbit/s": providers bill in powers of 1000.
std::string RateText(int64_t bits_a_second) {
  return absl::StrFormat("%.3f Mbit/s",
                         static_cast<double>(bits_a_second) / 1e6);
}

void AddCounters(const Counters& counters, nlohmann::ordered_json* json) {
  for (size_t i = 0; i < kCounterCount; ++i) {
    (*json)[kRecordedCounters[i].name] = counters.value[i];
  }
}

// Both directions. Below 0: the row is no time.
int64_t AverageBits(const UsageRow& row) {
  return row.seconds == 0 ? -1 : row.counters.bytes() * 8 / row.seconds;
}

// In output for programs, the kind of a row tells that it has no destination. In a
// table its name does.
bool HasKind(const UsageQuery& query) {
  return query.by == UsageBy::kService || query.by == UsageBy::kDestination;
}

}  // namespace

const char* UsageByName(UsageBy by) {
  switch (by) {
    case UsageBy::kService:
      return "service";
    case UsageBy::kDestination:
      return "destination";
    case UsageBy::kUplink:
      return "uplink";
    case UsageBy::kHour:
      return "hour";
    case UsageBy::kDay:
      return "day";
    case UsageBy::kWeek:
      return "week";
    case UsageBy::kMonth:
      return "month";
    case UsageBy::kYear:
      return "year";
    case UsageBy::kNothing:
      return "";
  }
  return "";
}

const char* BudgetWord(const BudgetState& state) {
  return state.percent >= 100    ? "used up"
         : state.crossed.empty() ? "ok"
                                 : "warning";
}

std::string DescribeUplinks(const std::vector<UsageRow>& uplinks,
                            SizeUnits units) {
  return absl::StrJoin(
      uplinks, ", ", [units](std::string* text, const UsageRow& row) {
        absl::StrAppend(text,
                        row.name.empty() ? "no uplink" : ToTerminal(row.name),
                        " ", HumanSignedBytes(row.counters.bytes(), units));
      });
}

std::string DescribeShortfall(const Shortfall& shortfall, SizeUnits units) {
  std::string less;
  for (const auto& way : {std::make_pair(shortfall.tx_bytes, " sent"),
                          std::make_pair(shortfall.rx_bytes, " received")}) {
    if (way.first == 0) continue;
    absl::StrAppend(&less, less.empty() ? "" : " and ",
                    HumanSignedBytes(way.first, units), way.second);
  }
  return absl::StrCat(
      ToTerminal(shortfall.uplink), ": its interfaces counted ", less,
      " less than its rows, so its total is that of the rows (they count a GSO "
      "packet as one, a queue dropped packets, or a record read in between)");
}

nlohmann::ordered_json CostJson(const Plan& plan, const PlanCost& cost) {
  return {
      {"plan", ToUtf8(plan.name)},       {"from", FormatDay(cost.period.from)},
      {"to", FormatDay(cost.period.to)}, {"uplink", ToUtf8(plan.uplink)},
      {"currency", plan.currency},       {"cost_micros", cost.micros},
      {"used_bytes", cost.used_bytes},   {"billed_bytes", cost.billed_bytes}};
}

std::string FormatUsageTable(const Usage& usage, const UsageQuery& query,
                             SizeUnits units, size_t width,
                             const UsageCosts& costs) {
  const bool has_cost = !costs.currency.empty();
  const bool with_kind = query.by == UsageBy::kService;
  const bool by_time = IsByTime(query.by);
  TextTable table(
      {{absl::AsciiStrToUpper(UsageByName(query.by)), TextColumn::kLeft},
       {with_kind ? "KIND" : "", TextColumn::kLeft, with_kind ? 2 : 9},
       {"SENT", TextColumn::kRight, 1},
       {"RECEIVED", TextColumn::kRight, 1},
       {"TOTAL", TextColumn::kRight},
       {"SHARE", TextColumn::kRight, 3},
       {by_time ? "AVERAGE" : "", TextColumn::kRight, by_time ? 2 : 9},
       {"RETRANSMIT", TextColumn::kRight, 4},
       {has_cost ? "COST " + costs.currency : "", TextColumn::kRight,
        has_cost ? 0 : 9}});
  const auto money = [&](int64_t micros) {
    return has_cost ? MoneyText(micros, units == SizeUnits::kExact) : "";
  };
  const auto add = [&](const std::string& name, const std::string& kind,
                       const Counters& counters, const std::string& average,
                       const std::string& cost, bool has_share = true) {
    table.Add({name, kind, HumanSignedBytes(counters.tx_bytes(), units),
               HumanSignedBytes(counters.rx_bytes(), units),
               HumanSignedBytes(counters.bytes(), units),
               has_share ? HumanPercent(static_cast<double>(counters.bytes()),
                                        static_cast<double>(usage.sum.bytes()))
                         : "",
               average, HumanSignedBytes(counters.tx_retransmit_bytes(), units),
               cost});
  };
  for (const UsageRow& row : usage.rows) {
    const int64_t average = AverageBits(row);
    add(NameOf(row), with_kind ? row.kind : "", row.counters,
        average < 0 ? "" : RateText(average), money(row.cost_micros));
  }
  add("sum", "", usage.sum, "", money(costs.micros));
  if (usage.estimated.has_value()) {
    add("estimated", "", *usage.estimated, "", "", /*has_share=*/false);
  }
  std::string text = WrapText(
      absl::StrCat(
          FormatDay(query.period.from), " to ", FormatDay(query.period.to),
          query.uplink.empty() ? "" : ", uplink " + ToTerminal(query.uplink),
          ", path ", query.path),
      width);
  if (usage.uplinks.size() > 1 && query.by != UsageBy::kUplink) {
    text += WrapText(
        absl::StrCat(DescribeUplinks(usage.uplinks, units), "; together ",
                     HumanSignedBytes(usage.sum.bytes(), units)),
        width);
  }
  text += table.Format(width);
  std::vector<std::string> notes;
  if (usage.rows.empty()) {
    const bool filtered = !query.service.empty() ||
                          !query.destination.empty() || !query.kind.empty() ||
                          !query.uplink.empty();
    notes.push_back(filtered ? "(no such series in this period)"
                             : "(nothing was recorded in this period)");
  }
  for (const UsageCosts::Entry& cost : costs.plans) {
    notes.push_back(DescribeCost(cost.plan, cost.cost, units));
  }
  if (!costs.unknown.empty()) {
    notes.push_back(absl::StrCat("no cost: ", costs.unknown));
  }
  if (!usage.not_billed.empty()) {
    notes.push_back(absl::StrCat("not in the sum: ",
                                 DescribeUplinks(usage.not_billed, units)));
  }
  for (const Shortfall& shortfall : usage.shortfalls) {
    notes.push_back(DescribeShortfall(shortfall, units));
  }
  // The last ones: a host without a clock of its own sets it at each boot.
  const size_t hidden =
      usage.gaps.size() - std::min(kMostGaps, usage.gaps.size());
  for (size_t i = hidden; i < usage.gaps.size(); ++i) {
    notes.push_back(DescribeGap(usage.gaps[i]));
  }
  if (hidden > 0) {
    notes.push_back(
        absl::StrCat("and ", hidden, " earlier such lines: --json"));
  }
  for (const std::string& note : notes) {
    absl::StrAppend(&text, WrapText(note, width));
  }
  return text;
}

std::string FormatUsageJson(const Usage& usage, const UsageQuery& query,
                            const UsageCosts& costs) {
  const bool has_cost = !costs.currency.empty();
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const UsageRow& row : usage.rows) {
    nlohmann::ordered_json object;
    if (HasKind(query)) object["kind"] = row.kind;
    object[UsageByName(query.by)] = NameForPrograms(row);
    if (IsByTime(query.by)) {
      const bool has_time = row.end != 0;
      object["start"] = has_time ? Json(FormatUtc(row.begin)) : Json();
      object["end"] = has_time ? Json(FormatUtc(row.end)) : Json();
    }
    if (!row.client_name.empty()) {
      object["client_name"] = ToUtf8(row.client_name);
    }
    AddCounters(row.counters, &object);
    if (row.seconds != 0) object["average_bits_per_second"] = AverageBits(row);
    if (has_cost) object["cost_micros"] = row.cost_micros;
    rows.push_back(std::move(object));
  }
  nlohmann::ordered_json sum = nlohmann::ordered_json::object();
  AddCounters(usage.sum, &sum);
  nlohmann::ordered_json estimated;
  if (usage.estimated.has_value()) AddCounters(*usage.estimated, &estimated);
  const auto by_uplink = [](const std::vector<UsageRow>& rows) {
    nlohmann::ordered_json array = nlohmann::ordered_json::array();
    for (const UsageRow& row : rows) {
      array.push_back({{"uplink", row.name},
                       {"tx_bytes", row.counters.tx_bytes()},
                       {"rx_bytes", row.counters.rx_bytes()}});
    }
    return array;
  };
  nlohmann::ordered_json shortfalls = nlohmann::ordered_json::array();
  for (const Shortfall& shortfall : usage.shortfalls) {
    shortfalls.push_back({{"uplink", shortfall.uplink},
                          {"tx_bytes", shortfall.tx_bytes},
                          {"rx_bytes", shortfall.rx_bytes}});
  }
  nlohmann::ordered_json gaps = nlohmann::ordered_json::array();
  for (const Gap& gap : usage.gaps) {
    gaps.push_back(
        {{"what", gap.what}, {"begin", gap.begin}, {"end", gap.end}});
  }
  nlohmann::ordered_json all = {{"from", FormatDay(query.period.from)},
                                {"to", FormatDay(query.period.to)},
                                {"path", query.path},
                                {"rows", std::move(rows)},
                                {"sum", std::move(sum)},
                                {"estimated", std::move(estimated)},
                                {"uplinks", by_uplink(usage.uplinks)},
                                {"not_in_sum", by_uplink(usage.not_billed)},
                                {"shortfalls", std::move(shortfalls)},
                                {"gaps", std::move(gaps)}};
  if (has_cost) {
    all["currency"] = costs.currency;
    all["cost_micros"] = costs.micros;
  }
  if (!costs.plans.empty()) {
    all["costs"] = nlohmann::ordered_json::array();
    for (const UsageCosts::Entry& cost : costs.plans) {
      all["costs"].push_back(CostJson(cost.plan, cost.cost));
    }
  }
  if (!costs.unknown.empty()) all["cost_unknown"] = ToUtf8(costs.unknown);
  return all.dump(2) + "\n";
}

std::string FormatUsageCsv(const Usage& usage, const UsageQuery& query,
                           const UsageCosts& costs) {
  const bool with_kind = HasKind(query);
  std::string text =
      absl::StrCat(with_kind ? "kind," : "", UsageByName(query.by),
                   IsByTime(query.by) ? ",start,end" : "");
  for (const RecordedCounter& counter : kRecordedCounters) {
    absl::StrAppend(&text, ",", counter.name);
  }
  if (!costs.currency.empty()) text += ",cost_micros,currency";
  if (usage.has_client_names) text += ",client_name";
  text += "\n";
  for (const UsageRow& row : usage.rows) {
    absl::StrAppend(&text, with_kind ? row.kind + "," : "",
                    CsvField(ToTerminal(NameForPrograms(row))));
    if (IsByTime(query.by)) {
      const bool has_time = row.end != 0;
      absl::StrAppend(&text, ",", has_time ? FormatUtc(row.begin) : "", ",",
                      has_time ? FormatUtc(row.end) : "");
    }
    for (const int64_t value : row.counters.value) {
      absl::StrAppend(&text, ",", value);
    }
    if (!costs.currency.empty()) {
      absl::StrAppend(&text, ",", row.cost_micros, ",", costs.currency);
    }
    if (usage.has_client_names) {
      absl::StrAppend(&text, ",", CsvField(ToTerminal(row.client_name)));
    }
    text += "\n";
  }
  return text;
}

std::string FormatRatesTable(const std::vector<UplinkRate>& rates,
                             const Period& period, int percent, size_t width) {
  TextTable table({{"UPLINK", TextColumn::kLeft},
                   {"SENT", TextColumn::kRight},
                   {"RECEIVED", TextColumn::kRight},
                   {"LARGER", TextColumn::kRight},
                   {"SAMPLES", TextColumn::kRight, 1}});
  for (const UplinkRate& rate : rates) {
    table.Add({rate.uplink.empty() ? "-" : ToTerminal(rate.uplink),
               RateText(rate.sent), RateText(rate.received),
               RateText(std::max(rate.sent, rate.received)),
               absl::StrCat(rate.samples)});
  }
  return absl::StrCat(FormatDay(period.from), " to ", FormatDay(period.to),
                      ", percentile ", percent, " of five-minute samples\n",
                      table.Format(width));
}

std::string FormatRatesJson(const std::vector<UplinkRate>& rates,
                            const Period& period, int percent) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const UplinkRate& rate : rates) {
    rows.push_back({{"uplink", rate.uplink},
                    {"tx_bits_per_second", rate.sent},
                    {"rx_bits_per_second", rate.received},
                    {"samples", rate.samples}});
  }
  const nlohmann::ordered_json all = {{"from", FormatDay(period.from)},
                                      {"to", FormatDay(period.to)},
                                      {"percentile", percent},
                                      {"rows", std::move(rows)}};
  return all.dump(2) + "\n";
}

std::string FormatRatesCsv(const std::vector<UplinkRate>& rates) {
  std::string text = "uplink,tx_bits_per_second,rx_bits_per_second,samples\n";
  for (const UplinkRate& rate : rates) {
    absl::StrAppend(&text, CsvField(ToTerminal(rate.uplink)), ",", rate.sent,
                    ",", rate.received, ",", rate.samples, "\n");
  }
  return text;
}

}  // namespace internal
}  // namespace netmeter
