// SPDX-License-Identifier: BSD-3-Clause
#include "lib/history/usage.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "lib/base/status_util.h"
#include "lib/reader/difference.h"

namespace netmeter {
namespace internal {
namespace {

constexpr int64_t kHour = 3600;
constexpr int64_t kDay = 24 * kHour;

// Traffic without a destination of its own that gets a separate row.
constexpr char kNoDestination[] =
    "s.kind IN ('pending', 'forwarded', 'uncounted')";
constexpr char kDestination[] =
    "CASE WHEN s.kind = 'pending' OR s.kind = 'forwarded' AND s.destination = "
    "'' THEN s.kind "
    "WHEN s.kind = 'uncounted' THEN s.name ELSE s.destination END";

std::string ColumnsOf(UsageBy by) {
  switch (by) {
    case UsageBy::kService:
      return "s.kind, s.name";
    case UsageBy::kDestination:
      return absl::StrCat("CASE WHEN ", kNoDestination,
                          " THEN s.kind ELSE '' END, ", kDestination);
    case UsageBy::kUplink:
      return "'', s.uplink";
    case UsageBy::kHour:
    case UsageBy::kDay:
    case UsageBy::kWeek:
    case UsageBy::kMonth:
    case UsageBy::kYear:
      return "'', t.time";
    case UsageBy::kNothing:
      return "'', ''";
  }
  return "";
}

std::string GroupOf(UsageBy by) {
  switch (by) {
    case UsageBy::kService:
      return " GROUP BY s.kind, s.name";
    case UsageBy::kDestination:
      return absl::StrCat(" GROUP BY CASE WHEN ", kNoDestination,
                          " THEN s.kind ELSE '' END, s.destination");
    case UsageBy::kUplink:
      return " GROUP BY s.uplink";
    case UsageBy::kHour:
    case UsageBy::kDay:
    case UsageBy::kWeek:
    case UsageBy::kMonth:
    case UsageBy::kYear:
      return " GROUP BY t.time";
    case UsageBy::kNothing:
      return "";
  }
  return "";
}

// The time of a row, as a number: the start of an hour, 20261122 (of a week, its Monday),
// 202611 or 2026. By hour, a day whose hours are gone is negative. Empty: rows are no
// times.
std::string TimeOfDay(UsageBy by, absl::string_view day) {
  switch (by) {
    case UsageBy::kHour:
      return absl::StrCat("-", day);
    case UsageBy::kDay:
      return std::string(day);
    case UsageBy::kWeek:
      return absl::StrReplaceAll(
          "CAST(strftime('%Y%m%d', printf('%04d-%02d-%02d', $ / 10000, $ / 100 "
          "% 100, $ % 100), 'weekday 0', '-6 days') AS INTEGER)",
          {{"$", day}});
    case UsageBy::kMonth:
      return absl::StrCat(day, " / 100");
    case UsageBy::kYear:
      return absl::StrCat(day, " / 10000");
    default:
      return "";
  }
}

std::string TimeText(UsageBy by, int64_t time) {
  if (by == UsageBy::kHour && time >= 0) return FormatTime(time);
  const std::string day =
      FormatDay(static_cast<Day>(std::abs(by == UsageBy::kMonth  ? time * 100
                                          : by == UsageBy::kYear ? time * 10000
                                                                 : time)));
  return day.substr(0, by == UsageBy::kMonth  ? 7
                       : by == UsageBy::kYear ? 4
                                              : day.size());
}

// The time of a row, within the period.
void SetTime(const UsageQuery& query, int64_t time, UsageRow* row) {
  row->begin = time;
  row->end = time + kHour;
  if (query.by == UsageBy::kHour && time >= 0) {
    row->hour = time;
  } else {
    const Day day = static_cast<Day>(std::abs(time));
    const Period days =
        query.by == UsageBy::kWeek    ? Period{day, AddDays(day, 6)}
        : query.by == UsageBy::kMonth ? PeriodOf(day / 100, day % 100, 1)
        : query.by == UsageBy::kYear
            ? Period{day * 10000 + 101, day * 10000 + 1231}
            : Period{day, day};
    row->begin = StartOf(days.from);
    row->end = StartOf(AddDays(days.to, 1));
  }
  row->begin = std::max(row->begin, StartOf(query.period.from));
  row->end = std::min(row->end, StartOf(AddDays(query.period.to, 1)));
}

// Sums by series first: there are many rows of few series. A time belongs to the key only
// if the query asks for it. Reads hours for days that have no sum yet, or if the rows are
// hours. CROSS JOIN makes SQLite use the tables in this order. By itself it read each row
// of all hours, to look up the day of each.
std::string QueryText(UsageBy by) {
  const bool by_hour = by == UsageBy::kHour;
  const auto sums = [by](absl::string_view time, absl::string_view from) {
    const bool timed = IsByTime(by);
    return absl::StrCat("SELECT series, ",
                        timed ? absl::StrCat(time, " AS time, ") : "",
                        CounterColumns("SUM($) AS $"), " FROM ", from,
                        " GROUP BY series", timed ? ", 2" : "");
  };
  const auto from_days = [&](absl::string_view table) {
    return absl::StrCat(
        " UNION ALL ",
        sums(TimeOfDay(by, "day"),
             absl::StrCat(table, " WHERE day BETWEEN ?1 AND ?2")));
  };
  return absl::StrCat(
      "SELECT ", ColumnsOf(by), ", ", CounterColumns("SUM(t.$)"), " FROM (",
      sums(
          by_hour ? "start" : TimeOfDay(by, "h.day"),
          absl::StrCat(
              "hour h CROSS JOIN hour_traffic USING(start) WHERE h.day "
              "BETWEEN ?1 AND ?2",
              by_hour ? "" : " AND h.day NOT IN (SELECT day FROM summed_day)")),
      by_hour ? "" : from_days("day_sum"), from_days("day_traffic"),
      ") t JOIN series s ON s.id = t.series WHERE s.path = ?3"
      " AND (?4 = '' OR s.name = ?4) AND (?8 <> 0 OR ?5 = '' OR ?5 = COALESCE("
      "NULLIF(",
      kDestination,
      ", ''), '-')) AND (?6 = '' OR ?6 = CASE WHEN s.uplink = '' THEN '-' ELSE "
      "s.uplink "
      "END) AND (?7 = '' OR s.kind = ?7 OR (?9 <> 0 AND s.kind = 'pending'))"
      " AND (?8 = 0 OR s.destination = ?5 AND NOT ",
      kNoDestination, ")", GroupOf(by));
}

absl::StatusOr<std::vector<Gap>> ReadGaps(Database* history,
                                          const Period& period) {
  Statement query = history->Prepare(
      "SELECT begin, end, what FROM gap WHERE MAX(begin, end) >= ? AND "
      "MIN(begin, end) < ? ORDER BY id");
  query.Bind(1, StartOf(period.from)).Bind(2, StartOf(AddDays(period.to, 1)));
  std::vector<Gap> gaps;
  while (query.Step()) {
    gaps.push_back({query.Integer(0), query.Integer(1), query.Text(2)});
  }
  if (!query.status().ok()) return query.status();
  return gaps;
}

// The series of pending bytes has a name and no owner. If one row has this name, it is
// the owner. If two rows have it, they may belong to different users: then the bytes stay
// in a row of their own.
void GivePendingToOwners(std::vector<UsageRow>* rows) {
  constexpr size_t kSeveral = std::numeric_limits<size_t>::max();
  std::map<std::string, size_t> owners;
  for (size_t i = 0; i < rows->size(); ++i) {
    const std::string& kind = (*rows)[i].kind;
    // A process may register as "overflow", which is also the name of a reserved series.
    if (kind != "service" && kind != "binary" && kind != "unit" &&
        kind != "container" && kind != "user") {
      continue;
    }
    const auto added = owners.emplace((*rows)[i].name, i);
    if (!added.second) added.first->second = kSeveral;
  }
  for (UsageRow& row : *rows) {
    if (row.kind != "pending") continue;
    const auto owner = owners.find(row.name);
    if (owner == owners.end() || owner->second == kSeveral) continue;
    UsageRow& its = (*rows)[owner->second];
    its.counters += row.counters;
    its.with_pending = true;
    row.counters = Counters();
  }
}

}  // namespace

namespace {

absl::StatusOr<bool> HasForwardedTwice(Database* history,
                                       const UsageQuery& query) {
  if (query.path != "direct" || !query.uplink.empty() ||
      !query.service.empty() || !query.destination.empty() ||
      query.exact_destination || query.by == UsageBy::kNothing ||
      (!query.kind.empty() && query.kind != kForwardedKind)) {
    return false;
  }
  return HasForwarded(history, query.period);
}

absl::StatusOr<std::vector<Shortfall>> ReadShortfalls(Database* history,
                                                      const UsageQuery& query) {
  std::vector<Shortfall> shortfalls;
  const bool all = query.path == "direct" && query.service.empty() &&
                   query.destination.empty() && !query.exact_destination &&
                   query.kind.empty();
  if (!all) return shortfalls;
  UsageQuery uncounted;
  uncounted.period = query.period;
  uncounted.by = UsageBy::kUplink;
  uncounted.uplink = query.uplink;
  uncounted.kind = kUncountedKind;
  const auto usage = ReadUsage(history, uncounted);
  if (!usage.ok()) return usage.status();
  for (const UsageRow& row : usage->rows) {
    const int64_t tx = row.counters.tx_bytes(), rx = row.counters.rx_bytes();
    if (tx >= 0 && rx >= 0) continue;
    shortfalls.push_back(
        {row.name, std::max<int64_t>(0, -tx), std::max<int64_t>(0, -rx)});
  }
  return shortfalls;
}

}  // namespace

absl::StatusOr<int64_t> FirstRecord(Database* history) {
  Statement hours = history->Prepare("SELECT MIN(start) FROM hour");
  const int64_t hour = hours.Step() ? hours.Integer(0) : 0;
  Statement days = history->Prepare(
      "SELECT MIN(day) FROM (SELECT day FROM day UNION ALL "
      "SELECT day FROM summed_day)");
  const int64_t day = days.Step() ? days.Integer(0) : 0;
  for (const Statement* statement : {&hours, &days}) {
    if (!statement->status().ok()) return statement->status();
  }
  if (day == 0) return hour;
  const int64_t start = StartOf(static_cast<Day>(day));
  // The day of the first hour began before it.
  return hour == 0 || start + kDay <= hour ? start : hour;
}

Outlook OutlookOf(const Period& period, int64_t first_record, int64_t now) {
  const int64_t begin = StartOf(period.from);
  const int64_t end = StartOf(AddDays(period.to, 1));
  // A history that is younger than its period has only its own time.
  const int64_t known = first_record > begin + kDay ? first_record : begin;
  // A day, or a quarter of a period of few days.
  Outlook outlook;
  outlook.known_at = known + std::min(kDay, (end - begin) / 4);
  if (now >= outlook.known_at) {
    outlook.to_come =
        static_cast<double>(end - now) / static_cast<double>(now - known);
  }
  return outlook;
}

absl::StatusOr<bool> HasForwarded(Database* history, const Period& period) {
  UsageQuery query;
  query.period = period;
  query.by = UsageBy::kNothing;
  query.kind = kForwardedKind;
  const auto usage = ReadUsage(history, query);
  if (!usage.ok()) return usage.status();
  return usage->sum.bytes() != 0;
}

bool IsByTime(UsageBy by) {
  return by == UsageBy::kHour || by == UsageBy::kDay || by == UsageBy::kWeek ||
         by == UsageBy::kMonth || by == UsageBy::kYear;
}

absl::StatusOr<Usage> ReadUsage(Database* history, const UsageQuery& query) {
  Statement select = history->Prepare(QueryText(query.by));
  select.Bind(1, int64_t{query.period.from})
      .Bind(2, int64_t{query.period.to})
      .Bind(3, query.path)
      .Bind(4, query.service)
      .Bind(5, query.destination)
      .Bind(6, query.uplink)
      .Bind(7, query.kind)
      .Bind(8, int64_t{query.exact_destination})
      .Bind(9, int64_t{query.with_pending});
  absl::StatusOr<int64_t> first = 0;
  if (query.now != 0) first = FirstRecord(history);
  if (!first.ok()) return first.status();
  Usage usage;
  while (select.Step()) {
    UsageRow row;
    row.kind = select.Text(0);
    row.name = select.Text(1);
    if (IsByTime(query.by)) {
      row.name = TimeText(query.by, select.Integer(1));
      SetTime(query, select.Integer(1), &row);
      if (query.now != 0) {
        row.seconds = std::max<int64_t>(
            0, std::min(row.end, query.now) - std::max(row.begin, *first));
      }
    }
    for (size_t i = 0; i < kCounterCount; ++i) {
      row.counters.value[i] = select.Integer(static_cast<int>(2 + i));
    }
    usage.sum += row.counters;
    usage.rows.push_back(std::move(row));
  }
  if (!select.status().ok()) return select.status();
  if (query.now != 0 && query.now < StartOf(AddDays(query.period.to, 1))) {
    const Outlook outlook = OutlookOf(query.period, *first, query.now);
    if (outlook.to_come >= 0) usage.estimated = usage.sum;
    for (size_t i = 0; usage.estimated.has_value() && i < kCounterCount; ++i) {
      usage.estimated->value[i] += static_cast<int64_t>(
          static_cast<double>(usage.sum.value[i]) * outlook.to_come);
    }
  }
  if (query.by == UsageBy::kService) GivePendingToOwners(&usage.rows);
  usage.rows.erase(
      std::remove_if(usage.rows.begin(), usage.rows.end(),
                     [](const UsageRow& r) { return r.counters.IsZero(); }),
      usage.rows.end());
  std::sort(usage.rows.begin(), usage.rows.end(),
            [&query](const UsageRow& a, const UsageRow& b) {
              const int64_t bytes_a = a.counters.bytes();
              const int64_t bytes_b = b.counters.bytes();
              if (!IsByTime(query.by) && bytes_a != bytes_b) {
                return bytes_a > bytes_b;
              }
              return std::tie(a.begin, a.name, a.kind) <
                     std::tie(b.begin, b.name, b.kind);
            });
  auto gaps = ReadGaps(history, query.period);
  if (!gaps.ok()) return gaps.status();
  usage.gaps = *std::move(gaps);
  const auto twice = HasForwardedTwice(history, query);
  if (!twice.ok()) return twice.status();
  usage.has_forwarded_twice = *twice;
  auto shortfalls = ReadShortfalls(history, query);
  if (!shortfalls.ok()) return shortfalls.status();
  usage.shortfalls = *std::move(shortfalls);
  return usage;
}

}  // namespace internal
}  // namespace netmeter
