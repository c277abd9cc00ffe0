// SPDX-License-Identifier: BSD-3-Clause
// What our programs say of their command line before the parser does.
//
// Threads: any.

#ifndef NETMETER_LIB_CORE_COMMAND_LINE_H_
#define NETMETER_LIB_CORE_COMMAND_LINE_H_

#include <string>
#include <vector>

namespace netmeter {
namespace internal {

// "" if the first argument is one of `commands`, or asks for help or the
// version; else one line that says what is wrong:
//   unknown command 'laod' (did you mean load?)
//   the command comes first: netmeter-loader status --json
std::string CheckCommand(int argc, const char* const* argv,
                         const std::string& program,
                         const std::vector<std::string>& commands);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_CORE_COMMAND_LINE_H_
