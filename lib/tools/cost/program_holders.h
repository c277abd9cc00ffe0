// SPDX-License-Identifier: BSD-3-Clause
// Who keeps BPF programs alive: the descriptors of processes, and pins in the
// BPF file systems that this process sees. A program without either is held by
// what it is attached to.
//
// Threads: any.

#ifndef NETMETER_LIB_TOOLS_COST_PROGRAM_HOLDERS_H_
#define NETMETER_LIB_TOOLS_COST_PROGRAM_HOLDERS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace netmeter {
namespace internal {

struct HoldersOfProgram {
  std::vector<std::string> processes;  // "PID/NAME", each once
  std::vector<std::string> pins;       // paths
};

// By the program's id.
using ProgramHolders = std::map<uint32_t, HoldersOfProgram>;

// What this process may not look at is left out.
ProgramHolders ReadProgramHolders();

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_TOOLS_COST_PROGRAM_HOLDERS_H_
