// SPDX-License-Identifier: BSD-3-Clause
// Reads by an installed libnetmeter, through netmeter.h and through its inline C++.
//
//   const auto reads = netmeter_benchmark::OpenInstalled(pin_dir, "subscriberdb");
//   const size_t series = reads.own_by_c(100);  // reads 100 times
//
// Threads: one.

#ifndef NETMETER_TEST_BENCHMARK_READ_INSTALLED_H_
#define NETMETER_TEST_BENCHMARK_READ_INSTALLED_H_

#include <cstddef>
#include <functional>
#include <string>

namespace netmeter_benchmark {

// Reads `count` times into memory that it keeps. Returns the series of the last read, or
// 0 if one failed.
using Reader = std::function<size_t(int count)>;

struct InstalledReaders {
  Reader own_by_c;
  Reader all_by_c;
  Reader own_by_cpp;
  Reader all_by_cpp;
  Reader own_by_rows;
  Reader all_by_rows;
};

// All null: the meter cannot be opened.
InstalledReaders OpenInstalled(const std::string& pin_dir,
                               const std::string& service);

}  // namespace netmeter_benchmark

#endif  // NETMETER_TEST_BENCHMARK_READ_INSTALLED_H_
