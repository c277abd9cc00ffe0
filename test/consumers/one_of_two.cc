// SPDX-License-Identifier: BSD-3-Clause
// One of two objects of a process that both use the library: a program (-DOTHER=name of
// the other one), and a shared library of its. Each has an abseil and headers of its own.

#include <iostream>
#include <vector>

#include "netmeter/meter.h"

extern "C" int NAME();

extern "C" int NAME() {
  netmeter::MeterOptions options;
  options.pin_dir = "/nonexistent";
  options.wait_for_loader = true;
  const auto meter = netmeter::Meter::Open(options);
  if (!meter.ok()) {
    std::cout << "Open: " << meter.status() << std::endl;
    return 1;
  }
  const auto read = (*meter)->ReadHost();
  std::cout << "ReadHost: " << absl::StatusCodeToString(read.status().code())
            << std::endl;
  const std::vector<netmeter::Sample> samples(2);
  const auto* const first = reinterpret_cast<const char*>(&samples[0]);
  const auto* const second = reinterpret_cast<const char*>(&samples[1]);
  const bool own = second - first == sizeof(netmeter::Sample);
  std::cout << (own ? "samples of its own" : "another one's samples")
            << std::endl;
  return own ? 0 : 1;
}

#ifdef OTHER
extern "C" int OTHER();

int main() { return NAME() + OTHER(); }
#endif
