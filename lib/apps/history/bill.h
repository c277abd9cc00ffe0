// SPDX-License-Identifier: BSD-3-Clause
// Which traffic is on a bill. Each byte that a provider bills is in the total of an
// uplink. This host may count it a second time: at the side of the clients, or in a
// container behind a bridge. So the history keeps such traffic under a path of its own,
// and a sum over the path `direct` is the sum of the bills, whatever the configuration
// was at that time.
//
// Threads: as Database.

#ifndef NETMETER_LIB_APPS_HISTORY_BILL_H_
#define NETMETER_LIB_APPS_HISTORY_BILL_H_

#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/apps/history/sqlite.h"
#include "lib/reader/difference.h"

namespace netmeter {
namespace internal {

// The uplinks of a meter.
struct UplinkSides {
  std::set<std::string> names;    // also those that it had before
  std::set<std::string> clients;  // of forwarded_clients; may have kOtherUplink
  bool any_is_paid = false;  // an uplink of the configuration is no client side
};

// The path of traffic that is on no bill begins with one of these, followed by the path
// that the meter gave it.
constexpr char kClientSide[] = "client ";  // of an uplink in `clients`
// Without an uplink, such as that of containers behind a bridge, or of the uplink
// `other`, while another uplink is paid.
constexpr char kOnNoUplink[] = "unbilled ";

// Gives the traffic that is on no bill its path.
Totals TakeOffBill(const UplinkSides& sides, const Totals& difference);

// Keeps the sides in the history, with the names for KnownUplinks(). Returns them with
// the client sides of an earlier record that this meter does not know: an unload and a
// load may have changed the configuration, and interfaces count on in between. What was
// recorded before an uplink was known as a client side gets its path, too. Call in the
// transaction of a record.
absl::StatusOr<UplinkSides> KeepSides(Database* history, UplinkSides sides);

// The uplinks that the last record found configured, and those of all recorded traffic.
// With `other` if there are any.
absl::StatusOr<std::set<std::string>> KnownUplinks(Database* history);

// InvalidArgument, with the known ones, if `uplink` is none of them. "" and "-" are no
// names of uplinks, and always valid.
absl::Status CheckUplink(absl::string_view uplink,
                         const std::set<std::string>& known);
// CheckUplink() with KnownUplinks().
absl::Status CheckRecordedUplink(Database* history, absl::string_view uplink);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_HISTORY_BILL_H_
