// SPDX-License-Identifier: BSD-3-Clause
// What each user, and each service, has added to the tables of names and series. Its
// maps are not pinned: the programs that are attached have them.
//
// A load must keep them. Else a user would get another share of the tables with every
// load, and a program could add names of destinations without end.
//
// Threads: one at a time, under the lock of lib/loader/transaction.h.

#ifndef NETMETER_LIB_LOADER_SHARES_H_
#define NETMETER_LIB_LOADER_SHARES_H_

#include "absl/status/status.h"
#include "lib/loader/meter_object.h"
#include "lib/loader/pin_dir.h"

namespace netmeter {
namespace internal {

// Between Open() and Load(): takes those maps of the meter that is loaded that have the
// layout and the size of ours. `required`: FailedPrecondition where one has not.
// PermissionDenied: needs CAP_SYS_ADMIN. So does the other.
absl::Status ReuseShares(const PinDir& pins, bool required,
                         MeterObject* object);

// After Load(), where the table of names has grown, and so has the map that is as long:
// what was in the old one. The programs of the old meter hand out no name by then.
absl::Status CopyShares(const PinDir& pins, const MeterObject& object);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_SHARES_H_
