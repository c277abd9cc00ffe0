// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/tables.h"
#include "lib/base/loader_command.h"

#include <bpf/bpf.h>
#include <string.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "bpf/internal.h"
#include "lib/base/kernel_object.h"
#include "lib/base/pins.h"
#include "lib/base/status_util.h"
#include "lib/base/unique_fd.h"
#include "lib/loader/trace.h"
#include "lib/loader/uplinks.h"
#include "lib/reader/shared_maps.h"

namespace netmeter {
namespace internal {
namespace {

using NameBytes = std::array<uint8_t, NM_NAME_BYTES>;

NameBytes BytesOf(const std::string& name) {
  NameBytes bytes = {};
  memcpy(bytes.data(), name.data(), std::min(name.size(), bytes.size()));
  return bytes;
}

absl::Status Fill(const MeterObject& object, const char* map, const void* key,
                  const void* value) {
  return ErrnoStatus(
      bpf_map_update_elem(object.MapFd(map), key, value, BPF_ANY),
      absl::StrCat("fill ", map));
}

}  // namespace

bool IsUsed(const ExtentPin& map, const nm_info& info) {
  return map.extent <
         (map.map == kNames ? info.names_extents : info.series_extents);
}

absl::Status ReuseMaps(const PinDir& pins, const nm_info& info,
                       MeterObject* object) {
  for (const MapPin& map : MapPins()) {
    if (!map.kept) continue;
    NETMETER_ASSIGN_OR_RETURN(const UniqueFd fd, pins.Open(map.pin));
    NETMETER_RETURN_IF_ERROR(object->Reuse(map.pin, fd.get(), pins.path()));
  }
  for (const ExtentPin& map : ExtentPins()) {
    if (object->map(map.pin) == nullptr) continue;
    if (!IsUsed(map, info) && !pins.Has(map.pin)) continue;
    const UniqueFd fd(bpf_obj_get(pins.PathOf(map.pin).c_str()));
    if (!fd.ok()) {
      return ErrnoStatus(
          errno,
          absl::StrCat("the meter is damaged: open ", pins.PathOf(map.pin)),
          absl::StrCat("counters restart by: ",
                       LoaderCommand("load --restart", pins.path())));
    }
    NETMETER_RETURN_IF_ERROR(object->Reuse(map.pin, fd.get(), pins.path()));
  }
  return absl::OkStatus();
}

// The rules keep the order of the file, because the first match names the destination.
absl::Status FillRules(const Config& config, const Registrants& registrants,
                       const MeterObject& object) {
  const auto add_binary = [&](const std::string& binary,
                              const std::string& service) {
    return Fill(object, "binaries", BytesOf(binary).data(),
                BytesOf(service).data());
  };
  for (const std::string& service : config.services) {
    NETMETER_RETURN_IF_ERROR(add_binary(service, service));
  }
  for (const auto& alias : config.aliases) {
    NETMETER_RETURN_IF_ERROR(add_binary(alias.first, alias.second));
  }
  for (const auto& registrant : registrants) {
    NETMETER_RETURN_IF_ERROR(Fill(object, "registrants",
                                  BytesOf(registrant.first).data(),
                                  &registrant.second));
  }
  for (const auto& unit : config.units) {
    nm_unit_key key;
    nm_unit_service value;
    UnitEntry(unit.first, unit.second, &key, &value);
    NETMETER_RETURN_IF_ERROR(Fill(object, "units", &key, &value));
  }
  uint32_t index = 0;
  for (const DestinationRule& rule : config.destinations) {
    NETMETER_ASSIGN_OR_RETURN(const uint32_t id,
                              object.NameId(NM_KIND_DESTINATION, rule.name));
    const nm_rule value = RuleEntry(rule, id);
    NETMETER_RETURN_IF_ERROR(Fill(object, "rules", &index, &value));
    index++;
  }
  return absl::OkStatus();
}

absl::Status FreezeSharedMaps(const MeterObject& object) {
  const auto freeze = [&object](const char* pin) {
    const int fd = object.MapFd(pin);
    if (fd < 0 || FdInfoNumber(fd, "frozen") != 0) return absl::OkStatus();
    return ErrnoStatus(bpf_map_freeze(fd), absl::StrCat("freeze ", pin));
  };
  for (const MapPin& map : MapPins()) {
    if (map.shared()) NETMETER_RETURN_IF_ERROR(freeze(map.pin));
  }
  for (const ExtentPin& map : ExtentPins()) {
    NETMETER_RETURN_IF_ERROR(freeze(map.pin));
  }
  Trace("froze the maps that readers see");
  return absl::OkStatus();
}

absl::Status PinNewMaps(const PinDir& pins, const MeterObject& object) {
  const auto pin_new = [&](const char* pin) {
    const int fd = object.MapFd(pin);
    return fd < 0 ? absl::OkStatus() : pins.Pin(fd, pin);
  };
  for (const ExtentPin& map : ExtentPins()) {
    NETMETER_RETURN_IF_ERROR(pin_new(map.pin));
  }
  for (const MapPin& map : MapPins()) {
    if (map.reader != kInfo) NETMETER_RETURN_IF_ERROR(pin_new(map.pin));
  }
  return absl::OkStatus();
}

absl::Status ReplaceRenewedMaps(const PinDir& pins, const MeterObject& object) {
  for (const MapPin& map : MapPins()) {
    if (map.kept) continue;
    NETMETER_RETURN_IF_ERROR(pins.Replace(object.MapFd(map.pin), map.pin));
  }
  return absl::OkStatus();
}

bool AllIdsAreOut(const PinDir& pins, const nm_info& info) {
  const UniqueFd fd(bpf_obj_get(pins.PathOf("stats").c_str()));
  nm_stats stats = {};
  return fd.ok() && ReadOnlyValue(fd.get(), &stats) &&
         NM_SLOT_FIRST + stats.slots_made >= info.max_series &&
         NM_NAME_FIRST + stats.names_made >= info.max_names;
}

}  // namespace internal
}  // namespace netmeter
