// SPDX-License-Identifier: BSD-3-Clause
// The options of the soak, test/soak.sh; without it the live test runs for some
// seconds.

#ifndef NETMETER_TEST_LIVE_SOAK_H_
#define NETMETER_TEST_LIVE_SOAK_H_

#include <string>

namespace netmeter {
namespace internal {

struct SoakOptions {
  int rounds = 2;
  int seconds = 4;       // of traffic in each round
  int upgrades = 6;      // with growth, under four kinds of traffic
  std::string observer;  // called with the pin directory and the test's name
  std::string json;      // file for the rows
  std::string packets;   // file for those of a round that is not explained
  bool cpu_hotplug = false;  // takes CPUs off and puts them back
  bool clock_jumps = false;  // sets the clock an hour ahead and back
};

inline SoakOptions soak_options;

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_TEST_LIVE_SOAK_H_
