// SPDX-License-Identifier: BSD-3-Clause
// What the configuration says of names, as the programs look it up: the maps
// `binaries`, `units`, `registrants` and `rules`.
//
// Threads: one at a time.

#ifndef NETMETER_LIB_LOADER_RULES_H_
#define NETMETER_LIB_LOADER_RULES_H_

#include "absl/status/status.h"
#include "lib/loader/config.h"
#include "lib/loader/meter_object.h"

namespace netmeter {
namespace internal {

// Into the maps of these programs alone: the old programs go on by the old rules until
// they are replaced.
absl::Status FillRules(const Config& config, const Registrants& registrants,
                       const MeterObject& object);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_RULES_H_
