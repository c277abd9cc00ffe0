// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/object.h"
#include "lib/base/loader_command.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lib/base/kernel_object.h"
#include "lib/base/libbpf_log.h"
#include "lib/base/status_util.h"
#include "lib/base/unique_fd.h"
#include "lib/loader/config.h"
#include "lib/netlink/interfaces.h"
// After the types that it names.
#include "netmeter.skel.h"

namespace netmeter {
namespace internal {

// The JIT of 32-bit kernels stores a 64-bit counter in two halves (emit_str_r() of Linux'
// arch/arm/net/bpf_jit_32.c), between which a reader may look. And the programs read the
// kernel's pointers as 64 bits.
static_assert(sizeof(void*) == 8, "libnetmeter needs a 64-bit kernel");

// --- What the kernel offers ---

namespace {

// Whether the kernel says by this error that it lacks what a program uses:
//
//   EINVAL    it does not know a program or attach type, an instruction or a helper
//   EACCES    the verifier refuses a field or an argument
//   ENOTSUPP  it makes no code for an instruction
//
// Other errors say nothing about the kernel: no memory (ENOMEM), a signal (EINTR,
// EAGAIN), too few descriptors (EMFILE), a caller without the right (EPERM).
bool SaysThatItIsMissing(int error) {
  constexpr int kNotSupported = 524;  // ENOTSUPP is in no header of user space
  return error == EINVAL || error == EACCES || error == kNotSupported;
}

}  // namespace

absl::StatusOr<bool> MayLoad(bpf_prog_type type, std::vector<bpf_insn> code,
                             bpf_attach_type attach) {
  code.push_back({BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, 1});
  code.push_back({BPF_JMP | BPF_EXIT, 0, 0, 0, 0});
  LIBBPF_OPTS(bpf_prog_load_opts, options);
  options.expected_attach_type = attach;
  if (UniqueFd(bpf_prog_load(type, "nm_probe", "GPL", code.data(), code.size(),
                             &options))
          .ok()) {
    return true;
  }
  if (SaysThatItIsMissing(errno)) return false;
  return ErrnoStatus(errno, "find out what the kernel offers");
}

namespace {

constexpr char kOwnTypes[] = "/sys/kernel/btf/vmlinux";

// libbpf reads a BTF file whole into memory. An ELF file with debug information may be
// this large; its types are 6 MB of it.
constexpr off_t kMostBytesOfTypes = 1 << 30;

// A helper that takes no argument, or the context.
absl::StatusOr<bool> HelperExists(bpf_prog_type type, bpf_func_id helper,
                                  bpf_attach_type attach) {
  return MayLoad(
      type, {{BPF_JMP | BPF_CALL, 0, 0, 0, static_cast<int>(helper)}}, attach);
}

// Whether a socket program may follow a socket to its MPTCP socket. The helper exists
// even without MPTCP, and then fails only when a program calls it with a socket.
absl::StatusOr<bool> MayFollowMptcp() {
  return MayLoad(BPF_PROG_TYPE_SOCK_OPS,
                 {{BPF_LDX | BPF_MEM | BPF_DW, BPF_REG_1, BPF_REG_1,
                   offsetof(bpf_sock_ops, sk), 0},
                  {BPF_JMP | BPF_JEQ | BPF_K, BPF_REG_1, 0, 1, 0},
                  {BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_skc_to_mptcp_sock}});
}

// Whether a socket program may read the error of a TCP socket. That needs the kernel's
// own types, which some kernels do not show, and CAP_PERFMON.
absl::StatusOr<bool> MayReadErrors() {
  return MayLoad(BPF_PROG_TYPE_SOCK_OPS,
                 {{BPF_LDX | BPF_MEM | BPF_DW, BPF_REG_1, BPF_REG_1,
                   offsetof(bpf_sock_ops, sk), 0},
                  {BPF_JMP | BPF_JEQ | BPF_K, BPF_REG_1, 0, 3, 0},
                  {BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_skc_to_tcp_sock},
                  {BPF_JMP | BPF_JEQ | BPF_K, BPF_REG_0, 0, 1, 0},
                  {BPF_LDX | BPF_MEM | BPF_W, BPF_REG_0, BPF_REG_0, 0, 0}});
}

absl::StatusOr<bool> HasExchange() {
  return MayLoad(
      BPF_PROG_TYPE_CGROUP_SKB,
      {{BPF_ST | BPF_MEM | BPF_DW, BPF_REG_10, 0, -8, 0},
       {BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, 1},
       {BPF_STX | BPF_ATOMIC | BPF_DW, BPF_REG_10, BPF_REG_0, -8, BPF_XCHG}},
      BPF_CGROUP_INET_EGRESS);
}

// libbpf's btf__load_vmlinux_btf() indexes all 130,000 types, which takes 16 ms of a
// load. This code needs only a few strings.
absl::StatusOr<std::string> ReadKernelTypes() {
  NETMETER_ASSIGN_OR_RETURN(const bool shown, KernelShowsTypes());
  if (!shown) return std::string();
  std::ostringstream text;
  errno = EIO;
  text << std::ifstream(kOwnTypes, std::ios::binary).rdbuf();
  if (!text) return ErrnoStatus(errno, absl::StrCat("read ", kOwnTypes));
  return text.str();
}

// Whether a structure or a field in these types has the name.
bool HasName(absl::string_view btf, const std::string& name) {
  const std::string pattern = absl::StrCat(absl::string_view("\0", 1), name,
                                           absl::string_view("\0", 1));
  return memmem(btf.data(), btf.size(), pattern.data(), pattern.size()) !=
         nullptr;
}

}  // namespace

absl::StatusOr<bool> MayReadKernelMemory() {
  return MayLoad(BPF_PROG_TYPE_CGROUP_SOCK,
                 {{BPF_ALU64 | BPF_MOV | BPF_X, BPF_REG_1, BPF_REG_10, 0, 0},
                  {BPF_ALU64 | BPF_ADD | BPF_K, BPF_REG_1, 0, 0, -8},
                  {BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_2, 0, 0, 8},
                  {BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_3, 0, 0, 0},
                  {BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_probe_read_kernel}},
                 BPF_CGROUP_INET_SOCK_CREATE);
}

absl::StatusOr<bool> KernelShowsTypes() {
  if (access(kOwnTypes, R_OK) == 0) return true;
  if (errno == ENOENT || errno == ENOTDIR) return false;
  return ErrnoStatus(errno, absl::StrCat("look at ", kOwnTypes));
}

absl::StatusOr<bool> SocketIteratorMayCrash() {
  NETMETER_ASSIGN_OR_RETURN(const std::string btf, ReadKernelTypes());
  return HasName(btf, "owner_refcnt");
}

absl::StatusOr<std::string> FindKernelTypes(const std::string& file) {
  NETMETER_ASSIGN_OR_RETURN(const bool shown, KernelShowsTypes());
  if (shown) return std::string();
  if (file.empty()) {
    return absl::UnimplementedError(absl::StrCat(
        "the kernel has no BTF (CONFIG_DEBUG_INFO_BTF): ", kOwnTypes,
        " is missing, and there is no file with it (--btf)"));
  }
  struct stat about;
  if (stat(file.c_str(), &about) != 0) {
    return ErrnoStatus(errno, absl::StrCat("btf: read ", file));
  }
  if (!S_ISREG(about.st_mode) || about.st_size > kMostBytesOfTypes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "btf: ", file, ": expected a regular file of at most 1 GiB"));
  }
  btf* const types = btf__parse(file.c_str(), nullptr);
  if (types == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "btf: ", file,
        ": libbpf reads no types of a kernel in it: ", strerror(errno)));
  }
  btf__free(types);
  return file;
}

Adds ChooseAdds(const Preemption& preemption) {
  Adds adds;
  // Disabled bottom halves keep other programs out, except with PREEMPT_RT.
  if (!preemption.realtime) adds.ingress = NM_ADDS_PLAIN;
  if (!preemption.in_kernel || !preemption.in_programs) {
    adds.egress = NM_ADDS_PLAIN;
  } else if (preemption.has_exchange) {
    adds.egress = NM_ADDS_CLAIMED;
  }
  return adds;
}

Preemption PreemptionOf(absl::string_view btf, absl::string_view version) {
  Preemption preemption;
  if (btf.empty() || version.empty()) return preemption;
  const auto has = [&](const char* name) { return HasName(btf, name); };
  // task_struct has the first field if bottom halves are disabled for a task and not for
  // a CPU. The second one is then the type of a semaphore. Both mean CONFIG_PREEMPT_RT,
  // also with the patches for 5.10. `uname -v` says it as well.
  preemption.realtime = has("softirq_disable_cnt") || has("rwbase_rt") ||
                        absl::StrContains(version, "PREEMPT_RT");
  // task_struct.rcu_read_lock_nesting means CONFIG_PREEMPT_RCU, which came with
  // CONFIG_PREEMPTION up to 6.12. With PREEMPT_LAZY alone `uname -v` still has the word
  // (init/Makefile, CONFIG_PREEMPT_BUILD).
  preemption.in_kernel = preemption.realtime || has("rcu_read_lock_nesting") ||
                         absl::StrContains(version, "PREEMPT");
  // Up to 5.10 migrate_disable(), which surrounds each program, was preempt_disable()
  // (commit 74d862b682f5).
  // Since then a task counts its calls if there is more than one CPU. With one CPU (no
  // "SMP" in `uname -v`) it does nothing.
  preemption.in_programs = preemption.realtime || has("migration_disabled") ||
                           !absl::StrContains(version, " SMP");
  return preemption;
}

absl::StatusOr<Preemption> ReadPreemption() {
  NETMETER_ASSIGN_OR_RETURN(const std::string btf, ReadKernelTypes());
  utsname name;
  Preemption preemption =
      PreemptionOf(btf, uname(&name) == 0 ? name.version : "");
  NETMETER_ASSIGN_OR_RETURN(preemption.has_exchange, HasExchange());
  return preemption;
}

const char* NameOf(nm_adds adds) {
  switch (adds) {
    case NM_ADDS_ATOMIC:
      return "atomic";
    case NM_ADDS_PLAIN:
      return "plain";
    case NM_ADDS_CLAIMED:
      return "claimed";
  }
  return "unknown";
}

const char* EgressProgramOf(nm_adds adds) {
  return adds == NM_ADDS_CLAIMED ? "nm_egress_claim" : "nm_egress";
}

// --- The object ---

namespace {

// For a user without room.
constexpr char kRaiseMaxNames[] = "(raise max_names)";

// Opens the embedded object, or `elf` if it is set.
netmeter_bpf* OpenSkeleton(absl::string_view elf,
                           const std::string& types_file) {
  LIBBPF_OPTS(bpf_object_open_opts, open_options);
  if (!types_file.empty()) open_options.btf_custom_path = types_file.c_str();
  if (elf.empty()) return netmeter_bpf__open_opts(&open_options);
  auto* const skeleton =
      static_cast<netmeter_bpf*>(calloc(1, sizeof(netmeter_bpf)));
  if (skeleton == nullptr) return nullptr;
  int error = netmeter_bpf__create_skeleton(skeleton);
  if (error == 0) {
    skeleton->skeleton->data = const_cast<char*>(elf.data());
    skeleton->skeleton->data_sz = elf.size();
    error = bpf_object__open_skeleton(skeleton->skeleton, &open_options);
  }
  if (error == 0) return skeleton;
  netmeter_bpf__destroy(skeleton);
  errno = -error;
  return nullptr;
}

// --- Maps --------------------------------------------------------------------

absl::Status Update(const bpf_map* map, const void* key, const void* value) {
  return ErrnoStatus(bpf_map_update_elem(bpf_map__fd(map), key, value, BPF_ANY),
                     absl::StrCat("fill ", bpf_map__name(map)));
}

}  // namespace

// nm_command is a traffic control program, so BPF_PROG_TEST_RUN can run it on any packet.
// The packet is the command, and the return value, normally a verdict, is the answer. The
// program always runs to its end, even if this process is killed.
absl::StatusOr<uint32_t> RunProgram(int program, nm_command_code code,
                                    const void* payload, size_t size,
                                    uint32_t times) {
  std::vector<char> packet(sizeof(nm_command) + size);
  nm_command header = {};
  header.code = static_cast<nm_u16>(code);
  memcpy(packet.data(), &header, sizeof(header));
  if (size != 0) memcpy(packet.data() + sizeof(header), payload, size);
  LIBBPF_OPTS(bpf_test_run_opts, options);
  options.data_in = packet.data();
  options.data_size_in = static_cast<uint32_t>(packet.size());
  options.repeat = static_cast<int>(times);
  if (int error = bpf_prog_test_run_opts(program, &options)) {
    return ErrnoStatus(error, "run nm_command");
  }
  if (options.retval == UINT32_MAX) {
    return absl::InternalError("nm_command refused a command");
  }
  return options.retval;
}

std::string RestartCommand(absl::string_view pin_dir) {
  return absl::StrCat("run: ", LoaderCommand("load --restart", pin_dir),
                      ": counters start again");
}

// All builds of one source give the same bytes (test/program), so equal ids mean equal
// programs.
uint64_t BuildId() {
  size_t size = 0;
  const void* bytes = netmeter_bpf__elf_bytes(&size);
  return HashOf(absl::string_view(static_cast<const char*>(bytes), size));
}

uint32_t RoundUpToPowerOfTwo(uint32_t value) {
  uint32_t power = 1;
  while (power < value) power *= 2;
  return power;
}

// The object is embedded as the bytes of an ELF file. Opening it costs some milliseconds.
// The verifier and the kernel's types come with Load().
absl::StatusOr<std::unique_ptr<MeterObject>> MeterObject::Open(
    const ObjectOptions& options) {
  netmeter_bpf* const skeleton = OpenSkeleton(options.elf, options.types_file);
  if (skeleton == nullptr) return ErrnoStatus(errno, "open the BPF object");
  std::unique_ptr<MeterObject> self(new MeterObject(skeleton));
  self->egress_ = EgressProgramOf(options.adds.egress);
  // SizeMaps() turns on what is used. libbpf turns references to a missing map into a
  // call that the verifier never reaches.
  for (const ExtentPin& extent : ExtentPins()) {
    bpf_map__set_autocreate(self->FindMap(extent.pin), false);
  }
  const auto& programs = skeleton->progs;
  bpf_program* program;
  bpf_object__for_each_program(program, skeleton->obj) {
    const absl::string_view name = bpf_program__name(program);
    const bool scans = program == programs.nm_scan;
    const bool traces = program == programs.nm_exec ||
                        program == programs.nm_fork ||
                        program == programs.nm_exit;
    const bool other_egress =
        absl::StartsWith(name, "nm_egress") && name != self->egress_;
    bpf_program__set_autoload(
        program, options.only_sweeps
                     ? scans || program == programs.nm_command
                     : !scans && !other_egress && (!traces || options.tracing));
  }
  if (options.only_sweeps) {
    bpf_map__set_max_entries(
        skeleton->maps.nm_marks,
        std::max(options.sizes.max_series, options.sizes.max_names));
  }
  NETMETER_RETURN_IF_ERROR(self->Configure(options));
  NETMETER_RETURN_IF_ERROR(self->SizeMaps(options.sizes));
  return self;
}

MeterObject::~MeterObject() { netmeter_bpf__destroy(skeleton_); }

absl::Status MeterObject::Configure(const ObjectOptions& options) {
  const TableSizes& sizes = options.sizes;
  // The skeleton declares the section as constant, as the programs see it. Before the
  // load it is plain memory.
  nm_config& config = const_cast<nm_config&>(skeleton_->rodata->nm_config);
  // The quotas keep one user from filling the tables for the others (bpf/internal.h).
  const auto quota = [](uint32_t size) {
    return std::max<uint32_t>(size / NM_USER_PART, NM_USER_LEAST);
  };
  config.cells_per_series = sizes.cells_per_series;
  config.shared_cell = sizes.cells_per_series - 1;
  config.first_series =
      sizes.first_series != 0 ? sizes.first_series : sizes.max_series;
  config.first_names =
      sizes.first_names != 0 ? sizes.first_names : sizes.max_names;
  config.series_extents = ExtentsFor(config.first_series, sizes.max_series);
  config.names_extents = ExtentsFor(config.first_names, sizes.max_names);
  config.ingress_adds = options.adds.ingress;
  config.egress_adds = options.adds.egress;
  config.info_size = sizeof(nm_info);
  config.stats_size = sizeof(nm_stats);
  config.max_series = sizes.max_series;
  config.max_names = sizes.max_names;
  config.max_user_names = quota(sizes.max_names);
  config.max_user_series = quota(sizes.max_series);
  config.socket_mask = sizes.max_sockets - 1;
  config.socket_half = sizes.max_sockets / 2;
  const Config& keys = options.config;
  config.destination_kinds = BitsOfKinds(keys.destinations_of);
  config.registrants = options.registrants;
  if (options.registrants != 0) {
    bpf_map__set_max_entries(skeleton_->maps.nm_registrants,
                             options.registrants);
  }
  const PortRange ports = PortsOfRules(keys.destinations);
  config.rules_count = static_cast<uint32_t>(keys.destinations.size());
  config.rules_port_first = ports.first;
  config.rules_ports = ports.count;
  NETMETER_ASSIGN_OR_RETURN(
      config.tgid_helper,
      HelperExists(BPF_PROG_TYPE_CGROUP_SOCKOPT, BPF_FUNC_get_current_pid_tgid,
                   BPF_CGROUP_SETSOCKOPT));
  config.untracked = !options.tracing;
  NETMETER_ASSIGN_OR_RETURN(config.mptcp, MayFollowMptcp());
  NETMETER_ASSIGN_OR_RETURN(config.reads_errors, MayReadErrors());
  NETMETER_ASSIGN_OR_RETURN(
      config.netns_cookie,
      HelperExists(BPF_PROG_TYPE_CGROUP_SKB, BPF_FUNC_get_netns_cookie,
                   BPF_CGROUP_INET_INGRESS));
  const SourceRanks ranks = RanksOf(keys.names_from);
  std::copy(ranks.begin(), ranks.end(), config.ranks);
  config.reads_cgroups =
      options.tracing && (!keys.units.empty() || ranks[NM_SOURCE_UNIT] != 0 ||
                          ranks[NM_SOURCE_CONTAINER] != 0);
  NETMETER_ASSIGN_OR_RETURN(
      const bool tells_task,
      HelperExists(BPF_PROG_TYPE_CGROUP_SOCK, BPF_FUNC_get_current_task_btf,
                   BPF_CGROUP_INET_SOCK_CREATE));
  config.task_btf = tells_task && options.types_file.empty();
  const auto copy = [](const std::vector<uint16_t>& from, auto& to) {
    std::copy(from.begin(), from.end(), to);
    return static_cast<uint32_t>(from.size());
  };
  config.proxy_ports_count = copy(keys.proxy_ports, config.proxy_ports);
  for (const uint16_t port : keys.proxy_ports) {
    config.proxy_port_bits |= uint64_t{1} << NM_PORT_BIT(port);
  }
  config.sni_ports_count = copy(keys.sni_ports, config.sni_ports);
  config.http_ports_count = copy(keys.http_ports, config.http_ports);
  config.uplinks = !keys.uplinks.empty();
  if (keys.uplinks.empty()) return absl::OkStatus();
  NETMETER_ASSIGN_OR_RETURN(config.network, OwnNetworkInode());
  return absl::OkStatus();
}

absl::Status MeterObject::SizeMaps(const TableSizes& sizes) {
  const auto resize = [this](absl::string_view pin, uint64_t entries) {
    if (entries != 0 &&
        (entries > UINT32_MAX ||
         bpf_map__set_max_entries(FindMap(pin),
                                  static_cast<uint32_t>(entries)) != 0)) {
      return absl::InvalidArgumentError(
          absl::StrCat(pin, ": too many entries: ", entries));
    }
    return absl::OkStatus();
  };
  for (const MapPin& map : MapPins()) {
    NETMETER_RETURN_IF_ERROR(resize(map.pin, CountEntries(map.entries, sizes)));
  }
  for (const UnpinnedMap& map : UnpinnedMaps()) {
    NETMETER_RETURN_IF_ERROR(resize(absl::StripPrefix(map.name, "nm_"),
                                    CountEntries(map.entries, sizes)));
  }
  const nm_config& config = skeleton_->rodata->nm_config;
  for (const ExtentPin& map : ExtentPins()) {
    if (map.extent >=
        (map.map == kNames ? config.names_extents : config.series_extents)) {
      continue;
    }
    bpf_map__set_autocreate(FindMap(map.pin), true);
    NETMETER_RETURN_IF_ERROR(resize(map.pin, CountEntries(map, sizes)));
  }
  return absl::OkStatus();
}

absl::Status MeterObject::Reuse(absl::string_view pin, int fd,
                                const std::string& pin_dir) {
  bpf_map* const ours = map(pin);
  bpf_map_info about = {};
  if (!GetInfo(fd, &about))
    return ErrnoStatus(errno, absl::StrCat("read ", pin));
  // The records of another minor version may be longer or shorter.
  const uint32_t size = bpf_map__value_size(ours);
  nm_config& config = const_cast<nm_config&>(skeleton_->rodata->nm_config);
  bool fits = about.value_size == size;
  if (pin == PinOf(kInfo)) {
    fits = about.value_size >= NM_INFO_LEAST_BYTES;
    config.info_size = std::min(size, about.value_size);
  } else if (pin == PinOf(kStats)) {
    fits = about.value_size >= NM_STATS_LEAST_BYTES;
    config.stats_size = std::min(size, about.value_size);
  }
  if (!fits || about.type != bpf_map__type(ours) ||
      about.key_size != bpf_map__key_size(ours)) {
    return absl::FailedPreconditionError(absl::StrCat(
        pin_dir, "/", pin, " has another layout than this version's (",
        RestartCommand(pin_dir), ")"));
  }
  // libbpf takes the number of entries, and the size of a value, from the map.
  if (int error = bpf_map__reuse_fd(ours, fd)) {
    return ErrnoStatus(error, absl::StrCat("reuse ", pin));
  }
  return absl::OkStatus();
}

absl::Status MeterObject::Load() {
  CaptureLibbpfMessages();
  const int error = netmeter_bpf__load(skeleton_);
  if (error == 0) {
    // libbpf asks the kernel once in a process whether it maps arrays, and takes every
    // error for a no.
    return skeleton_->rodata != nullptr && skeleton_->bss != nullptr
               ? absl::OkStatus()
               : absl::UnavailableError(
                     "the kernel would not map a BPF object: run it again");
  }
  // libbpf names the program, and the verifier the reason.
  const bool program = !ProgramThatLibbpfRefused().empty();
  return ObjectStatus(
      error, "load the BPF programs",
      error == -EPERM ? "needs CAP_BPF, CAP_NET_ADMIN and "
                        "CAP_PERFMON, or lockdown or another security "
                        "policy refuses it"
      // For a map this means memory. For a program it means more than the
      // verifier walks.
      : error == -ENOMEM || (error == -E2BIG && !program)
          ? "not enough memory: smaller tables"
          : "see --verbose");
}

bpf_map* MeterObject::FindMap(absl::string_view pin) const {
  return bpf_object__find_map_by_name(skeleton_->obj,
                                      ObjectNameOf(pin).c_str());
}

bpf_map* MeterObject::map(absl::string_view pin) const {
  bpf_map* const found = FindMap(pin);
  return found != nullptr && bpf_map__autocreate(found) ? found : nullptr;
}

int MeterObject::MapFd(absl::string_view pin) const {
  bpf_map* const found = map(pin);
  return found == nullptr ? -1 : bpf_map__fd(found);
}

bpf_program* MeterObject::program(absl::string_view link_pin) const {
  const std::string name = ObjectNameOf(link_pin);
  return bpf_object__find_program_by_name(
      skeleton_->obj, name == "nm_egress" ? egress_ : name.c_str());
}

bool MeterObject::may_read_cgroups() const {
  return skeleton_->rodata->nm_config.untracked == 0;
}

bool MeterObject::follows_mptcp() const {
  return skeleton_->rodata->nm_config.mptcp != 0;
}

int MeterObject::command_fd() const {
  return bpf_program__fd(skeleton_->progs.nm_command);
}

absl::StatusOr<uint32_t> MeterObject::RunCommand(nm_command_code code,
                                                 const void* payload,
                                                 size_t size,
                                                 uint32_t times) const {
  return RunProgram(command_fd(), code, payload, size, times);
}

bool IsNoRoom(const absl::Status& status) {
  return absl::IsResourceExhausted(status) &&
         absl::StrContains(status.message(), kRaiseMaxNames);
}

absl::StatusOr<uint32_t> MeterObject::NameId(nm_kind kind,
                                             absl::string_view name,
                                             uint16_t user) const {
  nm_new_name asked = {};
  nm_name_key& key = asked.key;
  key.kind = static_cast<uint8_t>(kind);
  key.length = static_cast<uint16_t>(std::min(name.size(), sizeof(key.bytes)));
  memcpy(key.bytes, name.data(), key.length);
  asked.user = user;
  absl::StatusOr<uint32_t> id =
      RunCommand(NM_COMMAND_NAME, &asked, sizeof(asked));
  if (id.ok() && *id == 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no room for the name ", name, " ", kRaiseMaxNames));
  }
  return id;
}

absl::Status MeterObject::WriteInfo(const nm_info& asked) const {
  nm_info info = asked;
  const UplinkInfo& uplinks = uplink_info_;
  std::copy(uplinks.ids.begin(), uplinks.ids.end(), info.uplinks);
  info.paid_uplinks = static_cast<nm_u16>(uplinks.paid);
  info.client_uplinks = static_cast<nm_u16>(uplinks.clients);
  info.uplinks_network = uplinks.network;
  info.forwarded_since_ns = (info.features & NM_FEATURE_FORWARDED) != 0
                                ? uplinks.forwarded_since_ns
                                : 0;
  info.info_size = skeleton_->rodata->nm_config.info_size;
  info.stats_size = skeleton_->rodata->nm_config.stats_size;
  return RunCommand(NM_COMMAND_INFO, &info, sizeof(info)).status();
}

// Traffic without an owner, or without room, counts under names that always exist. Their
// series have fixed slots (NM_SLOT_RESERVED in netmeter/abi.h), so the programs need no
// lookup and cannot fail to find them.
absl::Status MeterObject::FillReserved() {
  auto& maps = skeleton_->maps;
  const struct {
    uint32_t id;
    nm_kind kind;
    absl::string_view text;
  } reserved[] = {
      {NM_NAME_UNATTRIBUTED, NM_KIND_UNATTRIBUTED, "unattributed"},
      {NM_NAME_OVERFLOW, NM_KIND_OVERFLOW, "overflow"},
  };
  for (const auto& name : reserved) {
    nm_name value = {};
    value.length = static_cast<uint16_t>(name.text.size());
    value.kind = static_cast<uint8_t>(name.kind);
    memcpy(value.bytes, name.text.data(), name.text.size());
    NETMETER_RETURN_IF_ERROR(Update(maps.nm_names, &name.id, &value));
    for (int transport = 0; transport < NM_TRANSPORT_COUNT; transport++) {
      for (int path = 0; path < NM_PATH_COUNT; path++) {
        nm_series_key key = {};
        key.service = static_cast<uint16_t>(name.id);
        key.transport = static_cast<uint8_t>(transport);
        key.path = static_cast<uint8_t>(path);
        nm_series_value series = {};
        series.slot = NM_SLOT_RESERVED(name.id, transport, path);
        series.kind = name.kind;
        memcpy(series.service_name, name.text.data(), name.text.size());
        NETMETER_RETURN_IF_ERROR(Update(maps.nm_series, &key, &series));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status MeterObject::PushFreeIds() const {
  const nm_config& config = skeleton_->rodata->nm_config;
  for (const nm_free& range :
       {nm_free{0, config.max_series}, nm_free{1, config.max_names}}) {
    NETMETER_RETURN_IF_ERROR(
        RunCommand(NM_COMMAND_FREE, &range, sizeof(range), range.end).status());
  }
  nm_stats stats;
  if (!ReadOnlyValue(MapFd("stats"), &stats)) {
    return ErrnoStatus(errno, "read stats");
  }
  return NM_SLOT_FIRST + stats.slots_made < config.max_series ||
                 NM_NAME_FIRST + stats.names_made < config.max_names
             ? absl::UnavailableError("not all ids could be handed out")
             : absl::OkStatus();
}

// nm_scan writes no output, so the kernel runs it for all sockets in one call
// (bpf_seq_read()).
absl::StatusOr<std::vector<uint32_t>> MeterObject::ScanSockets() const {
  const int marks = MapFd("marks");
  std::vector<uint32_t> found(bpf_map__max_entries(skeleton_->maps.nm_marks));
  const uint32_t nothing = 0;
  for (uint32_t i = 0; i < found.size(); i++) {
    if (int error = bpf_map_update_elem(marks, &i, &nothing, BPF_ANY)) {
      return ErrnoStatus(error, "clear nm_marks");
    }
  }
  bpf_iter_link_info map = {};
  map.map.map_fd = static_cast<uint32_t>(MapFd("owners"));
  LIBBPF_OPTS(bpf_iter_attach_opts, options);
  options.link_info = &map;
  options.link_info_len = sizeof(map);
  bpf_link* const link =
      bpf_program__attach_iter(skeleton_->progs.nm_scan, &options);
  if (link == nullptr) return ErrnoStatus(errno, "attach nm_scan");
  const UniqueFd iterator(bpf_iter_create(bpf_link__fd(link)));
  char text[16];
  // The kernel returns EAGAIN after each million sockets; the next call continues.
  ssize_t length = -1;
  do {
    if (iterator.ok()) length = read(iterator.get(), text, sizeof(text));
  } while (iterator.ok() && length < 0 && (errno == EAGAIN || errno == EINTR));
  const int error = errno;
  bpf_link__destroy(link);
  if (length != 0) return ErrnoStatus(error, "run nm_scan");
  for (uint32_t i = 0; i < found.size(); i++) {
    if (int failed = bpf_map_lookup_elem(marks, &i, &found[i])) {
      return ErrnoStatus(failed, "read nm_marks");
    }
  }
  return found;
}

}  // namespace internal
}  // namespace netmeter
