// SPDX-License-Identifier: BSD-3-Clause
// Samples as metric families, whatever carries them to the reader: the one
// place with the names of metrics and of labels, and where series with equal
// labels are summed. See netmeter/prometheus.h for the list.
//
//   for (const Family& family : Collect(meter.get(), FamilyScope::kHost)) ...
//
// Threads: any.

#ifndef NETMETER_LIB_METRICS_FAMILIES_H_
#define NETMETER_LIB_METRICS_FAMILIES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "netmeter/meter.h"

namespace netmeter {
namespace internal {

struct Label {
  const char* name;
  std::string value;  // valid UTF-8
};

struct Metric {
  std::vector<Label> labels;  // the same names, in the same order, in a family
  uint64_t value = 0;  // of a histogram: the sum, in microseconds
  // Of a histogram: the observations in each bucket of TcpConnections.
  std::vector<uint64_t> buckets = {};
};

struct Family {
  enum class Type { kCounter, kGauge, kHistogram };

  const char* name = "";  // of a counter: ends with _total
  const char* help = "";  // one line of ASCII without quotes and backslashes
  Type type = Type::kCounter;
  std::vector<Metric> metrics;  // never empty
};

enum class FamilyScope {
  kService,       // the service that this Meter registered
  kHost,          // everything
  kUnregistered,  // what no registered service publishes, and the meter's
                  // health
};

// The upper bound of a histogram's bucket, in seconds; of the last one it is
// infinite.
double BucketBound(size_t bucket);

// netmeter_up, alone: 0.
std::vector<Family> FamiliesOfError();

std::vector<Family> FamiliesOfService(const std::vector<Sample>& samples);

std::vector<Family> FamiliesOfHost(const std::vector<Sample>& samples,
                                   const Health& health);

// Sets `registered` in all samples of the services that have it in any. The
// meter sets it series by series, with the first packet of a socket that was
// opened after Register(), but families are sums over series: to leave out one
// of them is to make a counter go back.
void MarkRegistered(std::vector<Sample>* samples);

// Takes out the samples that have `registered`.
void RemoveRegistered(std::vector<Sample>* samples);

// Takes out what registered services publish themselves: all their series.
std::vector<Sample> Unregistered(std::vector<Sample> samples);

// Reads the meter, which may be null; an error is FamiliesOfError(), or nothing
// if there is no memory even for that.
std::vector<Family> Collect(const Meter* meter, FamilyScope scope) noexcept;

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_METRICS_FAMILIES_H_
