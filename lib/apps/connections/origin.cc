// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/connections/origin.h"

#include <limits.h>
#include <unistd.h>

#include <map>
#include <nlohmann/json.hpp>
#include <protozero/pbf_writer.hpp>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lib/base/text.h"

namespace netmeter {
namespace internal {
namespace {

// In flows.proto and in sockets.proto.
constexpr uint32_t kHost = 43, kLabels = 44;

std::string HostName() {
  char name[HOST_NAME_MAX + 1] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? ToUtf8(name) : "";
}

}  // namespace

absl::StatusOr<Origin> Origin::Make(const std::vector<std::string>& labels) {
  std::map<std::string, std::string> values;
  for (const std::string& label : labels) {
    const size_t equals = label.find('=');
    if (equals == 0 || equals == std::string::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat("--label: expected KEY=VALUE, not '", label, "'"));
    }
    const std::string key = ToUtf8(label.substr(0, equals));
    if (!values.emplace(key, ToUtf8(label.substr(equals + 1))).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("--label: '", key, "' is given twice"));
    }
  }
  Origin origin;
  protozero::pbf_writer message(origin.protobuf_);
  const std::string host = HostName();
  if (!host.empty()) {
    origin.json_ = absl::StrCat(",\"host\":", nlohmann::json(host).dump());
    message.add_string(kHost, host);
  }
  if (!values.empty()) {
    absl::StrAppend(&origin.json_,
                    ",\"labels\":", nlohmann::json(values).dump());
  }
  for (const auto& [key, value] : values) {
    std::string entry;  // of a map: its key and its value
    protozero::pbf_writer fields(entry);
    fields.add_string(1, key);
    fields.add_string(2, value);
    message.add_message(kLabels, entry);
  }
  return origin;
}

}  // namespace internal
}  // namespace netmeter
