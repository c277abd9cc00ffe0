// SPDX-License-Identifier: BSD-3-Clause
// Users of this host.
#ifndef NETMETER_LIB_CORE_USER_H_
#define NETMETER_LIB_CORE_USER_H_

#include <sys/types.h>

#include <optional>
#include <string>

namespace netmeter {
namespace internal {

// Nothing if this host has no such user. Asks the name service, and a static program
// /etc/passwd, as lib/core/group.h does.
std::optional<uid_t> FindUserByName(const std::string& name);

// The user of this name in a file in the format of passwd(5). Nothing if there is
// none, or if nobody can read the file. Skips lines that are no entry.
std::optional<uid_t> FindUserInFile(const std::string& path,
                                    const std::string& name);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_CORE_USER_H_
