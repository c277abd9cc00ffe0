// SPDX-License-Identifier: BSD-3-Clause
// Users and groups by name and number (getpwnam_r(3), getgrnam_r(3)).
//
// Threads: any.

#ifndef NETMETER_LIB_BASE_USERS_H_
#define NETMETER_LIB_BASE_USERS_H_

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace netmeter {
namespace internal {

// Groups of this host.

struct Group {
  std::string name;
  gid_t id;
};

// Both return nothing if this host has no such group.
//
// They ask the name service (getgrnam_r(3)), which may know the groups of a directory
// server. A static program reads /etc/group instead, because the name service would load
// shared libraries of the host, which need the host's own glibc.
std::optional<Group> FindGroupByName(const std::string& name);
std::optional<Group> FindGroupById(gid_t id);

// The gid of a group by its name, or by its id in decimal. The id need not have a name on
// this host: it may belong to a container. NotFound.
absl::StatusOr<gid_t> FindGroup(const std::string& name);

// The first matching group of a file in the format of group(5). Nothing if there is none,
// or if the file cannot be read. Skips lines that are not an entry.
std::optional<Group> FindGroupInFile(
    const std::string& path,
    const std::function<bool(const Group&)>& is_wanted);

// Users of this host.

struct User {
  std::string name;
  uid_t id;
  gid_t group;  // the primary one
};

// Nothing if this host has no such user. Asks the name service. A static program reads
// /etc/passwd instead, as for groups.
std::optional<User> FindUserByName(const std::string& name);

// Gives this process, which is root's, the user and the user's groups; a static program
// gets the primary group only. False with errno if the kernel refuses.
bool BecomeUser(const User& user);

// The name of a user; empty if this host has no such user.
std::string UserName(uid_t id);
// The name of a user by its decimal number, such as the name of a series; empty if the
// text is no such number.
std::string UserName(const std::string& number);

// The user of this name in a file in the format of passwd(5). Nothing if there is none,
// or if the file cannot be read. Skips lines that are not an entry.
std::optional<User> FindUserInFile(const std::string& path,
                                   const std::string& name);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_BASE_USERS_H_
