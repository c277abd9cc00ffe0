// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/netmeter/top/top_model.h"

#include <string.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "lib/reader/words.h"

namespace netmeter {
namespace internal {
namespace {

// A counter may shrink: a reloaded meter begins at 0, an evicted series that comes back
// does, too, and a pending series loses what was named.
uint64_t Delta(uint64_t now, uint64_t before) {
  return now < before ? 0 : now - before;
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

// A service has a series for each transport to the same destination.
void TopModel::AddTo(const Sample& sample, Totals* totals) {
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

void TopModel::Update(const std::vector<Sample>& samples, double seconds,
                      const std::set<std::string>& paid, Clients clients) {
  paid_ = paid;
  clients_ = std::move(clients);
  has_uplinks_ = false;
  for (auto& pair : entries_) {
    pair.second.now = Totals();
    pair.second.seen = false;
  }
  // `key` is reused: a reading has thousands of series, and most are known already.
  Key key;
  for (const Sample& sample : samples) {
    key = std::tie(sample.kind, sample.name, sample.path, sample.uplink,
                   sample.destination);
    const auto inserted = entries_.try_emplace(key);
    Entry& entry = inserted.first->second;
    if (inserted.second) {
      TopRow& row = entry.row;
      std::tie(row.kind, row.name, row.path, row.uplink, row.destination) = key;
    }
    entry.seen = true;
    AddTo(sample, &entry.now);
    has_uplinks_ = has_uplinks_ || !sample.uplink.empty();
  }
  not_summed_.clear();
  summed_rate_ = 0;
  for (auto pair = entries_.begin(); pair != entries_.end();) {
    if (!pair->second.seen) {
      pair = entries_.erase(pair);
      continue;
    }
    UpdateEntry(first_ ? 0 : seconds, &pair->second);
    const TopRow& row = pair->second.row;
    if (IsSummed(row)) {
      summed_rate_ += row.rate();
    } else {
      not_summed_.insert(row.path == Path::kProxy ? "(proxy)"
                         : row.uplink.empty()     ? "no uplink"
                                                  : row.uplink);
    }
    ++pair;
  }
  first_ = false;
}

// A series that is new since the last reading has its whole count as rate, unless it is
// evicted traffic, which was counted under another name before. 0 seconds: no rates.
void TopModel::UpdateEntry(double seconds, Entry* entry) {
  const Totals &now = entry->now, &before = entry->before;
  TopRow& row = entry->row;
  const bool rates = seconds > 0 && row.kind != Kind::kEvicted;
  const auto rate = [&](uint64_t value, uint64_t last) {
    return rates ? static_cast<double>(Delta(value, last)) / seconds : 0;
  };
  row.tx_rate = rate(now.tx, before.tx);
  row.rx_rate = rate(now.rx, before.rx);
  row.retransmit_rate = rate(now.retransmit, before.retransmit);
  entry->rtt_us_delta = rates ? Delta(now.rtt_us, before.rtt_us) : 0;
  entry->rtt_count_delta = rates ? Delta(now.rtt_count, before.rtt_count) : 0;
  row.rtt_us = Mean(entry->rtt_us_delta, entry->rtt_count_delta);
  row.tx_bytes = now.tx;
  row.rx_bytes = now.rx;
  row.connections = now.connections;
  if (rates) {
    double* const history = row.history.data();
    memmove(history, history + 1, (kTopHistory - 1) * sizeof(*history));
    row.history.back() = row.rate();
  }
  entry->before = now;
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
  double* const to = row->history.data();
  const double* const added = from.history.data();
  for (size_t i = 0; i < kTopHistory; i++) to[i] += added[i];
  *rtt_us += entry.rtt_us_delta;
  *rtt_count += entry.rtt_count_delta;
  row->rtt_us = Mean(*rtt_us, *rtt_count);
}

bool TopModel::IsSummed(const TopRow& row) const {
  return row.path == Path::kDirect &&
         (paid_.empty() || paid_.count(row.uplink) != 0);
}

void TopModel::Sort(TopSort sort, std::vector<TopRow>* rows) const {
  for (TopRow& row : *rows) {
    row.share = !IsSummed(row)     ? -1
                : summed_rate_ > 0 ? row.rate() / summed_rate_
                                   : 0;
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
  // The entries of a service are adjacent.
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
  std::map<std::string, size_t> merged;
  for (auto entry = entries_.lower_bound(
           Key(service.kind, service.name, service.path, service.uplink, ""));
       entry != entries_.end() && entry->second.row.kind == service.kind &&
       entry->second.row.name == service.name &&
       entry->second.row.path == service.path &&
       entry->second.row.uplink == service.uplink;
       ++entry) {
    TopRow row = entry->second.row;
    if (row.kind == kForwardedRow && !row.destination.empty()) {
      row.destination = clients_.IdentityOf(row.destination, row.name);
      row.client_name = clients_.NameOf(row.destination);
      const auto [found, is_new] = merged.emplace(row.destination, rows.size());
      if (!is_new) {
        uint64_t no_rtt_us = 0, no_rtt_count = 0;
        Add(entry->second, &rows[found->second], &no_rtt_us, &no_rtt_count);
        continue;
      }
    }
    rows.push_back(std::move(row));
  }
  Sort(sort, &rows);
  return rows;
}

TopRow TopModel::All() const {
  TopRow all;
  uint64_t rtt_us = 0, rtt_count = 0;
  for (const auto& pair : entries_) {
    if (IsSummed(pair.second.row)) Add(pair.second, &all, &rtt_us, &rtt_count);
  }
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
    // Values above 0 are visible.
    const int level =
        *value <= 0 ? 0 : std::max(1, static_cast<int>(*value / most * 8 + .5));
    line += (utf8 ? kBlocks : kAscii)[level];
  }
  return line;
}

}  // namespace internal
}  // namespace netmeter
