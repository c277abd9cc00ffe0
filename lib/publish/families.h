// SPDX-License-Identifier: BSD-3-Clause
// Samples as metric families, whatever carries them to the reader. This is the one
// place with the names of labels, and the one that sums series with equal labels.
// netmeter/publish.h lists the families, and family_table.h has their texts.
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
#include "lib/publish/family_table.h"
#include "lib/publish/sample_buffer.h"
#include "netmeter/meter.h"
#include "netmeter/publish.h"

namespace netmeter {
namespace internal {

struct Label {
  const char* name;
  std::string value;  // valid UTF-8
};

// The labels of one metric. The metrics of a sample share them, as most of the
// work for a page is copies of names otherwise.
class Labels {
 public:
  Labels() = default;
  Labels(std::initializer_list<Label> labels)
      : labels_(std::make_shared<const std::vector<Label>>(labels)) {}

  const Label* begin() const { return labels_ ? labels_->data() : nullptr; }
  const Label* end() const { return begin() + size(); }
  size_t size() const { return labels_ ? labels_->size() : 0; }
  const Label& operator[](size_t i) const { return (*labels_)[i]; }

  // These, and one more.
  Labels With(const Label& label) const;

  // The order of a page: by value, label after label. Less than 0, 0, or more, as
  // memcmp(3). The names of both are the same.
  int Compare(const Labels& other) const;

 private:
  std::shared_ptr<const std::vector<Label>> labels_;  // null: none
};

// Whether it is the label of destinations, which most families of series have.
bool IsDestination(const Label& label);
// ... that of uplinks, which a family has as soon as one of its metrics has an uplink.
bool IsUplink(const Label& label);

struct Metric {
  Labels labels;       // the same names, in the same order, in a family
  uint64_t value = 0;  // of a histogram: the sum, in microseconds
  // Of a histogram: the observations in each bucket of TcpConnections.
  std::vector<uint64_t> buckets = {};
};

struct Family {
  const char* name = "";  // these three as in FamilyInfo
  const char* help = "";
  FamilyType type = FamilyType::kCounter;
  std::vector<Metric> metrics;  // never empty
};

// The upper bound of a histogram's bucket, in seconds; of the last one it is
// infinite.
double BucketBound(size_t bucket);

// netmeter_up, alone: 0.
std::vector<Family> FamiliesOfError();

// What `options` choose of these samples and this health. In Scope::kService
// the samples are those of one service; in Scope::kUnregistered, what
// OmitRegistered() left, which left `omitted_services` out.
std::vector<Family> FamiliesOf(const std::vector<Sample>& samples,
                               const Health& health,
                               const PublishOptions& options,
                               size_t omitted_services = 0);

// Sets `registered` in all samples of the services that have it in any, and
// returns how many such services there are. The meter sets it series by series,
// with the first packet of a socket that was opened after Register(). But
// families are sums over series: to leave out one of them is to make a counter
// go back. Pending samples stay as they are: ReadScope() has set it in those of such
// services, and a program may be called so, too.
size_t MarkRegistered(std::vector<Sample>* samples);

// Takes out the samples that have `registered`.
void RemoveRegistered(std::vector<Sample>* samples);

// Takes out what registered services publish themselves: all their series.
// Returns how many services these are.
size_t OmitRegistered(std::vector<Sample>* samples);

// Reads what a scope needs. Errors as Meter::ReadService() and ReadHost().
absl::Status ReadScope(const Meter& meter, Scope scope,
                       std::vector<Sample>* samples);

// Reads the meter, which may be null, by way of the buffer, whose memory is
// used again; an error is FamiliesOfError(), or nothing if there is no memory
// even for that.
std::vector<Family> Collect(const Meter* meter, const PublishOptions& options,
                            SampleBuffer* buffer) noexcept;

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_PUBLISH_FAMILIES_H_
