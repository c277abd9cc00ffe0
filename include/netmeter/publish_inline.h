// SPDX-License-Identifier: BSD-3-Clause
// FamilySet and Scope (publish.h) over the C API, for prometheus.h and magma.h, and for
// the reason at the top of meter_inline.h.

#ifndef NETMETER_PUBLISH_INLINE_H_
#define NETMETER_PUBLISH_INLINE_H_

#include <atomic>

#include "netmeter/meter.h"
#include "netmeter/publish.h"
#include "netmeter/publish_c.h"

namespace netmeter {
NETMETER_NAMESPACE_BEGIN
namespace internal {

class FamilySetAccess {
 public:
  static uint64_t Get(const FamilySet& set) { return set.families_; }
};

inline netmeter_publish_options OptionsOfC(const PublishOptions& options) {
  netmeter_publish_options given = NETMETER_PUBLISH_OPTIONS_INIT;
  given.families = FamilySetAccess::Get(options.families);
  given.scope = static_cast<int32_t>(options.scope);
  given.omit_zeros = options.omit_zeros ? 1 : 0;
  given.names_without_total = options.names_without_total ? 1 : 0;
  return given;
}

// Gives one caller a netmeter_metrics while this object lives: the one in *spare, or a
// new one if another thread uses that. Null if memory runs out.
class MetricsLease {
 public:
  explicit MetricsLease(std::atomic<netmeter_metrics*>* spare)
      : spare_(spare), metrics_(spare->exchange(nullptr)) {
    if (metrics_ == nullptr) metrics_ = netmeter_metrics_new();
  }
  ~MetricsLease() { netmeter_metrics_free(spare_->exchange(metrics_)); }
  MetricsLease(const MetricsLease&) = delete;
  MetricsLease& operator=(const MetricsLease&) = delete;

  netmeter_metrics* get() const { return metrics_; }

 private:
  std::atomic<netmeter_metrics*>* const spare_;
  netmeter_metrics* metrics_;
};

// The state that every publisher has: the spare netmeter_metrics, meter and options.
class Publisher {
 public:
  Publisher(std::shared_ptr<const Meter> meter,
            const netmeter_publish_options& options)
      : meter_(std::move(meter)), options_(options) {}
  ~Publisher() { netmeter_metrics_free(spare_.load()); }
  Publisher(const Publisher&) = delete;
  Publisher& operator=(const Publisher&) = delete;

  netmeter_meter* meter() const { return MeterAccess::Get(meter_.get()); }
  const netmeter_publish_options& options() const { return options_; }
  std::atomic<netmeter_metrics*>* spare() const { return &spare_; }

 private:
  const std::shared_ptr<const Meter> meter_;
  const netmeter_publish_options options_;
  mutable std::atomic<netmeter_metrics*> spare_{nullptr};
};

}  // namespace internal

inline const char* ScopeName(Scope scope) {
  return netmeter_scope_name(static_cast<int>(scope));
}

inline FamilySet::FamilySet() : families_(0) {
  netmeter_parse_families("default", 7, &families_, nullptr);
}

inline absl::StatusOr<FamilySet> FamilySet::Parse(absl::string_view list) {
  FamilySet set;
  netmeter_error error;
  const int code =
      netmeter_parse_families(list.data(), list.size(), &set.families_, &error);
  if (code != NETMETER_OK) return internal::StatusOf(code, error);
  return set;
}

inline FamilySet FamilySet::Kernsnoopd() {
  FamilySet set;
  netmeter_parse_families("kernsnoopd", 10, &set.families_, nullptr);
  return set;
}

inline bool FamilySet::Contains(absl::string_view family) const {
  return netmeter_has_family(families_, family.data(), family.size()) != 0;
}

NETMETER_NAMESPACE_END
}  // namespace netmeter

#endif  // NETMETER_PUBLISH_INLINE_H_
