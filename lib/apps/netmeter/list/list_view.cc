// SPDX-License-Identifier: BSD-3-Clause
// Rows pass through these steps: all samples, with rates if there was a previous read
// (ListRows()); those of one client as one (MergeClients()); the chosen ones
// (FilterRows()); in order (SortRows()); the first ones as lines (FormatView()). The rest
// is summed in a line of its own, so that the lines of a path add up to its total.
#include "lib/apps/netmeter/list/list_view.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/text.h"
#include "lib/base/text_table.h"
#include "lib/reader/words.h"

namespace netmeter {
namespace internal {
namespace {

using Key =
    std::tuple<Kind, std::string, std::string, Transport, Path, std::string>;
// Each of these has its own sum.
using SumKey = std::pair<Path, std::string>;

Key KeyOf(const Sample& sample) {
  return Key(sample.kind, sample.name, sample.destination, sample.transport,
             sample.path, sample.uplink);
}

std::string NameOfSum(const SumKey& key, const ListView& view) {
  if (!key.second.empty()) return ToTerminal(key.second);
  return view.uplinks && key.first == Path::kDirect ? "no uplink"
                                                    : PathName(key.first);
}

// The sort key of a row, except for its name.
double ValueOf(ListSort sort, const ListRow& row, bool is_signed) {
  const Sample& sample = row.sample;
  const auto value = [is_signed](uint64_t count) {
    return is_signed ? static_cast<double>(static_cast<int64_t>(count))
                     : static_cast<double>(count);
  };
  switch (sort) {
    case ListSort::kTotal:
      return value(sample.tx_bytes) + value(sample.rx_bytes);
    case ListSort::kSent:
      return value(sample.tx_bytes);
    case ListSort::kReceived:
      return value(sample.rx_bytes);
    case ListSort::kPackets:
      return value(sample.tx_packets) + value(sample.rx_packets);
    case ListSort::kRetransmit:
      return value(sample.tx_retransmit_bytes);
    case ListSort::kRate:
      return row.tx_rate + row.rx_rate;
    case ListSort::kName:
      return 0;
  }
  return 0;
}

void Add(const ListRow& row, ListRow* sum) {
  sum->sample.tx_bytes += row.sample.tx_bytes;
  sum->sample.rx_bytes += row.sample.rx_bytes;
  sum->sample.tx_packets += row.sample.tx_packets;
  sum->sample.rx_packets += row.sample.rx_packets;
  sum->sample.tx_payload_bytes += row.sample.tx_payload_bytes;
  sum->sample.rx_payload_bytes += row.sample.rx_payload_bytes;
  sum->sample.tx_retransmit_bytes += row.sample.tx_retransmit_bytes;
  sum->tx_rate += row.tx_rate;
  sum->rx_rate += row.rx_rate;
}

class ViewTable {
 public:
  explicit ViewTable(const ListView& view)
      : view_(view), table_(Columns(view)) {}

  void Add(const std::string& kind, const std::string& name,
           const std::string& destination, const std::string& transport,
           const ListRow& row) {
    const Sample& sample = row.sample;
    std::vector<std::string> cells = {kind, name, destination, transport,
                                      PathName(sample.path)};
    if (view_.uplinks) cells.push_back(ShownUplink(sample));
    for (const uint64_t bytes : {sample.tx_bytes, sample.rx_bytes}) {
      cells.push_back(Bytes(bytes));
    }
    if (view_.rates) {
      cells.push_back(Rate(row.tx_rate));
      cells.push_back(Rate(row.rx_rate));
    } else {
      cells.push_back(Number(sample.tx_packets));
      cells.push_back(Number(sample.rx_packets));
      cells.push_back(Bytes(sample.tx_payload_bytes));
      cells.push_back(Bytes(sample.rx_payload_bytes));
    }
    cells.push_back(Bytes(sample.tx_retransmit_bytes));
    table_.Add(std::move(cells));
  }

  std::string Format() const { return table_.Format(view_.width); }

 private:
  // Some are dropped if the terminal is narrow.
  static std::vector<TextColumn> Columns(const ListView& view) {
    constexpr auto kRight = TextColumn::kRight;
    std::vector<TextColumn> columns = {{"KIND", TextColumn::kLeft, 3},
                                       {"NAME"},
                                       {"DESTINATION"},
                                       {"TRANSPORT", TextColumn::kLeft, 4},
                                       {"PATH", TextColumn::kLeft, 1}};
    if (view.uplinks) columns.push_back({"UPLINK"});
    columns.push_back({"TX", kRight});
    columns.push_back({"RX", kRight});
    if (view.rates) {
      columns.push_back({"TX/S", kRight});
      columns.push_back({"RX/S", kRight});
    } else {
      columns.push_back({"TX PKTS", kRight, 6});
      columns.push_back({"RX PKTS", kRight, 6});
      columns.push_back({"TX PAYLOAD", kRight, 7});
      columns.push_back({"RX PAYLOAD", kRight, 7});
    }
    columns.push_back({"RETRANSMIT", kRight, 5});
    return columns;
  }

  std::string Bytes(uint64_t value) const {
    return view_.is_signed
               ? HumanSignedBytes(static_cast<int64_t>(value), view_.units)
               : HumanBytes(value, view_.units);
  }
  std::string Number(uint64_t value) const {
    return view_.is_signed ? absl::StrCat(static_cast<int64_t>(value))
                           : absl::StrCat(value);
  }
  std::string Rate(double rate) const {
    return HumanSignedBytes(static_cast<int64_t>(std::llround(rate)),
                            view_.units);
  }

  const ListView& view_;
  TextTable table_;
};

}  // namespace

bool ListFilter::Matches(const Sample& sample) const {
  return (service.empty() || sample.name == service) &&
         (destination.empty() || sample.destination == destination) &&
         (kind.empty() || KindName(sample.kind) == kind) &&
         (uplink.empty() ||
          (sample.uplink.empty() ? "-" : sample.uplink) == uplink);
}

std::vector<ListRow> ListRows(const std::vector<Sample>& now,
                              const std::vector<Sample>& before,
                              double seconds) {
  std::map<Key, const Sample*> old;
  for (const Sample& sample : before) old[KeyOf(sample)] = &sample;
  std::vector<ListRow> rows;
  for (const Sample& sample : now) {
    ListRow row;
    row.sample = sample;
    // Evicted traffic was counted under another name before.
    if (seconds > 0 && sample.kind != Kind::kEvicted) {
      const auto found = old.find(KeyOf(sample));
      const Sample zero;
      const Sample& base = found == old.end() ? zero : *found->second;
      const auto rate = [seconds](uint64_t a, uint64_t b) {
        return static_cast<double>(static_cast<int64_t>(a - b)) / seconds;
      };
      row.tx_rate = rate(sample.tx_bytes, base.tx_bytes);
      row.rx_rate = rate(sample.rx_bytes, base.rx_bytes);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

void MergeClients(const Clients& clients, std::vector<ListRow>* rows) {
  std::map<Key, size_t> places;
  std::vector<ListRow> merged;
  for (ListRow& row : *rows) {
    if (row.sample.kind == kForwardedRow) {
      row.sample.destination =
          clients.IdentityOf(row.sample.destination, row.sample.name);
      const auto [found, is_new] =
          places.emplace(KeyOf(row.sample), merged.size());
      if (!is_new) {
        Add(row, &merged[found->second]);
        continue;
      }
    }
    merged.push_back(std::move(row));
  }
  *rows = std::move(merged);
}

void FilterRows(const ListFilter& filter, std::vector<ListRow>* rows) {
  rows->erase(std::remove_if(rows->begin(), rows->end(),
                             [&filter](const ListRow& row) {
                               return !filter.Matches(row.sample);
                             }),
              rows->end());
}

void SortRows(ListSort sort, std::vector<ListRow>* rows, bool is_signed) {
  std::sort(rows->begin(), rows->end(),
            [sort, is_signed](const ListRow& a, const ListRow& b) {
              const double value_a = ValueOf(sort, a, is_signed);
              const double value_b = ValueOf(sort, b, is_signed);
              if (value_a != value_b) return value_a > value_b;
              const auto names = [](const Sample& s) {
                return std::tie(s.name, s.kind, s.destination, s.transport,
                                s.path, s.uplink);
              };
              return names(a.sample) < names(b.sample);
            });
}

std::string FormatView(const std::vector<ListRow>& rows, const ListView& view) {
  ViewTable table(view);
  const size_t shown =
      view.top == 0 ? rows.size() : std::min(view.top, rows.size());
  std::map<SumKey, ListRow> sums;
  std::map<SumKey, ListRow> others;
  std::map<SumKey, size_t> other_rows;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Sample& sample = rows[i].sample;
    const SumKey key(sample.path, sample.uplink);
    Add(rows[i], &sums[key]);
    if (i >= shown) {
      Add(rows[i], &others[key]);
      ++other_rows[key];
      continue;
    }
    table.Add(KindName(sample.kind), ShownName(sample, view.names),
              ShownDestination(sample, view.names),
              TransportName(sample.transport), rows[i]);
  }
  const auto add = [&table](const std::string& name, const SumKey& key,
                            const char* remark, ListRow* row) {
    row->sample.path = key.first;
    row->sample.uplink = key.second;
    table.Add("", name, remark, "", *row);
  };
  for (auto& other : others) {
    add(absl::StrCat("(", other_rows[other.first], " more)"), other.first, "",
        &other.second);
  }
  for (auto& sum : sums) {
    if (!view.sums) break;
    const bool lacks = view.lacks_forwarded && !sum.first.second.empty();
    add(absl::StrCat(view.filtered ? "sum, " : "total, ",
                     NameOfSum(sum.first, view)),
        sum.first, lacks ? "without forwarded" : "", &sum.second);
  }
  std::string text = table.Format();
  if (rows.empty()) absl::StrAppend(&text, ToTerminal(view.when_empty), "\n");
  return text;
}

}  // namespace internal
}  // namespace netmeter
