// SPDX-License-Identifier: BSD-3-Clause
// Two reads of a meter have one guarantee: the sum over all series never decreases, and
// contains no byte twice. A single series may decrease, for three reasons.
//
// - A series of kind pending shrinks when a connection names its destination. Another
//   series gets the bytes at the same moment. So the difference of the pending series is
//   negative and stays so. The sum of a service's differences, pending or not, is exactly
//   what the service counted.
//
// - An idle series is evicted. Its total moves to the series `evicted` of its kind, and
//   if its name comes back, it starts at 0. Its bytes were recorded under its own name
//   when they were counted, so they must not be recorded as `evicted` a second time: the
//   total that disappeared is subtracted from the growth of `evicted`. The remaining
//   growth was counted after the previous read and evicted before this one. Its series is
//   unknown, so it stays with `evicted`. There is no such growth if reads are more
//   frequent than the time after which an idle series is evicted.
//
// - A load with other suffixes of destinations renames series, because names are cut when
//   they are read. Nothing was evicted then. The old name has a negative difference, and
//   the new name has the same positive one.
//
// A decrease counts as an eviction in two cases: `evicted` has grown by as much, or the
// service has less over all destinations. A new name takes nothing from that sum.
//
// All these cases only move bytes between series. So the sum is exact by construction,
// and only a name can be wrong. One case cannot be detected: a series that was evicted
// and then came back with more than it had before looks like one that just grew. What it
// counted before then stands as `evicted`, not under its name.
#include "lib/reader/difference.h"

#include <iterator>
#include <set>
#include <tuple>

#include "lib/base/text.h"

namespace netmeter {
namespace internal {
namespace {

constexpr char kEvictedWord[] = "evicted";
constexpr char kPendingWord[] = "pending";

int64_t AddWrapping(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) +
                              static_cast<uint64_t>(b));
}

const Counters& Find(const Totals& totals, const SeriesName& name) {
  static const Counters& zero = *new Counters();
  const auto found = totals.find(name);
  return found == totals.end() ? zero : found->second;
}

// The series `evicted` that takes the totals of idle series of this kind.
SeriesName EvictedOf(const SeriesName& name) {
  return {kEvictedWord, name.kind, "", name.transport, name.path, name.uplink};
}

SeriesName WithoutDestination(SeriesName name) {
  name.destination.clear();
  return name;
}

Totals WithoutDestinations(const Totals& totals) {
  Totals sums;
  for (const auto& series : totals) {
    sums[WithoutDestination(series.first)] += series.second;
  }
  return sums;
}

}  // namespace

Counters& Counters::operator+=(const Counters& other) {
  for (size_t i = 0; i < value.size(); ++i) {
    value[i] = AddWrapping(value[i], other.value[i]);
  }
  return *this;
}

Counters& Counters::operator-=(const Counters& other) {
  for (size_t i = 0; i < value.size(); ++i) {
    value[i] = static_cast<int64_t>(static_cast<uint64_t>(value[i]) -
                                    static_cast<uint64_t>(other.value[i]));
  }
  return *this;
}

bool Counters::AnyBelow(const Counters& other) const {
  for (size_t i = 0; i < value.size(); ++i) {
    if (static_cast<uint64_t>(value[i]) <
        static_cast<uint64_t>(other.value[i])) {
      return true;
    }
  }
  return false;
}

bool SeriesName::operator<(const SeriesName& other) const {
  return std::tie(kind, name, destination, transport, path, uplink) <
         std::tie(other.kind, other.name, other.destination, other.transport,
                  other.path, other.uplink);
}

SeriesName NameOf(const Sample& sample) {
  return {KindName(sample.kind),      ToUtf8(sample.name),
          ToUtf8(sample.destination), TransportName(sample.transport),
          PathName(sample.path),      ToUtf8(sample.uplink)};
}

Counters CountersOf(const Sample& sample) {
  Counters counters;
  for (size_t i = 0; i < kCounterCount; ++i) {
    counters.value[i] =
        static_cast<int64_t>(sample.*kRecordedCounters[i].field);
  }
  return counters;
}

Totals TotalsOf(const std::vector<Sample>& samples) {
  Totals totals;
  for (const Sample& sample : samples) {
    const Counters counters = CountersOf(sample);
    if (!counters.IsZero()) totals[NameOf(sample)] += counters;
  }
  return totals;
}

bool IsSeriesKind(const std::string& kind) {
  return kind != kForwardedKind && kind != kInterfaceKind &&
         kind != kUnnamedKind;
}

void AddForwarded(const ForwardedSamples& forwarded, Totals* totals) {
  for (const auto& sample : forwarded) {
    if (sample.second.IsZero()) continue;
    (*totals)[{kForwardedKind, ToUtf8(sample.first.interface),
               sample.first.client, TransportName(Transport::kOther),
               PathName(Path::kDirect), ToUtf8(sample.first.uplink)}] +=
        sample.second;
  }
}

void KeepKind(const Totals& before, const std::string& kind, Totals* totals) {
  for (const auto& series : before) {
    if (series.first.kind == kind) totals->insert(series);
  }
}

std::set<SeriesName> WentBackBetween(const Totals& before, const Totals& now) {
  std::set<SeriesName> names;
  for (const auto& series : before) {
    const SeriesName& name = series.first;
    if (name.kind == kPendingWord || name.kind == kEvictedWord) continue;
    if (!IsSeriesKind(name.kind)) continue;  // is never evicted
    if (Find(now, name).AnyBelow(series.second)) names.insert(name);
  }
  return names;
}

std::set<SeriesName> EvictedBetween(const Totals& before, const Totals& now) {
  std::set<SeriesName> names = WentBackBetween(before, now);
  if (names.empty()) return names;
  // Groups the totals that disappeared by the series `evicted` that may have them.
  Totals gone;
  for (const SeriesName& name : names) {
    gone[EvictedOf(name)] += before.at(name);
  }
  const Totals services_before = WithoutDestinations(before);
  const Totals services_now = WithoutDestinations(now);
  for (auto i = names.begin(); i != names.end();) {
    const SeriesName evicted = EvictedOf(*i);
    Counters grown = Find(now, evicted);
    grown -= Find(before, evicted);
    const SeriesName service = WithoutDestination(*i);
    const bool renamed =
        grown.AnyBelow(gone.at(evicted)) &&
        !Find(services_now, service).AnyBelow(Find(services_before, service));
    i = renamed ? names.erase(i) : std::next(i);
  }
  return names;
}

Totals Difference(const Totals& before, const Totals& now) {
  Totals difference;
  for (const auto& series : now) difference[series.first] = series.second;
  for (const auto& series : before) difference[series.first] -= series.second;
  for (const SeriesName& name : EvictedBetween(before, now)) {
    difference[EvictedOf(name)] -= before.at(name);
    difference[name] = Find(now, name);
  }
  for (auto i = difference.begin(); i != difference.end();) {
    i = i->second.IsZero() ? difference.erase(i) : std::next(i);
  }
  return difference;
}

}  // namespace internal
}  // namespace netmeter
