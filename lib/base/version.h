// SPDX-License-Identifier: BSD-3-Clause
// The version of the library and of its programs, which netmeter.h has.

#ifndef NETMETER_LIB_BASE_VERSION_H_
#define NETMETER_LIB_BASE_VERSION_H_

#include "netmeter/netmeter.h"

namespace netmeter {
namespace internal {

constexpr char kVersion[] = NETMETER_VERSION;

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_BASE_VERSION_H_
