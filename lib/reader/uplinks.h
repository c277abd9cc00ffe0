// SPDX-License-Identifier: BSD-3-Clause
// Meter::ReadUplinks() for the library's own parts, which have the maps.
//
//   std::vector<Sample> samples = reader.ReadAll();
//   absl::StatusOr<std::vector<Uplink>> uplinks = ReadUplinks(maps, samples);
//
// Threads: any.

#ifndef NETMETER_LIB_READER_UPLINKS_H_
#define NETMETER_LIB_READER_UPLINKS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/reader/shared_maps.h"
#include "netmeter/abi.h"
#include "netmeter/sample.h"
#include "netmeter/uplinks.h"

namespace netmeter {
namespace internal {

// `samples` are all series, read before this. Errors as Meter::ReadUplinks().
absl::StatusOr<std::vector<Uplink>> ReadUplinks(const SharedMaps& maps,
                                                std::vector<Sample> samples);

// Why the meter does not count forwarded packets; "": it does.
std::string WhyNotForwarded(const nm_info& info);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_READER_UPLINKS_H_
