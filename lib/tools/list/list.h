// SPDX-License-Identifier: BSD-3-Clause
// What `netmeter list` prints.
//
// Threads: any.

#ifndef NETMETER_LIB_TOOLS_LIST_LIST_H_
#define NETMETER_LIB_TOOLS_LIST_LIST_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lib/base/text.h"
#include "netmeter/meter.h"

namespace netmeter {
namespace internal {

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

// By short id: 12 digits.
using ContainerNames = std::map<std::string, std::string>;

// `state`: where the runtimes keep theirs. Reads one file for each container of
// Docker's, and one for all of the others.
ContainerNames ReadContainerNames(const std::string& state);

// Most traffic first (bytes sent and received); equal ones by name.
void SortByTraffic(std::vector<Sample>* samples);

// The name in a table: with that of a container, if it has one there, after its id:
// "0123456789ab (web)". Cannot harm the terminal.
std::string ShownName(const Sample& sample, const ContainerNames& containers);

// Whether a table needs a column of uplinks, and what stands there.
bool HaveUplinks(const std::vector<Sample>& samples);
std::string ShownUplink(const Sample& sample);

// An aligned table with a header, with the uplinks if there are any; names cannot harm
// the terminal. Without samples, the header and the line `when_empty`. A container that
// has a name there has it after its id: "0123456789ab (web)".
std::string FormatTable(const std::vector<Sample>& samples, SizeUnits units,
                        const std::string& when_empty,
                        const ContainerNames& containers = {});

// One array of objects; names are valid UTF-8, numbers are exact. A container that
// has a name there has the field container_name.
std::string FormatJson(const std::vector<Sample>& samples,
                       const ContainerNames& containers = {});

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_TOOLS_LIST_LIST_H_
