// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/history/since.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lib/apps/history/calendar.h"
#include "lib/base/status_util.h"
#include "lib/reader/words.h"

namespace netmeter {
namespace internal {
namespace {

Sample SampleOf(const SeriesName& name, const Counters& counters) {
  Sample sample;
  if (name.kind == kForwardedKind) sample.kind = kForwardedRow;
  for (const Kind kind : kAllKinds) {
    if (KindName(kind) == name.kind) sample.kind = kind;
  }
  for (const Transport transport : kAllTransports) {
    if (TransportName(transport) == name.transport) {
      sample.transport = transport;
    }
  }
  sample.path =
      name.path == PathName(Path::kProxy) ? Path::kProxy : Path::kDirect;
  sample.name = name.name;
  sample.destination = name.destination;
  sample.uplink = name.uplink;
  for (size_t i = 0; i < kCounterCount; ++i) {
    sample.*kRecordedCounters[i].field =
        static_cast<uint64_t>(counters.value[i]);
  }
  return sample;
}

// Adds rows of: kind, name, destination, transport, path, uplink, counters.
absl::Status AddRows(Statement* query, Totals* totals) {
  while (query->Step()) {
    SeriesName name = {query->Text(0), query->Text(1), query->Text(2),
                       query->Text(3), query->Text(4), query->Text(5)};
    // The meter's path, without the prefix of traffic that is on no bill.
    name.path.erase(0, name.path.rfind(' ') + 1);
    Counters counters;
    for (size_t i = 0; i < kCounterCount; ++i) {
      counters.value[i] = query->Integer(static_cast<int>(6 + i));
    }
    (*totals)[name] += counters;
  }
  return query->status();
}

// Sums by series first, so that the sorted rows have no names.
std::string Select(absl::string_view from) {
  return absl::StrCat(
      "SELECT kind, name, destination, transport, path, uplink, ",
      CounterColumns("t.$"), " FROM (SELECT series, ",
      CounterColumns("SUM($) AS $"), " FROM ", from,
      " GROUP BY series) t JOIN series s ON s.id = t.series WHERE s.kind NOT "
      "IN ('",
      kInterfaceKind, "', '", kUnnamedKind, "')");
}

// "13:00" as minutes of the day, or -1.
int ParseMinutes(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ':');
  int hour = 0, minute = 0;
  if (parts.size() != 2 || parts[1].size() != 2 || parts[0].empty() ||
      text.find_first_not_of("0123456789:") != absl::string_view::npos ||
      !absl::SimpleAtoi(parts[0], &hour) ||
      !absl::SimpleAtoi(parts[1], &minute) || hour > 23 || minute > 59) {
    return -1;
  }
  return hour * 60 + minute;
}

// "2h" as seconds, or -1.
int64_t ParseDuration(absl::string_view text) {
  if (text.size() < 2) return -1;
  const int64_t unit = text.back() == 'm'   ? 60
                       : text.back() == 'h' ? 3600
                       : text.back() == 'd' ? 86400
                                            : 0;
  text.remove_suffix(1);
  int64_t count = 0;
  if (unit == 0 ||
      text.find_first_not_of("0123456789") != absl::string_view::npos ||
      !absl::SimpleAtoi(text, &count) || count > 36600 * 24 * 60) {
    return -1;
  }
  return count * unit;
}

}  // namespace

absl::StatusOr<int64_t> ParseSince(absl::string_view text, int64_t now) {
  const absl::Status wrong = absl::InvalidArgumentError(absl::StrCat(
      "expected 2026-11-22, '2026-11-22 13:00', 13:00, 90m, 2h or 3d, not '",
      text, "'"));
  int64_t since = -1;
  const int64_t duration = ParseDuration(text);
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ' ');
  if (duration >= 0) {
    since = now - duration;
  } else if (parts.size() == 1 && ParseMinutes(text) >= 0) {
    since = TimeOf(HourOf(now).day, ParseMinutes(text));
  } else {
    const auto day = ParseDay(parts[0]);
    if (!day.ok() || parts.size() > 2) return wrong;
    since = StartOf(*day);
    if (parts.size() == 2) {
      const int minutes = ParseMinutes(parts[1]);
      if (minutes < 0) return wrong;
      since = TimeOf(*day, minutes);
    }
  }
  if (since > now) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is in the future"));
  }
  return since;
}

absl::StatusOr<SinceRead> ReadSince(
    Database* history, int64_t since,
    const std::function<absl::StatusOr<Reading>()>& read_meter) {
  // One transaction for all reads of the file: a record may happen in between.
  NETMETER_RETURN_IF_ERROR(history->Execute("BEGIN"));
  const LocalHour hour = HourOf(since);
  SinceRead read;
  read.begin = hour.start;
  Totals totals;
  Statement hours = history->Prepare(Select("hour_traffic WHERE start >= ?1"));
  hours.Bind(1, hour.start);
  absl::Status status = AddRows(&hours, &totals);
  Statement days = history->Prepare(Select("day_traffic WHERE day >= ?1"));
  days.Bind(1, int64_t{hour.day});
  if (status.ok()) status = AddRows(&days, &totals);
  Statement oldest = history->Prepare("SELECT 1 FROM day WHERE day = ?1");
  if (oldest.Bind(1, int64_t{hour.day}).Step()) read.begin = StartOf(hour.day);
  if (status.ok()) status = oldest.Run();
  // After the first read of the file, so that the file's data is never newer.
  const absl::StatusOr<Reading> now = read_meter();
  if (status.ok()) status = now.status();
  const Reading reading = now.ok() ? *now : Reading();
  // The whole history of this meter is in it, however old it is.
  Statement last_record = history->Prepare(
      "SELECT recorded_at FROM meter WHERE boot_id = ?1 AND start_ns = ?2");
  last_record.Bind(1, reading.boot_id).Bind(2, reading.start_ns);
  read.begin = std::min(read.begin, last_record.Step() ? last_record.Integer(0)
                                                       : reading.start());
  if (status.ok()) status = last_record.Run();
  Totals recorded;
  Statement last = history->Prepare(
      Select("meter_total WHERE meter = (SELECT id FROM meter WHERE boot_id = "
             "?1 AND start_ns = ?2)"));
  last.Bind(1, reading.boot_id).Bind(2, reading.start_ns);
  if (status.ok()) status = AddRows(&last, &recorded);
  history->Execute("COMMIT").IgnoreError();
  if (!status.ok()) return status;
  Totals current = TotalsOf(reading.samples);
  if (reading.has_forwarded) {
    AddForwarded(reading.forwarded, &current);
  } else {
    KeepKind(recorded, kForwardedKind, &current);
  }
  for (const auto& series : Difference(recorded, current)) {
    totals[series.first] += series.second;
  }
  for (const auto& series : totals) {
    if (series.second.IsZero()) continue;
    read.samples.push_back(SampleOf(series.first, series.second));
  }
  return read;
}

}  // namespace internal
}  // namespace netmeter
