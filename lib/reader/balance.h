// SPDX-License-Identifier: BSD-3-Clause
// The balance of each uplink: the count of its interfaces since counting began, and its
// parts.
//
//   interface = local + forwarded + layer-2 headers + unnamed
//
// `local` is the traffic of the namespace's sockets, `forwarded` the meter's count of
// forwarded traffic, and `layer-2 headers` are those of both. The rest is unnamed. If the
// meter does not count forwarded traffic, that is unnamed, too, with its layer-2 headers.
// The unnamed traffic is unknown if an interface has gone, was renamed while it counted,
// counts packets that were on no link, or has layer-2 headers of unknown size; or if
// local packets are in overflow.
//
// Threads: plain values.

#ifndef NETMETER_LIB_READER_BALANCE_H_
#define NETMETER_LIB_READER_BALANCE_H_

#include <string>
#include <vector>

#include "lib/reader/difference.h"
#include "lib/reader/uplink_maps.h"
#include "netmeter/sample.h"
#include "netmeter/uplinks.h"

namespace netmeter {
namespace internal {

struct BalanceInput : MeterLinks {
  std::vector<Sample> samples;
  ForwardedSamples forwarded;
  std::string forwarded_unknown;  // why there is none
};

// The uplinks of the configuration, and those that counted anything.
std::vector<Uplink> BalanceUplinks(const BalanceInput& input);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_READER_BALANCE_H_
