// SPDX-License-Identifier: BSD-3-Clause
// Of magma.orc8r.Service303, what every server of ours says: nothing to include in a
// program. grpc.h and netmeter-exporter share it.

#ifndef NETMETER_SERVICE303_WIRE_H_
#define NETMETER_SERVICE303_WIRE_H_

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

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_SERVICE303_WIRE_H_
