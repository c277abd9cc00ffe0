// SPDX-License-Identifier: BSD-3-Clause
// All families of a host or of a service, for tests of their output.
//
// Threads: all functions are pure.

#ifndef NETMETER_LIB_TESTING_FAMILIES_H_
#define NETMETER_LIB_TESTING_FAMILIES_H_

#include <vector>

#include "lib/base/misattributions.h"
#include "lib/publish/families.h"
#include "netmeter/publish.h"

namespace netmeter {
namespace internal {

// `families` as FamilySet::Parse() takes them.
inline PublishOptions OptionsOf(Scope scope, const char* families = "default") {
  PublishOptions options;
  options.scope = scope;
  options.families = *FamilySet::Parse(families);
  return options;
}

// A meter that has lost no name.
inline Health HealthOfZeros() {
  Health health;
  for (const MisattributionRow& row : kMisattributions) {
    health.misattributed.push_back({row.unit, row.reason, 0});
  }
  return health;
}

inline std::vector<Family> FamiliesOfHost(const std::vector<Sample>& samples,
                                          const Health& health) {
  return FamiliesOf(samples, health, OptionsOf(Scope::kHost, "all"));
}

inline std::vector<Family> FamiliesOfService(
    const std::vector<Sample>& samples) {
  return FamiliesOf(samples, Health(), OptionsOf(Scope::kService, "all"));
}

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_TESTING_FAMILIES_H_
