// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/history/history.h"

#include <sys/stat.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "lib/base/status_util.h"

namespace netmeter {
namespace internal {
namespace {

// "nmhi", for file(1), and to distinguish a history from any other database.
constexpr int64_t kApplicationId = 0x6e6d6869;
constexpr int64_t kSchemaVersion = 7;

// docs/history.md explains it, and a test compares the two.
constexpr char kSchema[] = R"(
CREATE TABLE setting(
  name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE series(
  id INTEGER PRIMARY KEY,
  kind TEXT NOT NULL, name TEXT NOT NULL, destination TEXT NOT NULL,
  transport TEXT NOT NULL, path TEXT NOT NULL, uplink TEXT NOT NULL,
  UNIQUE(kind, name, destination, transport, path, uplink));
CREATE TABLE hour(
  start INTEGER PRIMARY KEY, day INTEGER NOT NULL);
CREATE TABLE day(
  day INTEGER PRIMARY KEY);
CREATE TABLE summed_day(
  day INTEGER PRIMARY KEY);
CREATE TABLE hour_traffic(
  start INTEGER NOT NULL, series INTEGER NOT NULL, $,
  PRIMARY KEY(start, series)) WITHOUT ROWID;
CREATE TABLE day_traffic(
  day INTEGER NOT NULL, series INTEGER NOT NULL, $,
  PRIMARY KEY(day, series)) WITHOUT ROWID;
CREATE TABLE day_sum(
  day INTEGER NOT NULL, series INTEGER NOT NULL, $,
  PRIMARY KEY(day, series)) WITHOUT ROWID;
CREATE TABLE meter(
  id INTEGER PRIMARY KEY,
  boot_id TEXT NOT NULL, start_ns INTEGER NOT NULL, cgroup TEXT NOT NULL,
  recorded_at INTEGER NOT NULL, recorded_boottime INTEGER NOT NULL,
  UNIQUE(boot_id, start_ns));
CREATE TABLE meter_total(
  meter INTEGER NOT NULL, series INTEGER NOT NULL, $,
  PRIMARY KEY(meter, series)) WITHOUT ROWID;
CREATE TABLE gap(
  id INTEGER PRIMARY KEY,
  begin INTEGER NOT NULL, end INTEGER NOT NULL, what TEXT NOT NULL);
CREATE TABLE warning(
  budget TEXT NOT NULL, period INTEGER NOT NULL, percent INTEGER NOT NULL,
  PRIMARY KEY(budget, period, percent)) WITHOUT ROWID;
CREATE VIEW traffic AS
  SELECT h.day AS day, h.start AS hour, s.kind, s.name, s.destination,
         s.transport, s.path, s.uplink, %
  FROM hour_traffic t JOIN hour h ON h.start = t.start
                      JOIN series s ON s.id = t.series
  UNION ALL
  SELECT t.day, NULL, s.kind, s.name, s.destination,
         s.transport, s.path, s.uplink, %
  FROM day_traffic t JOIN series s ON s.id = t.series;
)";

// The interfaces of uplinks as the last record saw them.
constexpr char kInterfaces[] = R"(
DROP TABLE IF EXISTS interface;
CREATE TABLE interface(
  meter INTEGER NOT NULL, ifindex INTEGER NOT NULL,
  network INTEGER NOT NULL, name TEXT NOT NULL, uplink TEXT NOT NULL,
  tx_bytes INTEGER NOT NULL, rx_bytes INTEGER NOT NULL,
  tx_packets INTEGER NOT NULL, rx_packets INTEGER NOT NULL,
  PRIMARY KEY(meter, ifindex)) WITHOUT ROWID;
)";

// Version 4 had the number of a device.
constexpr char kRenameDevice[] =
    "ALTER TABLE interface RENAME COLUMN device TO network;";

// The kind of these series until version 5.
constexpr char kRenameUncounted[] =
    "UPDATE series SET kind = 'unnamed' WHERE kind = 'uncounted';";

// Added in version 4.
constexpr char kSamples[] = R"(
CREATE TABLE five_minutes(
  start INTEGER NOT NULL, uplink TEXT NOT NULL,
  tx_bytes INTEGER NOT NULL, rx_bytes INTEGER NOT NULL,
  PRIMARY KEY(start, uplink)) WITHOUT ROWID;
)";

// Added in version 7: the version of each part (NextVersion()). Former parts get numbers
// that grow with their time, so that an export of all of them comes in small pieces.
constexpr char kVersions[] = R"(
ALTER TABLE hour ADD COLUMN version INTEGER NOT NULL DEFAULT 0;
ALTER TABLE day ADD COLUMN version INTEGER NOT NULL DEFAULT 0;
ALTER TABLE five_minutes ADD COLUMN version INTEGER NOT NULL DEFAULT 0;
ALTER TABLE gap ADD COLUMN version INTEGER NOT NULL DEFAULT 0;
UPDATE hour SET version = start;
UPDATE day SET version = day;
UPDATE five_minutes SET version = start;
UPDATE gap SET version = id;
)";

absl::StatusOr<int64_t> Pragma(Database* database, absl::string_view name) {
  Statement pragma = database->Prepare(absl::StrCat("PRAGMA ", name));
  const int64_t value = pragma.Step() ? pragma.Integer(0) : 0;
  if (!pragma.status().ok()) return pragma.status();
  return value;
}

// Makes the tables of a new database, or the missing ones of an older version.
absl::Status MakeTables(Database* database) {
  auto transaction = Transaction::Begin(database);
  if (!transaction.ok()) return transaction.status();
  const auto version = Pragma(database, "user_version");
  if (!version.ok()) return version.status();
  // Another process may have been faster.
  if (*version == kSchemaVersion) return absl::OkStatus();
  for (const char* tables :
       {*version == 0 ? kSchema : kRenameUncounted,
        *version == 4  ? kRenameDevice
        : *version > 4 ? ""
                       : kInterfaces,
        *version >= 4 ? "" : kSamples, kVersions, kNewIdentity}) {
    NETMETER_RETURN_IF_ERROR(database->Execute(absl::StrReplaceAll(
        tables, {{"$", CounterColumns("$ INTEGER NOT NULL")},
                 {"%", CounterColumns("t.$")}})));
  }
  NETMETER_RETURN_IF_ERROR(
      database->Execute(absl::StrCat("PRAGMA application_id=", kApplicationId,
                                     ";PRAGMA user_version=", kSchemaVersion)));
  return (*transaction)->Commit();
}

}  // namespace

absl::StatusOr<SizeUnits> ReadSizeUnits(Database* history) {
  Statement query =
      history->Prepare("SELECT value FROM setting WHERE name = 'size_units'");
  const bool decimal = query.Step() && query.Text(0) == "decimal";
  if (!query.status().ok()) return query.status();
  return decimal ? SizeUnits::kDecimal : SizeUnits::kBinary;
}

absl::StatusOr<int64_t> NextVersion(Database* history, int64_t now) {
  NETMETER_RETURN_IF_ERROR(
      history
          ->Prepare("UPDATE setting SET value = MAX(CAST(value AS INTEGER) + "
                    "1, ?) WHERE name = 'version'")
          .Bind(1, now)
          .Run());
  return ReadVersion(history);
}

absl::StatusOr<int64_t> ReadVersion(Database* history) {
  Statement query = history->Prepare(
      "SELECT CAST(value AS INTEGER) FROM setting WHERE name = 'version'");
  const int64_t version = query.Step() ? query.Integer(0) : 0;
  if (!query.status().ok()) return query.status();
  return version;
}

absl::Status MoveTraffic(Database* history) {
  const std::string is_moved = absl::StrCat(
      "series IN (SELECT old FROM moved) AND (", AnyCounter(), ")");
  for (const auto& part :
       {std::make_pair("hour", "start"), std::make_pair("day", "day")}) {
    NETMETER_RETURN_IF_ERROR(history->Execute(absl::StrReplaceAll(
        "UPDATE $ SET version = (SELECT CAST(value AS INTEGER) FROM setting "
        "WHERE name = 'version') + n FROM (SELECT # AS r, ROW_NUMBER() OVER "
        "(ORDER BY #) AS n FROM $_traffic WHERE % GROUP BY #) WHERE # = r;"
        "UPDATE setting SET value = MAX(CAST(value AS INTEGER), (SELECT "
        "COALESCE(MAX(version), 0) FROM $)) WHERE name = 'version'",
        {{"$", part.first}, {"#", part.second}, {"%", is_moved}})));
  }
  for (const auto& table : {std::make_pair("hour_traffic", "start"),
                            std::make_pair("day_sum", "day"),
                            std::make_pair("day_traffic", "day")}) {
    NETMETER_RETURN_IF_ERROR(history->Execute(absl::StrCat(
        "INSERT INTO ", table.first, " SELECT ", table.second, ", new, ",
        CounterColumns("$"), " FROM ", table.first,
        " JOIN moved ON old = series WHERE ", AnyCounter(),
        " ON CONFLICT DO UPDATE SET ", CounterColumns("$ = $ + excluded.$"),
        ";UPDATE ", table.first, " SET ", CounterColumns("$ = 0"), " WHERE ",
        is_moved)));
  }
  return absl::OkStatus();
}

absl::Status DropUnusedSeries(Database* history) {
  return history->Execute(
      "DELETE FROM series WHERE id NOT IN (SELECT series FROM hour_traffic "
      "UNION SELECT series FROM day_traffic UNION SELECT series FROM "
      "meter_total)");
}

const char kNewIdentity[] = R"(
INSERT INTO setting VALUES('host_id', lower(hex(randomblob(16))));
INSERT INTO setting SELECT 'version', COALESCE(MAX(version), 0) FROM (
  SELECT version FROM hour UNION ALL SELECT version FROM day UNION ALL
  SELECT version FROM five_minutes UNION ALL SELECT version FROM gap);
)";

std::string CounterColumns(absl::string_view format) {
  std::string columns;
  for (const RecordedCounter& counter : kRecordedCounters) {
    absl::StrAppend(&columns, columns.empty() ? "" : ", ",
                    absl::StrReplaceAll(format, {{"$", counter.name}}));
  }
  return columns;
}

std::string AnyCounter() {
  return absl::StrReplaceAll(CounterColumns("$ <> 0"), {{", ", " OR "}});
}

absl::StatusOr<std::unique_ptr<Database>> OpenHistory(
    const std::string& path, Database::Mode mode,
    std::chrono::milliseconds timeout) {
  struct stat status = {};
  if (stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is no file"));
  }
  // SQLite gives names with this beginning a meaning: ":memory:".
  auto database = Database::Open(
      absl::StartsWith(path, ":") ? absl::StrCat("./", path) : path, mode,
      timeout);
  if (absl::IsNotFound(database.status())) {
    return absl::NotFoundError(
        absl::StrCat("no history at ", path, " (netmeter record makes it)"));
  }
  if (!database.ok()) return database.status();
  const auto version = Pragma(database->get(), "user_version");
  if (mode == Database::Mode::kRead &&
      absl::IsPermissionDenied(version.status())) {
    // The very first record was killed, or the file was copied alone: SQLite has to make
    // the two files beside it.
    return absl::NotFoundError(absl::StrCat(
        "no history that this user may read at ", path,
        " yet (the next netmeter record makes what is missing beside it)"));
  }
  if (!version.ok()) return version.status();
  const auto id = Pragma(database->get(), "application_id");
  if (!id.ok()) return id.status();
  if (*id == kApplicationId && *version > kSchemaVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, " is of a newer version (install a newer netmeter)"));
  }
  // Later versions only lack tables and columns that the next record makes.
  if (*id == kApplicationId && *version < 2) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is of an old version (mv ", path, " ", path,
                     ".old; the next netmeter record makes a new one)"));
  }
  const auto pages = Pragma(database->get(), "page_count");
  if (!pages.ok()) return pages.status();
  const bool is_new = *id == 0 && *version == 0 && *pages <= 1;
  if (*id != kApplicationId && !is_new) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is not a history of netmeter's"));
  }
  if (mode == Database::Mode::kCreate) {
    // Must be outside of a transaction. Two processes that do it at once wait for each
    // other. A file that was put aside, or copied by SQLite, is in another mode.
    NETMETER_RETURN_IF_ERROR((*database)->Execute("PRAGMA journal_mode=WAL"));
    if (*version < kSchemaVersion) {
      NETMETER_RETURN_IF_ERROR(MakeTables(database->get()));
    }
    // Each commit is synced to the disk: a power failure costs one interval, instead of
    // everything since the last checkpoint.
    NETMETER_RETURN_IF_ERROR((*database)->Execute("PRAGMA synchronous=FULL"));
  } else if (is_new) {
    return absl::NotFoundError(
        absl::StrCat("no history at ", path, " (netmeter record makes it)"));
  }
  return database;
}

}  // namespace internal
}  // namespace netmeter
