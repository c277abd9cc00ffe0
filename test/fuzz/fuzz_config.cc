// SPDX-License-Identifier: BSD-3-Clause
// lib/loader/config.h: the loader's YAML file.

#include "absl/strings/match.h"
#include "lib/loader/config.h"
#include "test/fuzz/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace netmeter::internal;  // NOLINT
  const absl::string_view yaml(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<Config> config =
      ParseConfig(yaml, "netmeter.yml", Config());
  if (config.ok()) {
    FUZZ_CHECK(CheckConfig(*config).ok());
    for (const DestinationRule& rule : config->destinations) {
      FUZZ_CHECK(rule.port_first <= rule.port_last);
      for (int i = 0; i < 4; i++) {
        FUZZ_CHECK((rule.address[i] & ~rule.mask[i]) == 0);
      }
    }
  } else {
    // It names the file.
    FUZZ_CHECK(config.status().code() == absl::StatusCode::kInvalidArgument);
    FUZZ_CHECK(absl::StartsWith(config.status().message(), "netmeter.yml:"));
  }
  return 0;
}
