// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/history/forget.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "lib/apps/history/identity.h"
#include "lib/base/status_util.h"
#include "lib/base/text.h"
#include "lib/reader/difference.h"

namespace netmeter {
namespace internal {
namespace {

// One row of two numbers.
absl::Status ReadPair(Statement query, int64_t* first, int64_t* second) {
  if (query.Step()) {
    *first = query.Integer(0);
    *second = query.Integer(1);
  }
  return query.status();
}

// Totals of meters that have ended go to the new series: if such a meter is read again
// after all, the differences of both add up to what it counted.
absl::Status MoveEndedTotals(Database* history) {
  const char* is_ended =
      "series IN (SELECT old FROM moved) AND meter <> (SELECT MAX(id) FROM "
      "meter)";
  return history->Execute(absl::StrCat(
      "INSERT INTO meter_total SELECT meter, new, ", CounterColumns("$"),
      " FROM meter_total JOIN moved ON old = series WHERE ", is_ended,
      " ON CONFLICT DO UPDATE SET ", CounterColumns("$ = $ + excluded.$"),
      ";DELETE FROM meter_total WHERE ", is_ended));
}

// A day is sent with all of its hours, or by the hour.
absl::Status DropSentZeros(Database* history, int64_t sent) {
  for (const char* rows :
       {"hour_traffic WHERE start IN (SELECT start FROM hour WHERE day IN ($))",
        "day_sum WHERE day IN ($)", "day_traffic WHERE day IN ($)"}) {
    NETMETER_RETURN_IF_ERROR(
        history
            ->Prepare(absl::StrCat(
                "DELETE FROM ",
                absl::StrReplaceAll(
                    rows,
                    {{"$",
                      "SELECT day FROM (SELECT day, version FROM hour UNION "
                      "ALL SELECT day, version FROM day) GROUP BY day HAVING "
                      "MAX(version) <= ?1"}}),
                " AND series IN (SELECT old FROM moved) AND NOT (",
                AnyCounter(), ")"))
            .Bind(1, sent)
            .Run());
  }
  return absl::OkStatus();
}

// Writes the file anew, and empties the log: deleted rows leave no copy in either.
absl::Status RemoveCopies(Database* history) {
  NETMETER_RETURN_IF_ERROR(history->Execute("VACUUM"));
  int64_t is_busy = 0, pages = 0;
  NETMETER_RETURN_IF_ERROR(ReadPair(
      history->Prepare("PRAGMA wal_checkpoint(TRUNCATE)"), &is_busy, &pages));
  if (is_busy == 0) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      "the log ", history->path(),
      "-wal still has the name, because another program reads the history: "
      "repeat the command until the history does not have the name"));
}

}  // namespace

absl::StatusOr<Forgotten> Forget(Database* history, ForgetWhat what,
                                 const std::string& name, int64_t sent) {
  NETMETER_RETURN_IF_ERROR(ReadHostId(history).status());
  const bool is_service = what == ForgetWhat::kService;
  const char* column = is_service ? "name" : "destination";
  auto transaction = Transaction::Begin(history);
  if (!transaction.ok()) return transaction.status();
  // The names of other kinds are those of interfaces.
  const std::string named =
      absl::StrCat("FROM series WHERE ", column, " = ?1 AND (",
                   is_service ? 0 : 1, " OR kind NOT IN ('", kForwardedKind,
                   "', '", kInterfaceKind, "', '", kUnnamedKind, "'))");
  const std::string others = absl::StrCat(is_service ? "destination" : "name",
                                          ", kind, transport, path, uplink");
  NETMETER_RETURN_IF_ERROR(
      history
          ->Prepare(absl::StrCat("INSERT OR IGNORE INTO series(", column, ", ",
                                 others, ") SELECT ?2, ", others, " ", named))
          .Bind(1, name)
          .Bind(2, kForgotten)
          .Run());
  NETMETER_RETURN_IF_ERROR(history->Execute(
      "CREATE TEMP TABLE IF NOT EXISTS moved(old, new); DELETE FROM moved"));
  NETMETER_RETURN_IF_ERROR(
      history
          ->Prepare(absl::StrCat(
              "INSERT INTO moved SELECT o.id, n.id FROM (SELECT * ", named,
              ") o JOIN series n USING(", others, ") WHERE n.", column,
              " = ?2"))
          .Bind(1, name)
          .Bind(2, kForgotten)
          .Run());
  if (history->changes() == 0) {
    // An earlier call may have failed at the copies. The addresses of clients that were
    // recorded by another name go when their meter has ended.
    NETMETER_RETURN_IF_ERROR(DropUnusedSeries(history));
    NETMETER_RETURN_IF_ERROR((*transaction)->Commit());
    NETMETER_RETURN_IF_ERROR(RemoveCopies(history));
    return absl::NotFoundError(absl::StrCat(
        history->path(), " has no ", is_service ? "service" : "destination",
        " '", ToTerminal(name), "'"));
  }
  const std::string rows =
      "FROM (SELECT * FROM hour_traffic UNION ALL SELECT * FROM day_traffic) "
      "WHERE series IN (SELECT old FROM moved)";
  Forgotten forgotten;
  NETMETER_RETURN_IF_ERROR(
      ReadPair(history->Prepare(
                   absl::StrCat("SELECT COUNT(*), SUM(tx_bytes + rx_bytes) ",
                                rows, " AND (", AnyCounter(), ")")),
               &forgotten.rows, &forgotten.bytes));
  NETMETER_RETURN_IF_ERROR(MoveTraffic(history));
  NETMETER_RETURN_IF_ERROR(MoveEndedTotals(history));
  NETMETER_RETURN_IF_ERROR(DropSentZeros(history, sent));
  int64_t in_meter = 0;
  NETMETER_RETURN_IF_ERROR(ReadPair(
      history->Prepare(absl::StrCat(
          "SELECT (SELECT COUNT(*) ", rows,
          "), EXISTS(SELECT 1 FROM meter_total WHERE series IN (SELECT old "
          "FROM moved))")),
      &forgotten.unsent, &in_meter));
  forgotten.in_meter = in_meter != 0;
  NETMETER_RETURN_IF_ERROR(DropUnusedSeries(history));
  NETMETER_RETURN_IF_ERROR((*transaction)->Commit());
  const absl::Status removed = RemoveCopies(history);
  if (!removed.ok()) {
    return absl::Status(removed.code(),
                        absl::StrCat("moved, but ", removed.message()));
  }
  return forgotten;
}

}  // namespace internal
}  // namespace netmeter
