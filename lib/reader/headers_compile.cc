// SPDX-License-Identifier: BSD-3-Clause
// A program that uses the public headers; compiled as C++14, C++17 and C++20.
#include "netmeter/abi.h"
#include "netmeter/connections.h"
#include "netmeter/meter.h"

uint64_t SentBytes() {
  netmeter::MeterOptions options;
  options.service = "subscriberdb";
  const auto meter = netmeter::Meter::Open(options);
  if (!meter.ok()) return 0;
  const auto samples = (*meter)->ReadService();
  uint64_t sum = 0;
  if (samples.ok()) {
    for (const netmeter::Sample& sample : *samples) sum += sample.tx_bytes;
  }
  return sum;
}

uint64_t SentByUplinks(const netmeter::Meter& meter) {
  const auto uplinks = meter.ReadUplinks();
  uint64_t sum = 0;
  if (uplinks.ok()) {
    for (const netmeter::Uplink& uplink : *uplinks) {
      if (uplink.is_paid) sum += uplink.tx.interface_bytes;
    }
  }
  return sum;
}

uint64_t SentBytes(const netmeter::Meter& meter, netmeter::Rows* rows) {
  uint64_t sum = 0;
  if (!meter.ReadService("mme", rows).ok()) return 0;
  for (const netmeter_sample& row : *rows) sum += row.tx_bytes;
  return sum;
}

uint64_t RetransmittedBytes(int fd, absl::string_view stream) {
  uint64_t bytes = 0;
  const auto own = netmeter::ReadOwnConnections();
  if (own.ok() && !own->empty()) bytes += own->front().retransmitted_bytes;
  const auto one = netmeter::ReadConnection(fd);
  if (one.ok()) bytes += one->retransmitted_bytes;
  netmeter::FlowDecoder decoder;
  netmeter::FlowRecord record;
  if (!decoder.Append(stream).ok()) return bytes;
  while (decoder.Next(&record).value_or(false)) {
    bytes += record.tx_retransmit_bytes;
  }
  return bytes;
}
