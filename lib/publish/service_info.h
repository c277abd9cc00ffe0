// SPDX-License-Identifier: BSD-3-Clause
// The reply to Service303's GetServiceInfo, for all our servers.
//
//   const ServiceInfo info("kernsnoopd", kVersion);
//   Send(info.Serialize(meter.get()));
//
// Threads: any.

#ifndef NETMETER_LIB_PUBLISH_SERVICE_INFO_H_
#define NETMETER_LIB_PUBLISH_SERVICE_INFO_H_

#include <cstdint>
#include <string>

#include "netmeter/meter.h"
#include "netmeter/service303_wire.h"  // the other answers of a server

namespace netmeter {
namespace internal {

class ServiceInfo {
 public:
  // The service's start time is now.
  ServiceInfo(const std::string& name, const std::string& version);

  // With a start time in seconds of Unix time.
  ServiceInfo(const std::string& name, const std::string& version,
              uint64_t start_time_secs);

  // A magma.orc8r.ServiceInfo in protobuf's wire format: name, version, ALIVE,
  // APP_HEALTHY, the start time and, in status.meta under "netmeter", "ok" or the reason
  // why the meter cannot be read. The reason for a null meter is "no meter".
  std::string Serialize(const Meter* meter) const;

 private:
  const std::string name_;
  const std::string version_;
  const uint64_t start_time_secs_;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_PUBLISH_SERVICE_INFO_H_
