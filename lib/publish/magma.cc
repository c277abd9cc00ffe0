// SPDX-License-Identifier: BSD-3-Clause
// DeltaVisitor turns totals into increments, for hosts whose counters can only be
// incremented.
//
// It keeps the delivered amount of each counter. The difference to the present total is
// due. The entry is updated only after the callback has accepted the delta, so a delta is
// delivered again after any failure in between: no byte is lost or delivered twice. All
// memory is allocated before the callback, because a later failure would look like a
// delta that was not accepted.
//
// Totals belong to one meter, which is identified by its start time. An upgrade keeps the
// start time and the totals. Another start time means that counting began anew, so
// nothing of the new totals was delivered yet.
//
// A load may rename destinations, by other suffixes or another setting for unknown names.
// Their bytes are then in other counters. The amounts delivered under old names count
// as delivered under new ones, service by service (Carry()), so a load alone makes no
// delta.
//
// A counter is the sum of several series, of which one may be evicted while the others go
// on. The counter then decreases by the total of that series, and a counter of kind
// evicted increases. The delivered amount moves likewise (Evict()), so an eviction
// makes no delta either. A load may do both at once. Then Evict() comes first, with the
// series that EvictedBetween() finds, and Carry() handles the others.
#include "netmeter/magma.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "lib/base/no_throw.h"
#include "lib/publish/container.h"
#include "lib/publish/families.h"
#include "lib/publish/sample_buffer.h"
#include "lib/reader/consistent_read.h"
#include "lib/reader/difference.h"

namespace netmeter {
namespace {

using internal::Family;
using internal::FamilyType;
using internal::Metric;
using internal::SeriesName;

struct Delivered {
  uint64_t value = 0;
  uint64_t visit = 0;      // the last visit that saw the counter
  bool announced = false;  // false: a callback is due, also for 0
};
using DeliveredMap = std::map<std::string, Delivered>;

// Identifies a counter: the family, its labels, and last the destination, which may be
// empty. Neither names nor UTF-8 text made of names contain NUL.
std::string KeyOf(const Family& family, const Metric& metric) {
  std::string key = family.name;
  const std::string* destination = nullptr;
  for (const internal::Label& label : metric.labels) {
    if (internal::IsDestination(label)) {
      destination = &label.value;
      continue;
    }
    // The label of uplinks appears with the first series of an uplink. Other series keep
    // their keys.
    if (internal::IsUplink(label) && label.value.empty()) continue;
    key.push_back('\0');
    key += label.value;
  }
  key.push_back('\0');
  if (destination != nullptr) key += *destination;
  return key;
}

// The key without the destination.
std::string GroupOf(const std::string& key) {
  return key.substr(0, key.rfind('\0'));
}

// After a load: the amount delivered for counters that are gone, or are below that
// amount, moves to increased counters of the same family and service.
DeliveredMap Carry(const DeliveredMap& delivered,
                   const std::vector<Family>& families) {
  std::map<std::string, uint64_t> now;
  for (const Family& family : families) {
    if (family.type != FamilyType::kCounter) continue;
    for (const Metric& metric : family.metrics) {
      now[KeyOf(family, metric)] = metric.value;
    }
  }
  DeliveredMap result;
  std::map<std::string, uint64_t> surplus;
  for (const auto& entry : delivered) {
    const auto found = now.find(entry.first);
    const uint64_t value = found == now.end() ? 0 : found->second;
    if (entry.second.value > value) {
      surplus[GroupOf(entry.first)] += entry.second.value - value;
    }
    if (found == now.end()) continue;
    Delivered& kept = result[entry.first] = entry.second;
    kept.value = std::min(kept.value, value);
  }
  for (const auto& counter : now) {
    const auto left = surplus.find(GroupOf(counter.first));
    if (left == surplus.end()) continue;
    Delivered& to = result[counter.first];
    const uint64_t taken = std::min(left->second, counter.second - to.value);
    to.value += taken;
    left->second -= taken;
  }
  return result;
}

// Calls body(key, metric) for each counter.
template <typename Body>
void ForEachCounter(const std::vector<Family>& families, const Body& body) {
  for (const Family& family : families) {
    if (family.type != FamilyType::kCounter) continue;
    for (const Metric& metric : family.metrics) {
      body(KeyOf(family, metric), metric);
    }
  }
}

bool IsSent(const Metric& metric) {
  return std::any_of(metric.labels.begin(), metric.labels.end(),
                     [](const internal::Label& label) {
                       return label.name == std::string("direction") &&
                              label.value == "tx";
                     });
}

// The delivered part of the bytes of a series that is evicted now: its wire bytes.
Sample DeliveredOf(const Sample& sample, const DeliveredMap& delivered,
                   const PublishOptions& options) {
  PublishOptions wire = options;
  wire.families =
      *FamilySet::Parse("netmeter_wire_bytes_total,netmeter_proxy_bytes_total");
  Sample result = sample;
  result.name = KindName(sample.kind);
  result.kind = Kind::kEvicted;
  result.destination.clear();
  result.tx_bytes = result.rx_bytes = 0;
  ForEachCounter(internal::FamiliesOf({sample}, Health(), wire),
                 [&](const std::string& key, const Metric& metric) {
                   const auto found = delivered.find(key);
                   if (found == delivered.end()) return;
                   (IsSent(metric) ? result.tx_bytes : result.rx_bytes) +=
                       std::min(found->second.value, metric.value);
                 });
  return result;
}

// The delivered amount of series that are evicted now counts as delivered for the
// counters of kind evicted, which contain them now.
DeliveredMap Evict(DeliveredMap delivered, const std::vector<Sample>& evicted,
                   const std::vector<Family>& families,
                   const PublishOptions& options) {
  std::vector<Sample> given;
  for (const Sample& sample : evicted) {
    given.push_back(DeliveredOf(sample, delivered, options));
    ForEachCounter(internal::FamiliesOf({sample}, Health(), options),
                   [&](const std::string& key, const Metric& metric) {
                     const auto found = delivered.find(key);
                     if (found == delivered.end()) return;
                     Delivered& of = found->second;
                     of.value -= std::min(of.value, metric.value);
                   });
  }
  std::map<std::string, uint64_t> moved;
  ForEachCounter(internal::FamiliesOf(given, Health(), options),
                 [&](const std::string& key, const Metric& metric) {
                   moved[key] = metric.value;
                 });
  ForEachCounter(families, [&](const std::string& key, const Metric& metric) {
    const auto found = moved.find(key);
    if (found == moved.end() || found->second == 0) return;
    Delivered& to = delivered[key];
    to.value =
        std::max(to.value, std::min(to.value + found->second, metric.value));
  });
  return delivered;
}

}  // namespace

class MagmaMetrics::Impl {
 public:
  Impl(std::shared_ptr<const Meter> meter, const MagmaOptions& options)
      : meter_(std::move(meter)), options_(options) {}

  std::string Serialize() const {
    return internal::SerializeMetrics(meter_.get(), options_, &buffer_);
  }

 private:
  const std::shared_ptr<const Meter> meter_;
  const MagmaOptions options_;
  mutable internal::SampleBuffer buffer_;
};

MagmaMetrics::MagmaMetrics(std::shared_ptr<const Meter> meter,
                           const MagmaOptions& options)
    : impl_(std::make_shared<const Impl>(std::move(meter), options)) {}

std::string MagmaMetrics::Serialize() const { return impl_->Serialize(); }

class DeltaVisitor::Impl {
 public:
  Impl(std::shared_ptr<const Meter> meter, const MagmaOptions& options)
      : meter_(std::move(meter)), options_(options) {}

  absl::Status Visit(const Callback& callback);

 private:
  absl::Status VisitAll(const Callback& callback);
  absl::Status ReadUplinks(std::vector<Uplink>* uplinks);
  absl::Status Prepare(std::vector<Family>* families);
  void Follow(const Health& health, const std::vector<Family>& families,
              internal::Totals totals);

  const std::shared_ptr<const Meter> meter_;
  const PublishOptions options_;
  const std::thread::id thread_ = std::this_thread::get_id();
  bool visiting_ = false;
  std::vector<Sample> samples_;   // memory for a read
  std::vector<Sample> previous_;  // the result of the previous read
  internal::Totals totals_;       // of the previous read, with omitted samples
  uint64_t start_time_ns_ = 0;    // of the meter of delivered_
  uint64_t load_time_ns_ = 0;     // of the meter of delivered_
  uint64_t visit_ = 0;
  DeliveredMap delivered_;
};

DeltaVisitor::DeltaVisitor(std::shared_ptr<const Meter> meter,
                           const MagmaOptions& options)
    : impl_(new Impl(std::move(meter), options)) {}

DeltaVisitor::~DeltaVisitor() = default;

absl::Status DeltaVisitor::Visit(const Callback& callback) {
  return impl_->Visit(callback);
}

// Updates the delivered amounts for moves between counters since the last visit.
void DeltaVisitor::Impl::Follow(const Health& health,
                                const std::vector<Family>& families,
                                internal::Totals totals) {
  DeliveredMap delivered;
  if (health.start_time_ns == start_time_ns_) {
    delivered = delivered_;
    // Without a load nothing was renamed.
    const bool loaded = health.load_time_ns != load_time_ns_;
    const std::set<SeriesName> gone =
        loaded ? internal::EvictedBetween(totals_, totals)
               : internal::WentBackBetween(totals_, totals);
    if (!gone.empty()) {
      std::vector<Sample> evicted;
      for (const Sample& sample : previous_) {
        if (gone.count(internal::NameOf(sample)) != 0) {
          evicted.push_back(sample);
        }
      }
      delivered = Evict(std::move(delivered), evicted, families, options_);
    }
    if (loaded) delivered = Carry(delivered, families);
  }
  // Nothing can fail from here on.
  delivered_.swap(delivered);
  totals_.swap(totals);
  previous_.swap(samples_);
  start_time_ns_ = health.start_time_ns;
  load_time_ns_ = health.load_time_ns;
}

// If they could not be read only this time, a visit without them would forget what was
// delivered.
absl::Status DeltaVisitor::Impl::ReadUplinks(std::vector<Uplink>* uplinks) {
  auto read = internal::ReadUplinks(*meter_, options_);
  if (absl::IsUnavailable(read.status()) ||
      absl::IsResourceExhausted(read.status())) {
    return read.status();
  }
  uplinks->clear();
  if (read.ok()) *uplinks = *std::move(read);
  return absl::OkStatus();
}

absl::Status DeltaVisitor::Impl::Prepare(std::vector<Family>* families) {
  if (meter_ == nullptr) {
    return absl::FailedPreconditionError("no meter to visit");
  }
  Health health;
  std::vector<Uplink> uplinks;
  const absl::Status read = internal::ReadConsistently(
      *meter_,
      [this, &uplinks] {
        const absl::Status status =
            internal::ReadScope(*meter_, options_.scope, &samples_);
        return status.ok() ? ReadUplinks(&uplinks) : status;
      },
      &health);
  if (!read.ok()) return read;
  // A service that registers is omitted from then on, but not evicted.
  internal::Totals totals = internal::TotalsOf(samples_);
  const size_t omitted_services = options_.scope == Scope::kUnregistered
                                      ? internal::OmitRegistered(&samples_)
                                      : 0;
  *families = internal::FamiliesOf(samples_, health, options_, omitted_services,
                                   uplinks);
  Follow(health, *families, std::move(totals));
  ++visit_;
  return absl::OkStatus();
}

absl::Status DeltaVisitor::Impl::Visit(const Callback& callback) {
  if (!callback) {
    return absl::InvalidArgumentError("no callback to visit with");
  }
  if (std::this_thread::get_id() != thread_) {
    return absl::FailedPreconditionError(
        "DeltaVisitor::Visit() in another thread than the one that made the "
        "visitor");
  }
  if (visiting_) {
    return absl::FailedPreconditionError(
        "DeltaVisitor::Visit() called by its own callback");
  }
  struct Visiting {
    explicit Visiting(bool* flag) : flag_(flag) { *flag_ = true; }
    ~Visiting() { *flag_ = false; }
    bool* const flag_;
  } visiting(&visiting_);
  return VisitAll(callback);
}

absl::Status DeltaVisitor::Impl::VisitAll(const Callback& callback) {
  std::vector<Family> families;
  absl::Status status =
      internal::WithoutThrowing([&] { return Prepare(&families); });
  if (!status.ok()) return status;

  for (const Family& family : families) {
    if (family.type != FamilyType::kCounter) continue;
    for (const Metric& metric : family.metrics) {
      Delivered* entry = nullptr;
      Delta delta;
      // Everything that needs memory comes before the callback.
      status = internal::WithoutThrowing([&] {
        entry = &delivered_[KeyOf(family, metric)];
        entry->visit = visit_;
        // An evicted series starts again at 0 if it comes back.
        if (metric.value < entry->value) entry->value = 0;
        if (entry->announced && metric.value == entry->value) {
          return absl::OkStatus();
        }
        delta.value = metric.value - entry->value;
        for (const internal::Label& label : metric.labels) {
          delta.labels.push_back({label.name, label.value});
        }
        delta.name = family.name;
        return absl::OkStatus();
      });
      if (!status.ok()) return status;
      if (*delta.name == '\0') continue;  // nothing is due
      status = callback(delta);
      if (!status.ok()) return status;
      entry->value = metric.value;
      entry->announced = true;
    }
  }
  // A counter that is gone, as of an evicted series, starts again at 0 if it comes back.
  for (auto i = delivered_.begin(); i != delivered_.end();) {
    i = i->second.visit == visit_ ? std::next(i) : delivered_.erase(i);
  }
  return absl::OkStatus();
}

}  // namespace netmeter
