// SPDX-License-Identifier: BSD-3-Clause
#include "lib/testing/interruption.h"

#include <fcntl.h>
#include <linux/bpf.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>

#include "absl/strings/str_cat.h"

namespace netmeter {
namespace internal {
namespace {

constexpr unsigned kSeconds = 300;  // a function that hangs is killed

// The child's result, in shared memory because a system call would be counted.
struct Told {
  bool ok;
  char message[1000];
};

// The calls that may change something, except bpf(2).
struct NamedCall {
  long number;
  const char* name;
};
constexpr NamedCall kCalls[] = {
    {SYS_mount, "mount"},
    {SYS_umount2, "umount2"},
    {SYS_rename, "rename"},
    {SYS_renameat, "renameat"},
    {SYS_renameat2, "renameat2"},
    {SYS_link, "link"},
    {SYS_linkat, "linkat"},
    {SYS_symlink, "symlink"},
    {SYS_symlinkat, "symlinkat"},
    {SYS_unlink, "unlink"},
    {SYS_unlinkat, "unlinkat"},
    {SYS_mkdir, "mkdir"},
    {SYS_mkdirat, "mkdirat"},
    {SYS_rmdir, "rmdir"},
    {SYS_chmod, "chmod"},
    {SYS_fchmod, "fchmod"},
    {SYS_fchmodat, "fchmodat"},
    {SYS_chown, "chown"},
    {SYS_fchown, "fchown"},
    {SYS_lchown, "lchown"},
    {SYS_fchownat, "fchownat"},
    {SYS_pwrite64, "pwrite64"},
    {SYS_write, "write"},
    {SYS_ftruncate, "ftruncate"},
    {SYS_flock, "flock"},
    {SYS_ioctl, "ioctl"},
    {SYS_perf_event_open, "perf_event_open"},
};

// The calls that look up a path, and the number of that argument.
struct PathCall {
  long number;
  const char* name;
  int argument;
};
constexpr PathCall kPathCalls[] = {
    {SYS_access, "access", 0},     {SYS_faccessat, "faccessat", 1},
    {439, "faccessat2", 1},        {SYS_stat, "stat", 0},
    {SYS_lstat, "lstat", 0},       {SYS_newfstatat, "newfstatat", 1},
    {SYS_readlink, "readlink", 0}, {SYS_readlinkat, "readlinkat", 1},
    {SYS_statfs, "statfs", 0},
};

// Commands of bpf(2) that only read, or whose result ends with the process.
bool EndsWithProcess(uint64_t command) {
  switch (command) {
    case BPF_MAP_CREATE:
    case BPF_MAP_LOOKUP_ELEM:
    case BPF_MAP_GET_NEXT_KEY:
    case BPF_PROG_LOAD:
    case BPF_BTF_LOAD:
    case BPF_OBJ_GET:
    case BPF_OBJ_GET_INFO_BY_FD:
    case BPF_PROG_GET_FD_BY_ID:
    case BPF_MAP_GET_FD_BY_ID:
    case BPF_BTF_GET_FD_BY_ID:
    case BPF_LINK_GET_FD_BY_ID:
      return true;
    default:
      return false;
  }
}

// A string in the child's memory, cut to the size of the buffer.
std::string ReadString(pid_t child, uint64_t address) {
  char text[256] = "";
  const iovec to = {text, sizeof(text) - 1};
  const iovec from = {reinterpret_cast<void*>(address), sizeof(text) - 1};
  // The next page is not mapped: read to the end of this one.
  if (process_vm_readv(child, &to, 1, &from, 1, 0) < 0) {
    const iovec page = {from.iov_base, 4096 - address % 4096};
    process_vm_readv(child, &to, 1, &page, 1, 0);
  }
  return text;
}

// "" if the call is not counted. Paths in /proc are not counted, because their number
// depends on the running processes; nor are calls on a descriptor.
std::string NameIfLooks(pid_t child, const user_regs_struct& registers) {
  const long number = static_cast<long>(registers.orig_rax);
  for (const PathCall& call : kPathCalls) {
    if (call.number != number) continue;
    const std::string path =
        ReadString(child, call.argument == 0 ? registers.rdi : registers.rsi);
    const bool relative = path.empty() || path[0] != '/';
    return relative || path.compare(0, 6, "/proc/") == 0 ? "" : call.name;
  }
  return "";
}

// "" if the call is not counted.
std::string NameIfCounted(pid_t child, const user_regs_struct& registers,
                          bool error) {
  const long number = static_cast<long>(registers.orig_rax);
  if (number == SYS_bpf) {
    if (!error && EndsWithProcess(registers.rdi)) return "";
    return absl::StrCat("bpf(", registers.rdi, ")");
  }
  if (number == SYS_openat) {
    return (registers.rdx & O_CREAT) != 0 ? "openat" : "";
  }
  for (const NamedCall& call : kCalls) {
    if (call.number == number) return call.name;
  }
  return error ? NameIfLooks(child, registers) : "";
}

[[noreturn]] void RunChild(const std::function<absl::Status()>& body,
                           Told* told) {
  alarm(kSeconds);
  if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(3);
  raise(SIGSTOP);
  const absl::Status status = body();
  told->ok = status.ok();
  const std::string text = status.ToString();
  memcpy(told->message, text.data(),
         std::min(text.size(), sizeof(told->message) - 1));
  _exit(0);
}

// Waits for the next stop of the child. Returns false if it has ended. *at_call: the
// stop is before or after a system call; otherwise *signal is to be delivered.
bool NextStop(pid_t child, bool* at_call, int* signal, int* status) {
  if (ptrace(PTRACE_SYSCALL, child, nullptr, *signal) != 0 && errno != ESRCH) {
    kill(child, SIGKILL);
  }
  while (waitpid(child, status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFSTOPPED(*status)) return false;
  *at_call = WSTOPSIG(*status) == (SIGTRAP | 0x80);
  *signal = *at_call ? 0 : WSTOPSIG(*status);
  return true;
}

}  // namespace

Interrupted RunInterrupted(const Interruption& interruption,
                           const std::function<absl::Status()>& body) {
  Interrupted result;
  auto* const told =
      static_cast<Told*>(mmap(nullptr, sizeof(Told), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  if (told == MAP_FAILED) return result;
  fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) RunChild(body, told);
  int status = 0, signal = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSTOPPED(status)) {
    ptrace(PTRACE_SETOPTIONS, child, nullptr,
           PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
  }
  int passed = 0;  // calls of this name
  bool at_call = false, inside = false, refuse = false;
  while (NextStop(child, &at_call, &signal, &status)) {
    if (!at_call) continue;
    inside = !inside;
    if (!inside && !refuse) continue;
    user_regs_struct registers;
    if (ptrace(PTRACE_GETREGS, child, nullptr, &registers) != 0) continue;
    if (!inside) {
      refuse = false;
      registers.rax = static_cast<uint64_t>(-int64_t{interruption.error});
      ptrace(PTRACE_SETREGS, child, nullptr, &registers);
      continue;
    }
    std::string name = NameIfCounted(child, registers, interruption.error != 0);
    if (name.empty() && interruption.meanwhile != nullptr) {
      name = absl::StrCat("call ", registers.orig_rax);
    }
    if (name.empty()) continue;
    result.calls.push_back(name);
    if (static_cast<int>(result.calls.size()) != interruption.call + 1 &&
        (name != interruption.name || passed++ < interruption.but ||
         passed - interruption.but > interruption.most)) {
      continue;
    }
    result.reached = true;
    if (interruption.meanwhile != nullptr) {
      interruption.meanwhile();
    } else if (interruption.error == 0) {
      kill(child, SIGKILL);
    } else {
      // An invalid number, so that the kernel does not run the call.
      refuse = true;
      registers.orig_rax = static_cast<uint64_t>(-1);
      ptrace(PTRACE_SETREGS, child, nullptr, &registers);
    }
  }
  result.killed = WIFSIGNALED(status);
  result.ok = !result.killed && told->ok;
  result.message = result.killed
                       ? absl::StrCat("killed by signal ", WTERMSIG(status))
                       : std::string(told->message);
  munmap(told, sizeof(Told));
  return result;
}

}  // namespace internal
}  // namespace netmeter
