// SPDX-License-Identifier: BSD-3-Clause
// Takes the name of a client or a service out of the history, and no byte.
//
//   auto forgotten = Forget(history.get(), ForgetWhat::kDestination, "192.168.1.7",
//                           kAllIsSent);
//
// What the name counted belongs to the name `forgotten` from then on, in the same hour
// and with the same other labels, so every sum stays. Two things still need the name:
//   - an export, which sends the former rows with zeros to a centre that has them;
//   - the totals of the meter that was recorded last, which still counts under the name.
//     Without them the next record would count all of it again.
// A later call takes the name out of these as well.
//
// Threads: as Database.

#ifndef NETMETER_LIB_APPS_HISTORY_FORGET_H_
#define NETMETER_LIB_APPS_HISTORY_FORGET_H_

#include <cstdint>
#include <limits>
#include <string>

#include "absl/status/statusor.h"
#include "lib/apps/history/history.h"

namespace netmeter {
namespace internal {

constexpr char kForgotten[] = "forgotten";
constexpr int64_t kAllIsSent = std::numeric_limits<int64_t>::max();

enum class ForgetWhat {
  kDestination,  // also the client of forwarded traffic
  kService,      // of any kind of series
};

struct Forgotten {
  int64_t rows = 0;       // of hours and days that had the name
  int64_t bytes = 0;      // of these rows, sent and received
  int64_t unsent = 0;     // rows with zeros that wait for an export
  bool in_meter = false;  // the meter that was recorded last still has the name
};

// `sent` is the version up to which exports have sent the history; kAllIsSent if there
// are none. The file has no copy of the name afterwards, except for the two cases above:
// SQLite writes it anew, which takes twice its size of free disk.
// Errors as Database, and
//   NotFound            the history does not have the name
//   FailedPrecondition  no record of this version of netmeter has been made yet
//   Unavailable         a reader keeps the former pages. A later call removes them
absl::StatusOr<Forgotten> Forget(Database* history, ForgetWhat what,
                                 const std::string& name, int64_t sent);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_HISTORY_FORGET_H_
