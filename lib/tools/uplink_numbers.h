// SPDX-License-Identifier: BSD-3-Clause
// The uplinks of a meter, by the numbers that its maps have.
//
// Threads: any.

#ifndef NETMETER_LIB_TOOLS_UPLINK_NUMBERS_H_
#define NETMETER_LIB_TOOLS_UPLINK_NUMBERS_H_

#include <cstdint>
#include <map>
#include <string>

#include "lib/core/shared_maps.h"

namespace netmeter {
namespace internal {

// Those that have counted since the meter was loaded, and `other`.
std::map<uint32_t, std::string> ReadUplinkNames(const SharedMaps& maps);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_TOOLS_UPLINK_NUMBERS_H_
