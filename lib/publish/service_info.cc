// SPDX-License-Identifier: BSD-3-Clause
#include "lib/publish/service_info.h"

#include <chrono>
#include <protozero/pbf_writer.hpp>

#include "lib/base/text.h"

namespace netmeter {
namespace internal {
namespace {

// Field numbers and values: package magma.orc8r, service303.proto (proto3).
enum ServiceInfoField : uint32_t {
  kInfoName = 1,
  kInfoVersion = 2,
  kInfoState = 3,
  kInfoStatus = 4,
  kInfoHealth = 5,
  kInfoStartTimeSecs = 6,
};
enum ServiceStatusField : uint32_t { kStatusMeta = 2 };
enum MapEntryField : uint32_t { kEntryKey = 1, kEntryValue = 2 };
constexpr int32_t kStateAlive = 2;
constexpr int32_t kHealthAppHealthy = 2;

std::string StateOf(const Meter* meter) {
  if (meter == nullptr) return "no meter";
  const auto health = meter->ReadHealth();
  return health.ok() ? "ok" : ToUtf8(std::string(health.status().message()));
}

}  // namespace

ServiceInfo::ServiceInfo(const std::string& name, const std::string& version)
    : ServiceInfo(name, version,
                  static_cast<uint64_t>(
                      std::chrono::duration_cast<std::chrono::seconds>(
                          std::chrono::system_clock::now().time_since_epoch())
                          .count())) {}

ServiceInfo::ServiceInfo(const std::string& name, const std::string& version,
                         uint64_t start_time_secs)
    : name_(ToUtf8(name)),
      version_(ToUtf8(version)),
      start_time_secs_(start_time_secs) {}

std::string ServiceInfo::Serialize(const Meter* meter) const {
  std::string bytes;
  protozero::pbf_writer info(bytes);
  info.add_string(kInfoName, name_);
  info.add_string(kInfoVersion, version_);
  info.add_enum(kInfoState, kStateAlive);
  {
    // A map is a repeated message of key and value.
    protozero::pbf_writer status(info, kInfoStatus);
    protozero::pbf_writer entry(status, kStatusMeta);
    entry.add_string(kEntryKey, "netmeter");
    entry.add_string(kEntryValue, StateOf(meter));
  }
  info.add_enum(kInfoHealth, kHealthAppHealthy);
  info.add_uint64(kInfoStartTimeSecs, start_time_secs_);
  return bytes;
}

}  // namespace internal
}  // namespace netmeter
