// SPDX-License-Identifier: BSD-3-Clause
// The output of `netmeter list`.
//
// Threads: any.

#ifndef NETMETER_LIB_APPS_NETMETER_LIST_LIST_H_
#define NETMETER_LIB_APPS_NETMETER_LIST_LIST_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "netmeter/meter.h"

namespace netmeter {
namespace internal {

// The names of this host's containers. The meter knows their short ids; the runtimes'
// files, if the caller may read them, have the names. Reads the files of Docker, and
// those of Podman and CRI-O (containers/storage), which only root may read. Never
// fails: a container whose file is missing, unreadable or malformed has no name.
//
//   const ReadableNames names = ReadContainerNames("/var/lib");
//   names.find("0123456789ab")->second;  // "web"
//
// Threads: any.

// Of containers, by short id (12 digits); and of clients, by identity.
using ReadableNames = std::map<std::string, std::string>;

// `state`: the directory with the runtimes' files. Reads one file for each Docker
// container, and one for all containers of each other runtime's storage driver.
ReadableNames ReadContainerNames(const std::string& state);

// The name in a table, safe for a terminal. A container or user with a name has it after
// its id: "0123456789ab (web)", "1000 (alice)".
std::string ShownName(const Sample& sample, const ReadableNames& names);

// Likewise for a client behind this host. "-": none.
std::string ShownDestination(const Sample& sample, const ReadableNames& names);

// Whether a table needs a column for uplinks, and the text in it.
bool HaveUplinks(const std::vector<Sample>& samples);
std::string ShownUplink(const Sample& sample);

// One array of objects. Names are valid UTF-8, numbers are exact. A container with a
// name in `names` has the field container_name, a client behind this host client_name,
// and a user with a name user_name.
// With `lacks_forwarded` a row of an uplink has the field sum_lacks: the sum over the
// rows of its uplink is not the uplink's traffic.
std::string FormatJson(const std::vector<Sample>& samples,
                       const ReadableNames& names = {},
                       bool lacks_forwarded = false);

// The fields of JSON: a line of their names, and a line for each sample. Those of `tcp`,
// except its buckets, are columns, too. A column is empty if JSON lacks it or has null.
std::string FormatCsv(const std::vector<Sample>& samples,
                      const ReadableNames& names = {},
                      bool lacks_forwarded = false);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_NETMETER_LIST_LIST_H_
