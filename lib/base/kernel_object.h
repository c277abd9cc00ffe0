// SPDX-License-Identifier: BSD-3-Clause
// Identifies a descriptor of bpf(2): a map, a program or a link, with the name and the id
// that `bpftool` shows. The kernel gives a link no name of its own, so we use that of its
// program. Names have at most 15 bytes (BPF_OBJ_NAME_LEN).
//
//   UniqueFd fd(bpf_obj_get("/run/netmeter/names"));
//   Describe(fd.get());  // "map nm_names (id 7)"
//
// Threads: any; nothing here keeps state.

#ifndef NETMETER_LIB_BASE_KERNEL_OBJECT_H_
#define NETMETER_LIB_BASE_KERNEL_OBJECT_H_

#include <bpf/bpf.h>
#include <errno.h>
#include <string.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace netmeter {
namespace internal {

// The number of instructions that the verifier walked, which takes most of the time of a
// load. 0 before 5.16, which does not report it.
uint32_t VerifiedInstructions(int program);

struct KernelObject {
  enum Kind { kOther, kMap, kProgram, kLink };
  Kind kind = kOther;
  int error = 0;     // an errno: could not be examined, the kind is unknown
  std::string name;  // in the kernel; for a link, the name of its program
  uint32_t id = 0;
  uint32_t program = 0;    // links only: id
  bool to_cgroup = false;  // links only
  // Only for a link to a cgroup. 0 once the link is detached, by a process or because the
  // cgroup was removed: the kernel then drops the link's cgroup
  // (bpf_cgroup_link_auto_detach() in kernel/bpf/cgroup.c).
  uint64_t cgroup_id = 0;
};

KernelObject IdentifyObject(int fd);

// "map nm_names (id 7)", "link 9 of program nm_egress (id 8)".
std::string Describe(int fd);

// Fills a bpf_map_info, bpf_prog_info or bpf_link_info. Returns false and sets errno if
// the descriptor is none of these.
template <typename Info>
bool GetInfo(int fd, Info* info) {
  uint32_t size = sizeof(*info);
  return bpf_obj_get_info_by_fd(fd, info, &size) == 0;
}

// Reads the first value of an array. The kernel writes the whole value, whose length
// depends on the version that made the map. Returns false and sets errno if the map is
// not an array, or if its values are over 1 MiB.
bool ReadWholeValue(int fd, std::vector<char>* value);

// Reads the record of a map. That of another version may be longer or shorter; what a
// shorter one lacks is 0. Errors as ReadWholeValue().
template <typename Value>
bool ReadOnlyValue(int fd, Value* value) {
  std::vector<char> whole;
  if (!ReadWholeValue(fd, &whole)) return false;
  *value = {};
  memcpy(value, whole.data(), std::min(whole.size(), sizeof(*value)));
  return true;
}

// The text of a field that ends with a NUL or with the field.
template <size_t N>
std::string TextOf(const char (&field)[N]) {
  return std::string(field, strnlen(field, N));
}

// A number of /proc/thread-self/fdinfo, such as "memlock" or "frozen", which bpf(2) does
// not report. 0 if the file has no such line.
uint64_t FdInfoNumber(int fd, const std::string& key);

// Whether the link pinned at `link_pin` still has its program attached: to this cgroup,
// unless it is a tracing link.
bool IsAttached(const std::string& link_pin, uint64_t cgroup_id);

// Waits until every program of ours that was running at the call has ended. Programs run
// within rcu_read_lock() (bpf_prog_run_array_cg(), bpf_trace_run()), and membarrier(2)
// with MEMBARRIER_CMD_GLOBAL is synchronize_rcu(). If the kernel refuses it (nohz_full),
// UpdateMapOfMaps() makes the kernel wait. An error means that programs may still run.
absl::Status WaitForRunningPrograms();

// Updates an array of maps that exists only for this purpose. The kernel returns from the
// update once all running programs have ended (maybe_wait_bpf_programs() in
// kernel/bpf/syscall.c, synchronize_rcu()).
absl::Status UpdateMapOfMaps();

// Waits, up to 3 s, until the kernel has freed these programs. The kernel frees them
// after a grace period.
void WaitUntilProgramsAreFreed(const std::vector<uint32_t>& ids);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_BASE_KERNEL_OBJECT_H_
