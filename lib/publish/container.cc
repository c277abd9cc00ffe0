// SPDX-License-Identifier: BSD-3-Clause
// Writes protobuf's wire format by hand, eight small messages. Generated code
// would register io.prometheus.client a second time in a process that has it, and
// protobuf aborts then.
//
// Folding keeps a reply below gRPC's limit of 4 MiB for a message, whatever the
// meter holds. What does not fit is renamed: its samples become those of a series
// called "overflow", and equal labels are summed later (families.cc). Nothing is
// missing in a sum then, only names are.
//
// The difficulty is that no counter may go back. Prometheus takes a counter that
// is smaller than before for one that began again, and adds all of it once more. A
// series that is published under its name at one time and folded at another would
// do just that. So a series must be by its name for good, or folded from its first
// byte on:
//  - The reader gives series in the order in which they appeared. Folding takes
//    the first ones that fit, and never looks past the first that does not. A
//    series that appears later changes nothing for those before it.
//    That holds until a retirement hands on slots that were in use: a new series may
//    then come before older ones, and one of these be folded from then on.
//  - What a series costs is what it can ever cost, not what it costs today: with
//    connections, with a round-trip time, with the largest numbers. So the room
//    that a series has is never needed by another.
//  - Reserved series, such as "unattributed", have room of their own, as they may
//    appear late but be first in the table.
//  - Pending bytes are a gauge, which may go back. They have the room that is left
//    when all counters have theirs.
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

// Writes metrics. The length of a message stands before it, and protozero closes
// the gap between its guess and the length when a nested writer ends: for each
// label that moves all that was written of it. So what is nested is written apart,
// into memory that is used again, and added with its length known.
class MetricWriter {
 public:
  explicit MetricWriter(int64_t timestamp_ms) : timestamp_ms_(timestamp_ms) {}

  // protozero writes what it is told, zeros too. proto2's readers need that for
  // has_type() and has_value(), and orc8r drops a whole upload where one is missing.
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
    // orc8r drops that of all else.
    if (type == FamilyType::kGauge && timestamp_ms_ != 0) {
      out.add_int64(kMetricTimestampMs, timestamp_ms_);
    }
    family->add_message(kFamilyMetric, metric_);
  }

 private:
  const int64_t timestamp_ms_;
  std::string metric_, part_;
};

// More than any series takes. A service's TCP series has most metrics: payload,
// wire bytes and wire packets, each of them sent and received; retransmissions;
// opened, accepted, closed and failed connections; resets sent and received,
// timeouts, and segments sent again; the round-trip times. A new
// family of series adds to the first number here. Each metric has three names of
// NM_NAME_BYTES (of the service, the destination, the uplink) of which every byte
// became four (\xNN) and some 200 bytes of all else; and there are the buckets of one
// histogram.
constexpr size_t kMostBytesOfSeries = 16 * (3 * 4 * 64 + 200) + 10 * 24;

// Any time: from 2004 to 2527 they all take as many bytes.
constexpr int64_t kSomeTime = int64_t{1} << 40;

// The most bytes that the series may ever take. That never changes: a series of TCP
// is taken with all of its connections and with the largest numbers in its
// histogram, whether or not it had a round trip yet. All other numbers are doubles,
// of one size.
size_t BytesOf(Sample sample, const FamilySet& families) {
  if (sample.transport == Transport::kTcp && sample.kind != Kind::kPending) {
    sample.tcp.known = true;
    sample.tcp.rtt_us = 1;
    sample.tcp.rtt_buckets = {};  // they are published as their running sum
    sample.tcp.rtt_buckets[0] = std::numeric_limits<uint64_t>::max();
  }
  // The label is there as soon as any series has an uplink.
  if (sample.uplink.empty()) sample.uplink = "-";
  PublishOptions host;
  host.scope = Scope::kHost;
  host.families = families;
  return MetricBytes(FamiliesOf({sample}, Health(), host), kSomeTime) -
         MetricBytes(FamiliesOf({}, Health(), host), kSomeTime);
}

// Whether it is a series of the reserved slots, which have their room in
// kReservedBytes. They appear when there is something to count: last, then, or
// first for whoever opens the meter later.
bool IsReserved(Kind kind) {
  return kind == Kind::kUnattributed || kind == Kind::kOverflow;
}

// Renames the samples that do not fit into `budget`.
void FoldInto(size_t budget, const FamilySet& families,
              std::vector<Sample>* samples) {
  // Names of one length cost the same.
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
  // Pending samples come and go, so they have what the others leave: a counter
  // must not move for them, and a gauge may.
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
  // Not OmitRegistered(): a service may be called "overflow", too.
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
  return FamiliesOf(*samples, *health, options, omitted_services);
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
  } catch (const std::exception&) {  // no memory for all, but for an error?
  }
  try {
    return ToContainer(FamiliesOfError(), time);
  } catch (const std::exception&) {
  }
  return std::string();
}

}  // namespace internal
}  // namespace netmeter
