// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/registrants.h"

#include <algorithm>
#include <fstream>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "lib/core/group.h"
#include "lib/core/status_util.h"
#include "lib/core/user.h"

namespace netmeter {
namespace internal {
namespace {

constexpr char kAnyone[] = "anyone";
constexpr size_t kMost = 1024;  // max_entries of nm_registrants

struct Parsed {
  uint32_t kind = 0;  // 0: anyone
  std::string name;   // of the user or the group, or its number
};

// Nothing where the text has no such form.
std::optional<Parsed> Parse(absl::string_view text) {
  Parsed parsed;
  if (text == kAnyone) return parsed;
  if (absl::ConsumePrefix(&text, "uid:")) {
    parsed.kind = NM_REGISTRANT_UID;
  } else if (absl::ConsumePrefix(&text, "group:")) {
    parsed.kind = NM_REGISTRANT_GID;
  }
  const bool readable = std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isgraph(static_cast<unsigned char>(c));
  });
  if (parsed.kind == 0 || text.empty() || !readable) return std::nullopt;
  parsed.name = std::string(text);
  return parsed;
}

std::optional<uint32_t> FindId(const Parsed& parsed) {
  if (parsed.kind == NM_REGISTRANT_UID) {
    const std::optional<uid_t> user = FindUserByName(parsed.name);
    if (user.has_value()) return *user;
  } else {
    const std::optional<Group> group = FindGroupByName(parsed.name);
    if (group.has_value()) return group->id;
  }
  // As configuration.md says: digits, and one way to write each number.
  const std::string& name = parsed.name;
  uint32_t id = 0;
  if (!std::all_of(name.begin(), name.end(), absl::ascii_isdigit) ||
      (name.size() > 1 && name[0] == '0') || !absl::SimpleAtoi(name, &id) ||
      id == UINT32_MAX) {
    return std::nullopt;
  }
  return id;
}

}  // namespace

absl::Status CheckRegisterBy(const std::map<std::string, std::string>& lines) {
  if (lines.size() > kMost) {
    return absl::InvalidArgumentError(
        absl::StrCat("register_by: at most ", kMost, " services"));
  }
  for (const auto& line : lines) {
    if (Parse(line.second).has_value()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "register_by: ", line.first, ": '", line.second.substr(0, 64),
        "': expected uid:USER, group:GROUP or anyone"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Registrants> FindRegistrants(
    const std::map<std::string, std::string>& lines) {
  NETMETER_RETURN_IF_ERROR(CheckRegisterBy(lines));
  Registrants registrants;
  for (const auto& line : lines) {
    const std::optional<Parsed> parsed = Parse(line.second);
    if (!parsed.has_value() || parsed->kind == 0) continue;
    const std::optional<uint32_t> id = FindId(*parsed);
    if (!id.has_value()) {
      return absl::NotFoundError(
          absl::StrCat("register_by: ", line.first, ": no ",
                       parsed->kind == NM_REGISTRANT_UID ? "user " : "group ",
                       parsed->name));
    }
    registrants[line.first] = {parsed->kind, *id};
  }
  return registrants;
}

bool MayBeService(const Registrants& registrants, const std::string& service,
                  uid_t uid, gid_t gid) {
  const auto found = registrants.find(service);
  if (found == registrants.end() || uid == 0) return true;
  return found->second.id ==
         (found->second.kind == NM_REGISTRANT_GID ? gid : uid);
}

// proc(5): "Uid:" and "Gid:", real, effective, saved set and of file systems, as this
// user namespace has them.
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

std::string TextOf(const Registrants& registrants) {
  std::string text;
  for (const auto& one : registrants) {
    absl::StrAppend(&text, one.first, "=", one.second.kind, ":", one.second.id,
                    "\n");
  }
  return text;
}

}  // namespace internal
}  // namespace netmeter
