// SPDX-License-Identifier: BSD-3-Clause
// A history belongs to one machine: its host id names it in a fleet. A disk image that is
// written to many machines must not give them one id, and the bytes of the machine on
// which it was made are not theirs. So a history that finds itself on another machine is
// put aside, and a new one begins.
//
// Only the number of the hardware tells machines apart: /etc/machine-id is new at each
// boot of some read-only systems. Without such a number, nothing is noticed here. Two
// machines then send one host id, which the fleet notices: their meters have one number
// and two boots.
//
// Threads: as Database.

#ifndef NETMETER_LIB_APPS_HISTORY_IDENTITY_H_
#define NETMETER_LIB_APPS_HISTORY_IDENTITY_H_

#include <string>

#include "absl/status/statusor.h"
#include "lib/apps/history/sqlite.h"

namespace netmeter {
namespace internal {

// A hash of the hardware's number: the UUID of SMBIOS, which root may read, or the serial
// number of a device tree. "": there is none.
std::string ReadMachine();

// Puts a history of another machine aside, in a file beside it, and empties it. Returns
// the name of that file, or "" if the history is of this machine. With `adopt` it becomes
// the history of this machine. "" is any machine.
absl::StatusOr<std::string> KeepToMachine(Database* history,
                                          const std::string& machine,
                                          bool adopt);

// FailedPrecondition: no record of this version of netmeter has been made yet.
absl::StatusOr<std::string> ReadHostId(Database* history);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_HISTORY_IDENTITY_H_
