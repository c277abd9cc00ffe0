// SPDX-License-Identifier: BSD-3-Clause
// What a process is named by, in which order, and what its cgroup says: on the
// host, for the processes that run when the meter is loaded, as the kernel part
// does at exec (bpf/place.bpf.h).
//
// Threads: any; nothing here keeps state.

#ifndef NETMETER_LIB_LOADER_NAME_SOURCES_H_
#define NETMETER_LIB_LOADER_NAME_SOURCES_H_

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "bpf/internal.h"

namespace netmeter {
namespace internal {

// The words of `names_from`, in its default order and, after those, what is
// off by default.
const std::vector<std::string>& DefaultNameSources();
const std::vector<std::string>& AllNameSources();

// InvalidArgument: a word that is unknown or there twice, or an order that
// cannot be meant.
absl::Status CheckNameSources(const std::vector<std::string>& sources);

// By enum nm_source: the place in the list, from 1 on; 0: not in it.
using SourceRanks = std::array<uint32_t, NM_SOURCES>;
SourceRanks RanksOf(const std::vector<std::string>& sources);

// Of `units`: pattern -> service. InvalidArgument: a pattern that is no unit's
// name with at most one '*' right before ".service"; "$1" without a '*'.
absl::Status CheckUnit(const std::string& pattern, const std::string& service);
// All of them, and their number.
absl::Status CheckUnits(const std::map<std::string, std::string>& units);

// The entry of nm_units for it.
void UnitEntry(const std::string& pattern, const std::string& service,
               nm_unit_key* key, nm_unit_service* value);

// The innermost container, and the innermost unit that is in none; empty: none.
struct CgroupPlace {
  std::string unit;
  std::string container;  // short id
};

// `cgroup` as in /proc/PID/cgroup: "/system.slice/ssh.service".
CgroupPlace PlaceOf(absl::string_view cgroup);

// The service that the longest of the patterns that fits makes of a unit; empty:
// none does.
std::string ServiceOfUnit(const std::map<std::string, std::string>& units,
                          const std::string& unit);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_NAME_SOURCES_H_
