// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/history/usage.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "lib/apps/history/bill.h"
#include "lib/base/status_util.h"
#include "lib/reader/difference.h"

namespace netmeter {
namespace internal {
namespace {

constexpr int64_t kHour = 3600;
constexpr int64_t kDay = 24 * kHour;

// Traffic without a destination of its own that gets a separate row.
constexpr char kNoDestination[] =
    "s.kind IN ('pending', 'forwarded', 'unnamed')";
constexpr char kDestination[] =
    "CASE WHEN s.kind = 'pending' OR s.kind = 'forwarded' AND s.destination = "
    "'' THEN s.kind "
    "WHEN s.kind = 'unnamed' THEN s.name ELSE s.destination END";

// The kind and the name of a row, which are also its group.
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

// The series of unnamed traffic that a counter leaves out.
using UnnamedIds = std::array<std::vector<int64_t>, kCounterCount>;

// Sums by series first: there are many rows of few series. A time belongs to the key only
// if the query asks for it. Reads hours for days that have no sum yet, or if the rows are
// hours. CROSS JOIN makes SQLite use the tables in this order. By itself it read each row
// of all hours, to look up the day of each.
std::string QueryText(const std::string& columns, UsageBy by,
                      const std::vector<std::string>& paths,
                      const UnnamedIds& without) {
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
  std::string counters;
  for (size_t i = 0; i < kCounterCount; ++i) {
    absl::StrAppend(&counters, ", SUM(CASE WHEN s.id IN (",
                    absl::StrJoin(without[i], ","), ") THEN 0 ELSE t.",
                    kRecordedCounters[i].name, " END)");
  }
  return absl::StrCat(
      "SELECT ", columns, counters, " FROM (",
      sums(
          by_hour ? "start" : TimeOfDay(by, "h.day"),
          absl::StrCat(
              "hour h CROSS JOIN hour_traffic USING(start) WHERE h.day "
              "BETWEEN ?1 AND ?2",
              by_hour ? "" : " AND h.day NOT IN (SELECT day FROM summed_day)")),
      by_hour ? "" : from_days("day_sum"), from_days("day_traffic"),
      ") t JOIN series s ON s.id = t.series WHERE s.path IN ('",
      absl::StrJoin(paths, "', '"),
      "') AND (?3 = '' OR s.name = ?3) AND (?7 <> 0 OR ?4 = '' OR ?4 = "
      "COALESCE(NULLIF(",
      kDestination,
      ", ''), '-')) AND (?5 = '' OR ?5 = CASE WHEN s.uplink = '' THEN '-' ELSE "
      "s.uplink END) AND (?6 = '' OR s.kind = ?6 OR (?8 <> 0 AND s.kind = "
      "'pending')) AND (?7 = 0 OR s.destination = ?4 AND NOT ",
      kNoDestination, ") GROUP BY ", columns);
}

Statement Select(Database* history, const UsageQuery& query,
                 const std::string& text) {
  Statement select = history->Prepare(text);
  select.Bind(1, int64_t{query.period.from})
      .Bind(2, int64_t{query.period.to})
      .Bind(3, query.service)
      .Bind(4, query.destination)
      .Bind(5, query.uplink)
      .Bind(6, query.kind)
      .Bind(7, int64_t{query.exact_destination})
      .Bind(8, int64_t{query.with_pending});
  return select;
}

Counters ReadCounters(const Statement& row, int column) {
  Counters counters;
  for (int64_t& value : counters.value) value = row.Integer(column++);
  return counters;
}

// The paths of the query in the history, and those of the same traffic on no bill.
struct Paths {
  std::vector<std::string> billed;
  std::vector<std::string> not_billed;
};
Paths PathsOf(const UsageQuery& query) {
  const bool is_named = !query.uplink.empty() && !query.only_billed;
  // Forwarded and unnamed traffic is not theirs, so the same byte is not there twice.
  const bool is_narrow =
      !query.only_billed &&
      (query.kind.empty() ? !query.service.empty() || !query.destination.empty()
                          : IsSeriesKind(query.kind));
  Paths paths;
  paths.billed.push_back(query.path);
  (is_named ? paths.billed : paths.not_billed)
      .push_back(kClientSide + query.path);
  (is_named || is_narrow ? paths.billed : paths.not_billed)
      .push_back(kOnNoUplink + query.path);
  return paths;
}

void SortByBytes(std::vector<UsageRow>* rows) {
  rows->erase(
      std::remove_if(rows->begin(), rows->end(),
                     [](const UsageRow& r) { return r.counters.IsZero(); }),
      rows->end());
  std::sort(rows->begin(), rows->end(),
            [](const UsageRow& a, const UsageRow& b) {
              const int64_t bytes_a = a.counters.bytes();
              const int64_t bytes_b = b.counters.bytes();
              if (bytes_a != bytes_b) return bytes_a > bytes_b;
              return std::tie(a.name, a.kind) < std::tie(b.name, b.kind);
            });
}

// Reads the sums by uplink, and what the interfaces of each counted less than the meter.
// What they count is uncertain then, and what the meter counted is known. So that
// unnamed traffic is in no sum: *without gets its series.
absl::Status ReadUplinks(Database* history, const UsageQuery& query,
                         const Paths& paths, UnnamedIds* without,
                         Usage* usage) {
  std::vector<std::string> all = paths.billed;
  all.insert(all.end(), paths.not_billed.begin(), paths.not_billed.end());
  // An uplink has one series of unnamed traffic for each path.
  Statement select =
      Select(history, query,
             QueryText(absl::StrCat("s.path, s.uplink, CASE WHEN s.kind = '",
                                    kUnnamedKind, "' THEN s.id ELSE 0 END"),
                       UsageBy::kNothing, all, {}));
  std::map<std::string, UsageRow> billed, not_billed;
  while (select.Step()) {
    const bool is_billed = std::find(paths.billed.begin(), paths.billed.end(),
                                     select.Text(0)) != paths.billed.end();
    const std::string uplink = select.Text(1);
    const int64_t unnamed = select.Integer(2);
    Counters counters = ReadCounters(select, 3);
    if (unnamed != 0) {
      const int64_t tx = counters.tx_bytes(), rx = counters.rx_bytes();
      if (is_billed && (tx < 0 || rx < 0)) {
        usage->shortfalls.push_back(
            {uplink, std::max<int64_t>(0, -tx), std::max<int64_t>(0, -rx)});
      }
      for (size_t i = 0; i < kCounterCount; ++i) {
        if (counters.value[i] >= 0) continue;
        counters.value[i] = 0;
        (*without)[i].push_back(unnamed);
      }
    }
    UsageRow& row = (is_billed ? billed : not_billed)[uplink];
    row.name = uplink;
    row.counters += counters;
  }
  for (const auto& row : billed) usage->uplinks.push_back(row.second);
  for (const auto& row : not_billed) usage->not_billed.push_back(row.second);
  SortByBytes(&usage->uplinks);
  SortByBytes(&usage->not_billed);
  return select.status();
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

bool IsByTime(UsageBy by) {
  return by == UsageBy::kHour || by == UsageBy::kDay || by == UsageBy::kWeek ||
         by == UsageBy::kMonth || by == UsageBy::kYear;
}

absl::StatusOr<Usage> ReadUsage(Database* history, const UsageQuery& query) {
  absl::StatusOr<int64_t> first = 0;
  if (query.now != 0) first = FirstRecord(history);
  if (!first.ok()) return first.status();
  Usage usage;
  const Paths paths = PathsOf(query);
  UnnamedIds without;
  NETMETER_RETURN_IF_ERROR(
      ReadUplinks(history, query, paths, &without, &usage));
  Statement select =
      Select(history, query,
             QueryText(ColumnsOf(query.by), query.by, paths.billed, without));
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
    row.counters = ReadCounters(select, 2);
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
  SortByBytes(&usage.rows);
  if (IsByTime(query.by)) {
    std::sort(usage.rows.begin(), usage.rows.end(),
              [](const UsageRow& a, const UsageRow& b) {
                return std::tie(a.begin, a.name) < std::tie(b.begin, b.name);
              });
  }
  auto gaps = ReadGaps(history, query.period);
  if (!gaps.ok()) return gaps.status();
  usage.gaps = *std::move(gaps);
  return usage;
}

}  // namespace internal
}  // namespace netmeter
