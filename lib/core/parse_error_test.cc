// SPDX-License-Identifier: BSD-3-Clause
#include "lib/core/parse_error.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace netmeter {
namespace internal {
namespace {

std::string ErrorOf(std::vector<std::string> arguments) {
  CLI::App app("", "program");
  app.require_subcommand(0, 1);
  app.add_flag("--verbose");
  CLI::App* load = app.add_subcommand("load");
  int size = 0;
  load->add_option("--max-series", size);
  load->add_flag("-q,--quiet");
  app.add_subcommand("status")->add_flag("--json");
  std::vector<char*> argv = {const_cast<char*>("program")};
  for (std::string& argument : arguments) argv.push_back(&argument[0]);
  try {
    app.parse(static_cast<int>(argv.size()), argv.data());
  } catch (const CLI::ParseError& error) {
    return DescribeParseError(app, error);
  }
  return "";
}

TEST(ParseError, NamesTheOptionThatWasMeant) {
  EXPECT_EQ(ErrorOf({"load", "--max-serie", "4"}),
            "unknown option '--max-serie' (did you mean --max-series?)");
  EXPECT_EQ(ErrorOf({"load", "--max-serie=4"}),
            "unknown option '--max-serie' (did you mean --max-series?)");
  EXPECT_EQ(ErrorOf({"--verbos"}),
            "unknown option '--verbos' (did you mean --verbose?)");
}

TEST(ParseError, GuessesNothingOfAnotherCommandOrOfNoLikeness) {
  EXPECT_EQ(ErrorOf({"load", "--json"}), "unknown option '--json'");
  EXPECT_EQ(ErrorOf({"load", "--" + std::string(100, 'x')}),
            "unknown option '--" + std::string(62, 'x') + "'");
}

TEST(ParseError, ArgumentsThatNobodyTakes) {
  EXPECT_EQ(ErrorOf({"load", "now"}), "unexpected argument 'now'");
  EXPECT_EQ(ErrorOf({"load", "-"}), "unexpected argument '-'");
}

TEST(ParseError, LeavesOtherErrorsToTheParser) {
  EXPECT_EQ(ErrorOf({"load", "--max-series", "many"}),
            "Could not convert: --max-series = many");
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
