// SPDX-License-Identifier: BSD-3-Clause
// What the kernel's compiler made of a program. A figure of nanoseconds says
// that a program is slow; this helps to say why.

#ifndef NETMETER_TEST_BENCHMARK_CODE_H_
#define NETMETER_TEST_BENCHMARK_CODE_H_

#include <nlohmann/json.hpp>
#include <string>

namespace netmeter {
namespace internal {

// The machine code of a program, disassembled by objdump and counted: of its
// first function, which a plain packet does not leave, and of all. Null, and
// *error says why, where the kernel does not show it or there is no objdump.
nlohmann::json DescribeCode(int program_fd, std::string* error);

// How fast the time-stamp counter counts, which is at the same pace whatever the
// CPU's clock does. 0: this CPU has none.
double TimeStampMhz();

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_TEST_BENCHMARK_CODE_H_
