// SPDX-License-Identifier: BSD-3-Clause
// Samples as metric families, for all transports. Only this file knows the names of
// labels, and sums series with equal labels. netmeter/publish.h lists the families, and
// family_table.h has their texts.
//
//   PublishOptions options;
//   options.scope = Scope::kHost;
//   SampleBuffer buffer;
//   for (const Family& family : Collect(meter.get(), options, &buffer)) ...
//
// Threads: any.

#ifndef NETMETER_LIB_PUBLISH_FAMILIES_H_
#define NETMETER_LIB_PUBLISH_FAMILIES_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/publish/family_table.h"
#include "lib/publish/sample_buffer.h"
#include "netmeter/meter.h"
#include "netmeter/publish.h"
#include "netmeter/uplinks.h"

namespace netmeter {
namespace internal {

struct Label {
  const char* name;
  std::string value;  // valid UTF-8
};

// The labels of one metric. The metrics of a sample share them, because copying names
// would take most of the time for a page.
class Labels {
 public:
  Labels() = default;
  Labels(std::initializer_list<Label> labels)
      : labels_(std::make_shared<const std::vector<Label>>(labels)) {}

  const Label* begin() const { return labels_ ? labels_->data() : nullptr; }
  const Label* end() const { return begin() + size(); }
  size_t size() const { return labels_ ? labels_->size() : 0; }
  const Label& operator[](size_t i) const { return (*labels_)[i]; }

  // These labels, and one more.
  Labels With(const Label& label) const;

  // The order on a page: by value, label after label. Returns less than 0, 0, or more, as
  // memcmp(3). Both must have the same label names.
  int Compare(const Labels& other) const;

 private:
  std::shared_ptr<const std::vector<Label>> labels_;  // null: none
};

// Whether it is the label of destinations, which most families of series have.
bool IsDestination(const Label& label);
// Whether it is the label of uplinks. A family has it if any of its metrics has an
// uplink.
bool IsUplink(const Label& label);

struct Metric {
  Labels labels;       // the same names, in the same order, in a family
  uint64_t value = 0;  // for a histogram: the sum, in microseconds
  // For a histogram: the observations in each bucket of TcpConnections.
  std::vector<uint64_t> buckets = {};
};

struct Family {
  const char* name = "";  // these three as in FamilyInfo
  const char* help = "";
  FamilyType type = FamilyType::kCounter;
  std::vector<Metric> metrics;  // never empty
};

// The upper bound of a histogram's bucket, in seconds. The last bucket's is infinite.
double BucketBound(size_t bucket);

// Only netmeter_up, with value 0.
std::vector<Family> FamiliesOfError();

// The families that `options` choose, from these samples, this health and these uplinks.
// In Scope::kService the samples are those of one service, and uplinks are ignored. In
// Scope::kUnregistered they are the result of OmitRegistered(), which returned
// `omitted_services`.
std::vector<Family> FamiliesOf(const std::vector<Sample>& samples,
                               const Health& health,
                               const PublishOptions& options,
                               size_t omitted_services = 0,
                               const std::vector<Uplink>& uplinks = {});

// Those of FamiliesOf() that are made from uplinks.
std::vector<Family> FamiliesOfUplinks(const std::vector<Uplink>& uplinks,
                                      const PublishOptions& options);

// Sets `registered` in all samples of a service if any of them has it. Returns the number
// of such services. The meter sets it series by series, with the first packet of a socket
// that was opened after Register(). But families are sums over series: leaving out only
// some of them would make a counter decrease. Pending samples stay unchanged: ReadScope()
// has set the flag in those of such services, and a program may have a service's name.
size_t MarkRegistered(std::vector<Sample>* samples);

// Removes the samples that have `registered`.
void RemoveRegistered(std::vector<Sample>* samples);

// Removes all series of registered services, which publish them themselves. Returns the
// number of these services.
size_t OmitRegistered(std::vector<Sample>* samples);

// Reads the samples for a scope. Errors as Meter::ReadService() and ReadHost().
absl::Status ReadScope(const Meter& meter, Scope scope,
                       std::vector<Sample>* samples);

// Reads the uplinks for FamiliesOfUplinks(). Makes no system call, and returns none, if
// the options have none of these families, or the meter has no uplinks. Errors as
// Meter::ReadUplinks(): then a page lacks these families. Throws std::bad_alloc.
absl::StatusOr<std::vector<Uplink>> ReadUplinks(const Meter& meter,
                                                const PublishOptions& options);

// Reads the meter, which may be null, and reuses the memory of the buffer. Returns
// FamiliesOfError() after an error, or nothing if there is no memory even for that.
std::vector<Family> Collect(const Meter* meter, const PublishOptions& options,
                            SampleBuffer* buffer) noexcept;

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_PUBLISH_FAMILIES_H_
