// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/netmeter/history/report.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "lib/apps/netmeter/history/usage_text.h"
#include "lib/base/status_util.h"
#include "lib/base/text.h"

namespace netmeter {
namespace internal {
namespace {

// The number of colours, except that of all others.
constexpr size_t kShown = 5;
constexpr size_t kMostRows = 25;

constexpr int kWidth = 760;
constexpr int kHeight = 220;
constexpr int kLeft = 80;
constexpr int kTop = 10;
constexpr int kBottom = 30;

constexpr char kHead[] = R"(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>$TITLE</title>
<style>
:root { --text: #1a1a1a; --faint: #5c5c5c; --line: #d4d4d4; --back: #ffffff;
  --c0: #0b62a8; --c1: #c75000; --c2: #2b8a3e; --c3: #8a3ea8; --c4: #a88600;
  --c5: #8c8c8c; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --text: #e8e8e8; --faint: #a8a8a8;
  --line: #444444; --back: #161616; --c0: #5aa9e6; --c1: #ff9d5c; --c2: #69c37b;
  --c3: #c68be0; --c4: #dcc04a; --c5: #8f8f8f; --bad: #ff8a80; } }
@media print { :root { --text: #000; --faint: #444; --line: #bbb; --back: #fff;
  --c0: #0b62a8; --c1: #c75000; --c2: #2b8a3e; --c3: #8a3ea8; --c4: #a88600;
  --c5: #8c8c8c; --bad: #b3261e; }
  body { max-width: none; margin: 0; } section { break-inside: avoid; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
body { font: 15px/1.45 system-ui, "DejaVu Sans", sans-serif; color: var(--text);
  background: var(--back); max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.15rem; margin: 2rem 0 .4rem; }
p { margin: .3rem 0; } .faint { color: var(--faint); } time { white-space: nowrap; }
.big { font-size: 1.9rem; font-weight: 600; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .2rem .5rem; border-bottom: 1px solid var(--line); }
th { font-weight: 600; } td:first-child, th:first-child { text-align: left;
  overflow-wrap: anywhere; min-width: 9rem; } .wide { width: 20%; }
svg { width: 100%; height: auto; } svg text { fill: var(--faint); font-size: 11px; }
@media (max-width: 42rem) { svg text { font-size: 17px; } table { font-size: 12px; }
  tr { display: grid; border-bottom: 1px solid var(--line); padding: .2rem 0;
    grid-template-columns: repeat(var(--columns), 1fr); }
  th, td { border: 0; padding: 0 .1rem; min-width: 0; white-space: nowrap; }
  th:first-child, td:first-child { grid-column: 1 / -1; white-space: normal; }
  .wide { grid-column: 1 / -1; width: auto; } }
.f0 { fill: var(--c0); background: var(--c0); } .f1 { fill: var(--c1); background: var(--c1); }
.f2 { fill: var(--c2); background: var(--c2); } .f3 { fill: var(--c3); background: var(--c3); }
.f4 { fill: var(--c4); background: var(--c4); } .f5 { fill: var(--c5); background: var(--c5); }
.key { display: inline-block; width: .8em; height: .8em; margin-right: .4em; }
.bar { height: .7rem; background: var(--line); } .bar div { height: 100%; max-width: 100%; }
.bad { color: var(--bad); } .over { background: var(--bad); }
</style></head><body>
)";

std::string Escape(const std::string& text) {
  return absl::StrReplaceAll(ToTerminal(text), {{"&", "&amp;"},
                                                {"<", "&lt;"},
                                                {">", "&gt;"},
                                                {"\"", "&quot;"},
                                                {"'", "&#39;"}});
}

// A browser would break a date after a hyphen.
std::string Unbroken(const std::string& time) {
  return absl::StrCat("<time>", time, "</time>");
}

std::string PeriodText(const Period& period) {
  return absl::StrCat(Unbroken(FormatDay(period.from)), " to ",
                      Unbroken(FormatDay(period.to)));
}

std::string NameOf(const ReportPart& part, size_t i) {
  const UsageRow& row = part.usage.rows[i];
  // A program may have the name of a service; then the kind distinguishes them.
  const bool twice =
      part.by == UsageBy::kService &&
      std::count_if(
          part.usage.rows.begin(), part.usage.rows.end(),
          [&row](const UsageRow& other) { return other.name == row.name; }) > 1;
  if (twice) return absl::StrCat(Escape(row.name), " (", row.kind, ")");
  if (!row.name.empty()) return Escape(row.name);
  return part.by == UsageBy::kUplink ? "no uplink" : "no name known";
}

std::string LabelOf(const ReportPart& part, size_t i) {
  return i < part.days.size() - 1 ? NameOf(part, i) : "all others";
}

// Ticks on an axis of bytes: 1, 2 or 5 with zeros, in the unit of the largest one.
struct Axis {
  double step = 1;  // bytes
  int steps = 1;    // to the top
  double unit = 1;  // bytes
  std::string unit_name;
};

Axis AxisOf(int64_t most, SizeUnits units) {
  constexpr int kMostSteps = 4;
  const double base = units == SizeUnits::kDecimal ? 1000 : 1024;
  const double top = static_cast<double>(most);
  Axis axis;
  while (top >= axis.unit * base) axis.unit *= base;
  const std::string name =
      HumanSignedBytes(static_cast<int64_t>(axis.unit), units);
  axis.unit_name = name.substr(name.find(' ') + 1);
  const double in_unit = top / axis.unit;
  double power = axis.unit == 1 ? 1 : 0.1;
  for (;; power *= 10) {
    for (const int digit : {1, 2, 5}) {
      const double step = digit * power;
      if (in_unit > step * kMostSteps) continue;
      axis.step = step * axis.unit;
      axis.steps = std::max(1, static_cast<int>(std::ceil(in_unit / step)));
      return axis;
    }
  }
}

// Stacked bars, one per day.
std::string Chart(const ReportPart& part, const Period& period,
                  SizeUnits units) {
  const size_t count = part.days[0].size();
  int64_t most = 1;
  for (size_t day = 0; day < count; ++day) {
    int64_t sum = 0;
    for (const auto& days : part.days) sum += days[day];
    most = std::max(most, sum);
  }
  const double step = static_cast<double>(kWidth - kLeft) /
                      static_cast<double>(std::max<size_t>(1, count));
  const double room = kHeight - kTop - kBottom;
  std::string svg = absl::StrFormat(
      "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"bytes by day\">",
      kWidth, kHeight);
  const Axis axis = AxisOf(most, units);
  const double top = axis.step * axis.steps;
  for (int i = 0; i <= axis.steps; ++i) {
    const double y = kTop + room * (axis.steps - i) / axis.steps;
    absl::StrAppend(
        &svg,
        absl::StrFormat("<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" "
                        "y2=\"%.1f\" stroke=\"currentColor\" "
                        "stroke-opacity=\".2\"/><text x=\"%d\" "
                        "y=\"%.1f\" text-anchor=\"end\">%s</text>",
                        kLeft, kWidth, y, y, kLeft - 6, y + 4,
                        absl::StrFormat("%g %s", i * axis.step / axis.unit,
                                        axis.unit_name)));
  }
  for (size_t day = 0; day < count; ++day) {
    const std::string date =
        FormatDay(AddDays(period.from, static_cast<int>(day)));
    const double x = kLeft + step * static_cast<double>(day);
    double y = kTop + room;
    for (size_t i = 0; i < part.days.size(); ++i) {
      const int64_t bytes = part.days[i][day];
      if (bytes == 0) continue;
      const double height = room * static_cast<double>(bytes) / top;
      y -= height;
      const size_t colour = i + 1 == part.days.size() ? kShown : i;
      absl::StrAppend(
          &svg,
          absl::StrFormat("<rect class=\"f%d\" x=\"%.1f\" y=\"%.1f\" "
                          "width=\"%.1f\" height=\"%.1f\"><title>%s, %s: "
                          "%s</title></rect>",
                          colour, x + step * 0.1, y, step * 0.8, height, date,
                          LabelOf(part, i), HumanSignedBytes(bytes, units)));
    }
    const size_t every = std::max<size_t>(1, (count + 9) / 10);
    if (day % every == 0) {
      absl::StrAppend(
          &svg, absl::StrFormat("<text x=\"%.1f\" y=\"%d\" "
                                "text-anchor=\"middle\">%s</text>",
                                x + step / 2, kHeight - 8, date.substr(5)));
    }
  }
  return absl::StrCat(svg, "</svg>\n");
}

// `cost`: "" for none.
std::string TableRow(const std::string& name, const Counters& counters,
                     const std::string& cost, int64_t all, SizeUnits units) {
  const auto human = [units](int64_t bytes) {
    return HumanSignedBytes(bytes, units);
  };
  return absl::StrCat("<tr><td>", name, "</td><td>", human(counters.tx_bytes()),
                      "</td><td>", human(counters.rx_bytes()), "</td><td>",
                      human(counters.bytes()), "</td><td>",
                      HumanPercent(static_cast<double>(counters.bytes()),
                                   static_cast<double>(all)),
                      "</td><td>", human(counters.tx_retransmit_bytes()),
                      cost.empty() ? "" : "</td><td>", cost, "</td></tr>\n");
}

std::string FormatPart(const ReportPart& part, const Period& period,
                       const UsageCosts& costs, SizeUnits units) {
  const Usage& usage = part.usage;
  const int64_t all = usage.sum.bytes();
  const bool has_cost = !costs.currency.empty();
  const auto money = [&](int64_t micros) {
    return has_cost ? MoneyText(micros, /*exact=*/false) : "";
  };
  std::string html = absl::StrCat("<section><h2>By ", UsageByName(part.by),
                                  "</h2>\n", Chart(part, period, units));
  absl::StrAppend(&html, "<table style=\"--columns: ", has_cost ? 6 : 5,
                  "\"><tr><th>", UsageByName(part.by),
                  "</th><th>sent</th><th>received</th><th>total</th>"
                  "<th>share</th><th>resent</th>",
                  has_cost ? absl::StrCat("<th>", costs.currency, "</th>") : "",
                  "</tr>\n");
  Counters others;
  int64_t cost_of_others = 0;
  for (size_t i = 0; i < usage.rows.size(); ++i) {
    if (i >= kMostRows) {
      others += usage.rows[i].counters;
      cost_of_others += usage.rows[i].cost_micros;
      continue;
    }
    const size_t colour = i + 1 < part.days.size() ? i : kShown;
    html += TableRow(absl::StrCat("<span class=\"key f", colour, "\"></span>",
                                  NameOf(part, i)),
                     usage.rows[i].counters, money(usage.rows[i].cost_micros),
                     all, units);
  }
  if (usage.rows.size() > kMostRows) {
    html += TableRow(absl::StrCat(usage.rows.size() - kMostRows, " more"),
                     others, money(cost_of_others), all, units);
  }
  return absl::StrCat(
      html, TableRow("<b>sum</b>", usage.sum, money(costs.micros), all, units),
      "</table></section>\n");
}

// Budgets of another period would stand beside usage that they do not measure.
std::string FormatBudgets(const Report& report) {
  if (report.budgets.empty()) return "";
  std::string rows, no_forecast, of_others;
  for (size_t i = 0; i < report.budgets.size(); ++i) {
    const Budget& budget = report.budgets[i];
    const BudgetState& state = report.states[i];
    const Period& period = state.period;
    const std::string name = Escape(budget.name);
    if (period.from != report.period.from || period.to != report.period.to) {
      absl::StrAppend(&of_others, of_others.empty() ? "" : ", ", name, " (",
                      PeriodText(period), ")");
      continue;
    }
    const SizeUnits units = report.budget_units.value_or(budget.units);
    const auto human = [units](int64_t bytes) {
      return HumanSignedBytes(bytes, units);
    };
    const bool over = state.percent >= 100;
    absl::StrAppend(&rows, "<tr><td>", name, "</td><td",
                    over ? " class=\"bad\"" : "", ">", human(state.used), " (",
                    state.percent, "%)</td><td>", human(budget.limit),
                    "</td><td>", human(budget.limit - state.used), "</td><td>",
                    state.forecast < 0 ? "-" : human(state.forecast),
                    "</td><td>", BudgetWord(state),
                    "</td><td class=\"wide\"><div class=\"bar\"><div class=\"",
                    over ? "over" : "f0", "\" style=\"width:",
                    std::max<int64_t>(0, std::min<int64_t>(100, state.percent)),
                    "%\"></div></div></td></tr>\n");
    if (!state.forecast_unknown.empty()) {
      absl::StrAppend(&no_forecast, no_forecast.empty() ? "" : ", ", name);
    }
  }
  std::string html = "<section><h2>Budgets</h2>\n";
  if (!rows.empty()) {
    absl::StrAppend(
        &html,
        "<table style=\"--columns: 3\"><tr><th>budget</th><th>used</th>"
        "<th>limit</th><th>left</th><th>forecast</th><th>state</th>"
        "<th class=\"wide\"></th></tr>\n",
        rows, "</table>\n");
  }
  if (!no_forecast.empty()) {
    absl::StrAppend(&html, "<p class=\"faint\">No forecast for ", no_forecast,
                    ": too little of this period is recorded.</p>\n");
  }
  if (!of_others.empty()) {
    absl::StrAppend(&html,
                    "<p class=\"faint\">Budgets of other periods: ", of_others,
                    ".</p>\n");
  }
  return absl::StrCat(html, "</section>\n");
}

std::string FormatCosts(const UsageCosts& costs, SizeUnits units) {
  std::string html;
  for (const UsageCosts::Entry& one : costs.plans) {
    absl::StrAppend(&html, "<p>",
                    Escape(DescribeCost(one.plan, one.cost, units)), "</p>\n");
  }
  if (!costs.unknown.empty()) {
    absl::StrAppend(
        &html, "<p class=\"faint\">No cost: ", Escape(costs.unknown), "</p>\n");
  }
  if (html.empty()) return "";
  return absl::StrCat("<section><h2>Costs</h2>\n", html, "</section>\n");
}

std::string FormatGaps(const std::vector<Gap>& gaps) {
  if (gaps.empty()) return "";
  std::string html =
      "<section><h2>What is not known exactly</h2>\n<table style=\"--columns: "
      "2\"><tr><th>gap</th><th>from</th><th>to</th></tr>\n";
  for (const Gap& gap : gaps) {
    absl::StrAppend(&html, "<tr><td>", Escape(gap.what), "</td><td>",
                    Unbroken(FormatTime(gap.begin)), "</td><td>",
                    Unbroken(FormatTime(gap.end)), "</td></tr>\n");
  }
  return absl::StrCat(
      html,
      "</table>\n<p class=\"faint\">lost: the host or the meter started again; "
      "at most what was counted after the last record is missing. unnamed: the "
      "meter started again; the bytes of uplinks are in the row tunnels and "
      "kernel, others are missing. delayed: nothing was recorded, and the "
      "bytes "
      "stand at the end. clock: the clock was set.</p></section>\n");
}

}  // namespace

absl::StatusOr<ReportPart> ReadReportPart(Database* history, Report* report,
                                          UsageBy by) {
  const Period& period = report->period;
  UsageQuery query;
  query.period = period;
  query.path = report->path;
  query.uplink = report->uplink;
  query.by = by;
  ReportPart part;
  part.by = by;
  auto usage = ReadUsage(history, query);
  if (!usage.ok()) return usage.status();
  part.usage = *std::move(usage);
  auto costs = ReadUsageCosts(history, report->plans, query, &part.usage);
  if (!costs.ok()) return costs.status();
  report->costs = *std::move(costs);
  const auto read_days =
      [&](const UsageQuery& of) -> absl::StatusOr<std::vector<int64_t>> {
    UsageQuery by_day = of;
    by_day.by = UsageBy::kDay;
    const auto days = ReadUsage(history, by_day);
    if (!days.ok()) return days.status();
    std::vector<int64_t> bytes(
        static_cast<size_t>(DaysBetween(period.from, period.to)) + 1, 0);
    for (const UsageRow& row : days->rows) {
      const auto day = ParseDay(row.name);
      if (!day.ok()) return day.status();
      // Bytes that were pending on an earlier day may be subtracted from this one.
      bytes[static_cast<size_t>(DaysBetween(period.from, *day))] =
          std::max<int64_t>(0, row.counters.bytes());
    }
    return bytes;
  };
  auto others = read_days(query);
  if (!others.ok()) return others.status();
  for (const UsageRow& row : part.usage.rows) {
    if (part.days.size() == kShown) break;
    if (row.kind == "fee") continue;
    UsageQuery of_row = query;
    (by == UsageBy::kService  ? of_row.service
     : by == UsageBy::kUplink ? of_row.uplink
                              : of_row.destination) =
        row.name.empty() ? "-" : row.name;
    of_row.only_billed = query.uplink.empty();
    // A service or a destination may have the name of another row.
    of_row.kind = row.kind;
    of_row.with_pending = row.with_pending;
    if (by == UsageBy::kDestination && row.kind.empty()) {
      of_row.exact_destination = true;
      of_row.destination = row.name;
    }
    auto days = read_days(of_row);
    if (!days.ok()) return days.status();
    for (size_t i = 0; i < days->size(); ++i) {
      (*others)[i] = std::max<int64_t>(0, (*others)[i] - (*days)[i]);
    }
    part.days.push_back(*std::move(days));
  }
  part.days.push_back(*std::move(others));
  return part;
}

std::string FormatReport(const Report& report) {
  const auto human = [&report](int64_t bytes) {
    return HumanSignedBytes(bytes, report.units);
  };
  const std::string host = Escape(report.host);
  const std::string title =
      absl::StrCat(host, ", ", FormatDay(report.period.from), " to ",
                   FormatDay(report.period.to));
  std::string html = absl::StrReplaceAll(kHead, {{"$TITLE", title}});
  absl::StrAppend(&html, "<h1>", host, ", ", PeriodText(report.period),
                  "</h1>\n");
  if (!report.parts.empty()) {
    const Counters& sum = report.parts[0].usage.sum;
    absl::StrAppend(
        &html, "<p class=\"big\">", human(sum.bytes()), "</p>\n<p>",
        human(sum.tx_bytes()), " sent, ", human(sum.rx_bytes()), " received",
        report.path == "proxy" ? " through a proxy of this host" : "",
        report.uplink.empty()
            ? ""
            : absl::StrCat(", uplink ", Escape(report.uplink)),
        ". ", human(sum.tx_retransmit_bytes()),
        " of TCP were retransmitted.</p>\n");
  }
  if (!report.parts.empty()) {
    const Usage& usage = report.parts[0].usage;
    if (usage.uplinks.size() > 1) {
      absl::StrAppend(&html, "<p>By uplink: ",
                      Escape(DescribeUplinks(usage.uplinks, report.units)),
                      ".</p>\n");
    }
    if (!usage.not_billed.empty()) {
      absl::StrAppend(&html, "<p>Not in the sum: ",
                      Escape(DescribeUplinks(usage.not_billed, report.units)),
                      ".</p>\n");
    }
    for (const Shortfall& shortfall : report.parts[0].usage.shortfalls) {
      absl::StrAppend(&html, "<p>",
                      Escape(DescribeShortfall(shortfall, report.units)),
                      ".</p>\n");
    }
  }
  html += FormatBudgets(report);
  html += FormatCosts(report.costs, report.units);
  for (const ReportPart& part : report.parts) {
    html += FormatPart(part, report.period, report.costs, report.units);
  }
  if (!report.parts.empty()) html += FormatGaps(report.parts[0].usage.gaps);
  absl::StrAppend(
      &html,
      "<p class=\"faint\">Bytes without the headers of the link; "
      "1 ",
      report.units == SizeUnits::kDecimal ? "kB is 1000" : "KiB is 1024",
      " bytes. Written ", Unbroken(Escape(report.made)),
      " by netmeter.</p>\n</body></html>\n");
  return html;
}

}  // namespace internal
}  // namespace netmeter
