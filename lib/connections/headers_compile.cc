// SPDX-License-Identifier: BSD-3-Clause
// Compiled as C++14, C++17 and C++20: a program that uses the public header.
#include "netmeter/connections.h"

uint64_t SentAgain(int fd, absl::string_view stream) {
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
