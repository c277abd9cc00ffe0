// SPDX-License-Identifier: BSD-3-Clause
// The holders of BPF programs: the descriptors of processes, and pins in the BPF file
// systems that this process sees. A program without either is held by its attachment.
//
// Threads: any.

#ifndef NETMETER_LIB_APPS_NETMETER_COST_PROGRAM_HOLDERS_H_
#define NETMETER_LIB_APPS_NETMETER_COST_PROGRAM_HOLDERS_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace netmeter {
namespace internal {

struct HoldersOfProgram {
  std::vector<std::string> processes;  // "PID/NAME", without duplicates
  std::vector<std::string> pins;       // paths
  // Of perf events that a process has open: "tracepoint sched_switch", "kprobe vfs_read".
  std::set<std::string> attachments;
};

// By the program's id.
using ProgramHolders = std::map<uint32_t, HoldersOfProgram>;

// Leaves out what this process may not inspect.
ProgramHolders ReadProgramHolders();

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_NETMETER_COST_PROGRAM_HOLDERS_H_
