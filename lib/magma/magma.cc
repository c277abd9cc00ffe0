// SPDX-License-Identifier: BSD-3-Clause
#include "netmeter/magma.h"

#include <chrono>
#include <exception>
#include <utility>

#include "lib/core/no_throw.h"
#include "lib/magma/container.h"
#include "lib/metrics/families.h"

namespace netmeter {
namespace {

using internal::Family;
using internal::Metric;

absl::StatusOr<std::vector<Sample>> Read(const Meter& meter, MagmaScope scope) {
  return scope == MagmaScope::kService ? meter.ReadService() : meter.ReadHost();
}

std::vector<Family> FamiliesOf(const std::vector<Sample>& samples,
                               const Health& health, MagmaScope scope) {
  return scope == MagmaScope::kService
             ? internal::FamiliesOfService(samples)
             : internal::FamiliesOfHost(samples, health);
}

std::vector<Family> CollectFolded(const Meter* meter,
                                  const MagmaOptions& options) {
  if (meter == nullptr) return internal::FamiliesOfError();
  auto samples = Read(*meter, options.scope);
  if (!samples.ok()) return internal::FamiliesOfError();
  const auto health = meter->ReadHealth();
  if (!health.ok()) return internal::FamiliesOfError();
  return FamiliesOf(internal::Fold(*std::move(samples), options.max_bytes,
                                   options.scope == MagmaScope::kUnregistered),
                    *health, options.scope);
}

int64_t NowMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// Neither names nor UTF-8 text made of names contain NUL.
std::string KeyOf(const Family& family, const Metric& metric) {
  std::string key = family.name;
  for (const internal::Label& label : metric.labels) {
    key.push_back('\0');
    key += label.value;
  }
  return key;
}

// Samples and the time at which their meter began to count: of one meter, also
// if it is replaced while we read.
absl::Status ReadConsistently(const Meter& meter, MagmaScope scope,
                              std::vector<Sample>* samples, Health* health) {
  constexpr int kAttempts = 3;
  for (int i = 0; i < kAttempts; ++i) {
    const auto before = meter.ReadHealth();
    if (!before.ok()) return before.status();
    auto read = Read(meter, scope);
    if (!read.ok()) return read.status();
    const auto after = meter.ReadHealth();
    if (!after.ok()) return after.status();
    if (before->created_ns != after->created_ns) continue;
    *samples = *std::move(read);
    *health = *after;
    return absl::OkStatus();
  }
  return absl::UnavailableError("the meter is being replaced; visit again");
}

}  // namespace

MagmaMetrics::MagmaMetrics(std::shared_ptr<const Meter> meter,
                           const MagmaOptions& options)
    : meter_(std::move(meter)), options_(options) {}

std::string MagmaMetrics::Serialize() const {
  const int64_t time = options_.timestamps ? NowMs() : 0;
  try {
    return internal::ToContainer(CollectFolded(meter_.get(), options_), time);
  } catch (const std::exception&) {  // no memory for all, but for an error?
  }
  try {
    return internal::ToContainer(internal::FamiliesOfError(), time);
  } catch (const std::exception&) {
  }
  return std::string();
}

DeltaVisitor::DeltaVisitor(std::shared_ptr<const Meter> meter,
                           const MagmaOptions& options)
    : meter_(std::move(meter)), scope_(options.scope) {}

absl::Status DeltaVisitor::Visit(const Callback& callback) {
  std::vector<Family> families;
  absl::Status status = internal::WithoutThrowing([&] {
    if (meter_ == nullptr) {
      return absl::FailedPreconditionError("no meter to visit");
    }
    std::vector<Sample> samples;
    Health health;
    const absl::Status read =
        ReadConsistently(*meter_, scope_, &samples, &health);
    if (!read.ok()) return read;
    if (health.created_ns != created_ns_) {
      delivered_.clear();
      created_ns_ = health.created_ns;
    }
    if (scope_ == MagmaScope::kUnregistered) {
      samples = internal::Unregistered(std::move(samples));
    }
    families = FamiliesOf(samples, health, scope_);
    return absl::OkStatus();
  });
  if (!status.ok()) return status;

  for (const Family& family : families) {
    if (family.type != Family::Type::kCounter) continue;
    for (const Metric& metric : family.metrics) {
      auto place = delivered_.end();
      bool is_new = false, due = true;
      Delta delta;
      // All that can fail comes before the callback.
      status = internal::WithoutThrowing([&] {
        std::string key = KeyOf(family, metric);
        place = delivered_.find(key);
        is_new = place == delivered_.end();
        delta.name = family.name;
        delta.value = metric.value;
        // A counter of one meter never goes back; if it did, the next delivery
        // is due when it has passed what was delivered.
        due = is_new || metric.value > place->second;
        if (!due) return absl::OkStatus();
        if (!is_new) delta.value -= place->second;
        for (const internal::Label& label : metric.labels) {
          delta.labels.push_back({label.name, label.value});
        }
        if (is_new) place = delivered_.emplace(std::move(key), 0).first;
        return absl::OkStatus();
      });
      if (!status.ok()) return status;
      if (!due) continue;
      try {
        status = callback(delta);
      } catch (...) {
        if (is_new) delivered_.erase(place);
        throw;
      }
      if (!status.ok()) {
        if (is_new) delivered_.erase(place);
        return status;
      }
      place->second = metric.value;
    }
  }
  return absl::OkStatus();
}

}  // namespace netmeter
