// SPDX-License-Identifier: BSD-3-Clause
// Measures the cost of the history: years of records of 4,096 series. Each series counts
// in each hour, which is the worst case. Prints the size of the database, and the time of
// a record and of `usage`.
//
//   bazel run -c opt //lib/apps/history:years -- FILE [YEARS]
//
// The rows are those of a record each minute, but there are fewer records, because that
// many records would take days. There is one record a day while only days are kept, one
// an hour for the 60 days that have hours, and one a minute for the last day, as on a
// real host.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "lib/apps/history/record.h"
#include "lib/apps/history/usage.h"

namespace netmeter {
namespace internal {
namespace {

constexpr int kSeries = 4096;

double Now() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

double MebibytesOf(const std::string& path) {
  struct stat file = {};
  return stat(path.c_str(), &file) == 0
             ? static_cast<double>(file.st_size) / 1048576
             : 0;
}

void Check(const absl::Status& status) {
  if (status.ok()) return;
  fprintf(stderr, "years: %s\n", status.ToString().c_str());
  exit(1);
}

class Host {
 public:
  explicit Host(const std::string& path) : path_(path) {
    reading_.now = StartOf(20260101) + 30;
    reading_.boottime = 1;
    reading_.boot_id = "boot";
    reading_.start_ns = 1;
    for (int i = 0; i < kSeries; ++i) {
      Sample sample;
      sample.kind = Kind::kService;
      sample.name = "service-" + std::to_string(i / 8);
      sample.destination = "destination-" + std::to_string(i % 8);
      sample.transport = Transport::kTcp;
      reading_.samples.push_back(sample);
    }
  }

  // Seconds that the record took, in a process of its own.
  double RecordAfter(int64_t seconds, bool sync) {
    reading_.now += seconds;
    reading_.boottime += seconds;
    for (Sample& sample : reading_.samples) {
      sample.tx_bytes += 1000000 + random() % 100000;
      sample.rx_bytes += 3000000 + random() % 100000;
      sample.tx_packets += 2000;
      sample.rx_packets += 3000;
      sample.tx_payload_bytes += 900000 + random() % 100000;
      sample.rx_payload_bytes += 2900000 + random() % 100000;
      sample.tx_retransmit_bytes += random() % 2000;
    }
    const double begin = Now();
    const auto history = OpenHistory(path_, Database::Mode::kCreate);
    Check(history.status());
    if (!sync) Check((*history)->Execute("PRAGMA synchronous=OFF"));
    Check(Record(history->get(), RecordOptions(),
                 [this]() -> absl::StatusOr<Reading> { return reading_; })
              .status());
    return Now() - begin;
  }

  void Usage(const char* what, UsageBy by, Day from) {
    const double begin = Now();
    const auto history = OpenHistory(path_, Database::Mode::kRead);
    Check(history.status());
    UsageQuery query;
    query.by = by;
    query.period = {from, HourOf(reading_.now).day};
    const auto usage = ReadUsage(history->get(), query);
    Check(usage.status());
    printf("usage, %s: %.2f s (%zu rows, %.1f TB)\n", what, Now() - begin,
           usage->rows.size(), static_cast<double>(usage->sum.bytes()) / 1e12);
  }

  int64_t now() const { return reading_.now; }

 private:
  const std::string path_;
  Reading reading_;
};

int Main(int argc, char** argv) {
  if (argc < 2) {
    fprintf(stderr, "years: FILE [YEARS]\n");
    return 2;
  }
  const std::string path = argv[1];
  const int days = (argc > 2 ? atoi(argv[2]) : 5) * 365;
  Host host(path);
  const double begin = Now();
  const int with_hours = RecordOptions().keep_hours_days;
  for (int day = 0; day < days; ++day) {
    const int records = day < days - with_hours ? 1 : 24;
    for (int i = 0; i < records; ++i) {
      host.RecordAfter(86400 / records, false);
    }
    if (day % 200 == 0 || day + 1 == days) {
      printf("day %d: %.0f MiB, %.0f s\n", day, MebibytesOf(path),
             Now() - begin);
      fflush(stdout);
    }
  }
  std::vector<double> times;
  for (int minute = 0; minute < 24 * 60; ++minute) {
    times.push_back(host.RecordAfter(60, true));
  }
  std::sort(times.begin(), times.end());
  printf(
      "record: median %.3f s, longest %.3f s (once a day hours become a "
      "day)\n",
      times[times.size() / 2], times.back());
  printf("size: %.0f MiB, log %.0f MiB\n", MebibytesOf(path),
         MebibytesOf(path + "-wal"));
  const Day today = HourOf(host.now()).day;
  host.Usage("a month by service", UsageBy::kService, AddDays(today, -30));
  host.Usage("a month by day", UsageBy::kDay, AddDays(today, -30));
  host.Usage("five years by service", UsageBy::kService, 20200101);
  return 0;
}

}  // namespace
}  // namespace internal
}  // namespace netmeter

int main(int argc, char** argv) { return netmeter::internal::Main(argc, argv); }
