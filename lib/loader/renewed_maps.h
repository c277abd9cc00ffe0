// SPDX-License-Identifier: BSD-3-Clause
// The pins that an upgrade changes: those of maps that each load makes anew, and the
// owners and modes of all. Both before the programs are replaced, while there is a way
// back, so that after it as little as can be is left that may fail.
//
//   NETMETER_RETURN_IF_ERROR(KeepModesOnFailure(transaction));
//   NETMETER_RETURN_IF_ERROR(PinRenewedMaps(*object, transaction));
//
// Threads: one at a time, under the lock of lib/loader/transaction.h.

#ifndef NETMETER_LIB_LOADER_RENEWED_MAPS_H_
#define NETMETER_LIB_LOADER_RENEWED_MAPS_H_

#include "absl/status/status.h"
#include "lib/loader/meter_object.h"
#include "lib/loader/transaction.h"

namespace netmeter {
namespace internal {

// If the load fails, all pins and the directory have the owners and modes of now.
absl::Status KeepModesOnFailure(Transaction* transaction);

// Pins the maps that are new; if the load fails, the old ones are there again.
absl::Status PinRenewedMaps(const MeterObject& object,
                            Transaction* transaction);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_RENEWED_MAPS_H_
