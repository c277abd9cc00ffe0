// SPDX-License-Identifier: BSD-3-Clause
// The BPF object. Only this file knows the skeleton. It finds out what this kernel
// offers, opens the object, sizes its maps, sets its configuration and loads it into the
// kernel. It does not pin or attach: the loader does, and the program tests need neither.
//
//   auto object = MeterObject::Open(options);
//   (*object)->Reuse("stats", fd, pin_dir);  // an upgrade keeps its maps
//   (*object)->Load();
//   (*object)->FillReserved();
//
// Between open and load the programs and maps exist only in libbpf's memory. The verifier
// takes values set there as constants, so it skips branches that this kernel or
// configuration does not need (nm_config in bpf/config.h).
//
// The kernel version does not tell what the kernel offers, because distributions add and
// remove features. So the loader tries programs of a few instructions.
//
// After the load the shared maps are frozen, so not even root can write them. The program
// nm_command can. It is pinned and not attached: the loader runs it with
// BPF_PROG_TEST_RUN, passes the command as the packet, and takes the return value as the
// answer.
//
// Threads: one at a time.

#ifndef NETMETER_LIB_LOADER_OBJECT_H_
#define NETMETER_LIB_LOADER_OBJECT_H_

#include <bpf/libbpf.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "bpf/internal.h"
#include "lib/base/pins.h"
#include "lib/loader/config.h"

struct netmeter_bpf;

namespace netmeter {
namespace internal {

// --- What the kernel offers ---

// Each of these questions has three answers: yes, no, and an error that says nothing
// about the kernel, such as ENOMEM. After an error nothing may be turned off, because it
// would stay off. So the load fails, and the loaded meter goes on as it was.

// Whether the kernel accepts a program of these instructions that then returns 1.
// libbpf_probe_bpf_helper() takes every error for a yes, and does not know how newer
// kernels report a refused helper.
absl::StatusOr<bool> MayLoad(bpf_prog_type type, std::vector<bpf_insn> code,
                             bpf_attach_type attach = bpf_attach_type());

// Whether programs may read kernel memory, bpf_probe_read_kernel(): not with
// lockdown=confidentiality, with which a load is refused.
absl::StatusOr<bool> MayReadKernelMemory();

// Whether the kernel shows its types (CONFIG_DEBUG_INFO_BTF), by which libbpf finds the
// fields of kernel structures. Without them there are no tracing programs, pointers to
// tasks or iterators, but a file with types is enough for counting.
absl::StatusOr<bool> KernelShowsTypes();

// Whether an iterator over socket storage, such as nm_scan, may crash the kernel. From
// Linux 7.0 on, the end of a socket sets the pointer from an element to its storage to
// NULL (bpf_selem_unlink_nofail(), kernel commit 0be08389c7f2), which
// __bpf_sk_storage_map_seq_show() follows before it calls the program. bpf_local_storage
// has had the field owner_refcnt since then.
absl::StatusOr<bool> SocketIteratorMayCrash();

// The file with types (key btf) that libbpf reads if the kernel shows none: "" if the
// kernel shows its own, else `file`.
//   Unimplemented    the kernel shows none, and `file` is ""
//   NotFound, PermissionDenied, InvalidArgument    libbpf cannot read `file`
absl::StatusOr<std::string> FindKernelTypes(const std::string& file);

// How packet programs may add to a CPU's own cell. A non-atomic add loses nothing if no
// other run on the same CPU comes between its load and its store. The preemption options
// of a kernel show in its types (/sys/kernel/btf/vmlinux) and in its version text, `uname
// -v`; both are fixed at build time. The preemption model, which PREEMPT_DYNAMIC kernels
// change at run time, does not matter. Each field defaults to the worst case.
struct Preemption {
  // PREEMPT_RT: softirqs are tasks, and preempt each other.
  bool realtime = true;
  // A task may preempt another task in the kernel, now or after a later change.
  bool in_kernel = true;
  // This includes BPF programs: migrate_disable() does not prevent it.
  bool in_programs = true;
  // A program may exchange a word of memory.
  bool has_exchange = false;
};

absl::StatusOr<Preemption> ReadPreemption();
// The part of ReadPreemption() that tests can run for other kernels.
Preemption PreemptionOf(absl::string_view btf, absl::string_view version);

struct Adds {
  nm_adds ingress = NM_ADDS_ATOMIC;
  nm_adds egress = NM_ADDS_ATOMIC;
};
Adds ChooseAdds(const Preemption& preemption);

// "atomic", "plain", "claimed".
const char* NameOf(nm_adds adds);

// The program at the egress hook: "nm_egress" or a variant of it.
const char* EgressProgramOf(nm_adds adds);

// --- The object ---

// What nm_info has about uplinks.
struct UplinkInfo {
  std::array<nm_u16, NM_MAX_UPLINKS> ids = {};
  uint32_t paid = 0;  // bits 1 << number
  uint32_t clients = 0;
  uint64_t network = 0;
  uint64_t forwarded_since_ns = 0;
};

struct ObjectOptions {
  // All but the sizes.
  Config config;
  TableSizes sizes;
  Adds adds;
  // A file with the kernel's types, if the kernel shows none. Such a kernel gives
  // programs no pointer to a task either.
  std::string types_file;
  // False if tracing programs cannot be loaded. The programs then look at a process when
  // it opens a socket.
  bool tracing = true;
  uint32_t registrants = 0;  // services that are not open to anyone
  // True: loads only nm_command and nm_scan, which a sweep for idle series needs
  // (evict.h). False: all that this kernel and these options need, without nm_scan.
  bool only_sweeps = false;
  // For tests: another build of the object.
  absl::string_view elf;
};

// The command that changes sizes and layouts which an upgrade keeps, for error messages.
std::string RestartCommand(absl::string_view pin_dir);

// The id of the object embedded in this program.
uint64_t BuildId();

// Returns 1 for 0.
uint32_t RoundUpToPowerOfTwo(uint32_t value);

// Whether an error of NameId() means that there is no room for a name.
bool IsNoRoom(const absl::Status& status);

class MeterObject {
 public:
  static absl::StatusOr<std::unique_ptr<MeterObject>> Open(
      const ObjectOptions& options);
  ~MeterObject();
  MeterObject(const MeterObject&) = delete;
  MeterObject& operator=(const MeterObject&) = delete;

  // For tests, which set or inspect it between Open() and Load().
  netmeter_bpf* skeleton() const { return skeleton_; }

  // Whether programs can read the cgroup name of a process: not without tracing programs.
  bool may_read_cgroups() const;

  // Whether MPTCP subflows get their owner. Some kernels cannot do this.
  bool follows_mptcp() const;

  // --- Between Open() and Load() ---------------------------------------------

  // Uses this map and does not create one. FailedPrecondition if its layout differs;
  // `pin_dir` is for the message. The caller keeps `fd`.
  absl::Status Reuse(absl::string_view pin, int fd, const std::string& pin_dir);

  // Loads the object into the kernel, through the verifier. Error messages name the
  // program that was refused.
  absl::Status Load();

  // --- After Load() ----------------------------------------------------------

  // The map nm_PIN, whether it is pinned or not. Null if there is no such map, or if it
  // is an extent that does not exist.
  bpf_map* map(absl::string_view pin) const;
  int MapFd(absl::string_view pin) const;
  // For `link_egress` this is the variant that is loaded.
  bpf_program* program(absl::string_view link_pin) const;

  // What WriteInfo() writes about uplinks.
  UplinkInfo* uplink_info() { return &uplink_info_; }

  // Creates the names and series that always exist.
  absl::Status FillReserved();
  // Puts new ids into their queues, up to the sizes. Call it when all programs know the
  // new maps. Each id is pushed exactly once, even if an earlier call was killed.
  absl::Status PushFreeIds() const;
  int command_fd() const;  // of nm_command
  // Repeats the command `times` times in one system call and returns the last result.
  absl::StatusOr<uint32_t> RunCommand(nm_command_code code, const void* payload,
                                      size_t size, uint32_t times = 1) const;

  // The id of a name. A new name is created for `user` (nm_user_of_uid()). If there is no
  // room, IsNoRoom() is true for the error.
  absl::StatusOr<uint32_t> NameId(nm_kind kind, absl::string_view name,
                                  uint16_t user = 0) const;

  absl::Status WriteInfo(const nm_info& info) const;

  // With only_sweeps: the names and slots that the owners of all sockets refer to, as
  // NM_MARK_* by id or slot. One call may miss a connection that a listener hands on
  // while it is closed. A second call sees it.
  absl::StatusOr<std::vector<uint32_t>> ScanSockets() const;

 private:
  explicit MeterObject(netmeter_bpf* skeleton) : skeleton_(skeleton) {}
  absl::Status SizeMaps(const TableSizes& sizes);
  absl::Status Configure(const ObjectOptions& options);
  bpf_map* FindMap(absl::string_view pin) const;

  netmeter_bpf* const skeleton_;
  const char* egress_ = "";  // the name of the egress variant
  UplinkInfo uplink_info_;
};

// MeterObject::RunCommand() of a pinned nm_command.
absl::StatusOr<uint32_t> RunProgram(int program, nm_command_code code,
                                    const void* payload = nullptr,
                                    size_t size = 0, uint32_t times = 1);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_OBJECT_H_
