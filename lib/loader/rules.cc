// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/rules.h"

#include <bpf/bpf.h>
#include <string.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "bpf/internal.h"
#include "lib/base/status_util.h"
#include "lib/loader/config.h"

namespace netmeter {
namespace internal {
namespace {

using NameBytes = std::array<uint8_t, NM_NAME_BYTES>;

NameBytes BytesOf(const std::string& name) {
  NameBytes bytes = {};
  memcpy(bytes.data(), name.data(), std::min(name.size(), bytes.size()));
  return bytes;
}

absl::Status Fill(int fd, const char* map, const void* key, const void* value) {
  return ErrnoStatus(bpf_map_update_elem(fd, key, value, BPF_ANY),
                     absl::StrCat("fill ", map));
}

}  // namespace

// The rules keep the order of the file, because the first match names the destination.
absl::Status FillRules(const Config& config, const Registrants& registrants,
                       const MeterObject& object) {
  const auto add_binary = [&](const std::string& binary,
                              const std::string& service) {
    return Fill(object.MapFd("binaries"), "binaries", BytesOf(binary).data(),
                BytesOf(service).data());
  };
  for (const std::string& service : config.services) {
    NETMETER_RETURN_IF_ERROR(add_binary(service, service));
  }
  for (const auto& alias : config.aliases) {
    NETMETER_RETURN_IF_ERROR(add_binary(alias.first, alias.second));
  }
  for (const auto& registrant : registrants) {
    NETMETER_RETURN_IF_ERROR(Fill(object.RegistrantsFd(), "registrants",
                                  BytesOf(registrant.first).data(),
                                  &registrant.second));
  }
  NETMETER_RETURN_IF_ERROR(object.FillUnits(config.units));
  uint32_t index = 0;
  for (const DestinationRule& rule : config.destinations) {
    absl::StatusOr<uint32_t> id = object.NameId(NM_KIND_DESTINATION, rule.name);
    if (!id.ok()) return id.status();
    const nm_rule value = RuleEntry(rule, *id);
    NETMETER_RETURN_IF_ERROR(
        Fill(object.MapFd("rules"), "rules", &index, &value));
    index++;
  }
  return absl::OkStatus();
}

}  // namespace internal
}  // namespace netmeter
