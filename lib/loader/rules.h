// SPDX-License-Identifier: BSD-3-Clause
// Fills the maps in which the programs look up the configuration's names: `binaries`,
// `units`, `registrants` and `rules`.
//
// Threads: one at a time.

#ifndef NETMETER_LIB_LOADER_RULES_H_
#define NETMETER_LIB_LOADER_RULES_H_

#include "absl/status/status.h"
#include "lib/loader/config.h"
#include "lib/loader/meter_object.h"

namespace netmeter {
namespace internal {

// Fills only the maps of these programs. The old programs keep the old rules until they
// are replaced.
absl::Status FillRules(const Config& config, const Registrants& registrants,
                       const MeterObject& object);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_RULES_H_
