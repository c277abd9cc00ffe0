// SPDX-License-Identifier: BSD-3-Clause
// What the library's own parts read of a Meter beyond its API.
//
//   std::vector<Sample> samples;
//   const absl::Status read = MeterAccess::ReadHostByOwner(meter, &samples);
//
// Threads: as Meter.

#ifndef NETMETER_LIB_READER_METER_ACCESS_H_
#define NETMETER_LIB_READER_METER_ACCESS_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lib/reader/sample_rows.h"
#include "netmeter/meter.h"

namespace netmeter {
namespace internal {

class MeterAccess {
 public:
  // As Meter::ReadHost(), but what is pending of a service and of a program of one
  // name are two samples, and that of a service is `registered` as soon as the service
  // is: a Sample does not say whose it is. Callers of ReadHost() may count on one sample
  // for each key, so it has one of both.
  static absl::Status ReadHostByOwner(const Meter& meter,
                                      std::vector<Sample>* samples);

  // As Meter::ReadService() and ReadHost(), into rows of the C API. Without a copy of
  // strings: those of *rows live as long as it does, also after the Meter.
  static absl::Status ReadService(const Meter& meter, SampleRows* rows);
  static absl::Status ReadService(const Meter& meter, absl::string_view service,
                                  SampleRows* rows);
  static absl::Status ReadHost(const Meter& meter, SampleRows* rows);
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_READER_METER_ACCESS_H_
