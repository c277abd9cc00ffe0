// SPDX-License-Identifier: BSD-3-Clause
// Names of directories, and in directories.
//
// Threads: any.

#ifndef NETMETER_LIB_BASE_PATH_H_
#define NETMETER_LIB_BASE_PATH_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace netmeter {
namespace internal {

// The absolute path, without symbolic links, "." and trailing slashes. A part that does
// not exist is kept unchanged. "" stays "". Loader and readers have to agree on the name
// of a pin directory, because the socket of netmeter-fds stands beside it.
std::string CanonicalPath(const std::string& path);

// The names in a directory; none if there is no directory.
absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_BASE_PATH_H_
