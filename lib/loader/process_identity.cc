// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/process_identity.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "bpf/internal.h"

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
#include "bpf/command_line.bpf.h"

namespace netmeter {
namespace internal {
namespace {

constexpr char kService[] = ".service";
constexpr size_t kContainerDigits = 64, kShortId = 12;
constexpr int kLevels = 8;

// The short id of a container's cgroup; empty if it is not a container.
std::string ContainerOf(absl::string_view name) {
  name = absl::StripSuffix(name, ".scope");
  if (name.size() < kContainerDigits) return "";
  const size_t at = name.size() - kContainerDigits;
  if (at != 0 && name[at - 1] != '-') return "";
  const absl::string_view id = name.substr(at);
  const bool is_id = std::all_of(id.begin(), id.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
  });
  return is_id ? std::string(id.substr(0, kShortId)) : "";
}

bool IsUnit(absl::string_view name) {
  return name.size() > strlen(kService) && absl::EndsWith(name, kService);
}

}  // namespace

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
  // For "main.py" the executed file is a script, which its interpreter has as an
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

CgroupPlace PlaceOf(absl::string_view cgroup) {
  CgroupPlace place;
  std::vector<absl::string_view> names = absl::StrSplit(cgroup, '/');
  const size_t levels = std::min<size_t>(names.size(), kLevels);
  for (size_t i = 0; i < levels; ++i) {
    const absl::string_view name = names[names.size() - 1 - i];
    const std::string container = ContainerOf(name);
    if (!container.empty()) {
      if (place.container.empty()) place.container = container;
      place.unit.clear();
    } else if (IsUnit(name) && place.unit.empty()) {
      place.unit = std::string(name);
    }
  }
  return place;
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

bool MayBeService(const Registrants& registrants, const std::string& service,
                  uid_t uid, gid_t gid) {
  const auto found = registrants.find(service);
  if (found == registrants.end() || uid == 0) return true;
  return found->second.id ==
         (found->second.kind == NM_REGISTRANT_GID ? gid : uid);
}

// proc(5): "Uid:" and "Gid:" have the real, effective, saved and file system ids, as seen
// in this user namespace.
std::optional<RealIds> RealIdsOf(uint32_t tgid) {
  std::ifstream file(absl::StrCat("/proc/", tgid, "/status"));
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

bool MayProcessBeService(const Registrants& registrants,
                         const std::string& service, uint32_t tgid) {
  if (registrants.count(service) == 0) return true;
  const std::optional<RealIds> ids = RealIdsOf(tgid);
  return ids.has_value() &&
         MayBeService(registrants, service, ids->uid, ids->gid);
}

}  // namespace internal
}  // namespace netmeter
