// SPDX-License-Identifier: BSD-3-Clause
// The version of the library and of its programs, in one place.

#ifndef NETMETER_LIB_BASE_VERSION_H_
#define NETMETER_LIB_BASE_VERSION_H_

namespace netmeter {
namespace internal {

constexpr char kVersion[] = "1.0.0";

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_BASE_VERSION_H_
