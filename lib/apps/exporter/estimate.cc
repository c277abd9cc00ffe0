// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/exporter/estimate.h"

#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/apps/exporter/budget_metrics.h"
#include "lib/apps/exporter/reply_cache.h"
#include "lib/base/text.h"
#include "lib/base/text_table.h"
#include "lib/publish/container.h"
#include "lib/publish/exposition.h"
#include "lib/publish/families.h"

namespace netmeter {
namespace internal {
namespace {

constexpr auto kRight = TextColumn::kRight;
constexpr int kDaysOfMonth = 30;

// In the units of a provider.
std::string Volume(double bytes) {
  return HumanBytes(static_cast<uint64_t>(bytes), SizeUnits::kDecimal);
}

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
// docs/fleet.md has the configurations; test/apps/fleet reads this table.
struct Profile {
  const char* name;
  const char* families;
  bool omit_zeros;
  int seconds;  // between scrapes
};
constexpr Profile kProfiles[] = {
    // Less than the five minutes after which Prometheus considers a series gone.
    {"satellite", "bill", true, 240},
    {"metered", "bill,bytes", true, 60},
    // The exporter's and Prometheus' defaults.
    {"default", "netmeter", false, 60},
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
                                             const std::vector<Uplink>& uplinks,
                                             PublishOptions options,
                                             size_t omitted,
                                             BudgetMetrics* budgets) {
  constexpr double kSecondsOfDay = 24 * 60 * 60;
  TextTable table({{"PROFILE"},
                   {"FAMILIES"},
                   {"EVERY", kRight},
                   {"SAMPLES", kRight},
                   {"SAMPLES/S", kRight},
                   {"BYTES", kRight},
                   {"GZIP", kRight},
                   {"A DAY", kRight},
                   {"A MONTH", kRight}});
  for (const Profile& profile : kProfiles) {
    const auto set = FamilySet::Parse(profile.families);
    if (!set.ok()) return set.status();
    options.families = *set;
    options.omit_zeros = profile.omit_zeros;
    std::vector<Family> families =
        FamiliesOf(samples, health, options, omitted, uplinks);
    budgets->AddTo(*set, BudgetMetrics::Clock::now(), &families);
    const std::string text = ToText(families, TextFormat::kPrometheus);
    const double scrapes = kSecondsOfDay / profile.seconds;
    const size_t count = SamplesOf(text);
    const size_t gzip = Gzip(text).size();
    table.Add(
        {profile.name, profile.families, absl::StrCat(profile.seconds, " s"),
         absl::StrCat(count),
         absl::StrFormat("%.2f", static_cast<double>(count) / profile.seconds),
         absl::StrCat(text.size()), absl::StrCat(gzip), Volume(scrapes * gzip),
         Volume(kDaysOfMonth * scrapes * gzip)});
  }
  return absl::StrCat(
      "\nThis gateway in a fleet, scraped by Prometheus, for each profile of "
      "docs/fleet.md.\nBytes are those of a reply; days and months are with "
      "gzip. A server of 1,000 gateways gets\n1,000 times the samples.\n\n",
      table.Format(0));
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
  options.families = FamilySet();
  const auto read_uplinks = ReadUplinks(meter, options);
  const auto uplinks =
      read_uplinks.ok() ? *read_uplinks : std::vector<Uplink>();
  const size_t omitted =
      options.scope == Scope::kUnregistered ? OmitRegistered(&samples) : 0;
  BudgetMetrics budgets(flags.budgets, flags.database);
  TextTable table({{"FAMILIES"},
                   {"METRICS", kRight},
                   {"SERVICE303 BYTES", kRight},
                   {"A MONTH", kRight},
                   {"/METRICS BYTES", kRight},
                   {"GZIP", kRight},
                   {"A MONTH", kRight}});
  const auto add = [&](const char* name, const FamilySet& set) {
    options.families = set;
    std::vector<Family> families =
        FamiliesOf(samples, *health, options, omitted, uplinks);
    const size_t magma = BytesOfMagma(families, flags.service_name);
    budgets.AddTo(set, BudgetMetrics::Clock::now(), &families);
    size_t metrics = 0;
    for (const Family& family : families) metrics += family.metrics.size();
    const std::string text = ToText(families, TextFormat::kPrometheus);
    const size_t gzip = Gzip(text).size();
    constexpr double kReplies = kDaysOfMonth * 24 * 60;
    table.Add({name, absl::StrCat(metrics), absl::StrCat(magma),
               Volume(kReplies * magma), absl::StrCat(text.size()),
               absl::StrCat(gzip), Volume(kReplies * gzip)});
  };
  for (const char* set : {"kernsnoopd", "bill", "bytes", "netmeter", "all"}) {
    const auto parsed = FamilySet::Parse(set);
    if (!parsed.ok()) return parsed.status();
    add(set, *parsed);
  }
  add("--service303-families", flags.magma.families);
  add("--families", flags.publish.families);
  const auto profiles =
      EstimateProfiles(samples, *health, uplinks, options, omitted, &budgets);
  if (!profiles.ok()) return profiles.status();
  return absl::StrCat(
      samples.size(),
      " series. A month has 30 days, with a reply every minute. magmad uploads "
      "replies without\ncompression; the month of /metrics is with gzip.\n\n",
      table.Format(0), *profiles);
}

}  // namespace internal
}  // namespace netmeter
