// SPDX-License-Identifier: BSD-3-Clause
#include "lib/core/human.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace netmeter {
namespace internal {

std::string HumanBytes(uint64_t bytes, SizeUnits units) {
  static constexpr const char* kNames[][2] = {{"KiB", "kB"}, {"MiB", "MB"},
                                              {"GiB", "GB"}, {"TiB", "TB"},
                                              {"PiB", "PB"}, {"EiB", "EB"}};
  if (units == SizeUnits::kExact) return absl::StrCat(bytes);
  const bool decimal = units == SizeUnits::kDecimal;
  const unsigned base = decimal ? 1000 : 1024;
  if (bytes < base) return absl::StrCat(bytes, " B");
  double value = static_cast<double>(bytes) / base;
  size_t unit = 0;
  // 1023.95 would be rounded to 1024.0.
  while (value >= base - 0.05 && unit + 1 < sizeof(kNames) / sizeof(*kNames)) {
    value /= base;
    ++unit;
  }
  return absl::StrFormat("%.1f %s", value, kNames[unit][decimal ? 1 : 0]);
}

std::string HumanSignedBytes(int64_t bytes, SizeUnits units) {
  if (bytes >= 0) return HumanBytes(static_cast<uint64_t>(bytes), units);
  return "-" + HumanBytes(0 - static_cast<uint64_t>(bytes), units);
}

}  // namespace internal
}  // namespace netmeter
