// SPDX-License-Identifier: BSD-3-Clause
// What our programs say of a command line that CLI11 refuses.
//
// Threads: any.

#ifndef NETMETER_LIB_CORE_PARSE_ERROR_H_
#define NETMETER_LIB_CORE_PARSE_ERROR_H_

#include <CLI/CLI.hpp>
#include <string>

namespace netmeter {
namespace internal {

// One line for the error that app.parse() threw. Of an option that is not known
// it names the one that was meant, where CLI11 lists what is left over:
//   unknown option '--max-serie' (did you mean --max-series?)
//   unexpected argument 'now'
std::string DescribeParseError(const CLI::App& app,
                               const CLI::ParseError& error);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_CORE_PARSE_ERROR_H_
