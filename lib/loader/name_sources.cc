// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/name_sources.h"

#include <string.h>

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "lib/loader/config_text.h"

namespace netmeter {
namespace internal {
namespace {

constexpr char kService[] = ".service";
constexpr size_t kContainerDigits = 64, kShortId = 12;
constexpr int kLevels = 8;
constexpr size_t kMaxUnits = 1024;  // max_entries of nm_units

// In the order of enum nm_source.
constexpr const char* kSources[NM_SOURCES] = {"command_line", "service_list",
                                              "unit", "container"};

// The short id of a container's cgroup; empty: it is none.
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

// What of a pattern the name has to begin with; `any`: and anything follows.
std::string PrefixOf(const std::string& pattern, bool* any) {
  const size_t star = pattern.find('*');
  *any = star != std::string::npos;
  return pattern.substr(0, star);
}

}  // namespace

const std::vector<std::string>& DefaultNameSources() {
  static const auto* const sources = new std::vector<std::string>{
      "registration", "command_line", "service_list", "executable"};
  return *sources;
}

const std::vector<std::string>& AllNameSources() {
  static const auto* const sources = new std::vector<std::string>{
      "registration", "command_line", "service_list",
      "unit",         "container",    "executable"};
  return *sources;
}

absl::Status CheckNameSources(const std::vector<std::string>& sources) {
  const auto bad = [](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat("names_from: ", what));
  };
  const auto& all = AllNameSources();
  std::set<std::string> seen;
  for (const std::string& source : sources) {
    if (std::find(all.begin(), all.end(), source) == all.end()) {
      return bad(absl::StrCat("'", source.substr(0, 64), "': expected ",
                              absl::StrJoin(all, ", ")));
    }
    if (!seen.insert(source).second) {
      return bad(absl::StrCat("'", source, "' is there twice"));
    }
  }
  // A process that says who it is is asked first, and every one has a file.
  if (sources.empty() || sources.front() != "registration" ||
      sources.back() != "executable") {
    return bad("expected registration first and executable last");
  }
  const SourceRanks ranks = RanksOf(sources);
  if (ranks[NM_SOURCE_SERVICE_LIST] != 0 &&
      ranks[NM_SOURCE_SERVICE_LIST] < ranks[NM_SOURCE_COMMAND_LINE]) {
    return bad("expected command_line before service_list");
  }
  return absl::OkStatus();
}

SourceRanks RanksOf(const std::vector<std::string>& sources) {
  SourceRanks ranks = {};
  for (size_t i = 0; i < sources.size(); ++i) {
    for (size_t source = 0; source < NM_SOURCES; ++source) {
      if (sources[i] == kSources[source]) {
        ranks[source] = static_cast<uint32_t>(i + 1);
      }
    }
  }
  return ranks;
}

absl::Status CheckUnit(const std::string& pattern, const std::string& service) {
  const auto bad = [&](const std::string& what) {
    return absl::InvalidArgumentError(
        absl::StrCat("units: ", Quote(pattern), ": ", what));
  };
  if (!IsUnit(pattern)) {
    return bad("expected the name of a unit, such as ssh.service");
  }
  if (pattern.size() >= NM_NAME_BYTES) {
    return bad(absl::StrCat("expected at most ", NM_NAME_BYTES - 1, " bytes"));
  }
  // systemd.unit(5). No unit's name has another one.
  const auto is_of_a_unit = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
           absl::StrContains(":-_.\\@*", c);
  };
  if (!std::all_of(pattern.begin(), pattern.end(), is_of_a_unit)) {
    return bad("expected letters, digits, :-_.\\@ and one *");
  }
  const size_t star = pattern.find('*');
  if (star != std::string::npos &&
      star + 1 + strlen(kService) != pattern.size()) {
    return bad("expected at most one *, right before .service");
  }
  if (absl::StrContains(service, '$') && service != "$1") {
    return bad("expected a name, or $1 alone");
  }
  if (service == "$1" && star == std::string::npos) {
    return bad("$1 is what a * stands for, and there is none");
  }
  return absl::OkStatus();
}

absl::Status CheckUnits(const std::map<std::string, std::string>& units) {
  if (units.size() > kMaxUnits) {
    return absl::InvalidArgumentError(
        absl::StrCat("units: at most ", kMaxUnits));
  }
  for (const auto& unit : units) {
    absl::Status status = CheckUnit(unit.first, unit.second);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

void UnitEntry(const std::string& pattern, const std::string& service,
               nm_unit_key* key, nm_unit_service* value) {
  bool any;
  const std::string prefix = PrefixOf(pattern, &any);
  *key = {};
  *value = {};
  memcpy(key->unit, prefix.data(), prefix.size());
  // Without a '*', the NUL after the name belongs to it.
  key->bits = static_cast<uint32_t>(8 * (prefix.size() + (any ? 0 : 1)));
  if (any) value->rest_from = static_cast<uint32_t>(prefix.size());
  if (service == "$1") {
    value->rest = 1;
  } else {
    memcpy(value->name, service.data(),
           std::min(service.size(), sizeof(value->name)));
  }
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
    bool any;
    const std::string prefix = PrefixOf(entry.first, &any);
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

}  // namespace internal
}  // namespace netmeter
