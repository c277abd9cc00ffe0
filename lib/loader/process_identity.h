// SPDX-License-Identifier: BSD-3-Clause
// The name of a process that is older than the meter. The kernel part names processes at
// exec. For older ones the loader runs the same code (bpf/command_line.bpf.h) on the data
// of /proc. So a process has the same name whether it or the meter started first.
//
// Threads: any.

#ifndef NETMETER_LIB_LOADER_PROCESS_IDENTITY_H_
#define NETMETER_LIB_LOADER_PROCESS_IDENTITY_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "lib/loader/config.h"

namespace netmeter {
namespace internal {

struct Identity {
  bool service = false;
  bool by_command_line = false;
  std::string name;  // 1 to 64 bytes
};

// `executable` is the base name of the executed file, `arguments` is argv with a NUL
// after each. `executables` maps these names to services, and `scripts` maps the names of
// scripts in the arguments.
Identity IdentifyProcess(absl::string_view executable,
                         absl::string_view arguments,
                         const std::map<std::string, std::string>& executables,
                         const std::map<std::string, std::string>& scripts);

// The innermost container, and the innermost unit that is in none; empty: none.
struct CgroupPlace {
  std::string unit;
  std::string container;  // short id
};

// `cgroup` is as in /proc/PID/cgroup: "/system.slice/ssh.service".
CgroupPlace PlaceOf(absl::string_view cgroup);

// The service that the longest matching pattern gives to a unit; empty: no match.
std::string ServiceOfUnit(const std::map<std::string, std::string>& units,
                          const std::string& unit);

// As may_be_service() of bpf/names.bpf.h, with these real ids.
bool MayBeService(const Registrants& registrants, const std::string& service,
                  uid_t uid, gid_t gid);

struct RealIds {
  uint32_t uid;
  uint32_t gid;
};

// The ids of a process; empty if it has ended.
std::optional<RealIds> RealIdsOf(uint32_t tgid);

// As MayBeService(), for a running process. False if it has ended.
bool MayProcessBeService(const Registrants& registrants,
                         const std::string& service, uint32_t tgid);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_PROCESS_IDENTITY_H_
