// SPDX-License-Identifier: BSD-3-Clause
// Writes protobuf's wire format by hand: eight small messages. Generated code would
// register io.prometheus.client a second time in a process that already has it, and
// protobuf would abort.
//
// Folding keeps a reply below gRPC's limit of 4 MiB for a message, whatever the meter
// holds. Series that do not fit are renamed: their samples become those of a series
// called "overflow", and equal labels are summed later (families.cc). Sums then lack
// nothing; only names are missing.
//
// The difficulty is that no counter may decrease. Prometheus takes a decreased counter
// for a restarted one, and adds all of it again. A series that is published under its
// name at one time and folded at another would cause this. So a series must have its name
// for good, or be folded from its first byte on:
// - The reader returns series in the order in which they appeared. Folding keeps the
//   first ones that fit, and stops at the first that does not. A later series changes
//   nothing for those before it. There is one exception: an eviction frees used slots. A
//   new series may then come before older ones, and one of these be folded from then on.
// - The size of a series is the most it can ever take, not what it takes today: with
//   connections, with a round-trip time, with the largest numbers. So no series ever
//   needs the room of another.
// - Reserved series, such as "unattributed", have room of their own, because they may
//   appear late but are first in the table.
// - Pending bytes are a gauge, which may decrease. They get the room that all counters
//   leave.
#include "lib/publish/container.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <limits>
#include <map>
#include <protozero/pbf_writer.hpp>
#include <tuple>
#include <utility>
#include <vector>

#include "lib/base/text.h"
#include "lib/publish/families.h"

namespace netmeter {
namespace internal {
namespace {

// Field numbers: package magma.orc8r, metricsd.proto (proto3) ...
enum MetricsContainerField : uint32_t { kContainerFamily = 2 };

// ... and package io.prometheus.client, metrics.proto (proto2).
enum MetricFamilyField : uint32_t {
  kFamilyName =
      1,  // 2 is `help`: orc8r drops it, and Magma's Python sends none
  kFamilyType = 3,
  kFamilyMetric = 4,
};
enum MetricField : uint32_t {
  kMetricLabel = 1,
  kMetricGauge = 2,
  kMetricCounter = 3,
  kMetricTimestampMs = 6,
  kMetricHistogram = 7,
};
enum LabelPairField : uint32_t { kLabelName = 1, kLabelValue = 2 };
enum ValueField : uint32_t { kValue = 1 };  // of Gauge and of Counter
enum HistogramField : uint32_t {
  kSampleCount = 1,
  kSampleSum = 2,
  kBucket = 3,
};
enum BucketField : uint32_t { kCumulativeCount = 1, kUpperBound = 2 };
enum MetricType : int32_t {
  kTypeCounter = 0,
  kTypeGauge = 1,
  kTypeHistogram = 4,
};

MetricType TypeOf(FamilyType type) {
  switch (type) {
    case FamilyType::kCounter:
      return kTypeCounter;
    case FamilyType::kGauge:
      return kTypeGauge;
    case FamilyType::kHistogram:
      return kTypeHistogram;
  }
  return kTypeGauge;
}

void AddHistogram(const Metric& metric, protozero::pbf_writer* out) {
  protozero::pbf_writer histogram(*out, kMetricHistogram);
  uint64_t count = 0;
  for (const uint64_t observations : metric.buckets) count += observations;
  histogram.add_uint64(kSampleCount, count);
  histogram.add_double(kSampleSum, static_cast<double>(metric.value) / 1e6);
  count = 0;
  for (size_t i = 0; i < metric.buckets.size(); ++i) {
    count += metric.buckets[i];
    protozero::pbf_writer bucket(histogram, kBucket);
    bucket.add_uint64(kCumulativeCount, count);
    bucket.add_double(kUpperBound, BucketBound(i));
  }
}

// Writes metrics. A message is preceded by its length. When a nested writer ends,
// protozero moves the message to close the gap between its guess and the length: for each
// label that moves the whole message. So nested messages are written separately, into
// reused memory, and added with their known length.
class MetricWriter {
 public:
  explicit MetricWriter(int64_t timestamp_ms) : timestamp_ms_(timestamp_ms) {}

  // protozero writes every given value, also zeros. Readers of proto2 need them for
  // has_type() and has_value(), and orc8r drops a whole upload if one is missing.
  void Add(const Metric& metric, FamilyType type,
           protozero::pbf_writer* family) {
    metric_.clear();
    protozero::pbf_writer out(metric_);
    for (const Label& label : metric.labels) {
      part_.clear();
      protozero::pbf_writer pair(part_);
      pair.add_string(kLabelName, label.name);
      pair.add_string(kLabelValue, label.value);
      out.add_message(kMetricLabel, part_);
    }
    if (type == FamilyType::kHistogram) {
      AddHistogram(metric, &out);
    } else {
      part_.clear();
      protozero::pbf_writer(part_).add_double(
          kValue, static_cast<double>(metric.value));
      out.add_message(
          type == FamilyType::kGauge ? kMetricGauge : kMetricCounter, part_);
    }
    // orc8r drops the timestamps of all other types.
    if (type == FamilyType::kGauge && timestamp_ms_ != 0) {
      out.add_int64(kMetricTimestampMs, timestamp_ms_);
    }
    family->add_message(kFamilyMetric, metric_);
  }

 private:
  const int64_t timestamp_ms_;
  std::string metric_, part_;
};

// More than any series takes. A service's TCP series has most metrics: payload, wire
// bytes and wire packets, each of them sent and received; retransmissions; opened,
// accepted, closed and failed connections; resets sent and received, timeouts, and
// retransmitted segments; the round-trip times. A new family of series increases the
// first number here. Each metric has three names of NM_NAME_BYTES (of the service, the
// destination, the uplink), in which every byte became four (\xNN), some 200 other bytes,
// and the buckets of one histogram.
constexpr size_t kMostBytesOfSeries = 16 * (3 * 4 * 64 + 200) + 10 * 24;

// Any time: all from 2004 to 2527 take the same number of bytes.
constexpr int64_t kSomeTime = int64_t{1} << 40;

// The most bytes that the series may ever take. The result never changes: a TCP series is
// measured with all of its connections and with the largest numbers in its histogram,
// even if it has had no round trip yet. All other numbers are doubles, of one size.
size_t BytesOf(Sample sample, const FamilySet& families) {
  if (sample.transport == Transport::kTcp && sample.kind != Kind::kPending) {
    sample.tcp.known = true;
    sample.tcp.rtt_us = 1;
    sample.tcp.rtt_buckets = {};  // published as their running sum
    sample.tcp.rtt_buckets[0] = std::numeric_limits<uint64_t>::max();
  }
  // The label appears as soon as any series has an uplink.
  if (sample.uplink.empty()) sample.uplink = "-";
  PublishOptions host;
  host.scope = Scope::kHost;
  host.families = families;
  return MetricBytes(FamiliesOf({sample}, Health(), host), kSomeTime) -
         MetricBytes(FamiliesOf({}, Health(), host), kSomeTime);
}

// Whether the series belongs to the reserved slots, which have their room in
// kReservedBytes. Such a series appears when there is something to count: last for a
// present reader, but first for a reader that opens the meter later.
bool IsReserved(Kind kind) {
  return kind == Kind::kUnattributed || kind == Kind::kOverflow;
}

// Renames the samples that do not fit into `budget`.
void FoldInto(size_t budget, const FamilySet& families,
              std::vector<Sample>* samples) {
  // Names of one length take the same number of bytes.
  std::map<std::tuple<Kind, Transport, Path, size_t, size_t, size_t>, size_t>
      known;
  size_t used = 0;
  const auto fold = [&](bool pending) {
    bool full = false;
    for (Sample& sample : *samples) {
      if (IsReserved(sample.kind) && sample.uplink.empty()) continue;
      if ((sample.kind == Kind::kPending) != pending) continue;
      if (!full) {
        size_t& bytes =
            known[std::make_tuple(sample.kind, sample.transport, sample.path,
                                  ToTerminal(sample.name).size(),
                                  ToTerminal(sample.destination).size(),
                                  ToTerminal(sample.uplink).size())];
        if (bytes == 0) bytes = BytesOf(sample, families);
        full = bytes > budget - used;
        if (!full) used += bytes;
      }
      if (full) {
        sample.name = "overflow";
        sample.destination.clear();
        sample.uplink.clear();
        // A counter stays in "overflow" for good; a gauge may leave it.
        if (!pending) sample.registered = false;
      }
    }
  };
  // Pending samples come and go, so they get the room that counters leave. A counter must
  // not move for them, but a gauge may.
  fold(false);
  fold(true);
}

}  // namespace

std::string ToContainer(const std::vector<Family>& families,
                        int64_t timestamp_ms) {
  std::string bytes;
  MetricWriter writer(timestamp_ms);
  protozero::pbf_writer container(bytes);
  for (const Family& family : families) {
    protozero::pbf_writer out(container, kContainerFamily);
    out.add_string(kFamilyName, family.name);
    out.add_enum(kFamilyType, TypeOf(family.type));
    for (const Metric& metric : family.metrics) {
      writer.Add(metric, family.type, &out);
    }
  }
  return bytes;
}

size_t MetricBytes(const std::vector<Family>& families, int64_t timestamp_ms) {
  std::string bytes;
  MetricWriter writer(timestamp_ms);
  protozero::pbf_writer out(bytes);
  for (const Family& family : families) {
    for (const Metric& metric : family.metrics) {
      writer.Add(metric, family.type, &out);
    }
  }
  return bytes.size();
}

std::vector<Sample> Fold(std::vector<Sample> samples, size_t max_bytes,
                         const PublishOptions& options,
                         size_t* omitted_services) {
  const bool omit = options.scope == Scope::kUnregistered;
  *omitted_services = omit ? MarkRegistered(&samples) : 0;
  const size_t budget = std::max(max_bytes, kLeastMaxBytes) - kReservedBytes;
  if (samples.size() > budget / kMostBytesOfSeries) {
    FoldInto(budget, options.families, &samples);
  }
  // Not OmitRegistered(): a service may also have the name "overflow".
  if (omit) RemoveRegistered(&samples);
  return samples;
}

namespace {

std::vector<Family> CollectFolded(const Meter* meter,
                                  const MagmaOptions& options,
                                  SampleBuffer* buffer) {
  if (meter == nullptr) return FamiliesOfError();
  const SampleBuffer::Lease lease(buffer);
  std::vector<Sample>* const samples = lease.get();
  if (!ReadScope(*meter, options.scope, samples).ok()) return FamiliesOfError();
  const auto health = meter->ReadHealth();
  if (!health.ok()) return FamiliesOfError();
  size_t omitted_services = 0;
  *samples =
      Fold(std::move(*samples), options.max_bytes, options, &omitted_services);
  auto uplinks = ReadUplinks(*meter, options);
  if (!uplinks.ok() ||
      MetricBytes(FamiliesOfUplinks(*uplinks, options), 0) > kUplinkBytes) {
    uplinks = std::vector<Uplink>();
  }
  return FamiliesOf(*samples, *health, options, omitted_services, *uplinks);
}

int64_t NowMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

std::string SerializeMetrics(const Meter* meter, const MagmaOptions& options,
                             SampleBuffer* buffer) noexcept {
  const int64_t time = options.timestamps ? NowMs() : 0;
  try {
    return ToContainer(CollectFolded(meter, options, buffer), time);
  } catch (const std::exception&) {  // not enough memory for all families
  }
  try {
    return ToContainer(FamiliesOfError(), time);
  } catch (const std::exception&) {
  }
  return std::string();
}

}  // namespace internal
}  // namespace netmeter
