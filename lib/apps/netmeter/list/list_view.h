// SPDX-License-Identifier: BSD-3-Clause
// The table of `netmeter list`: chosen series in a chosen order, for people with sums,
// fitted to the terminal.
//
//   ListView view;
//   view.width = TerminalWidth();
//   Print(FormatView(ListRows(samples, {}, 0), view));
//
// Threads: any.

#ifndef NETMETER_LIB_APPS_NETMETER_LIST_LIST_VIEW_H_
#define NETMETER_LIB_APPS_NETMETER_LIST_LIST_VIEW_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lib/apps/clients/clients.h"
#include "lib/apps/netmeter/list/list.h"
#include "lib/base/text.h"
#include "netmeter/sample.h"

namespace netmeter {
namespace internal {

// An empty field matches any.
struct ListFilter {
  std::string service;  // the name, of any kind
  std::string destination;
  std::string kind;
  std::string uplink;  // "-": none

  bool Matches(const Sample& sample) const;
  bool any() const {
    return !service.empty() || !destination.empty() || !kind.empty() ||
           !uplink.empty();
  }
};

// The largest value comes first; names are in ascending order.
enum class ListSort {
  kTotal,
  kSent,
  kReceived,
  kPackets,
  kRetransmit,
  kName,
  kRate
};

struct ListRow {
  Sample sample;
  // Bytes per second since the previous read. Negative if pending traffic was named, or
  // a series was evicted.
  double tx_rate = 0;
  double rx_rate = 0;
};

// Rows of `now`. With rates if `seconds`, the time since `before`, is more than 0.
std::vector<ListRow> ListRows(const std::vector<Sample>& now,
                              const std::vector<Sample>& before,
                              double seconds);

// Replaces the addresses in rows of forwarded traffic by the identities of their clients.
// Rows that are equal then become one with the sum.
void MergeClients(const Clients& clients, std::vector<ListRow>* rows);

// Removes the rows that do not match.
void FilterRows(const ListFilter& filter, std::vector<ListRow>* rows);
// `is_signed`: as in ListView.
void SortRows(ListSort sort, std::vector<ListRow>* rows,
              bool is_signed = false);

struct ListView {
  SizeUnits units = SizeUnits::kBinary;
  size_t width = 0;        // in characters; 0: any
  size_t top = 0;          // rows; the others are one row; 0: all
  bool sums = true;        // of each path or uplink, below the rows
  bool rates = false;      // in place of packets and payload
  bool filtered = false;   // selects the label of the sums
  bool uplinks = false;    // a column for them, and a sum for each
  bool is_signed = false;  // counters are differences and may be negative
  std::string when_empty;  // the line if there are no rows
  ReadableNames names;
  // Whether the sums of uplinks say that they are without forwarded traffic.
  bool lacks_forwarded = false;
};

// The rows in the given order, and below them the sums: of path direct, or of each uplink
// and of what is in none.
std::string FormatView(const std::vector<ListRow>& rows, const ListView& view);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_NETMETER_LIST_LIST_VIEW_H_
