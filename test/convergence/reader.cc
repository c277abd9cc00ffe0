// SPDX-License-Identifier: BSD-3-Clause
// reader PIN_DIR: opens the meter once and reads it again and again, until SIGTERM. Says
// how often the sum went back, and which errors there were.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "netmeter/meter.h"

namespace {
volatile sig_atomic_t g_stop = 0;
}

int main(int, char** argv) {
  signal(SIGTERM, [](int) { g_stop = 1; });
  netmeter::MeterOptions options;
  options.pin_dir = argv[1];
  auto meter = netmeter::Meter::Open(options);
  if (!meter.ok()) {
    std::printf("%s\n", std::string(meter.status().message()).c_str());
    return 1;
  }
  uint64_t last = 0, reads = 0, back = 0, longest_us = 0;
  size_t series = 0;
  std::map<std::string, int> errors;
  std::vector<netmeter::Sample> samples;
  while (!g_stop) {
    const auto begin = std::chrono::steady_clock::now();
    const absl::Status status = (*meter)->ReadHost(&samples);
    const auto us = std::chrono::duration_cast<std::chrono::microseconds>(
                        std::chrono::steady_clock::now() - begin)
                        .count();
    longest_us = std::max<uint64_t>(longest_us, static_cast<uint64_t>(us));
    if (!status.ok()) {
      ++errors[std::string(status.message())];
      usleep(1000);
      continue;
    }
    uint64_t sum = 0;
    for (const netmeter::Sample& sample : samples) {
      sum += sample.tx_bytes + sample.rx_bytes;
    }
    if (sum < last) ++back;
    last = sum;
    series = samples.size();
    ++reads;
    usleep(500);
  }
  std::printf(
      "%lu reads, %lu times back, longest %lu us, %zu series, sum %lu\n", reads,
      back, longest_us, series, last);
  for (const auto& error : errors) {
    std::printf("%d times: %s\n", error.second, error.first.c_str());
  }
  return back != 0;
}
