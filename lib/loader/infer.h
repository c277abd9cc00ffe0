// SPDX-License-Identifier: BSD-3-Clause
// Which service a command line is: the kernel part's own code, on the host,
// for the processes that run when the meter is loaded.
//
// Threads: any.

#ifndef NETMETER_LIB_LOADER_INFER_H_
#define NETMETER_LIB_LOADER_INFER_H_

#include <map>
#include <string>

#include "absl/strings/string_view.h"

namespace netmeter {
namespace internal {

struct Identity {
  bool service = false;
  std::string name;  // 1 to 64 bytes
};

// `executable` is the base name of what was executed, `arguments` argv with a
// NUL behind each, `services` maps executables and script names to services.
Identity IdentifyProcess(absl::string_view executable,
                         absl::string_view arguments,
                         const std::map<std::string, std::string>& services);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_INFER_H_
