// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/history/samples.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/status_util.h"

namespace netmeter {
namespace internal {
namespace {

constexpr int64_t kSeconds = 300;
// An interval that is longer is spread over its last 60 days, for which hours are kept by
// default.
constexpr int64_t kMostSeconds = 60 * 86400;

int64_t SampleOf(int64_t time) { return time - time % kSeconds; }

// The value at `percent` of `count` sorted samples, of which only those with traffic are
// in *samples.
int64_t PercentileOf(std::vector<int64_t>* samples, int64_t count,
                     int percent) {
  std::sort(samples->begin(), samples->end());
  const int64_t zeros = count - static_cast<int64_t>(samples->size());
  const int64_t rank = (count * percent + 99) / 100;  // from 1
  return rank <= zeros ? 0 : (*samples)[static_cast<size_t>(rank - zeros - 1)];
}

int64_t BitsASecond(int64_t bytes) {
  return std::max<int64_t>(0, bytes) * 8 / kSeconds;
}

}  // namespace

absl::Status AddToSamples(Database* history, const Totals& difference,
                          int64_t version, int64_t begin, int64_t end) {
  std::map<std::string, std::pair<int64_t, int64_t>> by_uplink;
  for (const auto& series : difference) {
    if (series.first.path != "direct") continue;
    auto& bytes = by_uplink[series.first.uplink];
    bytes.first += series.second.tx_bytes();
    bytes.second += series.second.rx_bytes();
  }
  Statement add = history->Prepare(
      "INSERT INTO five_minutes VALUES(?, ?, ?, ?, ?) ON CONFLICT DO UPDATE "
      "SET tx_bytes = tx_bytes + excluded.tx_bytes, "
      "rx_bytes = rx_bytes + excluded.rx_bytes, version = excluded.version");
  // The last second of the interval is the one before `end`.
  const int64_t last = SampleOf(std::max(begin, end - 1));
  const int64_t first = SampleOf(std::max(begin, end - kMostSeconds));
  const int64_t count = (last - first) / kSeconds + 1;
  for (const auto& uplink : by_uplink) {
    auto rest = uplink.second;
    for (int64_t left = count; left > 0; left--) {
      const std::pair<int64_t, int64_t> part(rest.first / left,
                                             rest.second / left);
      rest.first -= part.first;
      rest.second -= part.second;
      if (part.first == 0 && part.second == 0) continue;
      NETMETER_RETURN_IF_ERROR(add.Bind(1, last - (left - 1) * kSeconds)
                                   .Bind(2, uplink.first)
                                   .Bind(3, part.first)
                                   .Bind(4, part.second)
                                   .Bind(5, version)
                                   .Run());
    }
  }
  return add.status();
}

absl::Status DropSamples(Database* history) {
  return history->Execute(
      "DELETE FROM five_minutes WHERE start < (SELECT MIN(start) FROM hour)");
}

absl::StatusOr<std::vector<UplinkRate>> ReadPercentiles(Database* history,
                                                        const Period& period,
                                                        int percent,
                                                        int64_t now) {
  Statement table = history->Prepare(
      "SELECT 1 FROM sqlite_master WHERE name = 'five_minutes'");
  const bool has_table = table.Step();
  NETMETER_RETURN_IF_ERROR(table.status());
  int64_t begin = StartOf(period.from);
  const int64_t end = std::min(StartOf(AddDays(period.to, 1)), now);
  int64_t first = 0;
  if (has_table) {
    Statement oldest = history->Prepare("SELECT MIN(start) FROM five_minutes");
    if (oldest.Step()) first = oldest.Integer(0);
    NETMETER_RETURN_IF_ERROR(oldest.status());
  }
  if (first == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(history->path(),
                     " has no five-minute samples yet (each netmeter record "
                     "adds to them)"));
  }
  begin = SampleOf(std::max(begin, first));
  Statement query = history->Prepare(
      "SELECT uplink, tx_bytes, rx_bytes FROM five_minutes "
      "WHERE start >= ? AND start < ?");
  query.Bind(1, begin).Bind(2, end);
  std::map<std::string, std::pair<std::vector<int64_t>, std::vector<int64_t>>>
      samples;
  while (query.Step()) {
    auto& both = samples[query.Text(0)];
    both.first.push_back(query.Integer(1));
    both.second.push_back(query.Integer(2));
  }
  NETMETER_RETURN_IF_ERROR(query.status());
  std::vector<UplinkRate> rates;
  for (auto& uplink : samples) {
    const int64_t count = (end - 1 - begin) / kSeconds + 1;
    rates.push_back(
        {uplink.first,
         BitsASecond(PercentileOf(&uplink.second.first, count, percent)),
         BitsASecond(PercentileOf(&uplink.second.second, count, percent)),
         count});
  }
  return rates;
}

}  // namespace internal
}  // namespace netmeter
