// SPDX-License-Identifier: BSD-3-Clause
#include "lib/top/top_model.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace netmeter {
namespace internal {
namespace {

// A meter that was loaded anew begins at 0, and so does a series that was
// retired and came back; one that is pending shrinks.
uint64_t Delta(uint64_t now, uint64_t before) {
  return now < before ? 0 : now - before;
}

// One series of many: several series of a service have one destination, one for
// each transport.
struct Totals {
  uint64_t tx = 0, rx = 0, retransmit = 0, rtt_us = 0, rtt_count = 0;
  uint64_t connections = 0;
};

void AddTo(const Sample& sample, Totals* totals) {
  totals->tx += sample.tx_bytes;
  totals->rx += sample.rx_bytes;
  totals->retransmit += sample.tx_retransmit_bytes;
  if (!sample.tcp.known) return;
  totals->rtt_us += sample.tcp.rtt_us;
  totals->rtt_count +=
      std::accumulate(sample.tcp.rtt_buckets.begin(),
                      sample.tcp.rtt_buckets.end(), uint64_t{0});
  totals->connections +=
      Delta(sample.tcp.opened + sample.tcp.accepted, sample.tcp.closed);
}

double Mean(uint64_t sum, uint64_t count) {
  return count == 0 ? -1
                    : static_cast<double>(sum) / static_cast<double>(count);
}

// Smaller is earlier.
double Rank(const TopRow& row, TopSort sort) {
  switch (sort) {
    case TopSort::kRate:
      return -row.rate();
    case TopSort::kTotal:
      return -static_cast<double>(row.tx_bytes) -
             static_cast<double>(row.rx_bytes);
    case TopSort::kRetransmissions:
      return -row.retransmit_rate;
    case TopSort::kRtt:
      return -row.rtt_us;
    case TopSort::kConnections:
      return -static_cast<double>(row.connections);
    case TopSort::kName:
      break;
  }
  return 0;
}

}  // namespace

const char* TopSortName(TopSort sort) {
  static constexpr const char* kNames[kTopSorts] = {
      "rate", "total", "retransmissions", "rtt", "connections", "name"};
  return kNames[static_cast<int>(sort)];
}

void TopModel::Update(const std::vector<Sample>& samples, double seconds) {
  std::map<Key, Totals> totals;
  for (const Sample& sample : samples) {
    AddTo(sample, &totals[Key(sample.kind, sample.name, sample.path,
                              sample.uplink, sample.destination)]);
  }
  has_uplinks_ =
      std::any_of(samples.begin(), samples.end(),
                  [](const Sample& sample) { return !sample.uplink.empty(); });
  for (auto& pair : entries_) pair.second.seen = false;
  for (const auto& pair : totals) {
    const Totals& now = pair.second;
    const auto inserted = entries_.emplace(pair.first, Entry());
    Entry& entry = inserted.first->second;
    TopRow& row = entry.row;
    // A series that is new since the last reading has had all that it has.
    const bool rates = !first_ && seconds > 0;
    const auto rate = [&](uint64_t value, uint64_t before) {
      return rates ? static_cast<double>(Delta(value, before)) / seconds : 0;
    };
    row.kind = std::get<0>(pair.first);
    row.name = std::get<1>(pair.first);
    row.path = std::get<2>(pair.first);
    row.uplink = std::get<3>(pair.first);
    row.destination = std::get<4>(pair.first);
    row.tx_rate = rate(now.tx, entry.tx);
    row.rx_rate = rate(now.rx, entry.rx);
    row.retransmit_rate = rate(now.retransmit, entry.retransmit);
    entry.rtt_us_delta = rates ? Delta(now.rtt_us, entry.rtt_us) : 0;
    entry.rtt_count_delta = rates ? Delta(now.rtt_count, entry.rtt_count) : 0;
    row.rtt_us = Mean(entry.rtt_us_delta, entry.rtt_count_delta);
    row.tx_bytes = now.tx;
    row.rx_bytes = now.rx;
    row.connections = now.connections;
    if (rates) {
      std::rotate(row.history.begin(), row.history.begin() + 1,
                  row.history.end());
      row.history.back() = row.rate();
    }
    entry.tx = now.tx;
    entry.rx = now.rx;
    entry.retransmit = now.retransmit;
    entry.rtt_us = now.rtt_us;
    entry.rtt_count = now.rtt_count;
    entry.seen = true;
  }
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    entry = entry->second.seen ? std::next(entry) : entries_.erase(entry);
  }
  first_ = false;
}

void TopModel::Add(const Entry& entry, TopRow* row, uint64_t* rtt_us,
                   uint64_t* rtt_count) {
  const TopRow& from = entry.row;
  row->tx_rate += from.tx_rate;
  row->rx_rate += from.rx_rate;
  row->retransmit_rate += from.retransmit_rate;
  row->tx_bytes += from.tx_bytes;
  row->rx_bytes += from.rx_bytes;
  row->connections += from.connections;
  for (size_t i = 0; i < kTopHistory; i++) row->history[i] += from.history[i];
  *rtt_us += entry.rtt_us_delta;
  *rtt_count += entry.rtt_count_delta;
  row->rtt_us = Mean(*rtt_us, *rtt_count);
}

double TopModel::RateOf(Path path) const {
  double rate = 0;
  for (const auto& pair : entries_) {
    if (pair.second.row.path == path) rate += pair.second.row.rate();
  }
  return rate;
}

void TopModel::Sort(TopSort sort, std::vector<TopRow>* rows) const {
  const double direct = RateOf(Path::kDirect), proxy = RateOf(Path::kProxy);
  for (TopRow& row : *rows) {
    const double all = row.path == Path::kDirect ? direct : proxy;
    row.share = all > 0 ? row.rate() / all : 0;
  }
  std::sort(rows->begin(), rows->end(),
            [sort](const TopRow& a, const TopRow& b) {
              const double rank_a = Rank(a, sort), rank_b = Rank(b, sort);
              if (rank_a != rank_b) return rank_a < rank_b;
              return std::tie(a.name, a.destination, a.kind, a.path, a.uplink) <
                     std::tie(b.name, b.destination, b.kind, b.path, b.uplink);
            });
}

std::vector<TopRow> TopModel::Services(TopSort sort) const {
  std::vector<TopRow> rows;
  uint64_t rtt_us = 0, rtt_count = 0;
  // The entries of one service follow each other.
  for (const auto& pair : entries_) {
    const TopRow& from = pair.second.row;
    if (rows.empty() || rows.back().kind != from.kind ||
        rows.back().name != from.name || rows.back().path != from.path ||
        rows.back().uplink != from.uplink) {
      rows.emplace_back();
      rows.back().kind = from.kind;
      rows.back().name = from.name;
      rows.back().path = from.path;
      rows.back().uplink = from.uplink;
      rtt_us = rtt_count = 0;
    }
    Add(pair.second, &rows.back(), &rtt_us, &rtt_count);
  }
  Sort(sort, &rows);
  return rows;
}

std::vector<TopRow> TopModel::Destinations(const TopRow& service,
                                           TopSort sort) const {
  std::vector<TopRow> rows;
  for (auto entry = entries_.lower_bound(
           Key(service.kind, service.name, service.path, service.uplink, ""));
       entry != entries_.end() && entry->second.row.kind == service.kind &&
       entry->second.row.name == service.name &&
       entry->second.row.path == service.path &&
       entry->second.row.uplink == service.uplink;
       ++entry) {
    rows.push_back(entry->second.row);
  }
  Sort(sort, &rows);
  return rows;
}

TopRow TopModel::All() const {
  TopRow all;
  uint64_t rtt_us = 0, rtt_count = 0;
  for (const auto& pair : entries_) {
    if (pair.second.row.path != Path::kDirect) continue;
    Add(pair.second, &all, &rtt_us, &rtt_count);
  }
  all.share = all.rate() > 0 ? 1 : 0;
  return all;
}

std::string Sparkline(const std::array<double, kTopHistory>& history,
                      size_t width, bool utf8) {
  static constexpr const char* kBlocks[] = {" ", "▁", "▂", "▃", "▄",
                                            "▅", "▆", "▇", "█"};
  static constexpr const char* kAscii[] = {" ", ".", ":", "-", "=",
                                           "+", "*", "%", "#"};
  width = std::min(width, kTopHistory);
  const auto begin = history.end() - static_cast<long>(width);
  const double most = *std::max_element(begin, history.end());
  std::string line;
  for (auto value = begin; value != history.end(); ++value) {
    // What is not 0 is seen.
    const int level =
        *value <= 0 ? 0 : std::max(1, static_cast<int>(*value / most * 8 + .5));
    line += (utf8 ? kBlocks : kAscii)[level];
  }
  return line;
}

}  // namespace internal
}  // namespace netmeter
