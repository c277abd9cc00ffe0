// SPDX-License-Identifier: BSD-3-Clause
// The reply to Service303's GetServiceInfo, for every server that we have.
//
//   const ServiceInfo info("kernsnoopd", kVersion);
//   Send(info.Serialize(meter.get()));
//
// Threads: any.

#ifndef NETMETER_LIB_MAGMA_SERVICE_INFO_H_
#define NETMETER_LIB_MAGMA_SERVICE_INFO_H_

#include <cstdint>
#include <string>

#include "netmeter/meter.h"

namespace netmeter {
namespace internal {

// The paths of Service303's methods begin with this.
constexpr char kService303Path[] = "/magma.orc8r.Service303/";

// Serialized replies of methods that do nothing here, and say so as Magma's own
// services do. GetOperationalStatesResponse: no states; magmad asks at each
// check-in, and logs an error where nobody answers.
constexpr char kNoOperationalStates[] = "";
// ReloadConfigResponse: result RELOAD_UNSUPPORTED.
constexpr char kReloadUnsupported[] = "\x08\x03";

class ServiceInfo {
 public:
  // The service's start time is now.
  ServiceInfo(std::string name, std::string version);

  // A magma.orc8r.ServiceInfo in protobuf's wire format: name, version, ALIVE,
  // APP_HEALTHY, the start time and, in status.meta under "netmeter", "ok" or
  // why the meter cannot be read. A null meter is "no meter".
  std::string Serialize(const Meter* meter) const;

 private:
  const std::string name_;
  const std::string version_;
  const uint64_t start_time_secs_;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_MAGMA_SERVICE_INFO_H_
