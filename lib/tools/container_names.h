// SPDX-License-Identifier: BSD-3-Clause
// What people call the containers of this host: the meter knows their short ids, and
// the runtimes' own files, where the caller may read them, the names. Docker's and
// those of Podman and CRI-O (containers/storage), which root may read.
//
//   const ContainerNames names = ReadContainerNames("/var/lib");
//   names.find("0123456789ab")->second;  // "web"
//
// It never fails: what is not there, may not be read or makes no sense has no name.
//
// Threads: any.

#ifndef NETMETER_LIB_TOOLS_CONTAINER_NAMES_H_
#define NETMETER_LIB_TOOLS_CONTAINER_NAMES_H_

#include <map>
#include <string>

namespace netmeter {
namespace internal {

// By short id: 12 digits.
using ContainerNames = std::map<std::string, std::string>;

// `state`: where the runtimes keep theirs. Reads one file for each container of
// Docker's, and one for all of the others.
ContainerNames ReadContainerNames(const std::string& state);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_TOOLS_CONTAINER_NAMES_H_
