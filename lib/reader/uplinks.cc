// SPDX-License-Identifier: BSD-3-Clause
#include "lib/reader/uplinks.h"

#include <string.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "lib/base/status_util.h"
#include "lib/reader/balance.h"
#include "lib/reader/uplink_maps.h"

namespace netmeter {
namespace internal {
namespace {

absl::StatusOr<BalanceInput> ReadInput(const SharedMaps& maps,
                                       std::vector<Sample> samples) {
  BalanceInput input;
  input.samples = std::move(samples);
  input.forwarded_unknown = WhyNotForwarded(*maps.view().info);
  ForwardedReading forwarded;
  if (input.forwarded_unknown.empty()) {
    auto read = ReadForwarded(maps);
    if (!read.ok()) return read.status();
    forwarded = *std::move(read);
  }
  auto links = ReadLinks(maps);
  if (!links.ok()) return links.status();
  static_cast<MeterLinks&>(input) = *std::move(links);
  // Every list has `other`.
  if (input.uplinks.size() == 1) return HasNoUplinks(maps.directory());
  input.forwarded = NameForwarded(forwarded, input);
  return input;
}

}  // namespace

std::string WhyNotForwarded(const nm_info& info) {
  if ((info.features & NM_FEATURE_FORWARDED) != 0) return "";
  const absl::string_view reasons(info.reasons,
                                  strnlen(info.reasons, sizeof(info.reasons)));
  for (absl::string_view line : absl::StrSplit(reasons, '\n')) {
    if (absl::ConsumePrefix(&line, "forwarded: ")) return std::string(line);
  }
  return "the loaded configuration has no uplinks";
}

absl::StatusOr<std::vector<Uplink>> ReadUplinks(const SharedMaps& maps,
                                                std::vector<Sample> samples) {
  const auto input = ReadInput(maps, std::move(samples));
  // Its pins have gone, or are those of the next meter.
  if (maps.closed()) {
    return absl::UnavailableError("the meter was unloaded during the read");
  }
  if (!input.ok()) return input.status();
  return BalanceUplinks(*input);
}

}  // namespace internal
}  // namespace netmeter
