// SPDX-License-Identifier: BSD-3-Clause
#include "lib/netlink/uplink_names.h"

#include <string.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lib/base/text.h"

namespace netmeter {
namespace internal {
namespace {

constexpr size_t kMostNameBytes = 127;  // ALTIFNAMSIZ minus the NUL
constexpr size_t kMostPatterns = 1024;  // the limit of nm_uplink_names

absl::Status Wrong(absl::string_view text) {
  return absl::InvalidArgumentError(absl::StrCat("uplinks: ", text));
}

// Checks like dev_valid_name() of the kernel, and allows a star at the end.
absl::Status CheckPattern(const std::string& uplink,
                          const std::string& pattern) {
  const absl::string_view name = absl::StripSuffix(pattern, "*");
  const bool valid =
      pattern.size() <= kMostNameBytes && !pattern.empty() && name != "." &&
      name != ".." && std::all_of(name.begin(), name.end(), [](char c) {
        return static_cast<unsigned char>(c) > 0x20 && c != 0x7f && c != '/' &&
               c != ':' && c != '*' && c != '?' && c != '[';
      });
  if (valid) return absl::OkStatus();
  return Wrong(absl::StrCat(
      uplink, ": '", ToTerminal(pattern.substr(0, 64)),
      "': expected the name of an interface, or what it begins with and *, "
      "such as \"wwan*\""));
}

}  // namespace

absl::Status CheckUplinks(const Uplinks& uplinks) {
  if (uplinks.size() > NM_MAX_UPLINKS) {
    return Wrong(absl::StrCat("at most ", NM_MAX_UPLINKS));
  }
  std::map<std::string, std::string> seen;
  for (const auto& uplink : uplinks) {
    if (uplink.first == kOtherUplink || uplink.first == "-") {
      return Wrong(absl::StrCat(
          "'", uplink.first,
          "' is the name of traffic in no uplink: choose another name"));
    }
    if (uplink.second.empty()) {
      return Wrong(
          absl::StrCat(uplink.first, ": expected a list, such as [sat0]"));
    }
    for (const std::string& pattern : uplink.second) {
      const absl::Status status = CheckPattern(uplink.first, pattern);
      if (!status.ok()) return status;
      const auto inserted = seen.emplace(pattern, uplink.first);
      if (!inserted.second) {
        return Wrong(absl::StrCat(pattern, " appears twice"));
      }
    }
  }
  if (seen.size() > kMostPatterns) {
    return Wrong(absl::StrCat("at most ", kMostPatterns, " interfaces"));
  }
  return absl::OkStatus();
}

nm_uplink_key UplinkKey(absl::string_view pattern) {
  nm_uplink_key key = {};
  const bool all = !absl::ConsumeSuffix(&pattern, "*");
  const size_t size =
      std::min<size_t>(pattern.size(), NM_INTERFACE_BYTES - (all ? 1 : 0));
  memcpy(key.name, pattern.data(), size);
  // With its NUL the key matches only names of this length.
  key.bits = static_cast<nm_u32>(8 * (size + (all ? 1 : 0)));
  return key;
}

bool FitsUplink(absl::string_view pattern, absl::string_view name) {
  return absl::ConsumeSuffix(&pattern, "*") ? absl::StartsWith(name, pattern)
                                            : name == pattern;
}

std::string FindUplink(const Uplinks& uplinks, absl::string_view interface,
                       const std::vector<std::string>& alternatives) {
  std::string found = kOtherUplink;
  size_t best = 0;
  for (const auto& uplink : uplinks) {
    for (const std::string& pattern : uplink.second) {
      const bool own = FitsUplink(pattern, interface);
      if (!own && std::none_of(alternatives.begin(), alternatives.end(),
                               [&](const std::string& name) {
                                 return FitsUplink(pattern, name);
                               })) {
        continue;
      }
      // If two patterns have one length, the interface's own name decides.
      const bool whole = !absl::EndsWith(pattern, "*");
      const size_t rank =
          2 * (whole ? kMostNameBytes + 1 : pattern.size()) + (own ? 1 : 0);
      if (rank <= best) continue;
      best = rank;
      found = uplink.first;
    }
  }
  return found;
}

bool FitsInterfaceName(absl::string_view pattern) {
  absl::ConsumeSuffix(&pattern, "*");
  return pattern.size() < NM_INTERFACE_BYTES;
}

}  // namespace internal
}  // namespace netmeter
