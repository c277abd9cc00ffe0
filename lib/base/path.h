// SPDX-License-Identifier: BSD-3-Clause
// One canonical name for a directory. Loader and readers have to agree on it, because the
// socket of netmeter-fds stands beside the directory.
//
// Threads: any.

#ifndef NETMETER_LIB_BASE_PATH_H_
#define NETMETER_LIB_BASE_PATH_H_

#include <string>

namespace netmeter {
namespace internal {

// The absolute path, without symbolic links, "." and trailing slashes. A part that does
// not exist is kept unchanged. "" stays "".
std::string CanonicalPath(const std::string& path);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_BASE_PATH_H_
