// SPDX-License-Identifier: BSD-3-Clause
// Publishes a Meter on Magma's metrics path, for services that have it already:
// as bytes for their GetMetrics, or as increments for their counters. Brings
// no generated code, no protobuf and no gRPC, which would clash with the
// host's own; a server for it all is in grpc.h.
//
//   netmeter::MagmaMetrics metrics(meter);  // see meter.h
//   Status GetMetrics(ServerContext*, const Void*, MetricsContainer* response)
//   {
//     ...                                   // the service's own metrics
//     response->MergeFromString(metrics.Serialize());
//   }
//
// The families and their labels are those of prometheus.h, as plain names.
// There is never a label `service`, which magmad adds itself.
//
// Threads: MagmaMetrics may be used from any thread at any time, DeltaVisitor
// from one at a time.

#ifndef NETMETER_MAGMA_H_
#define NETMETER_MAGMA_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "netmeter/meter.h"

namespace netmeter {

enum class MagmaScope {
  kService,       // what Meter::ReadService() reads: this process's service
  kHost,          // what Meter::ReadHost() reads, and the meter's own health
  kUnregistered,  // kHost without what registered services publish themselves:
                  // all series of a service of which any is registered
};

struct MagmaOptions {
  MagmaScope scope = MagmaScope::kService;

  // Whether every metric has timestamp_ms, the time of the call: so does
  // Magma's Python, and orc8r uses it for gauges. Without, orc8r takes the time
  // at which the metric arrives, up to a minute later.
  bool timestamps = true;

  // Serialize() never returns more bytes. gRPC refuses a message over 4 MiB
  // (4,194,304): the default leaves 194,304 bytes to the host's own metrics.
  // Less than 128 KiB counts as 128 KiB.
  //
  // What does not fit is folded: the series that appeared last, with all that
  // follow, are summed in series of the same kind, transport and path with the
  // name "overflow" and no destination. As a series is published by its name
  // or folded from its first byte on, no counter goes back: it takes the room
  // that it may ever need. Only netmeter_pending_bytes, a gauge, has what room
  // the others leave at the moment, and is summed beyond that. Of services
  // folding begins at some 1,400 series of TCP or 2,900 of others with names of
  // 64 bytes, and at 2,500 or 5,100 with names of 16; a `destination` that
  // nobody needs is the first thing to save. In kUnregistered, "overflow"
  // keeps a folded series also after its service has registered.
  size_t max_bytes = 4000000;
};

class MagmaMetrics {
 public:
  // Cannot fail; a null meter is a meter that cannot be read.
  explicit MagmaMetrics(std::shared_ptr<const Meter> meter,
                        const MagmaOptions& options = MagmaOptions());

  // A magma.orc8r.MetricsContainer in protobuf's wire format, field `family`
  // only: parse it, merge it or send it as it is. In proto2's sense every
  // family has its type and every metric its value, zeros included: orc8r
  // drops a whole upload where one is missing. If the meter cannot be read, it
  // is one family, netmeter_up, of value 0; so is want of memory, and where
  // there is none even for that the result is empty. Costs one read of the
  // meter, thus no system call, and the memory of the result.
  std::string Serialize() const;

 private:
  const std::shared_ptr<const Meter> meter_;
  const MagmaOptions options_;
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

// For hosts without a hook in their GetMetrics: feeds their own counters.
//
//   netmeter::DeltaVisitor visitor(meter);
//   ... every few seconds, always from the same thread:
//   visitor.Visit([](const netmeter::Delta& d) {
//     if (d.labels.size() != 2) return absl::OkStatus();  // magma_bytes_* only
//     increment_counter(d.name, d.value, 2,
//                       d.labels[0].name, d.labels[0].value.c_str(),
//                       d.labels[1].name, d.labels[1].value.c_str());
//     return absl::OkStatus();
//   });
//
// The host's counters then equal the kernel's totals, and like these they
// survive a restart of the host.
class DeltaVisitor {
 public:
  // Takes over the delta if it returns OK, else has not used it.
  using Callback = std::function<absl::Status(const Delta& delta)>;

  // Cannot fail; of options, only `scope` matters. Gauges are not visited.
  explicit DeltaVisitor(std::shared_ptr<const Meter> meter,
                        const MagmaOptions& options = MagmaOptions());

  // Calls back for every counter that grew since its last delivery, and once,
  // possibly with value 0, for every counter that is new: the first visit
  // delivers all totals so far. Nothing is delivered twice and nothing is left
  // out, whatever fails: an error of the callback ends the visit and is
  // returned; that delta and those after it are part of the next visit. So it
  // is if the callback throws. Errors as Meter::ReadHost() or, in
  // MagmaScope::kService, Meter::ReadService(); nothing was called back then.
  // ResourceExhausted may come in the middle, like an error of the callback.
  //
  // A new load of netmeter-loader changes nothing. After an `unload` totals
  // begin at 0, and so they are delivered, on top; what was counted after the
  // last visit before the unload is gone with it.
  absl::Status Visit(const Callback& callback);

 private:
  const std::shared_ptr<const Meter> meter_;
  const MagmaScope scope_;
  uint64_t created_ns_ = 0;  // of the meter that delivered_ is about
  std::map<std::string, uint64_t> delivered_;
};

}  // namespace netmeter

#endif  // NETMETER_MAGMA_H_
