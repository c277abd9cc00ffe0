// SPDX-License-Identifier: BSD-3-Clause
// Publishes a Meter on Magma's metrics path, for services that already use it: as bytes
// for their GetMetrics, or as increments for their counters. It has no generated code,
// no protobuf and no gRPC, which would clash with the host's own. grpc.h has a complete
// server.
//
//   netmeter::MagmaMetrics metrics(meter);  // see meter.h
//   Status GetMetrics(ServerContext*, const Void*, MetricsContainer* response)
//   {
//     ...                                   // the service's own metrics
//     response->MergeFromString(metrics.Serialize());
//   }
//
// publish.h lists the families. No metric has a label `service`, because magmad adds
// that label.
//
// May change before 2.0.
//
// Threads: a MagmaMetrics may be used from any thread at any time, a DeltaVisitor only
// from the thread that made it.

#ifndef NETMETER_MAGMA_H_
#define NETMETER_MAGMA_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "netmeter/meter.h"
#include "netmeter/publish.h"

namespace netmeter {
NETMETER_NAMESPACE_BEGIN

// PublishOptions, with FamilySet::Kernsnoopd() as the default of `families`, because
// magmad sends the metrics uncompressed every minute over the billed link.
// `netmeter-exporter --estimate` shows the cost of a set of families.
struct MagmaOptions : PublishOptions {
  MagmaOptions() { families = FamilySet::Kernsnoopd(); }

  // Whether gauges have timestamp_ms, the time of the call. Without it, orc8r uses the
  // arrival time, up to a minute later. Counters and histograms never have it, because
  // orc8r always uses their arrival time.
  bool timestamps = true;

  // The maximum size of the result of Serialize(). gRPC refuses a message over 4 MiB
  // (4,194,304): the default leaves 194,304 bytes for the host's own metrics. Values
  // below 128 KiB count as 128 KiB.
  //
  // Series that do not fit are folded: the series that appeared last are summed in
  // series of the same kind, transport and path with the name "overflow" and no
  // destination. Room is reserved for the largest size that a series can reach, so a
  // series is either published by its name or folded from its first byte on, and no
  // counter decreases. The exception is the gauges of pending bytes: they use the room
  // that the others leave at the moment, and are summed beyond that.
  //
  // With the families of the set `default`, folding of services begins at about 1,770
  // TCP series or 3,050 others if names have 64 bytes, and at 3,400 or 5,500 if they
  // have 16 (lib/publish/container_test.cc). To save room, first drop a `destination`
  // that is not needed. In kUnregistered, "overflow" keeps a folded series even after its
  // service has registered. The two families of uplinks are left out if they need more
  // than 32 KiB, which is enough for some 150 interfaces.
  size_t max_bytes = 4000000;
};

class MagmaMetrics {
 public:
  // Cannot fail; a null meter is a meter that cannot be read.
  explicit MagmaMetrics(std::shared_ptr<const Meter> meter,
                        const MagmaOptions& options = MagmaOptions());

  // Returns a magma.orc8r.MetricsContainer in protobuf's wire format with only the field
  // `family`: parse it, merge it or send it as it is. In proto2's sense every family has
  // its type and every metric its value, even if they are zero, because orc8r drops a
  // whole upload if one is missing. If the meter cannot be read, or if memory runs out,
  // the result is one family, netmeter_up, of value 0. If memory does not suffice for
  // that either, the result is empty. Costs one read of the meter and the memory of the
  // result, without a system call. If the meter has uplinks and the options their
  // families, it also makes the calls of Meter::ReadUplinks().
  std::string Serialize() const;

 private:
  class Impl;
  const std::shared_ptr<const Impl> impl_;
};

// An increment of one counter.
struct Delta {
  struct Label {
    const char* name;
    std::string value;
  };

  const char* name = "";      // such as "magma_bytes_sent_total"
  std::vector<Label> labels;  // a `name` always has the same label names
  uint64_t value = 0;
};

// Increments the counters of hosts whose GetMetrics cannot be changed. If it can be
// changed, MagmaMetrics is simpler, and works in any thread.
//
// Threads: visit in the thread in which the host itself increments its counters, such
// as its event loop. Magma's MetricsSingleton has no locks: increments in a second
// thread are a data race, and have crashed hosts. So a visitor belongs to the thread
// that made it, and refuses to call back in any other.
//
//   netmeter::DeltaVisitor visitor(meter);  // in the thread of the event loop
//   ... in a timer of that loop, every few seconds:
//   const absl::Status visited = visitor.Visit([](const netmeter::Delta& d) {
//     if (d.labels.size() != 2) return absl::OkStatus();  // magma_bytes_* only
//     increment_counter(d.name, d.value, 2,
//                       d.labels[0].name, d.labels[0].value.c_str(),
//                       d.labels[1].name, d.labels[1].value.c_str());
//     return absl::OkStatus();
//   });
//   if (!visited.ok()) log(visited.message());  // the next visit delivers the rest
//
// The service's counters then equal the kernel's totals. Like the totals they survive
// a restart of the service, but not a reboot.
class DeltaVisitor {
 public:
  // Returns OK if it has applied the delta, and any error if it has not.
  using Callback = std::function<absl::Status(const Delta& delta)>;

  // Cannot fail. Uses only `scope` and `families` of the options. Visits only counters,
  // no gauges or histograms.
  explicit DeltaVisitor(std::shared_ptr<const Meter> meter,
                        const MagmaOptions& options = MagmaOptions());
  ~DeltaVisitor();

  // Calls back for every counter that grew since its last delivery, and once for every
  // new counter, possibly with value 0. So the first visit delivers all totals so far.
  // Every increment is delivered exactly once, even after errors. If the callback returns
  // an error or throws, the visit ends and returns that error or lets the exception
  // through; the next visit begins with that delta. Errors as Meter::ReadHost() or, in
  // Scope::kService, Meter::ReadService(): then nothing was called back. Only
  // ResourceExhausted may also come after some deltas, as an error of the callback does.
  //   FailedPrecondition  also: called in another thread than the constructor, or
  //                       by the callback
  //   InvalidArgument     also: the callback is empty
  //
  // A new load of netmeter-loader changes no sum. If it changes the names of
  // destinations, new counters appear, and the sum over the destinations of a service
  // still equals the kernel's. Evicting an idle series changes no sum either: its
  // delivered increments are not delivered again as `evicted`. If the series comes
  // back, its deltas begin at 0. After an `unload` totals begin at 0, and are delivered
  // on top of the earlier ones. Traffic between the last visit and the unload is not
  // delivered.
  absl::Status Visit(const Callback& callback);

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

NETMETER_NAMESPACE_END
}  // namespace netmeter

#ifndef NETMETER_FROM_SOURCE  // see the end of meter.h
#include "netmeter/magma_inline.h"
#endif

#endif  // NETMETER_MAGMA_H_
