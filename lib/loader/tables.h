// SPDX-License-Identifier: BSD-3-Clause
// The maps of a meter: which an upgrade keeps, which are filled from the configuration,
// when they are frozen and pinned. Tables grow by extents (ExtentPins()): nothing moves,
// so old and new programs count into the same cells.
//
// Threads: one at a time.

#ifndef NETMETER_LIB_LOADER_TABLES_H_
#define NETMETER_LIB_LOADER_TABLES_H_

#include "absl/status/status.h"
#include "lib/base/pins.h"
#include "lib/loader/config.h"
#include "lib/loader/object.h"
#include "lib/loader/pin_dir.h"
#include "netmeter/abi.h"

namespace netmeter {
namespace internal {

// --- Only this process sees what these do ---

// Reuses the maps that outlive their programs. A missing map is an error, except an
// extent that `info` does not list yet.
absl::Status ReuseMaps(const PinDir& pins, const nm_info& info,
                       MeterObject* object);

// Fills the maps in which the programs look up the configuration's names: `binaries`,
// `units`, `registrants` and `rules`. The old programs keep the old ones until they are
// replaced.
absl::Status FillRules(const Config& config, const Registrants& registrants,
                       const MeterObject& object);

// After this only BPF programs can write the maps of readers. Frozen maps are skipped:
// the kernel answers EPERM for them, as for a caller without the permission.
absl::Status FreezeSharedMaps(const MeterObject& object);

// --- Visible, and can be repeated ---

// Pins maps that have no pin yet, except `info`. Readers ignore them until `info` lists
// them. A resize that was killed before may leave an extent that the next one uses.
absl::Status PinNewMaps(const PinDir& pins, const MeterObject& object);

// Pins the maps that belong to the programs of one load over those of the last load.
absl::Status ReplaceRenewedMaps(const PinDir& pins, const MeterObject& object);

// Whether `info` lists this extent.
bool IsUsed(const ExtentPin& map, const nm_info& info);

// Whether all ids up to the sizes in `info` are handed out.
bool AllIdsAreOut(const PinDir& pins, const nm_info& info);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_TABLES_H_
