// SPDX-License-Identifier: BSD-3-Clause
// What `netmeter list` prints.
//
// Threads: any.

#ifndef NETMETER_LIB_TOOLS_LIST_H_
#define NETMETER_LIB_TOOLS_LIST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "lib/core/human.h"
#include "lib/tools/container_names.h"
#include "netmeter/meter.h"

namespace netmeter {
namespace internal {

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

#endif  // NETMETER_LIB_TOOLS_LIST_H_
