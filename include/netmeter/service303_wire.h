// SPDX-License-Identifier: BSD-3-Clause
// The constants of magma.orc8r.Service303 that grpc.h and netmeter-exporter share.
// Programs do not include this file.

#ifndef NETMETER_SERVICE303_WIRE_H_
#define NETMETER_SERVICE303_WIRE_H_

namespace netmeter {
namespace internal {

// The paths of Service303's methods begin with this.
constexpr char kService303Path[] = "/magma.orc8r.Service303/";

// Serialized replies of methods that do nothing here; Magma's own services reply the
// same. GetOperationalStatesResponse: no states. It is served because magmad asks at
// each check-in, and logs an error if there is no answer.
constexpr char kNoOperationalStates[] = "";
// ReloadConfigResponse: result RELOAD_UNSUPPORTED.
constexpr char kReloadUnsupported[] = "\x08\x03";

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_SERVICE303_WIRE_H_
