// SPDX-License-Identifier: BSD-3-Clause
// One name for a directory, whatever it is called: loader and readers agree on
// what stands beside it.
//
// Threads: any.

#ifndef NETMETER_LIB_CORE_PATH_H_
#define NETMETER_LIB_CORE_PATH_H_

#include <string>

namespace netmeter {
namespace internal {

// The absolute path without links, "." and trailing slashes, as far as it
// exists; the rest is kept. "" stays "".
std::string CanonicalPath(const std::string& path);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_CORE_PATH_H_
