// SPDX-License-Identifier: BSD-3-Clause
// What the program tests have in common.

#ifndef NETMETER_TEST_PROGRAM_FIXTURE_H_
#define NETMETER_TEST_PROGRAM_FIXTURE_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "test/program/programs.h"

namespace netmeter {
namespace internal {

// Loaded programs; if loading fails, the test fails with the reason.
inline std::unique_ptr<Programs> LoadOrFail(const ProgramOptions& options) {
  std::string error;
  std::unique_ptr<Programs> programs = Programs::Load(options, &error);
  EXPECT_NE(programs, nullptr) << error;
  return programs;
}

// What was counted between two readings, by slot.
inline Counters Difference(const Counters& before, const Counters& after) {
  Counters difference;
  for (const auto& entry : after) {
    nm_cell cell = entry.second;
    const auto old = before.find(entry.first);
    if (old != before.end()) {
      cell.tx_bytes -= old->second.tx_bytes;
      cell.rx_bytes -= old->second.rx_bytes;
      cell.tx_packets -= old->second.tx_packets;
      cell.rx_packets -= old->second.rx_packets;
      cell.tx_payload_bytes -= old->second.tx_payload_bytes;
      cell.rx_payload_bytes -= old->second.rx_payload_bytes;
      cell.tx_retransmit_bytes -= old->second.tx_retransmit_bytes;
    }
    if (cell.tx_packets != 0 || cell.rx_packets != 0) {
      difference[entry.first] = cell;
    }
  }
  return difference;
}

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_TEST_PROGRAM_FIXTURE_H_
