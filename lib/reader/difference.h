// SPDX-License-Identifier: BSD-3-Clause
// What was counted between two reads of one meter, by series.
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
#include <vector>

#include "netmeter/sample.h"

namespace netmeter {
namespace internal {

// The counters that the history keeps: names of Sample's fields, which are columns of
// SQL, too, and the fields.
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

// Their values, in that order. Signed, as a difference may be below 0; sums are modulo
// 2^64, as the kernel's.
struct Counters {
  std::array<int64_t, kCounterCount> value = {};

  int64_t tx_bytes() const { return value[0]; }
  int64_t rx_bytes() const { return value[1]; }
  int64_t bytes() const { return value[0] + value[1]; }
  int64_t tx_retransmit_bytes() const { return value[6]; }

  Counters& operator+=(const Counters& other);
  Counters& operator-=(const Counters& other);
  bool operator==(const Counters& other) const { return value == other.value; }
  // Whether any is less than that of `other`.
  bool AnyBelow(const Counters& other) const;
  bool IsZero() const { return *this == Counters(); }
};

Counters CountersOf(const Sample& sample);

// What a series is called. Words, as in `netmeter list --json`.
struct SeriesName {
  std::string kind;
  std::string name;         // valid UTF-8
  std::string destination;  // the same
  std::string transport;
  std::string path;
  std::string uplink;  // "": the meter does not tell uplinks apart

  bool operator<(const SeriesName& other) const;
  bool operator==(const SeriesName& other) const {
    return !(*this < other) && !(other < *this);
  }
};

SeriesName NameOf(const Sample& sample);

using Totals = std::map<SeriesName, Counters>;

// Series of equal names, once they are UTF-8, are summed. Those with nothing but 0
// are left out.
Totals TotalsOf(const std::vector<Sample>& samples);

// The series of `before` that have less now in any counter, or are gone. Those of kind
// pending are not among them: they get less by themselves. Nor is what was forwarded.
std::set<SeriesName> WentBackBetween(const Totals& before, const Totals& now);

// Those of them that were retired in between, and not renamed by a load; the top of
// difference.cc tells how they are told apart.
std::set<SeriesName> RetiredBetween(const Totals& before, const Totals& now);

// What was forwarded for others, by uplink, in wire bytes of both directions: a kind
// of its own, so that no service is taken for it, nor it for a service.
constexpr char kForwardedKind[] = "forwarded";
using ForwardedSamples = std::map<std::string, Counters>;
void AddForwarded(const ForwardedSamples& forwarded, Totals* totals);

// The same as they were before, where they could not be read.
void KeepForwarded(const Totals& before, Totals* totals);

// now - before, by series. The sum over all series is exactly the difference of the
// sums, whatever happened between the two reads; the top of difference.cc tells to
// whom it is given. Series with nothing but 0 are left out.
Totals Difference(const Totals& before, const Totals& now);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_READER_DIFFERENCE_H_
