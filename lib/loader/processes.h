// SPDX-License-Identifier: BSD-3-Clause
// Processes that are older than the meter, as /proc shows them: their names and their
// sockets. The kernel part names processes at exec. For older ones the loader runs the
// same code (bpf/command_line.bpf.h) on the data of /proc. So a process has the same name
// whether it or the meter started first.
//
// Threads: any.

#ifndef NETMETER_LIB_LOADER_PROCESSES_H_
#define NETMETER_LIB_LOADER_PROCESSES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lib/base/unique_fd.h"
#include "lib/loader/config.h"

namespace netmeter {
namespace internal {

struct RunningProcess {
  uint32_t tgid;
  std::string name;       // of the executable, as exec saw it
  std::string arguments;  // of Python: argv, a NUL after each
  std::string cgroup;     // of cgroup v2: "/system.slice/ssh.service"
};

// The processes of the machine, without kernel threads. Empty in a private PID namespace,
// whose numbers mean nothing to the kernel part.
std::vector<RunningProcess> RunningProcesses();

// The name of an executable or a script, from the thread's name, argv (a NUL after each)
// and /proc/PID/exe. The path that was executed is no longer known.
std::string NameOfRunning(const std::string& comm, const std::string& arguments,
                          const std::string& exe);

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

// The innermost container and the innermost unit; empty: none.
struct CgroupName {
  std::string unit;
  std::string container;   // short id or name, up to 64 bytes
  bool is_inside = false;  // the unit is in the container
};

// `cgroup` is as in /proc/PID/cgroup: "/system.slice/ssh.service".
CgroupName CgroupNameOf(absl::string_view cgroup);

// The name of a series of this unit: CONTAINER/UNIT inside a container, and without the
// instance if that is a connection (bpf/cgroup_name.bpf.h). More than 64 bytes are cut
// later.
std::string NameOfUnit(const CgroupName& named);

// The service that the longest matching pattern gives to a unit; empty: no match.
std::string ServiceOfUnit(const std::map<std::string, std::string>& units,
                          const std::string& unit);

struct RealIds {
  uint32_t uid;
  uint32_t gid;
};

// The ids of a process; empty if it has ended.
std::optional<RealIds> RealIdsOf(uint32_t tgid);

// As may_be_service() of bpf/names.bpf.h.
bool MayBeService(const Registrants& registrants, const std::string& service,
                  const RealIds& ids);

struct OpenSocket {
  uint32_t tgid;    // a process that has it open
  uint64_t start;   // StartOfProcess(tgid)
  uint64_t cookie;  // SO_COOKIE
  int protocol;     // SO_PROTOCOL
  UniqueFd fd;      // our own, to the same socket
};

// Calls body(socket) for each IPv4 and IPv6 socket of the processes in this cgroup and
// below, once per process that holds it. Younger processes come first, so that a service
// precedes the init that activated it. `cgroup` is as in /proc/PID/cgroup; "" is
// the root. An error says why some or all could not be reached.
absl::Status ForEachOpenSocket(
    const std::string& cgroup,
    const std::function<void(const OpenSocket&)>& body);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_PROCESSES_H_
