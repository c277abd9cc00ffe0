// SPDX-License-Identifier: BSD-3-Clause
// Numbers of bytes for people: the one formatter of sizes.
//
//   HumanBytes(1536, SizeUnits::kBinary)   "1.5 KiB"
//   HumanBytes(1536, SizeUnits::kDecimal)  "1.5 kB"
//   HumanBytes(1536, SizeUnits::kExact)    "1536"
//
// Threads: any.

#ifndef NETMETER_LIB_CORE_HUMAN_H_
#define NETMETER_LIB_CORE_HUMAN_H_

#include <cstdint>
#include <string>

namespace netmeter {
namespace internal {

enum class SizeUnits {
  kBinary,   // KiB is 1024 bytes
  kDecimal,  // kB is 1000 bytes
  kExact,    // all digits, without a unit
};

std::string HumanBytes(uint64_t bytes, SizeUnits units);

// The same, also below 0, as a difference of two counters may be.
std::string HumanSignedBytes(int64_t bytes, SizeUnits units);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_CORE_HUMAN_H_
