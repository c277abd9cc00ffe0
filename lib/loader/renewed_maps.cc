// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/renewed_maps.h"

#include <bpf/bpf.h>

#include <cerrno>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/core/pins.h"
#include "lib/core/status_util.h"
#include "lib/core/unique_fd.h"
#include "lib/loader/attempts.h"
#include "lib/loader/features.h"
#include "lib/loader/pin_dir.h"
#include "lib/loader/uplinks.h"

namespace netmeter {
namespace internal {

absl::Status KeepModesOnFailure(Transaction* transaction) {
  auto modes = KeepModes(transaction->pins(), transaction->OwnsDirectory());
  if (!modes.ok()) return modes.status();
  transaction->OnFailure(*std::move(modes));
  return absl::OkStatus();
}

absl::Status PinRenewedMaps(const MeterObject& object,
                            Transaction* transaction) {
  const PinDir& pins = transaction->pins();
  std::vector<const MapPin*> renewed;
  for (const MapPin& map : MapPins()) {
    const std::string path = pins.PathOf(map.pin);
    // Of a map that grows this object has the successor, whose turn comes later.
    if (map.grows || (map.kept && pins.Has(map.pin))) continue;
    const auto old = std::make_shared<UniqueFd>(bpf_obj_get(path.c_str()));
    const int error = old->ok() ? 0 : errno;
    if (error != 0 && error != ENOENT) {
      return ErrnoStatus(error, absl::StrCat("open ", path));
    }
    renewed.push_back(&map);
    if (!old->ok()) continue;
    transaction->OnFailure(
        [&pins, &map, old] { return pins.Replace(old->get(), map.pin); });
  }
  return InAttempts([&] {
    for (const MapPin* map : renewed) {
      NETMETER_RETURN_IF_ERROR(pins.Replace(object.MapFd(map->pin), map->pin));
    }
    return PinInterfaces(pins, object);
  });
}

}  // namespace internal
}  // namespace netmeter
