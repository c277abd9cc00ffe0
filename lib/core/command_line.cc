// SPDX-License-Identifier: BSD-3-Clause
#include "lib/core/command_line.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/core/text.h"

namespace netmeter {
namespace internal {

std::string CheckCommand(int argc, const char* const* argv,
                         const std::string& program,
                         const std::vector<std::string>& commands) {
  auto is_command = [&](const std::string& text) {
    return std::find(commands.begin(), commands.end(), text) != commands.end();
  };
  const std::string expected =
      absl::StrCat("expected a command: ", absl::StrJoin(commands, ", "));
  std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  if (arguments.empty()) return expected;
  const std::string& first = arguments[0];
  if (is_command(first) || first == "-h" || first == "--help" ||
      first == "--version") {
    return "";
  }
  const auto command =
      std::find_if(arguments.begin(), arguments.end(), is_command);
  if (first[0] == '-' && command != arguments.end()) {
    std::rotate(arguments.begin(), command, command + 1);
    return absl::StrCat("the command comes first: ", program, " ",
                        absl::StrJoin(arguments, " "));
  }
  if (first[0] == '-') return expected;
  const std::string guess = DidYouMean(first, commands);
  return absl::StrCat("unknown command '", first.substr(0, 64), "'",
                      guess.empty() ? "; " + expected : guess);
}

}  // namespace internal
}  // namespace netmeter
