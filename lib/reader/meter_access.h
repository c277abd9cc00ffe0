// SPDX-License-Identifier: BSD-3-Clause
// Access for the library's own parts to a Meter beyond its API.
//
//   std::vector<Sample> samples;
//   const absl::Status read = MeterAccess::ReadHostByOwner(meter, &samples);
//   const auto uplinks = MeterAccess::ReadLinks(meter);
//
// Threads: as Meter.

#ifndef NETMETER_LIB_READER_METER_ACCESS_H_
#define NETMETER_LIB_READER_METER_ACCESS_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "netmeter/meter.h"
#include "netmeter/uplinks.h"

namespace netmeter {
namespace internal {

class MeterAccess {
 public:
  // Like Meter::ReadHost(), but if a service and a program have one name, their pending
  // traffic is two samples. That of a service is `registered` as soon as the service is.
  // A Sample does not tell its owner. Callers of ReadHost() may rely on one sample for
  // each key, so ReadHost() sums both.
  static absl::Status ReadHostByOwner(const Meter& meter,
                                      std::vector<Sample>* samples);

  // Like Meter::ReadUplinks() without its parts that need series: local and unnamed
  // traffic, and layer-2 headers. Returns none, without a system call, if the meter never
  // had uplinks. Throws std::bad_alloc.
  static absl::StatusOr<std::vector<Uplink>> ReadLinks(const Meter& meter);
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_READER_METER_ACCESS_H_
