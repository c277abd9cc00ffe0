// SPDX-License-Identifier: BSD-3-Clause
// MagmaMetrics is a reading and a container. DeltaVisitor turns totals into
// increments, for hosts whose counters can only be incremented.
//
// It keeps what it has delivered of each counter. The difference to the total of
// now is due. The entry is updated after the callback has taken the delta, and
// never before, so whatever fails in between is delivered again: nothing is lost
// and nothing is delivered twice. All memory is allocated before the callback, as
// a failure after it could not be told apart from a delta that was not taken.
//
// Totals belong to one meter. Its start time tells meters apart: an upgrade keeps
// it, with the totals. Another start time means that counting began anew, so that
// nothing of the new totals was delivered yet.
#include "netmeter/magma.h"

#include <chrono>
#include <exception>
#include <utility>

#include "lib/core/no_throw.h"
#include "lib/magma/container.h"
#include "lib/metrics/families.h"
#include "lib/metrics/sample_buffer.h"

namespace netmeter {
namespace {

using internal::Family;
using internal::FamilyType;
using internal::Metric;

std::vector<Family> CollectFolded(const Meter* meter,
                                  const MagmaOptions& options,
                                  internal::SampleBuffer* buffer) {
  if (meter == nullptr) return internal::FamiliesOfError();
  const internal::SampleBuffer::Lease lease(buffer);
  std::vector<Sample>* const samples = lease.get();
  if (!internal::ReadScope(*meter, options.scope, samples).ok()) {
    return internal::FamiliesOfError();
  }
  const auto health = meter->ReadHealth();
  if (!health.ok()) return internal::FamiliesOfError();
  size_t omitted_services = 0;
  *samples = internal::Fold(std::move(*samples), options.max_bytes, options,
                            &omitted_services);
  return internal::FamiliesOf(*samples, *health, options, omitted_services);
}

int64_t NowMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// What tells one counter from all others. Neither names nor UTF-8 text made of
// names contain NUL.
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
absl::Status ReadConsistently(const Meter& meter, Scope scope,
                              std::vector<Sample>* samples, Health* health) {
  constexpr int kAttempts = 3;
  for (int i = 0; i < kAttempts; ++i) {
    const auto before = meter.ReadHealth();
    if (!before.ok()) return before.status();
    const absl::Status read = internal::ReadScope(meter, scope, samples);
    if (!read.ok()) return read;
    const auto after = meter.ReadHealth();
    if (!after.ok()) return after.status();
    if (before->start_time_ns != after->start_time_ns) continue;
    *health = *after;
    return absl::OkStatus();
  }
  return absl::UnavailableError("the meter is being replaced; visit again");
}

}  // namespace

MagmaMetrics::MagmaMetrics(std::shared_ptr<const Meter> meter,
                           const MagmaOptions& options)
    : meter_(std::move(meter)),
      options_(options),
      buffer_(std::make_shared<internal::SampleBuffer>()) {}

std::string MagmaMetrics::Serialize() const {
  const int64_t time = options_.timestamps ? NowMs() : 0;
  try {
    return internal::ToContainer(
        CollectFolded(meter_.get(), options_, buffer_.get()), time);
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
    : meter_(std::move(meter)), options_(options) {}

absl::Status DeltaVisitor::Visit(const Callback& callback) {
  std::vector<Family> families;
  absl::Status status = internal::WithoutThrowing([&] {
    if (meter_ == nullptr) {
      return absl::FailedPreconditionError("no meter to visit");
    }
    Health health;
    const absl::Status read =
        ReadConsistently(*meter_, options_.scope, &samples_, &health);
    if (!read.ok()) return read;
    if (health.start_time_ns != start_time_ns_) {
      delivered_.clear();
      start_time_ns_ = health.start_time_ns;
    }
    const size_t omitted_services = options_.scope == Scope::kUnregistered
                                        ? internal::OmitRegistered(&samples_)
                                        : 0;
    families =
        internal::FamiliesOf(samples_, health, options_, omitted_services);
    return absl::OkStatus();
  });
  if (!status.ok()) return status;

  for (const Family& family : families) {
    if (family.type != FamilyType::kCounter) continue;
    for (const Metric& metric : family.metrics) {
      auto place = delivered_.end();
      bool is_new = false, due = true;
      Delta delta;
      // All that needs memory comes before the callback.
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
