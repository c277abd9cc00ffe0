// SPDX-License-Identifier: BSD-3-Clause
// What `netmeter list` shows to people: chosen series in a chosen order, with their
// sums, in the room of a terminal.
//
//   ListView view;
//   view.width = TerminalWidth();
//   Print(FormatView(ListRows(samples, {}, 0), view));
//
// Threads: any.

#ifndef NETMETER_LIB_TOOLS_LIST_LIST_VIEW_H_
#define NETMETER_LIB_TOOLS_LIST_LIST_VIEW_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lib/tools/list/list.h"
#include "netmeter/sample.h"

namespace netmeter {
namespace internal {

// "" stands for any.
struct ListFilter {
  std::string service;  // the name, of whatever kind
  std::string destination;
  std::string kind;
  std::string uplink;  // "-": none

  bool Matches(const Sample& sample) const;
  bool any() const {
    return !service.empty() || !destination.empty() || !kind.empty() ||
           !uplink.empty();
  }
};

// That with most comes first; names in their order.
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
  // Bytes per second since the read before. Below 0 where something pending was
  // named, or a series was retired.
  double tx_rate = 0;
  double rx_rate = 0;
};

// Rows of `now`; with rates if `seconds`, since `before`, is more than 0.
std::vector<ListRow> ListRows(const std::vector<Sample>& now,
                              const std::vector<Sample>& before,
                              double seconds);

// Removes what does not match.
void FilterRows(const ListFilter& filter, std::vector<ListRow>* rows);
// `is_signed`: the counters are differences, as of ListView.
void SortRows(ListSort sort, std::vector<ListRow>* rows,
              bool is_signed = false);

struct ListView {
  SizeUnits units = SizeUnits::kBinary;
  size_t width = 0;        // in characters; 0: any
  size_t top = 0;          // rows; the others are one row; 0: all
  bool rates = false;      // in place of packets and payload
  bool filtered = false;   // for the word of the sums
  bool uplinks = false;    // a column of them, and a sum for each
  bool is_signed = false;  // counters are differences, and may be below 0
  std::string when_empty;  // a line for no rows
  ContainerNames containers;
};

// The rows as they stand, and below them the sums of each path, or of each uplink. The
// sum of path direct is the bill, unless rows were filtered.
std::string FormatView(const std::vector<ListRow>& rows, const ListView& view);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_TOOLS_LIST_LIST_VIEW_H_
