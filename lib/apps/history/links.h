// SPDX-License-Identifier: BSD-3-Clause
// What the interfaces of each uplink counted between two records, and what remains of it
// without the traffic of series and the forwarded traffic.
//
//   const LinkCounts counts = CountLinks(reading, &seen);
//   AddLinks(counts, before, &now);
//
// Threads: plain values.

#ifndef NETMETER_LIB_APPS_HISTORY_LINKS_H_
#define NETMETER_LIB_APPS_HISTORY_LINKS_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lib/reader/difference.h"
#include "lib/reader/uplink_maps.h"
#include "netmeter/abi.h"

namespace netmeter {
namespace internal {

// An interface as the last record saw it.
struct SeenLink {
  std::string name;
  std::string uplink;  // "": it has gone
  nm_interface_counts counts = {};
};
using SeenLinks = std::map<uint32_t, SeenLink>;  // by ifindex

// What an interface counted for an uplink since the last record.
struct LinkCount {
  Counters counted;  // bytes without layer-2 headers
  // Bytes of `counted` that may be layer-2 headers, if the device does not tell.
  int64_t tx_headers = 0;
  int64_t rx_headers = 0;
  // It has gone, was renamed out of the uplink, or has begun to count again, and what it
  // counted before that is not known.
  bool ended = false;
  // The uplink and the name that it was renamed into, which have what it counted since
  // the last record, less what the meter counted here.
  std::pair<std::string, std::string> moved_to;
};
// By uplink, and by name of the interface.
using LinkCounts = std::map<std::pair<std::string, std::string>, LinkCount>;

// Also replaces *seen, which is empty if no record of this boot has seen these
// interfaces. Leaves out `other`, and an interface that is on another one of
// its uplink, whose counters have the same packets.
LinkCounts CountLinks(const LinkReading& reading, SeenLinks* seen);

// Adds to *now the series of interfaces (kind kInterfaceKind, path kInterfacePath) and of
// unnamed traffic. The latter makes the sum of an uplink's traffic equal to the sum of
// its interfaces. It is negative if these counted less, such as GSO packets as one.
// `before` and *now are totals of one meter.
void AddLinks(LinkCounts counts, const Totals& before, Totals* now);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_HISTORY_LINKS_H_
