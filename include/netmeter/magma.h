// SPDX-License-Identifier: BSD-3-Clause
// Publishes a Meter on Magma's metrics path, for services that are on it already: as
// bytes for their GetMetrics, or as increments for their counters. It has no
// generated code, no protobuf and no gRPC, which would clash with the host's own. A
// server for it all is in grpc.h.
//
//   netmeter::MagmaMetrics metrics(meter);  // see meter.h
//   Status GetMetrics(ServerContext*, const Void*, MetricsContainer* response)
//   {
//     ...                                   // the service's own metrics
//     response->MergeFromString(metrics.Serialize());
//   }
//
// publish.h lists the families. There is never a label `service`, which magmad
// adds itself.
//
// Threads: MagmaMetrics may be used from any thread at any time, DeltaVisitor
// from the one that made it.

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

// All of PublishOptions; but `families` is FamilySet::Kernsnoopd() by default, as
// magmad sends what is published over the link that is paid for, uncompressed and
// each minute. `netmeter-exporter --estimate` says what a set of families costs.
struct MagmaOptions : PublishOptions {
  MagmaOptions() { families = FamilySet::Kernsnoopd(); }

  // Whether gauges have timestamp_ms, the time of the call. Without it, orc8r takes
  // the time at which they arrive, up to a minute later. It does so with counters
  // and histograms in any case, so these have none.
  bool timestamps = true;

  // Serialize() never returns more bytes. gRPC refuses a message over 4 MiB
  // (4,194,304): the default leaves 194,304 bytes to the host's own metrics.
  // Less than 128 KiB counts as 128 KiB.
  //
  // What does not fit is folded: the series that appeared last are summed in
  // series of the same kind, transport and path with the name "overflow" and no
  // destination. A series takes the room that it may ever need, and is published
  // by its name, or folded, from its first byte on. So no counter goes back. Only
  // the gauges of pending bytes have the room that the others leave at the moment,
  // and are summed beyond that. With the families of the set `default`, of services
  // folding begins at some 1,770 series of TCP or 3,050 of others with names of
  // 64 bytes, and at 3,400 or 5,500 with names of 16 (lib/publish/container_test.cc);
  // a `destination` that nobody needs is the first thing to save. In kUnregistered,
  // "overflow" keeps a folded series also after its service has registered.
  size_t max_bytes = 4000000;
};

class MagmaMetrics {
 public:
  // Cannot fail; a null meter is a meter that cannot be read.
  explicit MagmaMetrics(std::shared_ptr<const Meter> meter,
                        const MagmaOptions& options = MagmaOptions());

  // A magma.orc8r.MetricsContainer in protobuf's wire format, with the field
  // `family` only: parse it, merge it or send it as it is. In proto2's sense every
  // family has its type and every metric its value, also where they are zero: orc8r
  // drops a whole upload where one is missing. If the meter cannot be read, or if
  // there is not enough memory, it is one family, netmeter_up, of value 0. If there
  // is no memory even for that, the result is empty. Costs one read of the meter,
  // so no system call, and the memory of the result.
  std::string Serialize() const;

 private:
  class Impl;
  const std::shared_ptr<const Impl> impl_;
};

// What was added to one counter.
struct Delta {
  struct Label {
    const char* name;
    std::string value;
  };

  const char* name = "";      // such as "magma_bytes_sent_total"
  std::vector<Label> labels;  // always the same names for the same `name`
  uint64_t value = 0;
};

// For hosts without a hook in their GetMetrics: feeds their own counters. Where
// GetMetrics can be changed, MagmaMetrics is simpler, and has no thread to think of.
//
// Which thread: the one in which the host itself increments its counters, such as
// its event loop. Magma's MetricsSingleton has no locks: a second thread that
// increments is a data race, and has crashed hosts. So a visitor belongs to the
// thread that made it, and refuses to call back in any other.
//
//   netmeter::DeltaVisitor visitor(meter);  // in the thread of the event loop
//   ... by a timer of that loop, every few seconds:
//   const absl::Status visited = visitor.Visit([](const netmeter::Delta& d) {
//     if (d.labels.size() != 2) return absl::OkStatus();  // magma_bytes_* only
//     increment_counter(d.name, d.value, 2,
//                       d.labels[0].name, d.labels[0].value.c_str(),
//                       d.labels[1].name, d.labels[1].value.c_str());
//     return absl::OkStatus();
//   });
//   if (!visited.ok()) log(visited.message());  // the next one makes up for it
//
// The service's counters then equal the kernel's totals. Like these they survive a
// restart of the service, but not a reboot.
class DeltaVisitor {
 public:
  // Returns OK if it has taken the delta over. Otherwise it has not used it.
  using Callback = std::function<absl::Status(const Delta& delta)>;

  // Cannot fail; of options, `scope` and `families` matter. Only counters are
  // visited: no gauge, no histogram.
  explicit DeltaVisitor(std::shared_ptr<const Meter> meter,
                        const MagmaOptions& options = MagmaOptions());
  ~DeltaVisitor();

  // Calls back for every counter that grew since its last delivery, and once for
  // every counter that is new, possibly with value 0. So the first visit delivers
  // all totals so far. Nothing is delivered twice and nothing is left out, whatever
  // fails. An error of the callback ends the visit and is returned; the next visit
  // begins with that delta. It is the same if the callback throws. Errors as
  // Meter::ReadHost() or, in Scope::kService, Meter::ReadService(): then nothing was
  // called back. ResourceExhausted may come in the middle, as an error of the
  // callback does.
  //   FailedPrecondition  also: called in another thread than the constructor, or
  //                       by the callback
  //   InvalidArgument     also: the callback is empty
  //
  // A new load of netmeter-loader changes no sum. Where it changes the names of
  // destinations, new counters appear, and the sum over the destinations of a
  // service stays the kernel's. Nor does a series that is retired for being idle:
  // what was delivered of it is not delivered once more as `retired`. One that
  // comes back is delivered from 0 on. After an `unload` totals begin at 0, and they are
  // delivered on top of what was delivered before. What was counted after the last
  // visit before the unload is lost with it.
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
