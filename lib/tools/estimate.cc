// SPDX-License-Identifier: BSD-3-Clause
#include "lib/tools/estimate.h"

#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/magma/container.h"
#include "lib/metrics/exposition.h"
#include "lib/metrics/families.h"

namespace netmeter {
namespace internal {
namespace {

constexpr double kMinutesOfMonth = 30 * 24 * 60;

// What magmad sends on: the reply with a label `service` at each metric. It
// compresses nothing.
size_t BytesOfMagma(std::vector<Family> families,
                    const std::string& service_name) {
  constexpr int64_t kSomeTime = int64_t{1} << 40;  // as long as any
  for (Family& family : families) {
    for (Metric& metric : family.metrics) {
      metric.labels = metric.labels.With({"service", service_name});
    }
  }
  return ToContainer(families, kSomeTime).size();
}

}  // namespace

absl::StatusOr<std::string> Estimate(const Meter& meter,
                                     const ExporterFlags& flags) {
  std::vector<Sample> samples;
  const absl::Status read = meter.ReadHost(&samples);
  if (!read.ok()) return read;
  const auto health = meter.ReadHealth();
  if (!health.ok()) return health.status();
  PublishOptions options = flags.publish;
  const size_t omitted =
      options.scope == Scope::kUnregistered ? OmitRegistered(&samples) : 0;
  std::string out = absl::StrFormat(
      "%d series. A month has 30 days; each reply once a minute; nothing is "
      "compressed.\n\n"
      "%-22s %8s  %20s  %20s\n%-22s %8s  %9s %10s  %9s %10s\n",
      samples.size(), "", "", "Service303, magmad", "/metrics", "families",
      "metrics", "bytes", "GB a month", "bytes", "GB a month");
  const auto add = [&](const char* name, const FamilySet& set) {
    options.families = set;
    const std::vector<Family> families =
        FamiliesOf(samples, *health, options, omitted);
    size_t metrics = 0;
    for (const Family& family : families) metrics += family.metrics.size();
    const size_t magma = BytesOfMagma(families, flags.service_name);
    const size_t text = ToText(families, TextFormat::kPrometheus).size();
    absl::StrAppendFormat(&out, "%-22s %8d  %9d %10.3f  %9d %10.3f\n", name,
                          metrics, magma, 1e-9 * kMinutesOfMonth * magma, text,
                          1e-9 * kMinutesOfMonth * text);
  };
  for (const char* set : {"kernsnoopd", "bytes", "default", "all"}) {
    const auto parsed = FamilySet::Parse(set);
    if (!parsed.ok()) return parsed.status();
    add(set, *parsed);
  }
  add("--service303-families", flags.magma.families);
  add("--families", flags.publish.families);
  return out;
}

}  // namespace internal
}  // namespace netmeter
