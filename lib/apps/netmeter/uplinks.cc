// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/netmeter/uplinks.h"

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/apps/history/bill.h"
#include "lib/base/status_util.h"
#include "lib/reader/shared_maps.h"
#include "lib/reader/uplink_maps.h"
#include "lib/reader/words.h"

namespace netmeter {
namespace internal {

absl::Status CheckUplinks(const std::string& pin_dir,
                          const std::vector<std::string>& uplinks) {
  const auto maps = SharedMaps::Open(pin_dir);
  if (!maps.ok()) return absl::OkStatus();
  std::set<std::string> known;
  for (MeterUplink& uplink : ListUplinks(**maps)) {
    known.insert(std::move(uplink.name));
  }
  if (known.size() == 1) known.clear();  // only kOtherUplink
  for (const std::string& uplink : uplinks) {
    NETMETER_RETURN_IF_ERROR(CheckUplink(uplink, known));
  }
  return absl::OkStatus();
}

absl::StatusOr<ForwardedSamples> ReadForwarded(const Meter& meter) {
  const auto uplinks = meter.ReadUplinks();
  if (!uplinks.ok()) return uplinks.status();
  ForwardedSamples samples;
  for (const Uplink& uplink : *uplinks) {
    if (!uplink.forwarded_unknown.empty()) {
      return absl::UnimplementedError(
          absl::StrCat("the meter does not count forwarded traffic: ",
                       uplink.forwarded_unknown));
    }
    for (const ForwardedTraffic& part : uplink.forwarded) {
      Counters& sum = samples[{uplink.name, part.interface, part.client}];
      const uint64_t values[] = {part.tx_bytes, part.rx_bytes, part.tx_packets,
                                 part.rx_packets};
      for (size_t i = 0; i < std::size(values); ++i) {
        sum.value[i] = static_cast<int64_t>(values[i]);
      }
    }
  }
  return samples;
}

absl::Status AddForwardedRows(const Meter& meter, std::vector<Sample>* rows) {
  const auto samples = ReadForwarded(meter);
  if (!samples.ok()) return samples.status();
  for (const auto& row : *samples) {
    Sample sample;
    sample.kind = kForwardedRow;
    sample.name = row.first.interface;
    sample.destination = row.first.client;
    sample.uplink = row.first.uplink;
    for (size_t i = 0; i < kCounterCount; ++i) {
      sample.*kRecordedCounters[i].field =
          static_cast<uint64_t>(row.second.value[i]);
    }
    rows->push_back(std::move(sample));
  }
  return absl::OkStatus();
}

std::set<std::string> ReadPaidUplinks(const std::string& pin_dir) {
  std::set<std::string> paid;
  const auto maps = SharedMaps::Open(pin_dir);
  if (!maps.ok()) return paid;
  for (MeterUplink& uplink : ListUplinks(**maps)) {
    if (uplink.is_paid) paid.insert(std::move(uplink.name));
  }
  return paid;
}

}  // namespace internal
}  // namespace netmeter
