// SPDX-License-Identifier: BSD-3-Clause
// Compiled as C++14, C++17 and C++20: a program that uses the public headers.
#include "netmeter/abi.h"
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
