// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/loader.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "bpf/internal.h"
#include "lib/core/path.h"
#include "lib/core/status_util.h"
#include "lib/core/text.h"
#include "lib/core/unique_fd.h"
#include "lib/core/version.h"
#include "lib/loader/infer.h"
#include "lib/loader/system.h"
// After the types that it names.
#include "netmeter.skel.h"

namespace netmeter {
namespace internal {
namespace {

constexpr int kLockSeconds = 30;
constexpr char kMergedPin[] = "merged";  // only while tables grow
// The old info while growth replaces it: whoever finds it retires it.
constexpr char kOldInfoPin[] = "info_old";
constexpr char kNewSuffix[] = "_new";  // bpffs reserves names with a dot

// --- libbpf's messages -------------------------------------------------------

bool g_verbose = false;
std::string* g_last_warning = nullptr;  // never freed: a callback uses it

int Log(enum libbpf_print_level level, const char* format, va_list args) {
  char line[1024];
  va_list copy;
  va_copy(copy, args);
  vsnprintf(line, sizeof(line), format, copy);
  va_end(copy);
  if (level == LIBBPF_WARN && g_last_warning->size() < (1 << 20)) {
    absl::StrAppend(g_last_warning, line);
  }
  if (g_verbose && level != LIBBPF_DEBUG) vfprintf(stderr, format, args);
  return 0;
}

void StartLog() {
  if (g_last_warning == nullptr) g_last_warning = new std::string;
  g_last_warning->clear();
  libbpf_set_print(Log);
}

// --- Steps -------------------------------------------------------------------

std::function<void(const std::string&)>* g_observer = nullptr;  // never freed

// Between two steps a load may be killed.
template <typename... Parts>
void Step(const Parts&... parts) {
  if (g_observer != nullptr && *g_observer) {
    (*g_observer)(absl::StrCat(parts...));
  }
}

// --- What a descriptor of bpf(2) is -------------------------------------------

struct KernelObject {
  enum Kind { kOther, kMap, kProgram, kLink };
  Kind kind = kOther;
  std::string name;        // in the kernel; of a link, that of its program
  uint32_t id = 0;
  uint32_t program = 0;    // of a link: id
  uint64_t cgroup_id = 0;  // of a link to a cgroup; 0: detached
  bool to_cgroup = false;  // of a link
};

// 15 bytes and a NUL, or all 16.
template <size_t N>
std::string NameIn(const char (&field)[N]) {
  return std::string(field, strnlen(field, N));
}

KernelObject ObjectOf(int fd) {
  KernelObject object;
  char target[64] = "";
  const ssize_t length =
      readlink(absl::StrCat("/proc/self/fd/", fd).c_str(), target,
               sizeof(target) - 1);
  const absl::string_view kind(target, length < 0 ? 0 : length);
  if (kind == "anon_inode:bpf-map") {
    bpf_map_info about = {};
    uint32_t size = sizeof(about);
    if (bpf_obj_get_info_by_fd(fd, &about, &size) != 0) return object;
    object.kind = KernelObject::kMap;
    object.name = NameIn(about.name);
    object.id = about.id;
  } else if (kind == "anon_inode:bpf-prog") {
    bpf_prog_info about = {};
    uint32_t size = sizeof(about);
    if (bpf_obj_get_info_by_fd(fd, &about, &size) != 0) return object;
    object.kind = KernelObject::kProgram;
    object.name = NameIn(about.name);
    object.id = about.id;
  } else if (kind == "anon_inode:bpf-link" || kind == "anon_inode:bpf_link") {
    bpf_link_info about = {};
    uint32_t size = sizeof(about);
    if (bpf_obj_get_info_by_fd(fd, &about, &size) != 0) return object;
    object.kind = KernelObject::kLink;
    object.id = about.id;
    object.program = about.prog_id;
    object.to_cgroup = about.type == BPF_LINK_TYPE_CGROUP;
    if (object.to_cgroup) object.cgroup_id = about.cgroup.cgroup_id;
    UniqueFd program(bpf_prog_get_fd_by_id(about.prog_id));
    if (program.ok()) object.name = ObjectOf(program.get()).name;
  }
  return object;
}

// "map nm_names (id 7)"
std::string Describe(int fd) {
  const KernelObject object = ObjectOf(fd);
  switch (object.kind) {
    case KernelObject::kMap:
      return absl::StrCat("map ", object.name, " (id ", object.id, ")");
    case KernelObject::kProgram:
      return absl::StrCat("program ", object.name, " (id ", object.id, ")");
    case KernelObject::kLink:
      return absl::StrCat("link ", object.id, " of program ", object.name,
                          " (id ", object.program, ")");
    case KernelObject::kOther:
      break;
  }
  return "no object of BPF";
}

// --- lockdown=confidentiality --------------------------------------------------

// Tries bpf_probe_read_kernel(): libbpf_probe_bpf_helper() of libbpf 1.1 does
// not know the words by which newer kernels refuse a helper.
bool MayReadKernelMemory() {
  const bpf_insn code[] = {
      {BPF_ALU64 | BPF_MOV | BPF_X, BPF_REG_1, BPF_REG_10, 0, 0},
      {BPF_ALU64 | BPF_ADD | BPF_K, BPF_REG_1, 0, 0, -8},
      {BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_2, 0, 0, 8},
      {BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_3, 0, 0, 0},
      {BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_probe_read_kernel},
      {BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, 1},
      {BPF_JMP | BPF_EXIT, 0, 0, 0, 0},
  };
  LIBBPF_OPTS(bpf_prog_load_opts, options);
  options.expected_attach_type = BPF_CGROUP_INET_SOCK_CREATE;
  return UniqueFd(bpf_prog_load(BPF_PROG_TYPE_CGROUP_SOCK, "nm_probe", "GPL",
                                code, sizeof(code) / sizeof(code[0]),
                                &options))
      .ok();
}

// Where bpf_probe_read_kernel() is refused, libbpf takes the kernel for one
// that is older than bpf_probe_read_user(), and puts the older helper, which is
// refused as well, in its place (bpf_object__sanitize_prog()). The tracing
// programs read user memory only, so the right helper is put back.
int RestoreUserReads(bpf_program* program, bpf_prog_load_opts*, long) {
  std::vector<bpf_insn> code(
      bpf_program__insns(program),
      bpf_program__insns(program) + bpf_program__insn_cnt(program));
  for (bpf_insn& insn : code) {
    if (insn.code != (BPF_JMP | BPF_CALL) || insn.src_reg != 0) continue;
    if (insn.imm == BPF_FUNC_probe_read) insn.imm = BPF_FUNC_probe_read_user;
    if (insn.imm == BPF_FUNC_probe_read_str) {
      insn.imm = BPF_FUNC_probe_read_user_str;
    }
  }
  return bpf_program__set_insns(program, code.data(), code.size());
}

int AttachTracing(const bpf_program* program, long, bpf_link** link) {
  *link = bpf_program__attach_trace(program);
  return *link == nullptr ? -errno : 0;
}

// Makes the tracing programs of objects that are opened from now on load under
// lockdown=confidentiality.
void HandleConfidentiality() {
  static const int handler = [] {
    LIBBPF_OPTS(libbpf_prog_handler_opts, options);
    options.prog_prepare_load_fn = RestoreUserReads;
    options.prog_attach_fn = AttachTracing;
    return libbpf_register_prog_handler("tp_btf+", BPF_PROG_TYPE_TRACING,
                                        BPF_TRACE_RAW_TP, &options);
  }();
  (void)handler;  // where it failed, the programs do not load: see status
}

// --- Pins --------------------------------------------------------------------

using Skeleton =
    std::unique_ptr<netmeter_bpf, void (*)(struct netmeter_bpf*)>;

enum class Keep {
  kShared,   // kept over an upgrade, frozen, for readers
  kPrivate,  // kept over an upgrade, root's
  kRenewed,  // belongs to the programs of one load
};

struct MapEntry {
  const char* pin;
  bpf_map* map;
  Keep keep;
  bool grows;  // its size, or what it says, changes with the table sizes
};

// info comes last: with it a load is complete.
std::vector<MapEntry> MapsOf(netmeter_bpf* skeleton) {
  auto& maps = skeleton->maps;
  return {
      {"counters", maps.nm_counters, Keep::kShared, true},
      {"tcp", maps.nm_tcp, Keep::kShared, true},
      {"names", maps.nm_names, Keep::kShared, true},
      {"stats", maps.nm_stats, Keep::kShared, false},
      {"series", maps.nm_series, Keep::kPrivate, true},
      {"name_ids", maps.nm_name_ids, Keep::kPrivate, true},
      {"free_slots", maps.nm_free_slots, Keep::kPrivate, true},
      {"free_names", maps.nm_free_names, Keep::kPrivate, true},
      {"processes", maps.nm_processes, Keep::kPrivate, false},
      {"sockets", maps.nm_sockets, Keep::kPrivate, false},
      {"owners", maps.nm_owners, Keep::kPrivate, false},
      {"namings", maps.nm_namings, Keep::kPrivate, false},
      {"rules", maps.nm_rules, Keep::kRenewed, false},
      {"binaries", maps.nm_binaries, Keep::kRenewed, false},
      {"info", maps.nm_info, Keep::kShared, true},
  };
}

struct LinkEntry {
  const char* pin;
  bpf_program* program;
  uint64_t feature;  // 0: required
};

// In the order of attaching: who a process is must be known before a socket's
// owner is asked for, and both before packets are counted.
std::vector<LinkEntry> LinksOf(netmeter_bpf* skeleton) {
  auto& progs = skeleton->progs;
  return {
      {"link_exit", progs.nm_exit, NM_FEATURE_PROCESS_TRACKING},
      {"link_fork", progs.nm_fork, NM_FEATURE_PROCESS_TRACKING},
      {"link_exec", progs.nm_exec, NM_FEATURE_PROCESS_TRACKING},
      {"link_setsockopt", progs.nm_setsockopt, NM_FEATURE_CONTROL},
      {"link_sock_create", progs.nm_sock_create, 0},
      {"link_sock_release", progs.nm_sock_release, 0},
      {"link_sockops", progs.nm_sockops, NM_FEATURE_SOCKET_TABLE},
      {"link_ingress", progs.nm_ingress, 0},
      {"link_egress", progs.nm_egress, 0},
  };
}

bool IsTracing(const bpf_program* program) {
  return bpf_program__type(program) == BPF_PROG_TYPE_TRACING;
}

std::string PinPath(const std::string& dir, absl::string_view pin) {
  return absl::StrCat(dir, "/", pin);
}

// Every pin that a load may leave, links first, info last.
std::vector<std::string> AllPins() {
  std::vector<std::string> pins;
  auto append = [&](const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      pins.push_back(name);
      pins.push_back(name + kNewSuffix);
    }
  };
  append(LinkPins());
  pins.push_back(kMergedPin);
  pins.push_back(kOldInfoPin);
  append(MapPins());
  return pins;
}

// Whether a map is the info of a meter, of whatever version.
bool IsInfo(const std::string& path) {
  UniqueFd fd(bpf_obj_get(path.c_str()));
  bpf_map_info about = {};
  uint32_t size = sizeof(about), zero = 0;
  if (!fd.ok() || bpf_obj_get_info_by_fd(fd.get(), &about, &size) != 0 ||
      about.type != BPF_MAP_TYPE_ARRAY || about.value_size > (1 << 20)) {
    return false;
  }
  std::vector<char> value(std::max<size_t>(about.value_size, sizeof(nm_info)));
  if (bpf_map_lookup_elem(fd.get(), &zero, value.data()) != 0) return false;
  nm_info info;
  memcpy(&info, value.data(), sizeof(info));
  return info.magic == NM_MAGIC;
}

// The pins of AllPins() that are there; FailedPrecondition if one holds
// something else than ours, such as another tool's map in a BPF file system
// that is shared. The kernel keeps 15 bytes of a name. A map's name alone proves
// nothing: there has to be a link of ours, an info, or our own mount, and
// whatever removes pins keeps to the order of AllPins().
absl::StatusOr<std::vector<std::string>> FindPins(const std::string& dir,
                                                  const LoaderState& state) {
  std::vector<std::string> found;
  bool ours = false;
  for (const std::string& pin : AllPins()) {
    const std::string path = PinPath(dir, pin);
    struct stat about;
    if (lstat(path.c_str(), &about) != 0) continue;
    UniqueFd fd(bpf_obj_get(path.c_str()));
    if (!fd.ok() && errno == ENOENT) continue;
    if (!fd.ok() && (errno == EPERM || errno == EACCES) && geteuid() != 0) {
      return ErrnoStatus(errno, absl::StrCat("open ", path), "run as root");
    }
    std::string name = pin == kOldInfoPin ? "info" : pin;
    absl::string_view expected = absl::StripSuffix(name, kNewSuffix);
    const bool link = absl::ConsumePrefix(&expected, "link_");
    const KernelObject object =
        fd.ok() && S_ISREG(about.st_mode) ? ObjectOf(fd.get()) : KernelObject();
    if (object.kind != (link ? KernelObject::kLink : KernelObject::kMap) ||
        object.name != absl::StrCat("nm_", expected).substr(0, 15)) {
      return absl::FailedPreconditionError(absl::StrCat(
          path, " is not ours (",
          fd.ok() ? Describe(fd.get()) : std::string("no object of BPF"),
          "): choose another --pin-dir"));
    }
    if (link || (expected == "info" && IsInfo(path))) ours = true;
    found.push_back(pin);
  }
  if (!found.empty() && !ours && !IsOwnMount(dir, state)) {
    const std::string path = PinPath(dir, found[0]);
    return absl::FailedPreconditionError(absl::StrCat(
        path, " is not ours (",
        Describe(UniqueFd(bpf_obj_get(path.c_str())).get()),
        ", without a meter's info beside it): choose another --pin-dir"));
  }
  return found;
}

uint64_t Hash(absl::string_view bytes) {  // FNV-1a
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (char c : bytes) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  }
  return hash;
}

uint64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000 +
         static_cast<uint64_t>(now.tv_nsec);
}

template <size_t N>
void CopyText(absl::string_view text, char (&field)[N]) {
  memset(field, 0, N);
  memcpy(field, text.data(), std::min(text.size(), N - 1));
}

// bpf(2) cannot tell; a second freeze is EPERM.
bool IsFrozen(int map_fd) {
  std::ifstream file(absl::StrCat("/proc/self/fdinfo/", map_fd));
  std::string key, value;
  while (file >> key >> value) {
    if (key == "frozen:") return value == "1";
  }
  return false;
}

// Waits until every program that runs now has ended: membarrier(2) is
// synchronize_rcu() here.
void WaitForRunningPrograms() {
  if (syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0) != 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
}

// Calls body(key, value) for every element of a hash map.
template <typename Key, typename Value, typename Body>
absl::Status ForEach(int fd, Body body) {
  Key key = {}, next = {};
  const Key* from = nullptr;
  while (bpf_map_get_next_key(fd, from, &next) == 0) {
    key = next;
    from = &key;
    Value value = {};
    if (bpf_map_lookup_elem(fd, &key, &value) != 0) continue;
    absl::Status status = body(key, value);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Update(const bpf_map* map, const void* key, const void* value) {
  return ErrnoStatus(
      bpf_map_update_elem(bpf_map__fd(map), key, value, BPF_ANY),
      absl::StrCat("fill ", bpf_map__name(map)));
}

uint32_t RoundUpToPowerOfTwo(uint32_t value) {
  uint32_t power = 1;
  while (power < value) power *= 2;
  return power;
}

// Key and value of all that a configuration says, but for where it applies.
std::vector<std::pair<std::string, std::string>> Settings(
    const Config& config) {
  std::string destinations;
  for (const DestinationRule& rule : config.destinations) {
    absl::StrAppend(&destinations, rule.name, ",", rule.port_first, ",",
                    rule.port_last, ",", rule.protocol);
    for (int i = 0; i < 4; i++) {
      absl::StrAppend(&destinations, ",", rule.address[i], "/", rule.mask[i]);
    }
    absl::StrAppend(&destinations, "\n");
  }
  return {
      {"group", config.group},
      {"max_series", absl::StrCat(config.max_series)},
      {"max_names", absl::StrCat(config.max_names)},
      {"max_processes", absl::StrCat(config.max_processes)},
      {"max_sockets", absl::StrCat(config.max_sockets)},
      {"proxy_ports", absl::StrJoin(config.proxy_ports, ",")},
      {"sni_ports", absl::StrJoin(config.sni_ports, ",")},
      {"destination_suffixes", absl::StrJoin(config.destination_suffixes, "\n")},
      {"unknown_destinations",
       config.fold_unknown_destinations ? "other" : "keep"},
      {"services", absl::StrJoin(config.services, "\n")},
      {"aliases",
       absl::StrJoin(config.aliases, "\n", absl::PairFormatter("="))},
      {"destinations", destinations},
  };
}

std::string ConfigText(const Config& config, uint64_t cgroup_id,
                       uint64_t features) {
  return absl::StrCat(
      cgroup_id, "|", features, "|",
      absl::StrJoin(Settings(config), "|", absl::PairFormatter("=")));
}

// "max_series 4096 to 8192, services": the values of what is short.
std::string Difference(
    const std::vector<std::pair<std::string, std::string>>& before,
    const std::vector<std::pair<std::string, std::string>>& after) {
  const std::map<std::string, std::string> old(before.begin(), before.end());
  std::vector<std::string> changes;
  for (const auto& setting : after) {
    const auto was = old.find(setting.first);
    if (was == old.end() || was->second == setting.second) continue;
    const bool is_short =
        setting.second.size() + was->second.size() <= 60 &&
        setting.first != "destinations" &&
        absl::StrCat(was->second, setting.second).find('\n') ==
            std::string::npos;
    auto shown = [](const std::string& value) {
      return value.empty() ? std::string("none") : ToTerminal(value);
    };
    changes.push_back(is_short
                          ? absl::StrCat(setting.first, " ",
                                         shown(was->second), " to ",
                                         shown(setting.second))
                          : setting.first);
  }
  return absl::StrJoin(changes, ", ");
}

// Runs nm_control, the loader's way into frozen maps; what it answers.
absl::StatusOr<uint32_t> RunControl(const bpf_program* program,
                                    nm_command command, const void* payload,
                                    size_t size) {
  std::vector<char> packet(sizeof(nm_control) + size);
  nm_control header = {};
  header.command = command;
  memcpy(packet.data(), &header, sizeof(header));
  if (size != 0) memcpy(packet.data() + sizeof(header), payload, size);
  LIBBPF_OPTS(bpf_test_run_opts, options);
  options.data_in = packet.data();
  options.data_size_in = static_cast<uint32_t>(packet.size());
  if (int error = bpf_prog_test_run_opts(bpf_program__fd(program), &options)) {
    return ErrnoStatus(error, "run nm_control");
  }
  if (options.retval == UINT32_MAX) {
    return absl::InternalError("nm_control refused a command");
  }
  return options.retval;
}

// Marks info as retired, so that readers that hold it open again.
absl::Status Retire(int info_fd) {
  Skeleton skeleton(netmeter_bpf__open(), netmeter_bpf__destroy);
  if (!skeleton) return ErrnoStatus(errno, "open the BPF object");
  bpf_program* program;
  bpf_object__for_each_program(program, skeleton->obj) {
    bpf_program__set_autoload(program, program == skeleton->progs.nm_control);
  }
  if (int error = bpf_map__reuse_fd(skeleton->maps.nm_info, info_fd)) {
    return ErrnoStatus(error, "reuse info");
  }
  if (int error = netmeter_bpf__load(skeleton.get())) {
    return ErrnoStatus(error, "load nm_control");
  }
  return RunControl(skeleton->progs.nm_control, NM_COMMAND_RETIRE, nullptr, 0)
      .status();
}

// Whether the lock file knew nothing of a meter.
bool IsEmpty(const LoaderState& state) {
  return state.made.empty() && !state.mounted && state.settings.empty();
}

// --- One load ----------------------------------------------------------------

class Loading {
 public:
  explicit Loading(const Config& config)
      : config_(config), skeleton_(nullptr, netmeter_bpf__destroy) {}

  // Undoes a first load that did not come to its end.
  ~Loading() {
    for (bpf_link* link : links_) bpf_link__destroy(link);
    if (drained_ && !done_ && !HasPin(absl::StrCat("info", kNewSuffix))) {
      RefillDrainedQueues().IgnoreError();  // as if nothing had been tried
    }
    if (done_ || upgrade_ || !lock_.ok()) return;
    // Maps first: by a link the next loader knows them, if this one is killed.
    for (auto path = pinned_.rbegin(); path != pinned_.rend(); ++path) {
      unlink(path->c_str());
    }
    if (mounted_ || made_directory_) {
      RemoveDirectory(config_.pin_dir, state_).IgnoreError();
    }
    RemoveDirectories(state_.made);
    if (fresh_ || was_unknown_ || !IsBpffs(config_.pin_dir)) {
      unlink(LockFile(config_.pin_dir).c_str());
    }
  }

  absl::StatusOr<LoadResult> Run();

 private:
  absl::Status CheckPrivileges();
  absl::Status FindExisting();
  absl::Status Build(bool tracing);
  absl::Status ReuseMaps();
  absl::Status SizeMaps();
  absl::Status FillMaps();
  absl::Status FillRules();
  absl::Status FreezeMaps();
  absl::Status Attach();
  absl::Status AttachOne(const LinkEntry& entry);
  absl::Status Publish();
  absl::Status KeepSizes();
  absl::Status DrainQueues();
  absl::Status CopyTables();
  absl::Status FillNewQueues();
  absl::Status RefillQueues(uint32_t max_series, uint32_t max_names,
                            int series, int name_ids, int free_slots,
                            int free_names);
  absl::Status RefillDrainedQueues();
  absl::Status PinGrown();
  absl::Status MergeCounters();
  absl::Status RenameGrown();
  absl::Status RetireOldInfo();
  absl::Status CheckCgroup();
  absl::Status TakeCgroup(const std::string& path);
  absl::StatusOr<UniqueFd> OpenPin(absl::string_view pin);
  bool HasPin(absl::string_view pin);
  absl::Status PinMap(const MapEntry& entry);
  absl::Status SetModes(absl::string_view suffix);
  void SeedProcesses();
  void AdoptSockets();
  void DecideAccess();
  bool IsUnchanged(uint64_t build_id, uint64_t config_id);
  nm_info MakeInfo();
  absl::StatusOr<uint32_t> Command(nm_command command, const void* payload,
                                   size_t size);
  absl::StatusOr<uint32_t> NameId(nm_kind kind, const std::string& name);
  void Note(uint64_t feature, const std::string& reason);

  Config config_;
  Skeleton skeleton_;
  std::vector<bpf_link*> links_;
  std::vector<std::string> pinned_;  // by this load
  LoadResult result_;
  UniqueFd lock_;  // until all else is undone
  LoaderState state_;
  UniqueFd cgroup_;
  uint64_t cgroup_id_ = 0;
  uint64_t features_ = 0;
  uint64_t build_id_ = 0;
  uint64_t config_id_ = 0;
  uint32_t num_cpus_ = 0;
  gid_t group_ = 0;
  std::string reasons_;
  nm_info existing_ = {};
  bool upgrade_ = false;
  bool grow_ = false;         // an upgrade to larger tables
  bool finish_grow_ = false;  // ... which was killed half-way
  bool drained_ = false;      // the old queues are empty
  bool made_directory_ = false;
  bool mounted_ = false;
  bool fresh_ = false;  // nothing was there
  bool was_unknown_ = false;  // to the lock file
  bool moved_ = false;  // to another cgroup of the same path
  bool done_ = false;
};

void Loading::Note(uint64_t feature, const std::string& reason) {
  features_ &= ~feature;
  for (const Feature& known : Features()) {
    if (known.bit != feature) continue;
    absl::StrAppend(&reasons_, known.name, ": ", reason, "\n");
    result_.notes.push_back(
        absl::StrCat(known.name, " is off: ", reason));
  }
}

absl::Status Loading::CheckPrivileges() {
  // The first thing that any load does, and needs the same privilege.
  LIBBPF_OPTS(bpf_map_create_opts, options);
  UniqueFd fd(bpf_map_create(BPF_MAP_TYPE_QUEUE, "nm_probe", 0, 4, 1,
                             &options));
  if (fd.ok()) return absl::OkStatus();
  if (errno == ENOSYS) {
    return absl::UnimplementedError("the kernel has no bpf(2)");
  }
  return ErrnoStatus(errno, "make a BPF map",
                     errno == EPERM ? "run as root: needs CAP_BPF, "
                                      "CAP_NET_ADMIN, CAP_PERFMON and "
                                      "CAP_SYS_ADMIN"
                                    : "");
}

// Looks at what is pinned already: a complete meter to be upgraded, or the
// rest of a load or an unload that was killed, which is cleared away.
absl::Status Loading::FindExisting() {
  const std::string& dir = config_.pin_dir;
  absl::StatusOr<std::vector<std::string>> ours = FindPins(dir, state_);
  if (!ours.ok()) return ours.status();
  UniqueFd info(bpf_obj_get(PinPath(dir, "info").c_str()));
  const int errno_of_info = errno;
  if (info.ok()) {
    bpf_map_info about = {};
    uint32_t size = sizeof(about);
    uint32_t zero = 0;
    if (bpf_obj_get_info_by_fd(info.get(), &about, &size) != 0 ||
        about.type != BPF_MAP_TYPE_ARRAY ||
        about.value_size != sizeof(nm_info) ||
        bpf_map_lookup_elem(info.get(), &zero, &existing_) != 0 ||
        existing_.magic != NM_MAGIC ||
        existing_.abi_major != NM_ABI_MAJOR) {
      return absl::FailedPreconditionError(
          absl::StrCat(dir, "/info is not of this version's ABI (run the "
                            "loader that made it: netmeter-loader unload)"));
    }
    if (!existing_.retired) {
      upgrade_ = true;
      Step("found a meter of version ", NameIn(existing_.version), ": ",
           Describe(info.get()));
      return absl::OkStatus();
    }
  }
  if (!info.ok() && errno_of_info != ENOENT) {
    return ErrnoStatus(errno_of_info, absl::StrCat("open ", dir, "/info"));
  }
  DIR* handle = opendir(dir.c_str());
  if (handle == nullptr) return ErrnoStatus(errno, absl::StrCat("open ", dir));
  std::string foreign;
  while (dirent* entry = readdir(handle)) {
    const std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    // The kernel's own, in every BPF file system (kernel/bpf/preload).
    if (name == "maps.debug" || name == "progs.debug") continue;
    if (std::find(ours->begin(), ours->end(), name) == ours->end()) {
      foreign = name;
    }
  }
  closedir(handle);
  if (!foreign.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("foreign file ", PinPath(dir, foreign),
                     ": choose another --pin-dir"));
  }
  // Links first, so that no program counts into maps that nobody sees.
  for (const std::string& pin : *ours) {
    const std::string path = PinPath(dir, pin);
    if (unlink(path.c_str()) != 0 && errno != ENOENT) {
      return ErrnoStatus(errno, absl::StrCat("unpin ", path));
    }
    Step("removed ", path, ", the rest of a load or an unload that was killed");
  }
  fresh_ = true;
  existing_ = {};
  return absl::OkStatus();
}

// Decides which maps are kept and sizes the others.
absl::Status Loading::SizeMaps() {
  auto& maps = skeleton_->maps;
  const uint32_t sockets = RoundUpToPowerOfTwo(config_.max_sockets);
  struct {
    bpf_map* map;
    uint64_t entries;
  } const sizes[] = {
      {maps.nm_counters, uint64_t{config_.max_series} * num_cpus_},
      {maps.nm_tcp, config_.max_series},
      {maps.nm_names, config_.max_names},
      {maps.nm_series, config_.max_series},
      {maps.nm_name_ids, config_.max_names},
      {maps.nm_free_slots, config_.max_series},
      {maps.nm_free_names, config_.max_names},
      {maps.nm_processes, config_.max_processes},
      {maps.nm_sockets, sockets},
      {maps.nm_wire_names, config_.max_names},
  };
  for (const auto& size : sizes) {
    if (size.entries > UINT32_MAX ||
        bpf_map__set_max_entries(size.map,
                                 static_cast<uint32_t>(size.entries)) != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(bpf_map__name(size.map), ": too many entries: ",
                       size.entries));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<UniqueFd> Loading::OpenPin(absl::string_view pin) {
  const std::string path = PinPath(config_.pin_dir, pin);
  UniqueFd fd(bpf_obj_get(path.c_str()));
  if (fd.ok()) return fd;
  return ErrnoStatus(errno, absl::StrCat("open ", path),
                     "the meter is damaged: netmeter-loader unload");
}

bool Loading::HasPin(absl::string_view pin) {
  return access(PinPath(config_.pin_dir, pin).c_str(), F_OK) == 0;
}

absl::Status Loading::ReuseMaps() {
  for (const MapEntry& entry : MapsOf(skeleton_.get())) {
    if (entry.keep == Keep::kRenewed) continue;
    std::string pin = entry.pin;
    if (grow_ && entry.grows) {
      if (!finish_grow_) continue;  // made anew
      // What was renamed already is the new one.
      if (HasPin(pin + kNewSuffix)) pin += kNewSuffix;
    }
    // Loaded by a version that had no such map: made anew.
    if (entry.map == skeleton_->maps.nm_tcp && existing_.tcp_size == 0 &&
        !HasPin(pin)) {
      continue;
    }
    absl::StatusOr<UniqueFd> fd = OpenPin(pin);
    if (!fd.ok()) return fd.status();
    bpf_map_info about = {};
    uint32_t size = sizeof(about);
    if (bpf_obj_get_info_by_fd(fd->get(), &about, &size) != 0) {
      return ErrnoStatus(errno, absl::StrCat("read ", pin));
    }
    if (about.type != bpf_map__type(entry.map) ||
        about.key_size != bpf_map__key_size(entry.map) ||
        about.value_size != bpf_map__value_size(entry.map)) {
      return absl::FailedPreconditionError(absl::StrCat(
          PinPath(config_.pin_dir, pin),
          " has another layout than this version's (netmeter-loader unload "
          "first: counters start again)"));
    }
    if (int error = bpf_map__reuse_fd(entry.map, fd->get())) {
      return ErrnoStatus(error, absl::StrCat("reuse ", pin));
    }
  }
  if (!grow_) return absl::OkStatus();

  // Where the totals come from. Once counters is renamed, all are merged.
  if (finish_grow_ && !HasPin(absl::StrCat("counters", kNewSuffix))) {
    return absl::OkStatus();
  }
  absl::StatusOr<UniqueFd> old = OpenPin("counters");
  if (!old.ok()) return old.status();
  auto& maps = skeleton_->maps;
  int error = bpf_map__reuse_fd(maps.nm_old_counters, old->get());
  if (error == 0 && HasPin("tcp")) {
    absl::StatusOr<UniqueFd> tcp = OpenPin("tcp");
    if (!tcp.ok()) return tcp.status();
    error = bpf_map__reuse_fd(maps.nm_old_tcp, tcp->get());
  }
  if (error == 0) {
    error = bpf_map__set_max_entries(maps.nm_merged,
                                     existing_.max_series * num_cpus_);
  }
  if (error == 0 && finish_grow_) {
    absl::StatusOr<UniqueFd> merged = OpenPin(kMergedPin);
    if (!merged.ok()) return merged.status();
    error = bpf_map__reuse_fd(maps.nm_merged, merged->get());
  }
  return error == 0 ? absl::OkStatus() : ErrnoStatus(error, "take over");
}

// Opens the object, sets its configuration and loads it into the kernel.
absl::Status Loading::Build(bool tracing) {
  StartLog();
  const bool confidential = !MayReadKernelMemory();
  if (tracing && confidential) HandleConfidentiality();
  skeleton_.reset(netmeter_bpf__open());
  if (!skeleton_) return ErrnoStatus(errno, "open the BPF object");
  if (tracing && confidential) {
    auto& progs = skeleton_->progs;
    int error =
        bpf_program__set_attach_target(progs.nm_exec, 0, "sched_process_exec");
    if (error == 0) {
      error = bpf_program__set_attach_target(progs.nm_fork, 0,
                                             "sched_process_fork");
    }
    if (error == 0) {
      error = bpf_program__set_attach_target(progs.nm_exit, 0,
                                             "sched_process_exit");
    }
    if (error != 0) return ErrnoStatus(error, "find the tracepoints");
  }
  if (!tracing) {
    for (const LinkEntry& entry : LinksOf(skeleton_.get())) {
      if (IsTracing(entry.program)) {
        bpf_program__set_autoload(entry.program, false);
      }
    }
  }
  nm_config& settings =
      const_cast<nm_config&>(skeleton_->rodata->nm_config);
  settings.num_cpus = num_cpus_;
  settings.max_series = config_.max_series;
  const auto share = [](uint32_t size) {
    return std::max<uint32_t>(size / NM_USER_PART, NM_USER_LEAST);
  };
  settings.max_names = config_.max_names;
  settings.max_user_names = share(config_.max_names);
  settings.max_user_series = share(config_.max_series);
  settings.socket_mask = RoundUpToPowerOfTwo(config_.max_sockets) - 1;
  settings.rules_count = static_cast<uint32_t>(config_.destinations.size());
  settings.tgid_helper =
      libbpf_probe_bpf_helper(BPF_PROG_TYPE_CGROUP_SOCKOPT,
                              BPF_FUNC_get_current_pid_tgid, nullptr) == 1;
  settings.untracked = !tracing;
  settings.task_access = NM_TASK_NONE;
  if (libbpf_probe_bpf_helper(BPF_PROG_TYPE_CGROUP_SOCK,
                              BPF_FUNC_get_current_task_btf, nullptr) == 1) {
    settings.task_access = NM_TASK_BTF;
  } else if (!confidential) {
    settings.task_access = NM_TASK_PROBE;
  }
  settings.proxy_ports_count =
      static_cast<uint32_t>(config_.proxy_ports.size());
  std::copy(config_.proxy_ports.begin(), config_.proxy_ports.end(),
            settings.proxy_ports);
  settings.sni_ports_count = static_cast<uint32_t>(config_.sni_ports.size());
  std::copy(config_.sni_ports.begin(), config_.sni_ports.end(),
            settings.sni_ports);

  absl::Status status = SizeMaps();
  if (status.ok() && upgrade_) status = ReuseMaps();
  if (!status.ok()) return status;
  g_last_warning->clear();
  if (int error = netmeter_bpf__load(skeleton_.get())) {
    // libbpf says which program, and the verifier why.
    std::string what = "load the BPF programs";
    size_t at = g_last_warning->find("libbpf: prog '");
    if (at != std::string::npos) {
      size_t from = at + strlen("libbpf: prog '");
      absl::StrAppend(&what, ": ",
                      g_last_warning->substr(
                          from, g_last_warning->find('\'', from) - from));
    }
    return ErrnoStatus(error, what,
                       error == -EPERM ? "needs CAP_BPF, CAP_NET_ADMIN and "
                                         "CAP_PERFMON, or lockdown refuses it"
                       : error == -ENOMEM || error == -E2BIG
                           ? "not enough memory: smaller tables"
                           : "see --verbose");
  }
  bpf_program* program;
  bpf_object__for_each_program(program, skeleton_->obj) {
    if (bpf_program__fd(program) >= 0) {
      Step("loaded ", Describe(bpf_program__fd(program)));
    }
  }
  bpf_map* map;
  bpf_object__for_each_map(map, skeleton_->obj) {
    if (bpf_map__fd(map) >= 0) {
      Step(upgrade_ ? "has " : "made ", Describe(bpf_map__fd(map)), ", ",
           bpf_map__max_entries(map), " entries");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> Loading::Command(nm_command command,
                                          const void* payload, size_t size) {
  return RunControl(skeleton_->progs.nm_control, command, payload, size);
}

absl::StatusOr<uint32_t> Loading::NameId(nm_kind kind,
                                         const std::string& name) {
  nm_name_key key = {};
  key.kind = static_cast<uint8_t>(kind);
  key.length =
      static_cast<uint16_t>(std::min(name.size(), sizeof(key.bytes)));
  memcpy(key.bytes, name.data(), key.length);
  absl::StatusOr<uint32_t> id = Command(NM_COMMAND_NAME, &key, sizeof(key));
  if (id.ok() && *id == 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no room for the name ", name, " (raise max_names)"));
  }
  return id;
}

// Reserved names and series, and the queues of free ones.
absl::Status Loading::FillMaps() {
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
    absl::Status status = Update(maps.nm_names, &name.id, &value);
    if (!status.ok()) return status;
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
        status = Update(maps.nm_series, &key, &series);
        if (!status.ok()) return status;
      }
    }
  }
  return FillNewQueues();
}

absl::Status Loading::FillNewQueues() {
  auto& maps = skeleton_->maps;
  return RefillQueues(
      config_.max_series, config_.max_names, bpf_map__fd(maps.nm_series),
      bpf_map__fd(maps.nm_name_ids), bpf_map__fd(maps.nm_free_slots),
      bpf_map__fd(maps.nm_free_names));
}

// Fills the empty queues with every slot and name that is not in use, in
// ascending order: readers rely on it (nm_stats.slots_taken).
absl::Status Loading::RefillQueues(uint32_t max_series, uint32_t max_names,
                                   int series, int name_ids, int free_slots,
                                   int free_names) {
  std::vector<bool> slots(max_series), names(max_names);
  absl::Status status = ForEach<nm_series_key, nm_series_value>(
      series, [&](const nm_series_key&, const nm_series_value& value) {
        if (value.slot < slots.size()) slots[value.slot] = true;
        return absl::OkStatus();
      });
  if (!status.ok()) return status;
  status = ForEach<nm_name_key, uint32_t>(
      name_ids, [&](const nm_name_key&, uint32_t id) {
        if (id < names.size()) names[id] = true;
        return absl::OkStatus();
      });
  if (!status.ok()) return status;
  auto push = [](int fd, const std::vector<bool>& used, uint32_t first) {
    for (uint32_t id = first; id < used.size(); id++) {
      if (used[id]) continue;
      if (int error = bpf_map_update_elem(fd, nullptr, &id, BPF_ANY)) {
        return ErrnoStatus(error, "fill the queue of free ids");
      }
    }
    return absl::OkStatus();
  };
  status = push(free_slots, slots, NM_SLOT_FIRST);
  return status.ok() ? push(free_names, names, NM_NAME_FIRST) : status;
}

// --- Larger tables -----------------------------------------------------------
//
// 1. the new programs and empty tables are loaded; then the old queues are
//    drained: the old programs give out no slot or name any more,
// 2. the new tables get the same slots and names, and are pinned as *_new,
//    info_new last: from here on a load that was killed is finished,
// 3. the links move to the new programs,
// 4. the old totals are added to the new counters, each cell once,
// 5. *_new is renamed over the old, counters first and info last.
//
// Between 1 and 3 new series count as overflow. Sockets, owners, processes and
// stats stay as they are.

// Tables only grow while loaded; those of sockets and processes stay.
absl::Status Loading::KeepSizes() {
  nm_info sizes = existing_;
  if (HasPin(absl::StrCat("info", kNewSuffix))) {
    absl::StatusOr<UniqueFd> info = OpenPin(absl::StrCat("info", kNewSuffix));
    if (!info.ok()) return info.status();
    uint32_t zero = 0;
    if (int error = bpf_map_lookup_elem(info->get(), &zero, &sizes)) {
      return ErrnoStatus(error, "read info_new");
    }
    finish_grow_ = grow_ = true;
  }
  if (existing_.num_cpus != num_cpus_) {
    return absl::FailedPreconditionError(absl::StrCat(
        config_.pin_dir, " was loaded for ", existing_.num_cpus,
        " possible CPUs, now there are ", num_cpus_,
        " (netmeter-loader unload first: counters start again)"));
  }
  auto keep = [&](const char* name, uint32_t loaded, bool may_grow,
                  uint32_t* wanted) {
    if (*wanted == loaded) return;
    if (may_grow && !finish_grow_ && *wanted > loaded) {
      grow_ = true;
      return;
    }
    result_.notes.push_back(absl::StrCat(name, " stays ", loaded,
                                         " until unload, not ", *wanted));
    *wanted = loaded;
  };
  config_.max_sockets = RoundUpToPowerOfTwo(config_.max_sockets);
  keep("max_series", sizes.max_series, true, &config_.max_series);
  keep("max_names", sizes.max_names, true, &config_.max_names);
  keep("max_processes", sizes.max_processes, false, &config_.max_processes);
  keep("max_sockets", sizes.max_sockets, false, &config_.max_sockets);
  if (!finish_grow_) {
    for (const std::string& pin : MapPins()) {
      unlink(PinPath(config_.pin_dir, pin + kNewSuffix).c_str());
    }
    unlink(PinPath(config_.pin_dir, kMergedPin).c_str());
  }
  return absl::OkStatus();
}

absl::Status Loading::DrainQueues() {
  for (const char* pin : {"free_slots", "free_names"}) {
    absl::StatusOr<UniqueFd> queue = OpenPin(pin);
    if (!queue.ok()) return queue.status();
    uint32_t id;
    while (bpf_map_lookup_and_delete_elem(queue->get(), nullptr, &id) == 0) {
    }
    Step("drained ", pin, ": ", Describe(queue->get()));
  }
  WaitForRunningPrograms();
  return absl::OkStatus();
}

// A load that was killed after DrainQueues() and before info_new was pinned
// left the old meter without free slots.
absl::Status Loading::RefillDrainedQueues() {
  absl::StatusOr<UniqueFd> series = OpenPin("series"),
                           name_ids = OpenPin("name_ids"),
                           free_slots = OpenPin("free_slots"),
                           free_names = OpenPin("free_names");
  for (const auto* fd : {&series, &name_ids, &free_slots, &free_names}) {
    if (!fd->ok()) return fd->status();
  }
  uint32_t id;
  if (bpf_map_lookup_elem(free_slots->get(), nullptr, &id) == 0 &&
      bpf_map_lookup_elem(free_names->get(), nullptr, &id) == 0) {
    return absl::OkStatus();
  }
  absl::Status status = DrainQueues();  // both, or one would be filled twice
  if (!status.ok()) return status;
  status = RefillQueues(existing_.max_series, existing_.max_names,
                        series->get(), name_ids->get(), free_slots->get(),
                        free_names->get());
  if (status.ok()) Step("filled free_slots and free_names again");
  return status;
}

absl::Status Loading::CopyTables() {
  auto& maps = skeleton_->maps;
  absl::StatusOr<UniqueFd> names = OpenPin("names"), series = OpenPin("series"),
                           name_ids = OpenPin("name_ids");
  for (const auto* fd : {&names, &series, &name_ids}) {
    if (!fd->ok()) return fd->status();
  }
  for (uint32_t id = 0; id < existing_.max_names; id++) {
    nm_name name;
    if (int error = bpf_map_lookup_elem(names->get(), &id, &name)) {
      return ErrnoStatus(error, "copy names");
    }
    if (name.length == 0) continue;
    absl::Status status = Update(maps.nm_names, &id, &name);
    if (!status.ok()) return status;
  }
  absl::Status status = ForEach<nm_name_key, uint32_t>(
      name_ids->get(), [&](const nm_name_key& key, uint32_t id) {
        return Update(maps.nm_name_ids, &key, &id);
      });
  if (!status.ok()) return status;
  status = ForEach<nm_series_key, nm_series_value>(
      series->get(),
      [&](const nm_series_key& key, const nm_series_value& value) {
        return Update(maps.nm_series, &key, &value);
      });
  if (!status.ok()) return status;
  return FillNewQueues();
}

absl::Status Loading::PinGrown() {
  const std::string merged = PinPath(config_.pin_dir, kMergedPin);
  if (int error =
          bpf_obj_pin(bpf_map__fd(skeleton_->maps.nm_merged), merged.c_str())) {
    return ErrnoStatus(error, absl::StrCat("pin ", merged));
  }
  Step("pinned ", merged, ": ", Describe(bpf_map__fd(skeleton_->maps.nm_merged)));
  for (const MapEntry& entry : MapsOf(skeleton_.get())) {
    if (!entry.grows) continue;
    const std::string path =
        absl::StrCat(PinPath(config_.pin_dir, entry.pin), kNewSuffix);
    if (int error = bpf_obj_pin(bpf_map__fd(entry.map), path.c_str())) {
      return ErrnoStatus(error, absl::StrCat("pin ", path));
    }
    Step("pinned ", path, ": ", Describe(bpf_map__fd(entry.map)));
  }
  return absl::OkStatus();
}

absl::Status Loading::MergeCounters() {
  WaitForRunningPrograms();
  const uint32_t cells = existing_.max_series * num_cpus_;
  for (uint32_t first = 0; first < cells; first += NM_MERGE_CELLS) {
    const nm_merge merge = {
        first, std::min<uint32_t>(NM_MERGE_CELLS, cells - first)};
    absl::StatusOr<uint32_t> done =
        Command(NM_COMMAND_MERGE, &merge, sizeof(merge));
    if (!done.ok()) return done.status();
    if (first == 0 || first + merge.count == cells) {
      Step("added the totals of ", first + merge.count, " of ", cells,
           " cells");
    }
  }
  return absl::OkStatus();
}

// Tells the readers of maps that growth has replaced.
absl::Status Loading::RetireOldInfo() {
  if (!HasPin(kOldInfoPin)) return absl::OkStatus();
  absl::StatusOr<UniqueFd> info = OpenPin(kOldInfoPin);
  if (!info.ok()) return info.status();
  // Killed before the rename, it is still the one that is in use.
  absl::StatusOr<UniqueFd> current = OpenPin("info");
  bpf_map_info about = {}, other = {};
  uint32_t size = sizeof(about), other_size = sizeof(other);
  if (!current.ok() ||
      bpf_obj_get_info_by_fd(info->get(), &about, &size) != 0 ||
      bpf_obj_get_info_by_fd(current->get(), &other, &other_size) != 0) {
    return absl::InternalError("read info_old");
  }
  if (about.id != other.id) {
    absl::Status status = Retire(info->get());
    if (!status.ok()) return status;
    Step("retired ", Describe(info->get()));
  }
  unlink(PinPath(config_.pin_dir, kOldInfoPin).c_str());
  Step("unpinned ", PinPath(config_.pin_dir, kOldInfoPin));
  return absl::OkStatus();
}

absl::Status Loading::RenameGrown() {
  for (const MapEntry& entry : MapsOf(skeleton_.get())) {
    if (!entry.grows) continue;
    const std::string path = PinPath(config_.pin_dir, entry.pin);
    const std::string next = absl::StrCat(path, kNewSuffix);
    if (rename(next.c_str(), path.c_str()) != 0 && errno != ENOENT) {
      return ErrnoStatus(errno, absl::StrCat("rename ", next));
    }
    Step("renamed ", next, " to ", path);
  }
  unlink(PinPath(config_.pin_dir, kMergedPin).c_str());
  Step("unpinned ", PinPath(config_.pin_dir, kMergedPin));
  return absl::OkStatus();
}

// What the configuration says, into the maps of these programs alone.
absl::Status Loading::FillRules() {
  auto& maps = skeleton_->maps;
  auto add_binary = [&](const std::string& binary,
                        const std::string& service) {
    uint8_t key[NM_NAME_BYTES] = {}, value[NM_NAME_BYTES] = {};
    memcpy(key, binary.data(), std::min(binary.size(), sizeof(key)));
    memcpy(value, service.data(), std::min(service.size(), sizeof(value)));
    int error = bpf_map_update_elem(bpf_map__fd(maps.nm_binaries), key, value,
                                    BPF_ANY);
    return error == 0 ? absl::OkStatus() : ErrnoStatus(error, "fill binaries");
  };
  for (const std::string& service : config_.services) {
    absl::Status status = add_binary(service, service);
    if (!status.ok()) return status;
  }
  for (const auto& alias : config_.aliases) {
    absl::Status status = add_binary(alias.first, alias.second);
    if (!status.ok()) return status;
  }
  uint32_t index = 0;
  for (const DestinationRule& rule : config_.destinations) {
    absl::StatusOr<uint32_t> id = NameId(NM_KIND_DESTINATION, rule.name);
    if (!id.ok()) return id.status();
    nm_rule value = {};
    memcpy(value.address, rule.address, sizeof(value.address));
    memcpy(value.mask, rule.mask, sizeof(value.mask));
    value.port_first = rule.port_first;
    value.port_last = rule.port_last;
    value.protocol = rule.protocol;
    value.destination = static_cast<uint16_t>(*id);
    if (int error = bpf_map_update_elem(bpf_map__fd(maps.nm_rules), &index,
                                        &value, BPF_ANY)) {
      return ErrnoStatus(error, "fill rules");
    }
    index++;
  }
  return absl::OkStatus();
}

absl::Status Loading::FreezeMaps() {
  for (const MapEntry& entry : MapsOf(skeleton_.get())) {
    if (entry.keep != Keep::kShared) continue;
    const int fd = bpf_map__fd(entry.map);
    const int error = IsFrozen(fd) ? 0 : bpf_map_freeze(fd);
    if (error != 0) {
      return ErrnoStatus(error, absl::StrCat("freeze ", entry.pin));
    }
    Step("froze ", Describe(fd));
  }
  return absl::OkStatus();
}

// Replaces the program of a pinned link, or attaches and pins a new link.
absl::Status Loading::AttachOne(const LinkEntry& entry) {
  const std::string path = PinPath(config_.pin_dir, entry.pin);
  const char* name = bpf_program__name(entry.program);
  UniqueFd pinned(upgrade_ ? bpf_obj_get(path.c_str()) : -1);
  if (pinned.ok() && !IsTracing(entry.program)) {
    const int error = IsAttached(path, cgroup_id_)
                          ? bpf_link_update(pinned.get(),
                                            bpf_program__fd(entry.program),
                                            nullptr)
                          : -ENOLINK;
    if (error == 0) {
      Step("replaced the program at ", path, ": ", Describe(pinned.get()));
      return absl::OkStatus();
    }
    // Detached by somebody (BPF_LINK_DETACH), or to a cgroup that was removed:
    // attached anew below.
    if (error != -ENOLINK) {
      return ErrnoStatus(error, absl::StrCat("replace ", name));
    }
  }
  bpf_link* link =
      IsTracing(entry.program)
          ? bpf_program__attach(entry.program)
          : bpf_program__attach_cgroup(entry.program, cgroup_.get());
  if (link == nullptr) {
    const int error = errno;
    return ErrnoStatus(
        error,
        absl::StrCat("attach ", name,
                     IsTracing(entry.program)
                         ? std::string()
                         : absl::StrCat(" to ", result_.cgroup)),
        error != EPERM ? ""
        : IsTracing(entry.program)
            ? "lockdown or missing CAP_PERFMON"
            : "a foreign program is attached to this cgroup, or one above, "
              "without the multi flag (see: bpftool cgroup tree), or "
              "CAP_NET_ADMIN is missing");
  }
  // One that the meter had, as info says.
  if (upgrade_ && !moved_ && !(pinned.ok() && IsTracing(entry.program)) &&
      (entry.feature == 0 || (existing_.features & entry.feature) != 0)) {
    result_.notes.push_back(
        absl::StrCat(entry.pin, " was missing: attached anew"));
  }
  links_.push_back(link);
  // A tracing link cannot be replaced: the new one is pinned beside the old
  // and renamed over it, which detaches the old one. For a moment both run.
  const std::string pin_at =
      pinned.ok() ? absl::StrCat(path, kNewSuffix) : path;
  unlink(pin_at.c_str());
  if (int error = bpf_link__pin(link, pin_at.c_str())) {
    return ErrnoStatus(error, absl::StrCat("pin ", pin_at));
  }
  pinned_.push_back(pin_at);
  if (pinned.ok() && rename(pin_at.c_str(), path.c_str()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("rename ", pin_at));
  }
  Step("attached ", Describe(bpf_link__fd(link)), ", pinned at ", path);
  return absl::OkStatus();
}

absl::Status Loading::Attach() {
  bool seeded = false;
  for (const LinkEntry& entry : LinksOf(skeleton_.get())) {
    // New sockets have owners by now; nothing is counted yet.
    if ((!upgrade_ || moved_) &&
        entry.program == skeleton_->progs.nm_ingress) {
      AdoptSockets();
    }
    if (!seeded && !IsTracing(entry.program)) {
      SeedProcesses();
      seeded = true;
    }
    if (entry.feature != 0 && (features_ & entry.feature) == 0) {
      unlink(PinPath(config_.pin_dir, entry.pin).c_str());
      continue;
    }
    absl::Status status = AttachOne(entry);
    if (status.ok()) continue;
    Step(status.message());
    if (entry.feature == 0) return status;
    Note(entry.feature, std::string(status.message()));
  }
  return absl::OkStatus();
}

// Names the processes that no exec or fork was seen of.
void Loading::SeedProcesses() {
  const int fd = bpf_map__fd(skeleton_->maps.nm_processes);
  std::map<std::string, std::string> services = config_.aliases;
  for (const std::string& service : config_.services) {
    services.emplace(service, service);
  }
  const std::vector<RunningProcess> running = RunningProcesses();
  for (const RunningProcess& process : running) {
    nm_process value = {};
    const Identity identity =
        IdentifyProcess(process.name, process.arguments, services);
    value.kind = identity.service ? NM_KIND_SERVICE : NM_KIND_BINARY;
    memcpy(value.bytes, identity.name.data(),
           std::min(identity.name.size(), sizeof(value.bytes)));
    // What the tracing programs wrote meanwhile is newer.
    bpf_map_update_elem(fd, &process.tgid, &value, BPF_NOEXIST);
    if (access(absl::StrCat("/proc/", process.tgid).c_str(), F_OK) != 0) {
      bpf_map_delete_elem(fd, &process.tgid);
    }
  }
  Step("named ", running.size(), " running processes in ", Describe(fd));
}

// Gives the sockets that are open already to the processes that hold them.
void Loading::AdoptSockets() {
  absl::StatusOr<std::string> root = FindCgroupRoot();
  const int processes = bpf_map__fd(skeleton_->maps.nm_processes);
  const int owners = bpf_map__fd(skeleton_->maps.nm_owners);
  int adopted = 0;
  ForEachOpenSocket(
      root.ok() ? *root : "", result_.cgroup, [&](const OpenSocket& socket) {
        nm_process process;
        if (bpf_map_lookup_elem(processes, &socket.tgid, &process) != 0) return;
        const absl::string_view name(
            reinterpret_cast<const char*>(process.bytes),
            strnlen(reinterpret_cast<const char*>(process.bytes),
                    sizeof(process.bytes)));
        nm_owner owner = {};
        owner.tgid = socket.tgid;
        owner.whose.kind = process.kind;
        owner.whose.flags = process.flags & NM_FLAG_REGISTERED;
        struct stat about;
        if (stat(absl::StrCat("/proc/", socket.tgid).c_str(), &about) == 0) {
          owner.user = nm_user_of_uid(about.st_uid);
        }
        absl::StatusOr<uint32_t> id =
            NameId(static_cast<nm_kind>(process.kind), std::string(name));
        owner.whose.service =
            static_cast<uint16_t>(id.ok() ? *id : NM_NAME_OVERFLOW);
        if (!id.ok()) owner.whose.kind = NM_KIND_OVERFLOW;
        // A listener's connections are new sockets: only this one is older.
        owner.adopted = socket.cookie;
        if (socket.protocol != IPPROTO_TCP) owner.flags = NM_OWNER_RELEASED;
        const int fd = socket.fd.get();
        if (bpf_map_update_elem(owners, &fd, &owner, BPF_NOEXIST) == 0) {
          adopted++;
        }
      });
  Step("gave ", adopted, " open sockets to their processes in ",
       Describe(owners));
}

nm_info Loading::MakeInfo() {
  nm_info info = {};
  info.magic = NM_MAGIC;
  info.abi_major = NM_ABI_MAJOR;
  info.abi_minor = NM_ABI_MINOR;
  info.info_size = sizeof(nm_info);
  info.cell_size = sizeof(nm_cell);
  info.name_size = sizeof(nm_name);
  info.stats_size = sizeof(nm_stats);
  info.tcp_size = sizeof(nm_tcp);
  info.num_cpus = num_cpus_;
  info.max_series = config_.max_series;
  info.max_names = config_.max_names;
  info.max_processes = config_.max_processes;
  info.max_sockets = RoundUpToPowerOfTwo(config_.max_sockets);
  info.loaded_ns = NowNs();
  info.created_ns = upgrade_ ? existing_.created_ns : info.loaded_ns;
  info.features = features_;
  info.build_id = build_id_;
  info.config_id = config_id_;
  info.cgroup_id = cgroup_id_;
  CopyText(kVersion, info.version);
  CopyText(KernelRelease(), info.kernel);
  CopyText(result_.cgroup, info.cgroup);
  CopyText(reasons_, info.reasons);
  CopyText(absl::StrJoin(config_.destination_suffixes, "\n"), info.suffixes);
  info.fold_unknown = config_.fold_unknown_destinations ? 1 : 0;
  return info;
}

absl::Status Loading::PinMap(const MapEntry& entry) {
  const std::string path = PinPath(config_.pin_dir, entry.pin);
  const int fd = bpf_map__fd(entry.map);
  if (upgrade_) {
    if (entry.keep != Keep::kRenewed && HasPin(entry.pin)) {
      return absl::OkStatus();
    }
    const std::string next = absl::StrCat(path, kNewSuffix);
    unlink(next.c_str());
    if (int error = bpf_obj_pin(fd, next.c_str())) {
      return ErrnoStatus(error, absl::StrCat("pin ", next));
    }
    if (rename(next.c_str(), path.c_str()) != 0) {
      return ErrnoStatus(errno, absl::StrCat("rename ", next));
    }
    Step("pinned ", path, ": ", Describe(fd));
    return absl::OkStatus();
  }
  if (int error = bpf_obj_pin(fd, path.c_str())) {
    return ErrnoStatus(error, absl::StrCat("pin ", path));
  }
  Step("pinned ", path, ": ", Describe(fd));
  pinned_.push_back(path);
  return absl::OkStatus();
}

// Who may read: decided before, so that info says so from the start.
void Loading::DecideAccess() {
  if (config_.group.empty()) {
    Note(NM_FEATURE_GROUP_ACCESS, "no group is configured: root only");
    return;
  }
  absl::StatusOr<gid_t> group = FindGroup(config_.group);
  if (!group.ok()) {
    Note(NM_FEATURE_GROUP_ACCESS,
         absl::StrCat(group.status().message(), ": root only"));
    return;
  }
  group_ = *group;
  if (UnprivilegedBpfDisabled() == 0) {
    // A user's own socket filter may write any map that he can open.
    Note(NM_FEATURE_GROUP_ACCESS,
         "kernel.unprivileged_bpf_disabled is 0, so that readers could write: "
         "root only (sysctl kernel.unprivileged_bpf_disabled=2)");
    return;
  }
  features_ |= NM_FEATURE_GROUP_ACCESS;
  if (!UnprivilegedUsersMayUseBpf()) {
    const char* reason =
        "this kernel refuses bpf(2) to users: they read through "
        "netmeter-loader serve-fds";
    absl::StrAppend(&reasons_, "group_access: ", reason, "\n");
    result_.notes.push_back(absl::StrCat("group_access: ", reason));
  }
}

// Of the pins with this suffix; what grows has one for a while.
absl::Status Loading::SetModes(absl::string_view suffix) {
  const bool group = (features_ & NM_FEATURE_GROUP_ACCESS) != 0;
  const gid_t gid = group ? group_ : 0;
  for (const MapEntry& entry : MapsOf(skeleton_.get())) {
    const std::string path =
        absl::StrCat(PinPath(config_.pin_dir, entry.pin), suffix);
    if (!suffix.empty() && access(path.c_str(), F_OK) != 0) continue;
    const bool shared = entry.keep == Keep::kShared && group;
    if (chown(path.c_str(), 0, shared ? gid : 0) != 0 ||
        chmod(path.c_str(), shared ? 0660 : 0600) != 0) {
      return ErrnoStatus(errno, absl::StrCat("set the mode of ", path));
    }
  }
  // A directory in somebody else's BPF file system is his.
  if (!made_directory_ && !IsOwnMount(config_.pin_dir, state_)) {
    return absl::OkStatus();
  }
  if (chown(config_.pin_dir.c_str(), 0, gid) != 0 ||
      chmod(config_.pin_dir.c_str(), group ? 0750 : 0700) != 0) {
    return ErrnoStatus(errno,
                       absl::StrCat("set the mode of ", config_.pin_dir));
  }
  Step("set the modes below ", config_.pin_dir, ": ",
       group ? absl::StrCat("group ", gid, " may read") : "root only");
  return absl::OkStatus();
}

absl::Status Loading::Publish() {
  if (grow_) {
    absl::Status status = MergeCounters();
    // Whoever reads the old maps opens the new ones, once they are in place;
    // until then he sees the old totals.
    if (status.ok()) status = SetModes(kNewSuffix);
    if (status.ok() && HasPin(absl::StrCat("info", kNewSuffix))) {
      // A second name, so that a load that is killed between the two steps
      // leaves it for the next one to retire.
      const std::string old_info = PinPath(config_.pin_dir, kOldInfoPin);
      unlink(old_info.c_str());
      if (link(PinPath(config_.pin_dir, "info").c_str(), old_info.c_str()) !=
          0) {
        return ErrnoStatus(errno, absl::StrCat("link ", old_info));
      }
      Step("linked ", old_info);
      status = RenameGrown();
    }
    if (status.ok()) status = RetireOldInfo();
    if (!status.ok()) return status;
  }
  const nm_info info = MakeInfo();
  absl::StatusOr<uint32_t> done =
      Command(NM_COMMAND_INFO, &info, sizeof(info));
  if (!done.ok()) return done.status();
  Step("wrote ", Describe(bpf_map__fd(skeleton_->maps.nm_info)));
  for (const MapEntry& entry : MapsOf(skeleton_.get())) {
    absl::Status status = PinMap(entry);
    if (!status.ok()) return status;
  }
  return SetModes("");
}

bool Loading::IsUnchanged(uint64_t build_id, uint64_t config_id) {
  if (existing_.build_id != build_id || existing_.config_id != config_id ||
      existing_.version != std::string(kVersion)) {
    return false;
  }
  for (const LinkEntry& entry : LinksOf(skeleton_.get())) {
    const bool wanted =
        entry.feature == 0 || (existing_.features & entry.feature) != 0;
    if (wanted &&
        !IsAttached(PinPath(config_.pin_dir, entry.pin), cgroup_id_)) {
      return false;
    }
  }
  for (const std::string& pin : MapPins()) {
    if (!HasPin(pin)) return false;
  }
  return true;
}

// A meter counts for one cgroup. If that was removed and made again, the
// programs went with it, and are attached to the new one.
absl::Status Loading::CheckCgroup() {
  if (existing_.cgroup_id == cgroup_id_) return absl::OkStatus();
  const std::string counted = NameIn(existing_.cgroup);
  if (counted == result_.cgroup && CgroupIsGone(existing_.cgroup_id)) {
    moved_ = true;
    result_.notes.push_back(absl::StrCat(
        counted, " was removed and made again: attached anew, counters kept"));
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      config_.pin_dir, " counts for cgroup ", counted, ", not ",
      result_.cgroup, " (unload first, or choose another --pin-dir)"));
}

absl::Status Loading::TakeCgroup(const std::string& path) {
  result_.cgroup = path;
  absl::StatusOr<UniqueFd> cgroup = OpenCgroup(path, &cgroup_id_);
  if (!cgroup.ok()) return cgroup.status();
  cgroup_ = std::move(*cgroup);
  return absl::OkStatus();
}

absl::StatusOr<LoadResult> Loading::Run() {
  absl::Status status = CheckConfig(config_);
  if (!status.ok()) return status;
  status = CheckPrivileges();
  if (!status.ok()) return status;

  if (!config_.cgroup.empty()) {
    // What stands in /proc/PID/cgroup is compared with it.
    status = TakeCgroup(CanonicalPath(config_.cgroup));
    if (!status.ok()) return status;
  }
  const int cpus = libbpf_num_possible_cpus();
  if (cpus < 1) return ErrnoStatus(cpus, "count the possible CPUs");
  num_cpus_ = static_cast<uint32_t>(cpus);

  status = CheckDirectory(config_.pin_dir);
  if (status.ok()) status = CheckContents(config_.pin_dir);
  if (!status.ok()) return status;
  absl::StatusOr<UniqueFd> lock = LockDirectory(config_.pin_dir, kLockSeconds);
  if (!lock.ok()) return lock.status();
  lock_ = std::move(*lock);
  Step("locked ", LockFile(config_.pin_dir));
  state_ = ReadState(lock_.get());
  was_unknown_ = IsEmpty(state_);
  // Before they are made, so that they are removed whatever happens.
  for (const std::string& path : MissingDirectories(config_.pin_dir)) {
    state_.made.push_back(path);
  }
  if (!IsBpffs(config_.pin_dir)) {
    state_.mounted = true;
    state_.device = 0;
  }
  status = WriteState(lock_.get(), state_);
  if (!status.ok()) return status;
  status = PrepareDirectory(config_.pin_dir, &made_directory_, &mounted_);
  if (!status.ok()) return status;
  struct stat about;
  if (mounted_ && stat(config_.pin_dir.c_str(), &about) == 0) {
    state_.device = about.st_dev;
    status = WriteState(lock_.get(), state_);
    if (!status.ok()) return status;
  }
  Step(mounted_ ? "mounted a BPF file system on "
                : "uses the BPF file system at ",
       config_.pin_dir);
  status = FindExisting();
  if (!status.ok()) return status;
  if (config_.cgroup.empty()) {
    absl::StatusOr<std::string> counted =
        upgrade_ ? NameIn(existing_.cgroup) : FindCgroupRoot();
    if (!counted.ok()) return counted.status();
    status = TakeCgroup(*counted);
    if (!status.ok()) return status;
  }
  if (upgrade_) {
    status = RetireOldInfo();
    if (!status.ok()) return status;
    status = CheckCgroup();
    if (!status.ok()) return status;
    status = KeepSizes();
    if (!status.ok()) return status;
    if (!finish_grow_) {
      status = RefillDrainedQueues();
      if (!status.ok()) return status;
    }
  }

  features_ = NM_FEATURE_SOCKET_TABLE | NM_FEATURE_CONTROL;
  DecideAccess();
  if (access("/sys/kernel/btf/vmlinux", R_OK) != 0) {
    return absl::UnimplementedError(
        "the kernel has no BTF (CONFIG_DEBUG_INFO_BTF): /sys/kernel/btf/vmlinux "
        "is missing");
  }
  bool tracing = true;
  features_ |= NM_FEATURE_PROCESS_TRACKING;
  config_id_ = Hash(ConfigText(config_, cgroup_id_, features_ | group_ << 8));
  skeleton_.reset(netmeter_bpf__open());
  if (!skeleton_) return ErrnoStatus(errno, "open the BPF object");
  build_id_ = Hash(absl::string_view(
      static_cast<const char*>(skeleton_->skeleton->data),
      skeleton_->skeleton->data_sz));
  if (upgrade_ && !grow_ && IsUnchanged(build_id_, config_id_)) {
    result_.action = LoadResult::Action::kUnchanged;
    status = SetModes("");  // a load that was killed may not have come to it
    if (!status.ok()) return status;
    return result_;
  }

  status = Build(tracing);
  if (!status.ok() && tracing && g_last_warning != nullptr) {
    const std::string first(status.message());
    absl::Status second = Build(false);
    if (!second.ok()) return status;
    Note(NM_FEATURE_PROCESS_TRACKING,
         absl::StrCat(first, ": processes are named when they open a socket"));
    status = second;
  }
  if (!status.ok()) return status;

  if (!upgrade_) {
    status = FillMaps();
  } else if (grow_ && !finish_grow_) {
    // Only now, as the verifier has taken its time: while the queues are empty
    // a new series is overflow and a registration is refused.
    drained_ = true;
    status = DrainQueues();
    if (status.ok()) status = CopyTables();
  }
  if (!status.ok()) return status;
  status = FillRules();
  if (!status.ok()) return status;
  status = FreezeMaps();
  if (!status.ok()) return status;
  if (grow_ && !finish_grow_) {
    const nm_info info = MakeInfo();
    absl::StatusOr<uint32_t> done =
        Command(NM_COMMAND_INFO, &info, sizeof(info));
    if (!done.ok()) return done.status();
    status = PinGrown();
    if (!status.ok()) return status;
  }
  status = Attach();
  if (!status.ok()) return status;
  status = Publish();
  if (!status.ok()) return status;
  done_ = true;
  const auto settings = Settings(config_);
  const std::string changes =
      upgrade_ ? Difference(state_.settings, settings) : "";
  if (!changes.empty()) {
    result_.notes.push_back(
        absl::StrCat("the configuration changed: ", changes));
  }
  state_.settings = settings;
  // Without it the next load cannot say what changed; all else is done.
  WriteState(lock_.get(), state_).IgnoreError();
  result_.action = upgrade_ ? LoadResult::Action::kUpgraded
                            : LoadResult::Action::kLoaded;
  return result_;
}

// The kernel frees programs after a grace period; waits for it.
void WaitForPrograms(const std::vector<uint32_t>& ids) {
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::seconds(3);
  for (uint32_t id : ids) {
    while (std::chrono::steady_clock::now() < deadline) {
      UniqueFd fd(bpf_prog_get_fd_by_id(id));
      if (!fd.ok()) break;
      // Our own descriptor keeps it: close before the next look.
      fd = UniqueFd();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
}

}  // namespace

bool IsAttached(const std::string& link_pin, uint64_t cgroup_id) {
  UniqueFd link(bpf_obj_get(link_pin.c_str()));
  if (!link.ok()) return false;
  const KernelObject object = ObjectOf(link.get());
  // Of a cgroup's, the id is 0 once it is detached or the cgroup is gone.
  return object.kind == KernelObject::kLink &&
         (!object.to_cgroup || object.cgroup_id == cgroup_id);
}

bool IsUnfinished(const std::string& pin_dir) {
  std::vector<std::string> pins = MapPins();
  for (std::string& pin : pins) pin += kNewSuffix;
  pins.push_back(kMergedPin);
  pins.push_back(kOldInfoPin);
  for (const std::string& pin : pins) {
    if (access(PinPath(pin_dir, pin).c_str(), F_OK) == 0) return true;
  }
  // Drained, but not full: see "Larger tables".
  UniqueFd slots(bpf_obj_get(PinPath(pin_dir, "free_slots").c_str()));
  UniqueFd stats(bpf_obj_get(PinPath(pin_dir, "stats").c_str()));
  UniqueFd info(bpf_obj_get(PinPath(pin_dir, "info").c_str()));
  nm_stats used = {};
  nm_info limits = {};
  uint32_t zero = 0, id = 0;
  return slots.ok() && stats.ok() && info.ok() &&
         bpf_map_lookup_elem(stats.get(), &zero, &used) == 0 &&
         bpf_map_lookup_elem(info.get(), &zero, &limits) == 0 &&
         NM_SLOT_FIRST + used.series_used < limits.max_series &&
         bpf_map_lookup_elem(slots.get(), nullptr, &id) != 0;
}

const std::vector<Feature>& Features() {
  static const auto* const features = new std::vector<Feature>{
      {"process_tracking", NM_FEATURE_PROCESS_TRACKING},
      {"socket_table", NM_FEATURE_SOCKET_TABLE},
      {"control_channel", NM_FEATURE_CONTROL},
      {"group_access", NM_FEATURE_GROUP_ACCESS},
  };
  return *features;
}

const std::vector<std::string>& LinkPins() {
  static const auto* const pins = new std::vector<std::string>{
      "link_exit",         "link_fork",    "link_exec",
      "link_setsockopt",   "link_sock_create",
      "link_sock_release", "link_sockops", "link_ingress",
      "link_egress"};
  return *pins;
}

const std::vector<std::string>& MapPins() {
  static const auto* const pins = new std::vector<std::string>{
      "counters",   "tcp",       "names",   "stats",    "series",
      "name_ids",
      "free_slots", "free_names", "processes", "sockets", "owners",
      "namings",    "rules",     "binaries",  "info"};
  return *pins;
}

void SetVerbose(bool verbose) { g_verbose = verbose; }

void SetStepObserver(std::function<void(const std::string&)> observer) {
  if (g_observer == nullptr) {
    g_observer = new std::function<void(const std::string&)>;
  }
  *g_observer = std::move(observer);
}

absl::StatusOr<LoadResult> Load(const Config& config) {
  StartLog();
  return Loading(config).Run();
}

namespace {

// Under the lock.
absl::Status TakeAway(const std::string& pin_dir, const LoaderState& state,
                      bool* was_loaded) {
  if (!IsBpffs(pin_dir)) {
    if (access(pin_dir.c_str(), R_OK | X_OK) != 0) {
      return ErrnoStatus(errno, absl::StrCat("open ", pin_dir), "run as root");
    }
    return absl::OkStatus();  // somebody's directory
  }
  absl::StatusOr<std::vector<std::string>> pins = FindPins(pin_dir, state);
  if (!pins.ok()) return pins.status();
  // Readers are told first. Those of another version's keep what they have.
  for (const char* pin : {"info", kOldInfoPin}) {
    UniqueFd info(bpf_obj_get(PinPath(pin_dir, pin).c_str()));
    if (!info.ok()) continue;
    absl::Status status = Retire(info.get());
    if (absl::IsPermissionDenied(status)) return status;
    if (status.ok()) Step("retired ", Describe(info.get()));
  }
  std::vector<uint32_t> programs;
  // Packets first: afterwards nothing is counted any more.
  std::vector<std::string> links(LinkPins().rbegin(), LinkPins().rend());
  std::vector<std::string> order;
  for (const std::string& pin : links) {
    order.push_back(pin);
    order.push_back(pin + kNewSuffix);
  }
  for (const std::string& pin : *pins) {
    if (!absl::StartsWith(pin, "link_")) order.push_back(pin);
  }
  for (const std::string& pin : order) {
    const std::string path = PinPath(pin_dir, pin);
    UniqueFd fd(bpf_obj_get(path.c_str()));
    if (!fd.ok()) continue;
    *was_loaded = true;
    const std::string what = Describe(fd.get());
    const KernelObject object = ObjectOf(fd.get());
    if (object.kind == KernelObject::kLink) {
      programs.push_back(object.program);
      bpf_link_detach(fd.get());  // ENOTSUPP for tracing: see unlink
    }
    if (unlink(path.c_str()) != 0 && errno != ENOENT) {
      return ErrnoStatus(errno, absl::StrCat("unpin ", path), "run as root");
    }
    Step("unpinned ", path, ": ", what);
  }
  WaitForPrograms(programs);
  if (IsOwnMount(pin_dir, state)) {
    absl::Status status = RemoveDirectory(pin_dir, state);
    if (!status.ok()) return status;
    Step("unmounted ", pin_dir);
  }
  RemoveDirectories(state.made);
  return absl::OkStatus();
}

}  // namespace

absl::Status Unload(const std::string& pin_dir, bool* was_loaded) {
  *was_loaded = false;
  absl::Status status = CheckDirectory(pin_dir);
  if (!status.ok()) return status;
  if (access(pin_dir.c_str(), F_OK) != 0 && errno == ENOENT &&
      access(LockFile(pin_dir).c_str(), F_OK) != 0) {
    return absl::OkStatus();
  }
  StartLog();
  absl::StatusOr<UniqueFd> lock = LockDirectory(pin_dir, kLockSeconds);
  if (!lock.ok()) return lock.status();
  const LoaderState state = ReadState(lock->get());
  if (access(pin_dir.c_str(), F_OK) == 0 || errno != ENOENT) {
    status = TakeAway(pin_dir, state, was_loaded);
  } else {
    RemoveDirectories(state.made);
  }
  // It stays while there is something to be known of a meter.
  if (status.ok() || IsEmpty(state)) {
    unlink(LockFile(pin_dir).c_str());
  }
  return status;
}

}  // namespace internal
}  // namespace netmeter
