// SPDX-License-Identifier: BSD-3-Clause
// Computes what each series counted between two reads of one meter.
//
// Threads: any.

#ifndef NETMETER_LIB_READER_DIFFERENCE_H_
#define NETMETER_LIB_READER_DIFFERENCE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "netmeter/sample.h"

namespace netmeter {
namespace internal {

// The counters that the history keeps. The names are those of Sample's fields, and also
// columns of SQL.
struct RecordedCounter {
  const char* name;
  uint64_t Sample::*field;
};
constexpr RecordedCounter kRecordedCounters[] = {
    {"tx_bytes", &Sample::tx_bytes},
    {"rx_bytes", &Sample::rx_bytes},
    {"tx_packets", &Sample::tx_packets},
    {"rx_packets", &Sample::rx_packets},
    {"tx_payload_bytes", &Sample::tx_payload_bytes},
    {"rx_payload_bytes", &Sample::rx_payload_bytes},
    {"tx_retransmit_bytes", &Sample::tx_retransmit_bytes},
};
constexpr size_t kCounterCount =
    sizeof(kRecordedCounters) / sizeof(kRecordedCounters[0]);

// The values of the counters, in that order. They are signed because a difference may be
// negative. Sums are modulo 2^64, as the kernel's are.
struct Counters {
  std::array<int64_t, kCounterCount> value = {};

  int64_t tx_bytes() const { return value[0]; }
  int64_t rx_bytes() const { return value[1]; }
  int64_t bytes() const { return value[0] + value[1]; }
  int64_t tx_retransmit_bytes() const { return value[6]; }

  Counters& operator+=(const Counters& other);
  Counters& operator-=(const Counters& other);
  bool operator==(const Counters& other) const { return value == other.value; }
  // Whether any counter is below that of `other`.
  bool AnyBelow(const Counters& other) const;
  bool IsZero() const { return *this == Counters(); }
};

Counters CountersOf(const Sample& sample);

// The labels of a series, as words, as in `netmeter list --json`.
struct SeriesName {
  std::string kind;
  std::string name;         // valid UTF-8
  std::string destination;  // valid UTF-8
  std::string transport;
  std::string path;
  std::string uplink;  // "": the meter does not count by uplink

  bool operator<(const SeriesName& other) const;
  bool operator==(const SeriesName& other) const {
    return !(*this < other) && !(other < *this);
  }
};

SeriesName NameOf(const Sample& sample);

using Totals = std::map<SeriesName, Counters>;

// Sums series whose names are equal after conversion to UTF-8. Leaves out series with
// only zeros.
Totals TotalsOf(const std::vector<Sample>& samples);

// The series of `before` that are gone, or have less now in any counter. Leaves out what
// is no series of the meter, and kind pending, which decreases in normal operation.
std::set<SeriesName> WentBackBetween(const Totals& before, const Totals& now);

// Those series of WentBackBetween() that were evicted in between, and not renamed by a
// load. The top of difference.cc explains the distinction.
std::set<SeriesName> EvictedBetween(const Totals& before, const Totals& now);

// Kinds that are no series of the meter, so that none can be confused with a service:
// forwarded traffic; what an interface counted, with a path of its own; and the traffic
// of an uplink's interfaces that is neither a series nor forwarded.
constexpr char kForwardedKind[] = "forwarded";
constexpr char kInterfaceKind[] = "interface";
constexpr char kInterfacePath[] = "interface";
constexpr char kUnnamedKind[] = "unnamed";
constexpr char kUnnamedName[] = "tunnels and kernel";
bool IsSeriesKind(const std::string& kind);

// The name of forwarded traffic: its uplink, and the interface at its other side, by
// which it came in before it was sent, or left after it was received. kForwardedKind if
// that interface is not known.
struct ForwardedName {
  std::string uplink;
  std::string interface;
  std::string client;  // an address there; "": of no client

  bool operator<(const ForwardedName& other) const {
    return std::tie(uplink, interface, client) <
           std::tie(other.uplink, other.interface, other.client);
  }
};
// In wire bytes of both directions. As a series, the client is the destination.
using ForwardedSamples = std::map<ForwardedName, Counters>;
void AddForwarded(const ForwardedSamples& forwarded, Totals* totals);

// Copies the totals of a kind from `before`, for a read that could not get them.
void KeepKind(const Totals& before, const std::string& kind, Totals* totals);

// now - before, by series. The sum over all series is exactly the difference of the sums,
// whatever happened between the two reads. The top of difference.cc explains which series
// gets it. Leaves out series with only zeros.
Totals Difference(const Totals& before, const Totals& now);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_READER_DIFFERENCE_H_
