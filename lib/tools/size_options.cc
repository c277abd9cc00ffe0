// SPDX-License-Identifier: BSD-3-Clause
#include "lib/tools/size_options.h"

#include <map>
#include <string>

#include "lib/core/shared_maps.h"

namespace netmeter {
namespace internal {

SizeUnits MeterUnits(const std::string& pin_dir) {
  const auto maps = SharedMaps::Open(pin_dir);
  return maps.ok() && (*maps)->view().info->decimal_sizes != 0
             ? SizeUnits::kDecimal
             : SizeUnits::kBinary;
}

Option AddUnits(Flags* flags, SizeOptions* sizes) {
  return flags
      ->AddChoice(
          "--units", &sizes->units,
          std::map<std::string, SizeUnits>{{"binary", SizeUnits::kBinary},
                                           {"decimal", SizeUnits::kDecimal}},
          "binary: KiB, 1024 bytes; decimal: kB, 1000 bytes; without it\n"
          "size_units of the configuration")
      .Type("UNITS");
}

void AddSizes(Flags* flags, const std::vector<Option>& excluded,
              SizeOptions* sizes) {
  const Option units = AddUnits(flags, sizes);
  const Option exact =
      flags->AddFlag("--bytes", &sizes->exact, "Print exact bytes")
          .Excludes(units);
  for (const Option& other : excluded) {
    units.Excludes(other);
    exact.Excludes(other);
  }
}

}  // namespace internal
}  // namespace netmeter
