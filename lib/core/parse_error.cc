// SPDX-License-Identifier: BSD-3-Clause
#include "lib/core/parse_error.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/core/text.h"

namespace netmeter {
namespace internal {
namespace {

constexpr size_t kMostShown = 64;  // bytes of an argument

bool LooksLikeOption(const std::string& argument) {
  return argument.size() > 1 && argument[0] == '-';
}

void AddOptionsOf(const CLI::App& app, std::vector<std::string>* names) {
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      names->push_back("--" + name);
    }
  }
}

}  // namespace

std::string DescribeParseError(const CLI::App& app,
                               const CLI::ParseError& error) {
  const std::vector<std::string> extras = app.remaining(/*recurse=*/true);
  if (error.get_exit_code() != static_cast<int>(CLI::ExitCodes::ExtrasError) ||
      extras.empty()) {
    return error.what();
  }
  // CLI11 does not tell the value of an option that it does not know from an
  // argument of its own.
  const auto unknown =
      std::find_if(extras.begin(), extras.end(), LooksLikeOption);
  if (unknown == extras.end()) {
    return absl::StrCat("unexpected argument '",
                        extras[0].substr(0, kMostShown), "'");
  }
  std::vector<std::string> known;
  AddOptionsOf(app, &known);
  for (const CLI::App* command : app.get_subcommands()) {
    AddOptionsOf(*command, &known);
  }
  const std::string option = unknown->substr(0, unknown->find('='));
  return absl::StrCat("unknown option '", option.substr(0, kMostShown), "'",
                      DidYouMean(option, known));
}

}  // namespace internal
}  // namespace netmeter
