// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/export/rows.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lib/apps/history/calendar.h"
#include "lib/apps/history/identity.h"
#include "lib/apps/history/usage.h"
#include "lib/base/csv.h"
#include "lib/base/status_util.h"
#include "lib/base/text.h"
#include "lib/base/version.h"
#include "lib/reader/difference.h"

namespace netmeter {
namespace internal {
namespace {

// The fields of a row, in their order.
using Row = nlohmann::ordered_json;

// The columns of CSV, in the order of the rows in docs/fleet-bill.md.
constexpr char kColumns[] =
    "row,host_id,host,labels,version,day,hour,uplink,kind,service,destination,"
    "transport,path,tx_bytes,rx_bytes,tx_packets,rx_packets,tx_payload_bytes,"
    "rx_payload_bytes,tx_retransmit_bytes,number,start,end,what,meter,boot_id,"
    "recorded,netmeter,budget,from,to,limit_bytes,used_bytes,percent,"
    "plan,currency,cost_micros,billed_bytes";

void Append(const Row& row, const ExportOptions& options, ExportPiece* piece) {
  ++piece->rows;
  if (!options.csv) {
    piece->text += row.dump(-1, ' ', false, Row::error_handler_t::replace);
    piece->text.pop_back();
    absl::StrAppend(&piece->text, options.origin, "}\n");
    return;
  }
  const Row origin = Row::parse(absl::StrCat(
      "{", options.origin.empty() ? "" : options.origin.substr(1), "}"));
  const char* separator = "";
  for (const std::string& column :
       std::vector<std::string>(absl::StrSplit(kColumns, ','))) {
    const Row& from = origin.contains(column) ? origin : row;
    const auto value = from.find(column);
    absl::StrAppend(&piece->text, separator,
                    value == from.end()  ? ""
                    : value->is_string() ? CsvField(value->get<std::string>())
                    : value->is_object() ? CsvField(value->dump())
                                         : value->dump());
    separator = ",";
  }
  piece->text += "\n";
}

// A read transaction: all statements see one state. SQLite ends it with the connection.
class Snapshot {
 public:
  explicit Snapshot(Database* database) : database_(database) {
    status_ = database->Execute("BEGIN");
  }
  ~Snapshot() { database_->Execute("COMMIT").IgnoreError(); }
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;
  const absl::Status& status() const { return status_; }

 private:
  Database* database_;
  absl::Status status_;
};

// What changes together: an hour, a day, the samples of one start, a gap.
std::string Parts(const ExportOptions& options) {
  std::string parts = absl::StrCat(
      "SELECT version, 'gap', id FROM gap UNION ALL "
      "SELECT MAX(version), 'day', day FROM (SELECT day, version FROM hour "
      "UNION ALL SELECT day, version FROM day) ",
      // A day that is folded has no hours, or those that were recorded afterwards.
      options.by == ExportBy::kHour ? "WHERE day IN (SELECT day FROM day)" : "",
      " GROUP BY day");
  if (options.by == ExportBy::kHour) {
    absl::StrAppend(&parts,
                    " UNION ALL SELECT version, 'hour', start FROM hour WHERE "
                    "day NOT IN (SELECT day FROM day)");
  }
  if (options.samples) {
    absl::StrAppend(&parts,
                    " UNION ALL SELECT DISTINCT version, 'sample', start FROM "
                    "five_minutes");
  }
  return parts;
}

// The version from which on rows have to wait: that of the running hour or day. A cursor
// beyond it would leave out what that hour has now, if nothing is added to it any more.
absl::StatusOr<int64_t> VersionOfRunning(Database* history,
                                         const ExportOptions& options) {
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  if (options.running) return kNone;
  const LocalHour hour = HourOf(options.now);
  Statement query = history->Prepare(
      options.by == ExportBy::kHour
          ? "SELECT MIN(version) FROM hour WHERE start = ?"
          : "SELECT MAX(version) FROM (SELECT day, version FROM hour UNION ALL "
            "SELECT day, version FROM day) WHERE day = ?");
  query.Bind(1, options.by == ExportBy::kHour ? hour.start : hour.day);
  const int64_t version = query.Step() ? query.Integer(0) : 0;
  if (!query.status().ok()) return query.status();
  return version == 0 ? kNone : version;
}

// The columns of a series and its counters, in the order of AddSeries().
std::string SeriesColumns() {
  return absl::StrCat(
      "s.uplink, s.kind, s.name, s.destination, s.transport, s.path, ",
      CounterColumns("SUM(t.$)"));
}

void AddSeries(const Statement& query, Row* row) {
  int column = 0;
  for (const char* name :
       {"uplink", "kind", "service", "destination", "transport", "path"}) {
    (*row)[name] = query.Text(column++);
  }
  for (const RecordedCounter& counter : kRecordedCounters) {
    (*row)[counter.name] = query.Integer(column++);
  }
}

class PieceReader {
 public:
  PieceReader(Database* history, const ExportOptions& options,
              std::string host_id)
      : options_(options),
        host_id_(std::move(host_id)),
        host_(history->Prepare("SELECT id, boot_id, recorded_at FROM meter "
                               "ORDER BY id DESC LIMIT 1")),
        day_of_hour_(history->Prepare("SELECT day FROM hour WHERE start = ?")),
        hour_(history->Prepare(absl::StrCat(
            "SELECT ", SeriesColumns(),
            " FROM hour_traffic t JOIN series s ON s.id = t.series WHERE "
            "t.start = ? GROUP BY s.id"))),
        day_(history->Prepare(absl::StrCat(
            "SELECT ", SeriesColumns(), " FROM (SELECT series, ",
            CounterColumns("$"),
            " FROM day_traffic WHERE day = ?1 UNION ALL SELECT series, ",
            CounterColumns("$"),
            " FROM hour_traffic WHERE start IN (SELECT start FROM hour WHERE "
            "day = ?1)) t JOIN series s ON s.id = t.series GROUP BY s.id"))),
        gap_(
            history->Prepare("SELECT begin, end, what FROM gap WHERE id = ?")) {
  }

  absl::Status AddHost(int64_t version, ExportPiece* piece) {
    if (host_.Step()) {
      Row row = RowOf("host", version);
      row["meter"] = host_.Integer(0);
      row["boot_id"] = host_.Text(1);
      row["recorded"] = FormatUtc(host_.Integer(2));
      row["netmeter"] = kVersion;
      Append(row, options_, piece);
    }
    return host_.status();
  }

  absl::Status AddHour(int64_t version, int64_t start, ExportPiece* piece) {
    Row row = RowOf("hour", version);
    row["day"] = day_of_hour_.Bind(1, start).Step()
                     ? FormatDay(static_cast<Day>(day_of_hour_.Integer(0)))
                     : "";
    NETMETER_RETURN_IF_ERROR(day_of_hour_.Run());
    row["hour"] = FormatUtc(start);
    return AddTraffic(start, std::move(row), &hour_, piece);
  }

  absl::Status AddDay(int64_t version, int64_t day, ExportPiece* piece) {
    Row row = RowOf("day", version);
    row["day"] = FormatDay(static_cast<Day>(day));
    return AddTraffic(day, std::move(row), &day_, piece);
  }

  absl::Status AddSamples(Database* history, int64_t version, int64_t start,
                          ExportPiece* piece) {
    // Not a member: an earlier history has no samples.
    Statement query = history->Prepare(
        "SELECT uplink, tx_bytes, rx_bytes FROM five_minutes WHERE start = ? "
        "AND version = ?");
    query.Bind(1, start).Bind(2, version);
    while (query.Step()) {
      Row row = RowOf("sample", version);
      row["day"] = FormatDay(HourOf(start).day);
      row["start"] = FormatUtc(start);
      row["uplink"] = query.Text(0);
      row["tx_bytes"] = query.Integer(1);
      row["rx_bytes"] = query.Integer(2);
      Append(row, options_, piece);
    }
    return query.status();
  }

  absl::Status AddGap(int64_t version, int64_t number, ExportPiece* piece) {
    gap_.Bind(1, number);
    while (gap_.Step()) {
      Row row = RowOf("gap", version);
      row["number"] = number;
      row["start"] = FormatUtc(gap_.Integer(0));
      row["end"] = FormatUtc(gap_.Integer(1));
      row["what"] = gap_.Text(2);
      Append(row, options_, piece);
    }
    return gap_.status();
  }

 private:
  Row RowOf(const char* kind, int64_t version) const {
    return {{"row", kind}, {"host_id", host_id_}, {"version", version}};
  }

  absl::Status AddTraffic(int64_t time, Row row, Statement* query,
                          ExportPiece* piece) {
    query->Bind(1, time);
    while (query->Step()) {
      AddSeries(*query, &row);
      Append(row, options_, piece);
    }
    return query->status();
  }

  const ExportOptions& options_;
  const std::string host_id_;
  Statement host_, day_of_hour_, hour_, day_, gap_;
};

// Adds a row for each period, from the present one back. `read` adds to a row what a
// time's period has, and returns that period.
absl::Status AddPeriods(
    Database* history, const ExportOptions& options, int64_t begin,
    ExportPiece* piece,
    const std::function<absl::StatusOr<Period>(int64_t, Row*)>& read) {
  NETMETER_ASSIGN_OR_RETURN(const std::string host_id, ReadHostId(history));
  NETMETER_ASSIGN_OR_RETURN(const int64_t version, ReadVersion(history));
  NETMETER_ASSIGN_OR_RETURN(const int64_t first, FirstRecord(history));
  int64_t at = options.now;
  for (int i = 0; i < kMostPeriods && at >= std::max(begin, first); ++i) {
    Row row = {{"row", ""}, {"host_id", host_id}, {"version", version}};
    NETMETER_ASSIGN_OR_RETURN(const Period period, read(at, &row));
    row["from"] = FormatDay(period.from);
    row["to"] = FormatDay(period.to);
    Append(row, options, piece);
    at = StartOf(period.from) - 1;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ExportPiece> ReadPiece(Database* history,
                                      const ExportOptions& options,
                                      int64_t since) {
  const Snapshot snapshot(history);
  if (!snapshot.status().ok()) return snapshot.status();
  NETMETER_ASSIGN_OR_RETURN(std::string host_id, ReadHostId(history));
  NETMETER_ASSIGN_OR_RETURN(const int64_t newest, ReadVersion(history));
  NETMETER_ASSIGN_OR_RETURN(const int64_t running,
                            VersionOfRunning(history, options));
  PieceReader reader(history, options, std::move(host_id));
  ExportPiece piece;
  piece.version = since;
  NETMETER_RETURN_IF_ERROR(reader.AddHost(newest, &piece));
  Statement parts = history->Prepare(
      absl::StrCat("SELECT * FROM (", Parts(options),
                   ") WHERE version > ?1 AND version < ?2 ORDER BY 1, 2, 3"));
  parts.Bind(1, since).Bind(2, running);
  while (parts.Step()) {
    const int64_t version = parts.Integer(0);
    const std::string what = parts.Text(1);
    const int64_t number = parts.Integer(2);
    // A cursor separates versions.
    if (version != piece.version && piece.rows > options.piece_rows) {
      return piece;
    }
    piece.version = version;
    NETMETER_RETURN_IF_ERROR(
        what == "hour"  ? reader.AddHour(version, number, &piece)
        : what == "day" ? reader.AddDay(version, number, &piece)
        : what == "gap" ? reader.AddGap(version, number, &piece)
                        : reader.AddSamples(history, version, number, &piece));
  }
  if (!parts.status().ok()) return parts.status();
  piece.is_last = true;
  return piece;
}

std::string ExportCsvHeader() { return absl::StrCat(kColumns, "\n"); }

absl::StatusOr<int64_t> FirstChange(Database* history,
                                    const ExportOptions& options,
                                    int64_t since) {
  Statement query = history->Prepare(
      "SELECT MIN(day) FROM (SELECT day, version FROM hour UNION ALL SELECT "
      "day, version FROM day) WHERE version > ?");
  const auto day =
      query.Bind(1, since).Step() ? static_cast<Day>(query.Integer(0)) : Day{0};
  if (!query.status().ok()) return query.status();
  return day == 0 ? options.now : std::min(options.now, StartOf(day));
}

absl::Status AddBudget(Database* history, const ExportOptions& options,
                       const Budget& budget, int64_t begin,
                       ExportPiece* piece) {
  return AddPeriods(history, options, begin, piece,
                    [&](int64_t at, Row* row) -> absl::StatusOr<Period> {
                      const auto state = ReadBudgetState(history, budget, at);
                      if (!state.ok()) return state.status();
                      row->update({{"row", "budget"},
                                   {"budget", ToUtf8(budget.name)},
                                   {"uplink", ToUtf8(budget.uplink)},
                                   {"limit_bytes", budget.limit},
                                   {"used_bytes", state->used},
                                   {"percent", state->percent}});
                      return state->period;
                    });
}

absl::Status AddCost(Database* history, const ExportOptions& options,
                     const Plan& plan, int64_t begin, ExportPiece* piece) {
  Day first = plan.terms[0].from;
  for (const PlanTerms& terms : plan.terms) first = std::min(first, terms.from);
  if (first != 0) begin = std::max(begin, StartOf(first));
  return AddPeriods(history, options, begin, piece,
                    [&](int64_t at, Row* row) -> absl::StatusOr<Period> {
                      const auto cost = ReadCost(history, plan, HourOf(at).day);
                      if (!cost.ok()) return cost.status();
                      row->update({{"row", "cost"},
                                   {"plan", ToUtf8(plan.name)},
                                   {"uplink", ToUtf8(plan.uplink)},
                                   {"currency", plan.currency},
                                   {"cost_micros", cost->micros},
                                   {"billed_bytes", cost->billed_bytes},
                                   {"used_bytes", cost->used_bytes}});
                      return cost->period;
                    });
}

}  // namespace internal
}  // namespace netmeter
