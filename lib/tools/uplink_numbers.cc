// SPDX-License-Identifier: BSD-3-Clause
#include "lib/tools/uplink_numbers.h"

#include "lib/core/series_reader.h"
#include "lib/uplinks/uplink_names.h"

namespace netmeter {
namespace internal {

std::map<uint32_t, std::string> ReadUplinkNames(const SharedMaps& maps) {
  const SeriesReader reader(maps.view());
  std::map<uint32_t, std::string> names;
  for (uint32_t i = 0; i < NM_MAX_UPLINKS; ++i) {
    const uint32_t id = maps.view().info->uplinks[i];
    std::string name;
    if (id != 0 && reader.ReadName(id, &name)) names[i + 1] = name;
  }
  names[NM_UPLINK_OTHER] = kOtherUplink;
  return names;
}

}  // namespace internal
}  // namespace netmeter
