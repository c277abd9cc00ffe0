// SPDX-License-Identifier: BSD-3-Clause
// Who a process is that runs already when the meter is loaded. The kernel part
// names processes at exec. The exec of these is over, so the loader names them,
// by the same code (bpf/command_line.bpf.h), from what /proc says of them. So a
// process has the same name whether it or the meter came first.
//
// Threads: any.

#ifndef NETMETER_LIB_LOADER_PROCESS_IDENTITY_H_
#define NETMETER_LIB_LOADER_PROCESS_IDENTITY_H_

#include <map>
#include <string>

#include "absl/strings/string_view.h"

namespace netmeter {
namespace internal {

struct Identity {
  bool service = false;
  bool by_command_line = false;
  std::string name;  // 1 to 64 bytes
};

// `executable` is the base name of what was executed, `arguments` argv with a
// NUL after each. `executables` maps these to services, and `scripts` the names of
// scripts that the arguments tell.
Identity IdentifyProcess(absl::string_view executable,
                         absl::string_view arguments,
                         const std::map<std::string, std::string>& executables,
                         const std::map<std::string, std::string>& scripts);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_PROCESS_IDENTITY_H_
