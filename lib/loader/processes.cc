// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/processes.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "bpf/internal.h"
#include "lib/base/proc.h"

namespace {

// The kernel's code reads strings by their address in the process. Here the command line
// is in this buffer, and an address is an offset in it.
thread_local absl::string_view t_memory;

// As bpf_probe_read_user_str(): a string without an end cannot be read, and a string that
// is too long is cut.
long nm_read_string(void* to, uint32_t size, uint64_t address) {
  if (size == 0 || address > t_memory.size()) return -1;
  const absl::string_view rest = t_memory.substr(address);
  const size_t end = rest.find('\0');
  if (end == absl::string_view::npos) return -1;
  const size_t length = end < size - 1 ? end : size - 1;
  memcpy(to, rest.data(), length);
  static_cast<char*>(to)[length] = 0;
  return static_cast<long>(length + 1);
}

}  // namespace

#define NM_GLOBAL static inline
#ifndef __always_inline
#define __always_inline inline
#endif
static __always_inline long nm_read_name(void* to, uint32_t size,
                                         uint64_t address) {
  return nm_read_string(to, size, address);
}
#include "bpf/cgroup_name.bpf.h"

namespace netmeter {
namespace internal {
namespace {

#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

constexpr size_t kMaxCmdline = 80 << 10;  // the kernel part's limit
constexpr char kService[] = ".service";

// The first bytes of a file of /proc. Stream iterators do not do: they throw if a process
// ends between open and read (ESRCH).
std::string ReadSome(const std::string& path, size_t most) {
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  while (fd.ok() && text.size() < most) {
    char buffer[4096];
    const ssize_t got =
        read(fd.get(), buffer, std::min(sizeof(buffer), most - text.size()));
    if (got <= 0) break;
    text.append(buffer, static_cast<size_t>(got));
  }
  return text;
}

std::string BaseName(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

}  // namespace

Identity IdentifyProcess(absl::string_view executable,
                         absl::string_view arguments,
                         const std::map<std::string, std::string>& executables,
                         const std::map<std::string, std::string>& scripts) {
  Identity identity;
  uint8_t name[NM_NAME_BYTES + 1] = {};
  std::string executed(executable.substr(0, NM_NAME_BYTES));
  t_memory = arguments;
  if (nm_is_dynamic_loader(executed.c_str())) {
    const uint64_t program = nm_find_loaded(0, arguments.size());
    const uint64_t base = nm_find_base_name(program, nm_string_length(program));
    if (program != 0 && nm_read_found(base, name) != NM_INFER_NOTHING) {
      executed = reinterpret_cast<char*>(name);
      arguments.remove_prefix(program);
      t_memory = arguments;
    }
    memset(name, 0, sizeof(name));
  }
  identity.name = executed;
  auto known = executables.find(identity.name);
  if (known != executables.end()) {
    identity.service = true;
    identity.name = known->second;
  }
  const bool is_executable = !identity.service;
  int how = NM_INFER_NOTHING;
  // A script that is executed itself is an argument of its interpreter.
  const bool is_python =
      absl::StartsWith(executed, "python") || absl::EndsWith(executed, ".py");
  if (is_python) {
    how = nm_read_found(nm_find_in_python(0, arguments.size()), name);
  }
  t_memory = absl::string_view();
  const std::string inferred(
      reinterpret_cast<char*>(name),
      strnlen(reinterpret_cast<char*>(name), sizeof(name)));
  if (how == NM_INFER_MODULE) {
    identity.service = identity.by_command_line = true;
    identity.name = inferred;
  } else if (how == NM_INFER_SCRIPT) {
    known = scripts.find(inferred);
    if (known != scripts.end()) {
      identity.service = identity.by_command_line = true;
      identity.name = known->second;
    } else if (is_executable && is_python) {
      identity.name = inferred;
    }
  } else if (how == NM_INFER_PROGRAM && is_executable) {
    known = executables.find(inferred);
    identity.service = known != executables.end();
    identity.name = identity.service ? known->second : inferred;
  }
  return identity;
}

CgroupName CgroupNameOf(absl::string_view cgroup) {
  CgroupName named;
  // Address 0 is no name: the path begins with a '/'.
  std::string names(cgroup);
  std::replace(names.begin(), names.end(), '/', '\0');
  names.push_back('\0');
  t_memory = names;
  uint64_t inner = 0;
  int level = 0;
  for (size_t end = names.size(); end > 1 && level < NM_CGROUP_LEVELS;
       level++) {
    const size_t at = names.rfind('\0', end - 2) + 1;
    const uint32_t found = nm_parse_cgroup_name(at, inner);
    const std::string text = names.substr(
        at + NM_CGROUP_NAME_OFFSET(found),
        std::min<size_t>(NM_CGROUP_NAME_LENGTH(found), NM_NAME_BYTES));
    if (NM_CGROUP_NAME_KIND(found) == NM_KIND_CONTAINER &&
        named.container.empty()) {
      named.container = text;
      named.is_inside = !named.unit.empty();
    } else if (NM_CGROUP_NAME_KIND(found) == NM_KIND_UNIT &&
               named.unit.empty()) {
      named.unit = names.c_str() + at;
    }
    inner = at;
    end = at;
  }
  t_memory = absl::string_view();
  return named;
}

std::string NameOfUnit(const CgroupName& named) {
  const std::string text = named.unit + '\0';
  t_memory = text;
  const uint32_t length = nm_length_of_template(0);
  t_memory = absl::string_view();
  return absl::StrCat(
      named.is_inside ? named.container.substr(0, NM_NAME_BYTES - 1) + "/" : "",
      length > 0 ? named.unit.substr(0, length) + kService : named.unit);
}

std::string ServiceOfUnit(const std::map<std::string, std::string>& units,
                          const std::string& unit) {
  size_t longest = 0;
  std::string service;
  for (const auto& entry : units) {
    const std::string prefix = entry.first.substr(0, entry.first.find('*'));
    const bool any = prefix.size() < entry.first.size();
    const size_t around = prefix.size() + strlen(kService);
    if (any ? !absl::StartsWith(unit, prefix) || unit.size() < around
            : unit != prefix) {
      continue;
    }
    const size_t length = prefix.size() + (any ? 0 : 1);
    if (!service.empty() && length < longest) continue;
    longest = length;
    if (entry.second != "$1") {
      service = entry.second;
      continue;
    }
    service = unit.size() == around  // "magma@.service"
                  ? unit
                  : unit.substr(prefix.size(), unit.size() - around);
  }
  return service.substr(0, NM_NAME_BYTES);
}

// proc(5): "Uid:" and "Gid:" have the real, effective, saved and file system ids, as seen
// in this user namespace.
std::optional<RealIds> RealIdsOf(uint32_t tgid) {
  std::ifstream file(FolderOfProcess(tgid) + "/status");
  std::string line;
  RealIds ids = {UINT32_MAX, UINT32_MAX};
  while (std::getline(file, line)) {
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, '\t', absl::SkipEmpty());
    if (words.size() != 5) continue;
    uint32_t* const id = words[0] == "Uid:"   ? &ids.uid
                         : words[0] == "Gid:" ? &ids.gid
                                              : nullptr;
    if (id != nullptr && !absl::SimpleAtoi(words[1], id)) return std::nullopt;
  }
  if (ids.uid == UINT32_MAX) return std::nullopt;
  return ids;
}

bool MayBeService(const Registrants& registrants, const std::string& service,
                  const RealIds& ids) {
  const auto found = registrants.find(service);
  if (found == registrants.end() || ids.uid == 0) return true;
  return found->second.id ==
         (found->second.kind == NM_REGISTRANT_GID ? ids.gid : ids.uid);
}

std::string NameOfRunning(const std::string& comm, const std::string& arguments,
                          const std::string& exe) {
  // The exe of a memfd is all name, even with slashes in it.
  const std::string of_file =
      absl::StartsWith(exe, "/memfd:") ? exe.substr(1) : BaseName(exe);
  // comm is the first 15 bytes of the executed name, unless the process renamed itself.
  // Before 6.14 it may be the number of an executed descriptor, and argv[0] may end with
  // the same number. "exe" is /proc/self/exe.
  if (comm.empty() || comm == "exe" ||
      std::all_of(comm.begin(), comm.end(), absl::ascii_isdigit))
    return of_file;
  // The path of a script follows its interpreter and at most one argument of the "#!"
  // line.
  const std::vector<std::string> argv =
      absl::StrSplit(arguments, absl::MaxSplits('\0', 3));
  for (size_t i = 0; i < std::min<size_t>(argv.size(), 3); i++) {
    const std::string name = BaseName(argv[i]);
    const bool may_be = i == 0 || name.size() != argv[i].size();
    if (may_be && name.substr(0, 15) == comm) return name;
  }
  return of_file;
}

namespace {

// The processes of the machine. Empty in a private PID namespace: /proc has that
// namespace's numbers, and the kernel part uses those of the initial one.
std::vector<uint32_t> RunningTgids() {
  std::vector<uint32_t> tgids;
  struct stat about;
  constexpr ino_t kInitialPidNamespace = 0xEFFFFFFC;  // include/linux/proc_ns.h
  if (stat("/proc/thread-self/ns/pid", &about) != 0 ||
      about.st_ino != kInitialPidNamespace) {
    return tgids;
  }
  ForEachProcess([&](uint32_t tgid) { tgids.push_back(tgid); });
  return tgids;
}

// The path below cgroup v2; empty: not known. Its line begins with "0::", cgroups(7).
// Other lines are for v1 hierarchies.
std::string CgroupOf(uint32_t tgid) {
  std::ifstream file(FolderOfProcess(tgid) + "/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    if (absl::StartsWith(line, "0::/")) return line.substr(3);
  }
  return "";
}

}  // namespace

std::vector<RunningProcess> RunningProcesses() {
  std::vector<RunningProcess> processes;
  for (const uint32_t tgid : RunningTgids()) {
    const std::string base = FolderOfProcess(tgid);
    char exe[4096];
    ssize_t length = readlink((base + "/exe").c_str(), exe,
                              sizeof(exe));  // fails for kernel threads
    if (length <= 0) continue;
    // An update may have replaced the file since the exec.
    std::string path(exe, static_cast<size_t>(length));
    path = std::string(absl::StripSuffix(path, " (deleted)"));
    // The main thread's, which exec(2) sets. Others may have names of their own.
    std::string comm =
        ReadSome(absl::StrCat("/proc/", tgid, "/comm"), kMaxCmdline);
    comm = std::string(absl::StripSuffix(comm, "\n"));
    std::string arguments = ReadSome(base + "/cmdline", kMaxCmdline);
    processes.push_back(
        {tgid, NameOfRunning(comm, arguments, path), "", CgroupOf(tgid)});
    // Arguments matter only for these programs.
    const std::string& name = processes.back().name;
    if (absl::StartsWith(name, "python") || absl::StartsWith(name, "ld") ||
        absl::EndsWith(name, ".py")) {
      processes.back().arguments = std::move(arguments);
    }
  }
  return processes;
}

namespace {

// Whether a process is in `cgroup` or below; "" is the root.
bool IsInCgroup(uint32_t tgid, const std::string& cgroup) {
  const std::string path = CgroupOf(tgid);
  if (path.empty()) return false;
  return cgroup.empty() ||
         (absl::StartsWith(path, cgroup) &&
          (path.size() == cgroup.size() || path[cgroup.size()] == '/'));
}

// Our own descriptor of the socket with this number. False if it is no IPv4 or IPv6
// socket: the link in /proc does not show the family.
bool CopySocket(const UniqueFd& pidfd, uint32_t number, OpenSocket* found) {
  // This is a duplicate, so the other process does not notice.
  found->fd = UniqueFd(
      static_cast<int>(syscall(SYS_pidfd_getfd, pidfd.get(), number, 0)));
  const auto get = [found](int option, auto* value) {
    socklen_t size = sizeof(*value);
    return getsockopt(found->fd.get(), SOL_SOCKET, option, value, &size) == 0;
  };
  int domain = 0;
  return found->fd.ok() && get(SO_DOMAIN, &domain) &&
         (domain == AF_INET || domain == AF_INET6) &&
         get(SO_PROTOCOL, &found->protocol) && get(SO_COOKIE, &found->cookie);
}

}  // namespace

absl::Status ForEachOpenSocket(
    const std::string& below,
    const std::function<void(const OpenSocket&)>& body) {
  const std::vector<uint32_t> running = RunningTgids();
  if (running.empty()) {
    return absl::FailedPreconditionError(
        "a PID namespace hides the host's processes");
  }
  absl::Status status;
  std::vector<std::pair<uint64_t, uint32_t>> by_age;
  for (const uint32_t tgid : running) {
    if (!IsInCgroup(tgid, below)) continue;
    const std::optional<uint64_t> start = StartOfProcess(tgid);
    if (start.has_value()) by_age.emplace_back(*start, tgid);
  }
  // Process ids are used again: a child's may be lower than its parent's.
  std::sort(by_age.rbegin(), by_age.rend());
  for (const auto& [age, tgid] : by_age) {
    const uint64_t start = age;
    ForEachTable(tgid, [&](const Thread& thread) {
      // If the thread ends meanwhile, its pidfd fails (ESRCH), so a reused number is not
      // confused with it.
      const UniqueFd pidfd = OpenThread(thread.pid, thread.tid);
      if (!pidfd.ok()) return;
      const bool all = ForEachDescriptor(
          thread, [&](uint32_t number, absl::string_view link) {
            OpenSocket found;
            found.tgid = thread.pid;
            found.start = start;
            if (absl::StartsWith(link, "socket:[") &&
                CopySocket(pidfd, number, &found)) {
              body(found);
            }
          });
      if (!all) {
        status = absl::PermissionDeniedError(
            absl::StrCat("read ", thread.folder, "/fd: ", strerror(EACCES),
                         " (needs CAP_SYS_PTRACE)"));
      }
    });
  }
  return status;
}

}  // namespace internal
}  // namespace netmeter
