// SPDX-License-Identifier: BSD-3-Clause
// Service303 and SetChannelTag() for programs that Bazel builds: grpc_inline.h,
// compiled once.
#include "netmeter/grpc_inline.h"

#include "lib/publish/service_info.h"

namespace netmeter {
namespace internal {

std::string SerializeServiceInfo(const Meter* meter, const std::string& name,
                                 const std::string& version,
                                 uint64_t start_time_s) {
  return ServiceInfo(name, version, start_time_s).Serialize(meter);
}

}  // namespace internal
}  // namespace netmeter
