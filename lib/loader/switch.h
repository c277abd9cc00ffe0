// SPDX-License-Identifier: BSD-3-Clause
// The switch from the tables of a meter to their successors, NAME_new, which takes
// effect at one instant: whoever opens the pins finds the old ones or the new ones,
// and they fit together, whenever the loader fails or is killed.
//
//   NETMETER_RETURN_IF_ERROR(SwitchTables(pins));
//
// There are eight pins, and rename(2) replaces one. So for the time of the switch
// they are symbolic links, which lead through one that all have in common:
//
//   counters -> switch/counters     switch -> switch_old
//   switch_old/counters             a second name (link(2)) of the old map
//   switch_new/counters             a second name of counters_new
//
// (all of them with netmeter_ before these names).
//
// 1. The two directories are made and filled, and `switch` leads to switch_old.
// 2. The pins are replaced by symbolic links, one after the other. Each leads to the
//    map that was there.
// 3. `switch` is replaced by one that leads to switch_new. This is the switch.
// 4. NAME_new is renamed over the symbolic link NAME: the same map again. Then
//    `switch` and its directories are removed.
//
// In the end the pins are as before, regular files in one directory. bpffs can all
// of this since 4.x; it exchanges directories (RENAME_EXCHANGE) from Linux 5.16 on.
//
// Threads: one at a time, under the lock of lib/loader/transaction.h.

#ifndef NETMETER_LIB_LOADER_SWITCH_H_
#define NETMETER_LIB_LOADER_SWITCH_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/loader/pin_dir.h"

namespace netmeter {
namespace internal {

// Where a successor is missing, as an older version's growth had come to it, NAME is
// the new one already. After an error: SettleTables().
absl::Status SwitchTables(const PinDir& pins);

// Whether the file system and the kernel let tables be switched at all, which is to be
// known before there is no way back. Leaves nothing behind; after an error:
// SettleTables().
absl::Status TrySwitch(const PinDir& pins);

// FailedPrecondition where something has a name of the switch that is not ours.
// Ends a switch that was interrupted, and does nothing where there was none. After
// part 3 it goes on, and the successors are in place; before it all is as it was.
absl::Status SettleTables(const PinDir& pins);

// Whether anything of a switch, or of its trial, is left.
bool IsSwitching(const PinDir& pins);

// Whether a pin leads through it: it has to be ended. What else is left is in nobody's
// way, and the next load removes it.
bool LeadThroughSwitch(const PinDir& pins);

// Whether part 3 is done, and part 4 is not.
bool LeadsToNewTables(const PinDir& pins);

// Whether the path is that of a pin which is a symbolic link for the time of a
// switch.
absl::StatusOr<bool> IsSwitchLink(const PinDir& pins, absl::string_view pin);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_SWITCH_H_
