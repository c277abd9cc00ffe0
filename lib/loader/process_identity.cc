// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/process_identity.h"

#include <cstring>

#include "absl/strings/match.h"
#include "bpf/internal.h"

namespace {

// The kernel's code reads strings by their address in the process. Here the
// command line is in memory already, and an address is an offset in this.
thread_local absl::string_view t_memory;

// As bpf_probe_read_user_str(): a string that has no end cannot be read, and
// one that is too long is cut.
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
#include "bpf/command_line.bpf.h"

namespace netmeter {
namespace internal {

Identity IdentifyProcess(absl::string_view executable,
                         absl::string_view arguments,
                         const std::map<std::string, std::string>& executables,
                         const std::map<std::string, std::string>& scripts) {
  Identity identity;
  identity.name = std::string(executable.substr(0, NM_NAME_BYTES));
  auto known = executables.find(identity.name);
  if (known != executables.end()) {
    identity.service = true;
    identity.name = known->second;
  }
  uint8_t name[NM_NAME_BYTES + 1] = {};
  int how = NM_INFER_NOTHING;
  t_memory = arguments;
  // "main.py": what was executed is a script, which its interpreter has as an
  // argument.
  if (absl::StartsWith(executable, "python") || executable == "main.py") {
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
    }
  }
  return identity;
}

}  // namespace internal
}  // namespace netmeter
