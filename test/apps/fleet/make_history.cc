// SPDX-License-Identifier: BSD-3-Clause
// Adds hours to a history as `netmeter record` does, one record an hour, with counters
// that follow from the hour's number. For tests of exports, which need months.
//
//   make_history FILE SERIES START FIRST LAST
//
// START is the Unix time of hour 0. The call records the hours FIRST to LAST.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <string>

#include "lib/apps/history/record.h"

namespace netmeter {
namespace internal {
namespace {

Reading ReadingAt(int series, int64_t start, int64_t hour) {
  Reading reading;
  // In the middle, so that no interval belongs to two hours.
  reading.now = start + hour * 3600 + 1800;
  reading.boottime = 7200 + hour * 3600;
  reading.boot_id = "boot";
  reading.start_ns = 1;
  for (int i = 0; i < series; ++i) {
    Sample sample;
    sample.kind = Kind::kService;
    sample.name = "service-" + std::to_string(i / 4);
    sample.destination = "\xc3\xa9t\xc3\xa9 \"" + std::to_string(i % 4) + "\"";
    sample.transport = Transport::kTcp;
    const auto n = static_cast<uint64_t>(hour + 1);
    const auto factor = static_cast<uint64_t>(i + 1);
    sample.tx_bytes = n * 1000003 * factor;
    sample.rx_bytes = n * n * 3000017 + factor;
    sample.tx_packets = n * 2000 * factor;
    sample.rx_packets = n * 3000;
    sample.tx_payload_bytes = n * 900007 * factor;
    sample.rx_payload_bytes = n * n * 2900003;
    sample.tx_retransmit_bytes = n * factor;
    reading.samples.push_back(sample);
  }
  return reading;
}

int Main(int argc, char** argv) {
  if (argc != 6) return 2;
  const auto history = OpenHistory(argv[1], Database::Mode::kCreate);
  absl::Status status = history.status();
  // Nothing here outlives a power failure.
  if (status.ok()) status = (*history)->Execute("PRAGMA synchronous=OFF");
  for (int64_t hour = atoll(argv[4]); status.ok() && hour <= atoll(argv[5]);
       ++hour) {
    const Reading reading = ReadingAt(atoi(argv[2]), atoll(argv[3]), hour);
    status = Record(history->get(), RecordOptions(),
                    [&]() -> absl::StatusOr<Reading> { return reading; })
                 .status();
  }
  if (status.ok()) return 0;
  fprintf(stderr, "make_history: %s\n", status.ToString().c_str());
  return 1;
}

}  // namespace
}  // namespace internal
}  // namespace netmeter

int main(int argc, char** argv) { return netmeter::internal::Main(argc, argv); }
