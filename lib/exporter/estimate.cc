// SPDX-License-Identifier: BSD-3-Clause
#include "lib/exporter/estimate.h"

#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/exporter/reply_cache.h"
#include "lib/publish/container.h"
#include "lib/publish/exposition.h"
#include "lib/publish/families.h"

namespace netmeter {
namespace internal {
namespace {

constexpr double kMinutesOfMonth = 30 * 24 * 60;

// The bytes that magmad uploads: the reply with a label `service` on each metric.
// magmad does not compress.
size_t BytesOfMagma(std::vector<Family> families,
                    const std::string& service_name) {
  constexpr int64_t kSomeTime = int64_t{1} << 40;  // any time has this length
  for (Family& family : families) {
    for (Metric& metric : family.metrics) {
      metric.labels = metric.labels.With({"service", service_name});
    }
  }
  return ToContainer(families, kSomeTime).size();
}

// What a gateway of a fleet publishes, by the data volume that its link allows.
// docs/fleet.md has the configurations; test/fleet reads this table.
struct Profile {
  const char* name;
  const char* families;
  bool omit_zeros;
  int seconds;  // between scrapes
};
constexpr Profile kProfiles[] = {
    // Less than the five minutes after which Prometheus considers a series gone.
    {"satellite", "netmeter_wire_bytes_total", true, 240},
    {"metered", "bytes", true, 60},
    {"full", "all", false, 15},
};

// The number of lines with a value. A histogram has several.
size_t SamplesOf(const std::string& text) {
  size_t samples = 0;
  bool begins = true;
  for (const char c : text) {
    if (begins && c != '#') ++samples;
    begins = c == '\n';
  }
  return samples;
}

// The second table: a row for each profile.
absl::StatusOr<std::string> EstimateProfiles(const std::vector<Sample>& samples,
                                             const Health& health,
                                             PublishOptions options,
                                             size_t omitted) {
  constexpr double kSecondsOfDay = 24 * 60 * 60;
  std::string out = absl::StrFormat(
      "\nThis gateway in a fleet, scraped by Prometheus, for each profile of "
      "docs/fleet.md.\nBytes are those of a reply; days and months are with "
      "gzip. A server of 1,000 gateways gets\n1,000 times the samples.\n\n"
      "%-10s %-26s %6s %8s %10s %9s %8s %9s %10s\n",
      "profile", "families", "every", "samples", "samples/s", "bytes", "gzip",
      "MB a day", "GB a month");
  for (const Profile& profile : kProfiles) {
    const auto set = FamilySet::Parse(profile.families);
    if (!set.ok()) return set.status();
    options.families = *set;
    options.omit_zeros = profile.omit_zeros;
    const std::string text = ToText(
        FamiliesOf(samples, health, options, omitted), TextFormat::kPrometheus);
    const double scrapes = kSecondsOfDay / profile.seconds;
    const size_t count = SamplesOf(text);
    const size_t gzip = Gzip(text).size();
    absl::StrAppendFormat(
        &out, "%-10s %-26s %4d s %8d %10.2f %9d %8d %9.3f %10.3f\n",
        profile.name, profile.families, profile.seconds, count,
        static_cast<double>(count) / profile.seconds, text.size(), gzip,
        1e-6 * scrapes * gzip, 30e-9 * scrapes * gzip);
  }
  return out;
}

}  // namespace

absl::StatusOr<std::string> Estimate(const Meter& meter,
                                     const ExporterFlags& flags) {
  std::vector<Sample> samples;
  const absl::Status read = ReadScope(meter, flags.publish.scope, &samples);
  if (!read.ok()) return read;
  const auto health = meter.ReadHealth();
  if (!health.ok()) return health.status();
  PublishOptions options = flags.publish;
  const size_t omitted =
      options.scope == Scope::kUnregistered ? OmitRegistered(&samples) : 0;
  std::string out = absl::StrFormat(
      "%d series. A month has 30 days, with a reply every minute. magmad "
      "uploads replies without\ncompression; the month of /metrics is with "
      "gzip.\n\n"
      "%-22s %8s  %20s  %29s\n%-22s %8s  %9s %10s  %9s %8s %10s\n",
      samples.size(), "", "", "Service303, magmad", "/metrics", "families",
      "metrics", "bytes", "GB a month", "bytes", "gzip", "GB a month");
  const auto add = [&](const char* name, const FamilySet& set) {
    options.families = set;
    const std::vector<Family> families =
        FamiliesOf(samples, *health, options, omitted);
    size_t metrics = 0;
    for (const Family& family : families) metrics += family.metrics.size();
    const size_t magma = BytesOfMagma(families, flags.service_name);
    const std::string text = ToText(families, TextFormat::kPrometheus);
    const size_t gzip = Gzip(text).size();
    absl::StrAppendFormat(&out, "%-22s %8d  %9d %10.3f  %9d %8d %10.3f\n", name,
                          metrics, magma, 1e-9 * kMinutesOfMonth * magma,
                          text.size(), gzip, 1e-9 * kMinutesOfMonth * gzip);
  };
  for (const char* set : {"kernsnoopd", "bytes", "netmeter", "all"}) {
    const auto parsed = FamilySet::Parse(set);
    if (!parsed.ok()) return parsed.status();
    add(set, *parsed);
  }
  add("--service303-families", flags.magma.families);
  add("--families", flags.publish.families);
  const auto profiles = EstimateProfiles(samples, *health, options, omitted);
  if (!profiles.ok()) return profiles.status();
  return out + *profiles;
}

}  // namespace internal
}  // namespace netmeter
