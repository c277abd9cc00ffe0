// SPDX-License-Identifier: BSD-3-Clause
// How the totals in the kernel's memory become a history without counting a byte twice.
//
// The meter's totals begin at 0 when `load` makes its maps, and end with `unload` or with
// the kernel. In between they only grow, through upgrades, larger tables and evicted
// series. This lifetime is called a meter here. Two numbers identify it: the kernel's
// boot id, and the nanosecond at which the maps were made (`start_ns`), which the maps
// keep. Neither the clock nor the version is part of the identity. The boot id is needed
// for machines without a hardware clock, which begin every boot at the same time.
//
// For each meter the history keeps the totals of the last read (`meter_total`). A record
// reads the meter again, adds the difference to the hour, and replaces the old totals by
// the new ones, in one transaction. So always
//
//   sum over all hours and days  =  sum over all meters of their last read totals
//
// Counting twice, or losing recorded bytes, would require writing one side without the
// other. A record that fails, or is killed, changes neither. The next one finds the old
// totals, and records everything. If an error happens afterwards, while room is made, its
// message says that the traffic was recorded. If a meter's boot or maps are gone, it
// cannot be read any more: what its series counted after its last record is lost. This
// is the only loss, at most an interval, and it is visible as a gap: "lost", or "unnamed"
// if the boot is the same and interfaces of uplinks are read. These count on without a
// meter, so that only the names of their bytes are lost.
//
// The hour is that of the middle of the interval, for intervals of up to an hour. So
// traffic of the last minute before midnight belongs to that day, although it is recorded
// later. In a longer interval the time of the bytes is unknown. They are booked in the
// hour of the record, and the interval is a gap "delayed".
//
// The interfaces of uplinks are read as well (links.cc). What they counted are further
// series, and so is what remains of it: this series makes the sum over an uplink equal to
// what its interfaces counted.
//
// The clock only decides about the hour. CLOCK_BOOTTIME, which no program can set,
// measures the length of an interval. If the clock was set between two records, there is
// a gap "clock". A clock before 2020 is not set yet: nothing is recorded then, and
// nothing is lost by that.
//
// A day that has ended has its sum beside its hours (`day_sum`). So `usage` reads a row
// for each day and series instead of one for each hour. Bytes that are added to an hour
// of such a day are also added to its sum, in the same transaction. The sum is deleted
// when the hours are folded into a day.
//
// To limit the size, hours of old days are folded into days, and the oldest days are
// deleted. The age is counted in days that the history has, not in days of the calendar:
// a clock that jumps ten years ahead makes nothing old.
#include "lib/apps/history/record.h"

#include <cstdlib>
#include <map>

#include "absl/strings/str_cat.h"
#include "lib/apps/history/samples.h"
#include "lib/base/status_util.h"

namespace netmeter {
namespace internal {
namespace {

constexpr int64_t kClockIsSet = 1577836800;  // 2020-01-01
constexpr int64_t kHour = 3600;
// A longer time without a record is a gap: an hourly timer makes none.
constexpr int64_t kLate = kHour + kHour / 2;
constexpr int64_t kClockStep = 60;
// Limits a table that would grow with each reboot.
constexpr int kMostGaps = 10000;
// A meter of this boot may be read again, if there are several of them.
constexpr int kMostMeters = 16;

struct Meter {
  int64_t id = 0;
  bool is_new = false;
  // The last record of it. The last record of its interfaces, or the load, if it is new.
  int64_t recorded_at = 0;
  int64_t recorded_boottime = 0;
};

absl::Status CheckPinDir(Database* history, const std::string& pin_dir) {
  NETMETER_RETURN_IF_ERROR(
      history->Prepare("INSERT OR IGNORE INTO setting VALUES('pin_dir', ?)")
          .Bind(1, pin_dir)
          .Run());
  Statement query =
      history->Prepare("SELECT value FROM setting WHERE name = 'pin_dir'");
  const std::string there = query.Step() ? query.Text(0) : "";
  NETMETER_RETURN_IF_ERROR(query.status());
  if (there == pin_dir) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(history->path(), " is the history of the meter at ", there,
                   ": choose another --database for ", pin_dir));
}

absl::Status KeepSizeUnits(Database* history, SizeUnits units) {
  return history
      ->Prepare("INSERT OR REPLACE INTO setting VALUES('size_units', ?)")
      .Bind(1, units == SizeUnits::kDecimal ? "decimal" : "binary")
      .Run();
}

absl::Status AddGap(Database* history, int64_t now, int64_t begin, int64_t end,
                    absl::string_view what) {
  NETMETER_ASSIGN_OR_RETURN(const int64_t version, NextVersion(history, now));
  NETMETER_RETURN_IF_ERROR(
      history
          ->Prepare(
              "INSERT INTO gap(begin, end, what, version) VALUES(?, ?, ?, ?)")
          .Bind(1, begin)
          .Bind(2, end)
          .Bind(3, what)
          .Bind(4, version)
          .Run());
  return history
      ->Prepare("DELETE FROM gap WHERE id <= (SELECT MAX(id) FROM gap) - ?")
      .Bind(1, int64_t{kMostGaps})
      .Run();
}

// Finds when a meter of this boot was recorded with the interfaces of this reading.
absl::Status FindLastLinks(Database* history, const Reading& reading,
                           bool* found, Meter* meter) {
  *found = false;
  if (!reading.links) return absl::OkStatus();
  Statement query = history->Prepare(
      "SELECT recorded_at, recorded_boottime FROM meter WHERE boot_id = ? AND "
      "id IN (SELECT meter FROM interface WHERE network = ?)");
  query.Bind(1, reading.boot_id)
      .Bind(2, static_cast<int64_t>(reading.links->network));
  if (query.Step()) {
    *found = true;
    meter->recorded_at = query.Integer(0);
    meter->recorded_boottime = query.Integer(1);
  }
  return query.status();
}

// Finds or makes the row of the meter; adds the gap between two meters.
absl::StatusOr<Meter> FindMeter(Database* history, const Reading& reading) {
  Meter meter;
  Statement query = history->Prepare(
      "SELECT id, recorded_at, recorded_boottime FROM meter "
      "WHERE boot_id = ? AND start_ns = ?");
  query.Bind(1, reading.boot_id).Bind(2, reading.start_ns);
  if (query.Step()) {
    meter.id = query.Integer(0);
    meter.recorded_at = query.Integer(1);
    meter.recorded_boottime = query.Integer(2);
    return meter;
  }
  NETMETER_RETURN_IF_ERROR(query.status());
  Statement last = history->Prepare(
      "SELECT recorded_at FROM meter ORDER BY id DESC LIMIT 1");
  const int64_t start = reading.start();
  meter.recorded_at = start;
  meter.recorded_boottime = reading.start_ns / 1000000000;
  bool is_unnamed = false;
  NETMETER_RETURN_IF_ERROR(
      FindLastLinks(history, reading, &is_unnamed, &meter));
  if (last.Step()) {
    const int64_t end = last.Integer(0);
    NETMETER_RETURN_IF_ERROR(last.Run());
    // The present clock may be behind: a host without a hardware clock begins in 1970.
    NETMETER_RETURN_IF_ERROR(
        AddGap(history, reading.now, end,
               start < end ? std::max(end, reading.now) : start,
               is_unnamed ? "unnamed" : "lost"));
  }
  NETMETER_RETURN_IF_ERROR(last.status());
  NETMETER_RETURN_IF_ERROR(
      history
          ->Prepare("INSERT INTO meter(boot_id, start_ns, cgroup, recorded_at, "
                    "recorded_boottime) VALUES(?, ?, ?, 0, 0)")
          .Bind(1, reading.boot_id)
          .Bind(2, reading.start_ns)
          .Bind(3, reading.cgroup)
          .Run());
  Statement id = history->Prepare("SELECT last_insert_rowid()");
  if (id.Step()) meter.id = id.Integer(0);
  meter.is_new = true;
  if (!id.status().ok()) return id.status();
  return meter;
}

// Seconds in which what this record adds was counted.
int64_t Elapsed(const Reading& reading, const Meter& meter) {
  return reading.boottime - meter.recorded_boottime;
}

// Finds the hour for the traffic since the last record, and adds gaps.
absl::StatusOr<LocalHour> FindHour(Database* history, const Reading& reading,
                                   const Meter& meter) {
  const int64_t elapsed = Elapsed(reading, meter);
  const int64_t expected = meter.recorded_at + elapsed;
  if (std::abs(reading.now - expected) > kClockStep) {
    NETMETER_RETURN_IF_ERROR(
        AddGap(history, reading.now, expected, reading.now, "clock"));
  }
  if (elapsed > kLate) {
    NETMETER_RETURN_IF_ERROR(AddGap(history, reading.now, reading.now - elapsed,
                                    reading.now, "delayed"));
  }
  const LocalHour hour =
      HourOf(elapsed <= kHour ? reading.now - elapsed / 2 : reading.now);
  NETMETER_RETURN_IF_ERROR(
      history->Prepare("INSERT OR IGNORE INTO hour(start, day) VALUES(?, ?)")
          .Bind(1, hour.start)
          .Bind(2, int64_t{hour.day})
          .Run());
  return hour;
}

Counters ReadCounters(const Statement& row, int column) {
  Counters counters;
  for (int64_t& value : counters.value) value = row.Integer(column++);
  return counters;
}

void BindCounters(const Counters& counters, int parameter,
                  Statement* statement) {
  for (const int64_t value : counters.value) {
    statement->Bind(parameter++, value);
  }
}

// The totals of the last record, and the ids of their series.
absl::Status ReadTotals(Database* history, int64_t meter, Totals* totals,
                        std::map<SeriesName, int64_t>* ids) {
  Statement query = history->Prepare(absl::StrCat(
      "SELECT s.id, kind, name, destination, transport, path, uplink, ",
      CounterColumns("$"),
      " FROM meter_total t JOIN series s ON s.id = t.series WHERE meter = ?"));
  query.Bind(1, meter);
  while (query.Step()) {
    const SeriesName name = {query.Text(1), query.Text(2), query.Text(3),
                             query.Text(4), query.Text(5), query.Text(6)};
    (*ids)[name] = query.Integer(0);
    (*totals)[name] = ReadCounters(query, 7);
  }
  return query.status();
}

// Ids of series. Makes missing ones.
class SeriesIds {
 public:
  explicit SeriesIds(Database* history)
      : insert_(history->Prepare(
            "INSERT OR IGNORE INTO series(kind, name, destination, transport, "
            "path, uplink) VALUES(?, ?, ?, ?, ?, ?)")),
        find_(history->Prepare(
            "SELECT id FROM series WHERE kind = ? AND name = ? AND "
            "destination = ? AND transport = ? AND path = ? AND uplink = ?")) {}

  std::map<SeriesName, int64_t>* known() { return &known_; }

  absl::StatusOr<int64_t> Find(const SeriesName& name) {
    const auto known = known_.find(name);
    if (known != known_.end()) return known->second;
    Bind(name, &insert_);
    NETMETER_RETURN_IF_ERROR(insert_.Run());
    Bind(name, &find_);
    const int64_t id = find_.Step() ? find_.Integer(0) : 0;
    NETMETER_RETURN_IF_ERROR(find_.Run());
    known_[name] = id;
    return id;
  }

 private:
  static void Bind(const SeriesName& name, Statement* statement) {
    statement->Bind(1, name.kind)
        .Bind(2, name.name)
        .Bind(3, name.destination)
        .Bind(4, name.transport)
        .Bind(5, name.path)
        .Bind(6, name.uplink);
  }

  Statement insert_;
  Statement find_;
  std::map<SeriesName, int64_t> known_;
};

// Adds the difference to rows of `table`. `when` is an hour of hour_traffic, or a day of
// day_sum.
absl::Status AddTo(Database* history, const char* table, int64_t when,
                   const Totals& difference, SeriesIds* ids) {
  Statement add = history->Prepare(absl::StrCat(
      "INSERT INTO ", table,
      " VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET ",
      CounterColumns("$ = $ + excluded.$")));
  for (const auto& series : difference) {
    const auto id = ids->Find(series.first);
    if (!id.ok()) return id.status();
    add.Bind(1, when).Bind(2, *id);
    BindCounters(series.second, 3, &add);
    NETMETER_RETURN_IF_ERROR(add.Run());
  }
  return add.status();
}

absl::Status AddToHour(Database* history, int64_t hour, int64_t version,
                       const Totals& difference, SeriesIds* ids) {
  NETMETER_RETURN_IF_ERROR(
      history->Prepare("UPDATE hour SET version = ? WHERE start = ?")
          .Bind(1, version)
          .Bind(2, hour)
          .Run());
  NETMETER_RETURN_IF_ERROR(
      AddTo(history, "hour_traffic", hour, difference, ids));
  // Uses the day that was stored with the hour: the time zone may have changed.
  Statement summed = history->Prepare(
      "SELECT day FROM hour JOIN summed_day USING(day) WHERE start = ?");
  if (summed.Bind(1, hour).Step()) {
    NETMETER_RETURN_IF_ERROR(
        AddTo(history, "day_sum", summed.Integer(0), difference, ids));
  }
  return summed.status();
}

// Replaces the old totals by the new ones; rows that are equal stay.
absl::Status ReplaceTotals(Database* history, int64_t meter,
                           const Totals& before, const Totals& now,
                           SeriesIds* ids) {
  Statement put = history->Prepare(
      "INSERT OR REPLACE INTO meter_total VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)");
  for (const auto& series : now) {
    const auto old = before.find(series.first);
    if (old != before.end() && old->second == series.second) continue;
    const auto id = ids->Find(series.first);
    if (!id.ok()) return id.status();
    put.Bind(1, meter).Bind(2, *id);
    BindCounters(series.second, 3, &put);
    NETMETER_RETURN_IF_ERROR(put.Run());
  }
  NETMETER_RETURN_IF_ERROR(put.status());
  Statement remove = history->Prepare(
      "DELETE FROM meter_total WHERE meter = ? AND series = ?");
  for (const auto& series : before) {
    if (now.count(series.first) != 0) continue;
    const auto id = ids->Find(series.first);
    if (!id.ok()) return id.status();
    NETMETER_RETURN_IF_ERROR(remove.Bind(1, meter).Bind(2, *id).Run());
  }
  return remove.status();
}

// As the last record of this boot saw them, whatever meter it read.
absl::StatusOr<SeenLinks> ReadSeenLinks(Database* history, int64_t meter,
                                        int64_t network) {
  Statement query = history->Prepare(
      "SELECT ifindex, name, uplink, tx_bytes, rx_bytes, tx_packets, "
      "rx_packets FROM interface WHERE meter = ?1 OR (network = ?2 AND meter "
      "IN (SELECT id FROM meter WHERE boot_id = (SELECT boot_id FROM meter "
      "WHERE id = ?1)))");
  query.Bind(1, meter).Bind(2, network);
  const auto number = [&query](int column) {
    return static_cast<uint64_t>(query.Integer(column));
  };
  SeenLinks seen;
  while (query.Step()) {
    seen[static_cast<uint32_t>(number(0))] = {
        query.Text(1),
        query.Text(2),
        {number(3), number(4), number(5), number(6)}};
  }
  if (!query.status().ok()) return query.status();
  return seen;
}

absl::Status ReplaceSeenLinks(Database* history, int64_t meter, int64_t network,
                              const SeenLinks& seen) {
  NETMETER_RETURN_IF_ERROR(
      history->Prepare("DELETE FROM interface WHERE meter = ? OR network = ?")
          .Bind(1, meter)
          .Bind(2, network)
          .Run());
  Statement insert = history->Prepare(
      "INSERT INTO interface VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)");
  for (const auto& link : seen) {
    const nm_interface_counts& counts = link.second.counts;
    int column = 0;
    const auto bind = [&](uint64_t number) {
      insert.Bind(++column, static_cast<int64_t>(number));
    };
    bind(static_cast<uint64_t>(meter));
    bind(link.first);
    bind(static_cast<uint64_t>(network));
    insert.Bind(++column, ToUtf8(link.second.name));
    insert.Bind(++column, link.second.uplink);
    for (const uint64_t count : {counts.tx_bytes, counts.rx_bytes,
                                 counts.tx_packets, counts.rx_packets}) {
      bind(count);
    }
    NETMETER_RETURN_IF_ERROR(insert.Run());
  }
  return insert.status();
}

// Adds the interfaces of uplinks, and the unnamed traffic.
absl::Status AddLinksOf(Database* history, int64_t meter,
                        const LinkReading& links, const Totals& before,
                        Totals* now) {
  const auto network = static_cast<int64_t>(links.network);
  auto seen = ReadSeenLinks(history, meter, network);
  if (!seen.ok()) return seen.status();
  AddLinks(CountLinks(links, &*seen), before, now);
  return ReplaceSeenLinks(history, meter, network, *seen);
}

// Deletes totals that no record needs again: those of meters of another boot. Keeps
// the newest meters of this boot.
absl::Status ForgetMeters(Database* history, const std::string& boot_id) {
  for (const char* table : {"meter_total", "interface"}) {
    NETMETER_RETURN_IF_ERROR(
        history
            ->Prepare(absl::StrCat(
                "DELETE FROM ", table,
                " WHERE meter IN (SELECT id FROM meter WHERE boot_id <> ?1 OR "
                "id NOT IN (SELECT id FROM meter WHERE boot_id = ?1 ORDER BY "
                "id DESC LIMIT ?2))"))
            .Bind(1, boot_id)
            .Bind(2, int64_t{kMostMeters})
            .Run());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int64_t>> Days(Statement query) {
  std::vector<int64_t> days;
  while (query.Step()) days.push_back(query.Integer(0));
  if (!query.status().ok()) return query.status();
  return days;
}

// Runs statements that have the day as their only parameter. Uses a transaction for each
// day, because there may be many days: for example after --keep-hours was lowered.
absl::Status ChangeDay(Database* history, int64_t day,
                       const std::vector<std::string>& statements) {
  auto transaction = Transaction::Begin(history);
  if (!transaction.ok()) return transaction.status();
  for (const std::string& sql : statements) {
    NETMETER_RETURN_IF_ERROR(history->Prepare(sql).Bind(1, day).Run());
  }
  return (*transaction)->Commit();
}

// The sum of a day by series, for insertion into another table.
std::string SumOfHours() {
  return absl::StrCat(
      " SELECT ?1, series, ", CounterColumns("SUM($)"),
      " FROM hour_traffic WHERE start IN (SELECT start FROM hour WHERE day = "
      "?1) GROUP BY series ");
}

absl::Status SumDay(Database* history, int64_t day) {
  return ChangeDay(history, day,
                   // Another process may have been faster.
                   {"DELETE FROM day_sum WHERE day = ?1",
                    absl::StrCat("INSERT INTO day_sum", SumOfHours()),
                    "INSERT OR IGNORE INTO summed_day VALUES(?1)"});
}

absl::Status FoldDay(Database* history, int64_t day) {
  return ChangeDay(
      history, day,
      {absl::StrCat("INSERT INTO day_traffic", SumOfHours(),
                    "ON CONFLICT DO UPDATE SET ",
                    CounterColumns("$ = $ + excluded.$")),
       // A day that was sent as hours is not sent again.
       "INSERT INTO day(day, version) SELECT day, MAX(version) FROM hour WHERE "
       "day = ?1 GROUP BY day ON CONFLICT DO UPDATE SET version = "
       "MAX(version, excluded.version)",
       "DELETE FROM hour_traffic WHERE start IN (SELECT start FROM hour WHERE "
       "day = ?1)",
       "DELETE FROM hour WHERE day = ?1", "DELETE FROM day_sum WHERE day = ?1",
       "DELETE FROM summed_day WHERE day = ?1"});
}

absl::Status DropDay(Database* history, int64_t day) {
  auto transaction = Transaction::Begin(history);
  if (!transaction.ok()) return transaction.status();
  NETMETER_RETURN_IF_ERROR(
      history->Prepare("DELETE FROM day_traffic WHERE day = ?")
          .Bind(1, day)
          .Run());
  NETMETER_RETURN_IF_ERROR(
      history->Prepare("DELETE FROM day WHERE day = ?").Bind(1, day).Run());
  // Visits every row, so once a month is enough.
  if (day % 100 == 1) {
    NETMETER_RETURN_IF_ERROR(DropUnusedSeries(history));
  }
  return (*transaction)->Commit();
}

absl::Status MakeRoom(Database* history, const RecordOptions& options) {
  const auto fold = Days(std::move(
      history
          ->Prepare("SELECT DISTINCT day FROM hour ORDER BY day DESC LIMIT -1 "
                    "OFFSET ?")
          .Bind(1, int64_t{options.keep_hours_days})));
  if (!fold.ok()) return fold.status();
  for (const int64_t day : *fold) {
    NETMETER_RETURN_IF_ERROR(FoldDay(history, day));
  }
  // All except the newest day, which goes on.
  const auto sum = Days(history->Prepare(
      "SELECT DISTINCT day FROM hour WHERE day NOT IN (SELECT day FROM "
      "summed_day) ORDER BY day DESC LIMIT -1 OFFSET 1"));
  if (!sum.ok()) return sum.status();
  for (const int64_t day : *sum) {
    NETMETER_RETURN_IF_ERROR(SumDay(history, day));
  }
  const auto drop = Days(std::move(
      history
          ->Prepare("SELECT day FROM day ORDER BY day DESC LIMIT -1 OFFSET ?")
          .Bind(1, int64_t{options.keep_days})));
  if (!drop.ok()) return drop.status();
  for (const int64_t day : *drop) {
    NETMETER_RETURN_IF_ERROR(DropDay(history, day));
  }
  return DropSamples(history);
}

// Gives what each address of a client counted to the client that has it now. The totals
// in the history are those of addresses, as the meter's are, so an address may get
// another client between two records.
Totals NameClients(const Reading& reading, const Totals& difference) {
  if (reading.client_of == nullptr) return difference;
  Totals named;
  for (const auto& series : difference) {
    SeriesName name = series.first;
    if (name.kind == kForwardedKind && !name.destination.empty()) {
      name.destination = reading.client_of(name.destination, name.name);
    }
    named[name] += series.second;
  }
  return named;
}

Recorded Describe(const Totals& difference, bool new_meter) {
  Recorded recorded;
  recorded.new_meter = new_meter;
  for (const auto& series : difference) {
    ++recorded.series;
    if (series.first.path == "direct") recorded.bytes += series.second.bytes();
  }
  return recorded;
}

}  // namespace

absl::StatusOr<Recorded> Record(
    Database* history, const RecordOptions& options,
    const std::function<absl::StatusOr<Reading>()>& read) {
  auto transaction = Transaction::Begin(history);
  if (!transaction.ok()) return transaction.status();
  NETMETER_RETURN_IF_ERROR(CheckPinDir(history, options.pin_dir));
  // From here on no other process can record, so records have the order of their reads.
  const absl::StatusOr<Reading> reading = read();
  if (!reading.ok()) return reading.status();
  NETMETER_RETURN_IF_ERROR(KeepSizeUnits(history, reading->size_units));
  if (reading->now < kClockIsSet) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the clock says ", FormatTime(reading->now),
        ": set it first (nothing is lost, the meter goes on counting)"));
  }
  const auto meter = FindMeter(history, *reading);
  if (!meter.ok()) return meter.status();
  const auto hour = FindHour(history, *reading, *meter);
  if (!hour.ok()) return hour.status();
  SeriesIds ids(history);
  Totals before;
  NETMETER_RETURN_IF_ERROR(
      ReadTotals(history, meter->id, &before, ids.known()));
  Totals now = TotalsOf(reading->samples);
  if (reading->has_forwarded) {
    AddForwarded(reading->forwarded, &now);
  } else {
    KeepKind(before, kForwardedKind, &now);
  }
  if (reading->links) {
    NETMETER_RETURN_IF_ERROR(
        AddLinksOf(history, meter->id, *reading->links, before, &now));
  } else {
    KeepKind(before, kInterfaceKind, &now);
    KeepKind(before, kUnnamedKind, &now);
  }
  NETMETER_ASSIGN_OR_RETURN(const UplinkSides sides,
                            KeepSides(history, reading->sides));
  const Totals difference = NameClients(*reading, Difference(before, now));
  const Totals billed = TakeOffBill(sides, difference);
  NETMETER_ASSIGN_OR_RETURN(const int64_t version,
                            NextVersion(history, reading->now));
  NETMETER_RETURN_IF_ERROR(
      AddToHour(history, hour->start, version, billed, &ids));
  NETMETER_RETURN_IF_ERROR(
      AddToSamples(history, difference, version,
                   reading->now - Elapsed(*reading, *meter), reading->now));
  NETMETER_RETURN_IF_ERROR(
      ReplaceTotals(history, meter->id, before, now, &ids));
  NETMETER_RETURN_IF_ERROR(
      history
          ->Prepare("UPDATE meter SET recorded_at = ?, recorded_boottime = ? "
                    "WHERE id = ?")
          .Bind(1, reading->now)
          .Bind(2, reading->boottime)
          .Bind(3, meter->id)
          .Run());
  if (meter->is_new) {
    NETMETER_RETURN_IF_ERROR(ForgetMeters(history, reading->boot_id));
  }
  NETMETER_RETURN_IF_ERROR((*transaction)->Commit());
  const absl::Status room = MakeRoom(history, options);
  if (!room.ok()) {
    return absl::Status(
        room.code(),
        absl::StrCat("recorded, but old hours and days were not made smaller: ",
                     room.message()));
  }
  return Describe(billed, meter->is_new);
}

}  // namespace internal
}  // namespace netmeter
