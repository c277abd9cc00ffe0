// SPDX-License-Identifier: BSD-3-Clause
#include "lib/base/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <CLI/Version.hpp>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_replace.h"

namespace netmeter {
namespace internal {
namespace {

constexpr char kNoError[] = "";
// Debian 13's has other texts.
constexpr bool kNewCli11 = CLI11_VERSION_MAJOR > 2 || CLI11_VERSION_MINOR >= 4;

enum class Color { kRed, kGreen };

// Returns the error of a command line. *help gets the text of --help or --version.
std::string Parse(Flags* flags, std::vector<const char*> arguments,
                  std::string* help) {
  arguments.insert(arguments.begin(), "program");
  const absl::Status parsed =
      flags->Parse(static_cast<int>(arguments.size()), arguments.data(), help);
  if (parsed.ok()) return kNoError;
  EXPECT_TRUE(absl::IsInvalidArgument(parsed)) << parsed;
  EXPECT_EQ(*help, "");
  return std::string(parsed.message());
}

// A program without commands that has an option of each type.
struct Program {
  Program() {
    flags.SetFooter("The end.");
    flags.AddVersion("program 7", "Print it");
    const Option on = flags.AddFlag("-o,--on", &this->on, "A flag");
    flags.AddOption("--text", &text, "A text").Type("TEXT").ShowDefault();
    flags.AddOption("--number", &number, "A number").Type("N").InRange(1, 9);
    flags.AddOption("--small", &small, "Up to 32 bits").Type("N");
    flags.AddOption("--large", &large, "Up to 64 bits")
        .Type("N")
        .Check([](const std::string& value) {
          return value == "13" ? "bad luck" : "";
        });
    flags.AddOption("--fraction", &fraction, "A fraction")
        .Type("F")
        .InRange(0.5, 1.5, Option::InHelp::kNo);
    flags.AddOption("--word", &words, "Words").Type("WORD");
    flags.AddOption("--port", &ports, "Ports").Type("PORT").Needs(on);
    flags
        .AddChoice("--color", &color,
                   std::map<std::string, Color>{{"red", Color::kRed},
                                                {"green", Color::kGreen}},
                   "A color")
        .Type("COLOR");
    flags.AddOption("--kind", &kind, "A kind")
        .Type("KIND")
        .OneOf({"this", "that"})
        .Excludes(on);
    flags.AddOption("--watch", &watch, "Again")
        .Type("SECONDS")
        .OptionalValue()
        .Default("2");
  }

  std::string Parse(const std::vector<const char*>& arguments) {
    return internal::Parse(&flags, arguments, &help);
  }

  bool on = false;
  std::string text = "as it was";
  int number = 0;
  uint32_t small = 0;
  uint64_t large = 0;
  double fraction = 0;
  std::vector<std::string> words;
  std::vector<int> ports;
  std::optional<Color> color;
  std::string kind;
  double watch = 0;
  std::string help;
  // The last member, because it has pointers to all others.
  Flags flags{"What it is.", "program"};
};

std::string ErrorOf(const std::vector<const char*>& arguments) {
  return Program().Parse(arguments);
}

// A program with the commands load and status.
std::string ErrorOfCommand(const std::vector<const char*>& arguments) {
  Flags flags("", "program");
  bool flag = false;
  int size = 0;
  flags.AddFlag("--verbose", &flag, "");
  Flags* const load = flags.AddCommand("load", "");
  load->AddOption("--max-series", &size, "");
  load->AddFlag("-q,--quiet", &flag, "");
  flags.AddCommand("status", "")->AddFlag("--json", &flag, "");
  std::string help;
  return Parse(&flags, arguments, &help);
}

TEST(Flags, SetsVariablesOfEachType) {
  Program program;
  ASSERT_EQ(program.Parse({"-o", "--text", "new", "--number=9", "--small",
                           "4294967295", "--large", "18446744073709551615",
                           "--fraction", "1.5", "--color", "green"}),
            kNoError);
  EXPECT_EQ(program.help, "");
  EXPECT_TRUE(program.on);
  EXPECT_EQ(program.text, "new");
  EXPECT_EQ(program.number, 9);
  EXPECT_EQ(program.small, 4294967295u);
  EXPECT_EQ(program.large, 18446744073709551615u);
  EXPECT_EQ(program.fraction, 1.5);
  EXPECT_EQ(program.color, Color::kGreen);
}

// The bug: CLI11 took the next argument for the value. If the variable was not set, `load
// --pin-dir=$DIR --quiet` made a meter in a directory called --quiet.
TEST(Flags, NothingBehindTheEqualsSignIsAnEmptyValue) {
  Program program;
  ASSERT_EQ(program.Parse({"--text=", "-o"}), kNoError);
  EXPECT_EQ(program.flags.FirstGivenEmpty(), "--text");
  EXPECT_EQ(program.text, "");
  EXPECT_TRUE(program.on);
  EXPECT_THAT(ErrorOf({"--number=", "9"}), testing::HasSubstr("--number"));
  EXPECT_NE(ErrorOf({"--on=", "--text", "x"}), kNoError);
  EXPECT_NE(ErrorOf({"--", "--text="}), kNoError);
}

TEST(Flags, LeavesTheVariablesOfOptionsThatAreNotGiven) {
  Program program;
  ASSERT_EQ(program.Parse({}), kNoError);
  EXPECT_FALSE(program.on);
  EXPECT_EQ(program.text, "as it was");
  EXPECT_EQ(program.watch, 0);
  EXPECT_FALSE(program.color.has_value());
  EXPECT_FALSE(program.flags.WasGiven("--watch"));
}

TEST(Flags, AListTakesOneValueEachTime) {
  Program program;
  ASSERT_EQ(program.Parse({"--on", "--word", "a", "--word", "b", "--port", "1",
                           "--port", "2"}),
            kNoError);
  EXPECT_EQ(program.words, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(program.ports, (std::vector<int>{1, 2}));
  EXPECT_EQ(ErrorOf({"--word", "a", "b"}), "unexpected argument 'b'");
}

TEST(Flags, AnOptionalValueHasADefault) {
  Program without;
  ASSERT_EQ(without.Parse({"--watch"}), kNoError);
  EXPECT_EQ(without.watch, 2);
  EXPECT_TRUE(without.flags.WasGiven("--watch"));

  Program with;
  ASSERT_EQ(with.Parse({"--watch", "5"}), kNoError);
  EXPECT_EQ(with.watch, 5);
}

TEST(Flags, FindsTheOptionThatWasGivenEmpty) {
  Program none;
  ASSERT_EQ(none.Parse({"--on", "--watch", "--number", "1", "--text", "x"}),
            kNoError);
  EXPECT_EQ(none.flags.FirstGivenEmpty(), "");

  Program one;
  ASSERT_EQ(one.Parse({"--number", "1", "--word", "a", "--word", ""}),
            kNoError);
  EXPECT_EQ(one.flags.FirstGivenEmpty(), "--word");

  Program optional;
  ASSERT_EQ(optional.Parse({"--number", "1", "--watch", ""}), kNoError);
  EXPECT_EQ(optional.flags.FirstGivenEmpty(), "--watch");
}

// The bug: `usage --reset-day 010` printed the bill from the 8th on, and 08, as `date
// +%d` prints it, was refused.
TEST(Flags, LeadingZerosMeanNothing) {
  Program program;
  ASSERT_EQ(program.Parse({"--on", "--number", "08", "--small", "010",
                           "--large", "000", "--port", "0", "--port", "007"}),
            kNoError);
  EXPECT_EQ(program.number, 8);
  EXPECT_EQ(program.small, 10u);
  EXPECT_EQ(program.large, 0u);
  EXPECT_EQ(program.ports, (std::vector<int>{0, 7}));
  for (const char* const text : {"0 8", "0x", "-", "08.5"}) {
    EXPECT_NE(ErrorOf({"--number", text}), kNoError) << text;
  }
}

TEST(Flags, RefusesWrongValues) {
  EXPECT_EQ(ErrorOf({"--number", "10"}),
            kNewCli11 ? "--number: Value 10 not in range [1 - 9]"
                      : "--number: Value 10 not in range 1 to 9");
  EXPECT_NE(ErrorOf({"--fraction", "0.4"}), kNoError);
  EXPECT_EQ(ErrorOf({"--fraction", "nan"}),
            "--fraction: Value nan is no number");
  EXPECT_EQ(ErrorOf({"--large", "13"}), "--large: bad luck");
  EXPECT_EQ(ErrorOf({"--kind", "other"}), "--kind: other not in {this,that}");
  EXPECT_EQ(ErrorOf({"--color", "blue"}), "--color: blue not in {green,red}");
  EXPECT_EQ(ErrorOf({"--color", "1"}), "--color: 1 not in {green,red}");
  EXPECT_EQ(ErrorOf({"--small", "4294967296"}),
            "Could not convert: --small = 4294967296");
  EXPECT_EQ(ErrorOf({"--text"}), "--text: 1 required TEXT missing");
  // The bug: a number after a flag was ignored.
  for (const char* flag : {"--on=5", "--on=false", "--on=x"}) {
    EXPECT_EQ(ErrorOf({flag}), "--on takes no value") << flag;
  }
}

TEST(Flags, RefusesOptionsThatDoNotGoTogether) {
  EXPECT_NE(ErrorOf({"--kind", "this", "--on"}), kNoError);
  EXPECT_NE(ErrorOf({"--on", "--kind", "this"}), kNoError);
  EXPECT_EQ(ErrorOf({"--port", "1"}), "--port requires --on");
}

TEST(Flags, RefusesACommandLineWithoutARequiredOption) {
  Flags flags("", "program");
  std::string file, help;
  flags.AddOption("--file", &file, "").Required();
  EXPECT_EQ(Parse(&flags, {}, &help), "--file is required");
}

TEST(Flags, HelpAndVersionAreTextsToPrint) {
  Program version;
  ASSERT_EQ(version.Parse({"--version"}), kNoError);
  EXPECT_EQ(version.help, "program 7\n");

  Program program;
  ASSERT_EQ(program.Parse({"--help"}), kNoError);
  std::string expected = R"(What it is.
Usage: program [OPTIONS]

Options:
  -h,--help                   Print this help message and exit
  --version                   Print it
  -o,--on Excludes: --kind    A flag
  --text TEXT=as it was       A text
  --number N:INT in [1 - 9]   A number
  --small N                   Up to 32 bits
  --large N                   Up to 64 bits
  --fraction F                A fraction
  --word WORD ...             Words
  --port PORT ... Needs: --on
                              Ports
  --color COLOR:{green,red}   A color
  --kind KIND:{this,that} Excludes: --on
                              A kind
  --watch SECONDS=2           Again

The end.
)";
  if (kNewCli11) {
    expected = absl::StrReplaceAll(expected, {{"=as it was  ", " [as it was]"},
                                              {"SECONDS=2  ", "SECONDS [2]"}});
  }
  EXPECT_EQ(program.help, expected);
}

// The bug: the line was "--pin-dir DIR=/run/netmeter Its path". Readers and help2man took
// the description for a part of the name.
TEST(Flags, TwoSpacesAtLeastAreBeforeADescription) {
  std::string value;
  Flags flags("Does it.", "program");
  flags.SetColumnWidth(12);
  flags.AddOption("--six", &value, "Short").Type("N");
  flags.AddOption("--seven", &value, "Long").Type("N");
  flags.AddOption("--eight", &value, "Longer").Type("NN");
  // This name ends further right.
  const Option three = flags.AddOption("--two", &value, "Two").Type("NNN");
  flags.AddOption("--one", &value, "One").Type("NNN").Needs(three);
  flags.AddCommand("go", "Goes")->AddOption("--again", &value, "It").Type("N");
  std::string help;
  EXPECT_EQ(Parse(&flags, {"--help"}, &help), kNoError);
  EXPECT_THAT(help, testing::HasSubstr("\n  --six N   Short\n"));
  EXPECT_THAT(help, testing::HasSubstr("\n  --seven N\n            Long\n"));
  EXPECT_THAT(help, testing::HasSubstr("\n  --eight NN\n            Longer\n"));
  EXPECT_THAT(help, testing::HasSubstr(
                        "\n  --one NNN Needs: --two\n            One\n"));

  EXPECT_EQ(Parse(&flags, {"go", "--help"}, &help), kNoError);
  EXPECT_THAT(help, testing::HasSubstr("\n  --again N\n            It\n"));
}

TEST(Flags, RefusesAProgramWithoutItsCommand) {
  EXPECT_EQ(ErrorOfCommand({}), "A subcommand is required");
}

TEST(FlagsError, NamesTheOptionThatWasMeant) {
  EXPECT_EQ(ErrorOfCommand({"load", "--max-serie", "4"}),
            "unknown option '--max-serie' (did you mean --max-series?)");
  EXPECT_EQ(ErrorOfCommand({"load", "--max-serie=4"}),
            "unknown option '--max-serie' (did you mean --max-series?)");
  EXPECT_EQ(ErrorOfCommand({"load", "--verbos"}),
            "unknown option '--verbos' (did you mean --verbose?)");
  EXPECT_EQ(ErrorOf({"--nummer"}),
            "unknown option '--nummer' (did you mean --number?)");
}

TEST(FlagsError, GuessesNothingOfAnotherCommandOrOfNoLikeness) {
  EXPECT_EQ(ErrorOfCommand({"load", "--json"}), "unknown option '--json'");
  const std::string longest = "--" + std::string(100, 'x');
  EXPECT_EQ(ErrorOfCommand({"load", longest.c_str()}),
            "unknown option '--" + std::string(62, 'x') + "'");
}

}  // namespace

namespace {

std::string Check(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "program");
  return CheckCommand(static_cast<int>(arguments.size()), arguments.data(),
                      "program", {"load", "unload", "status", "serve-fds"});
}

TEST(CheckCommand, TakesACommandFirst) {
  EXPECT_EQ(Check({"load"}), "");
  EXPECT_EQ(Check({"load", "--config", "status"}), "");
  EXPECT_EQ(Check({"--help"}), "");
  EXPECT_EQ(Check({"-h"}), "");
  EXPECT_EQ(Check({"--version"}), "");
}

TEST(CheckCommand, SaysWhatIsWrong) {
  const std::string expected =
      "expected a command: load, unload, status, serve-fds";
  EXPECT_EQ(Check({}), expected);
  EXPECT_EQ(Check({"--json"}), expected);
  EXPECT_EQ(Check({"laod"}), "unknown command 'laod' (did you mean load?)");
  EXPECT_EQ(Check({"nonsense"}), "unknown command 'nonsense'; " + expected);
  EXPECT_EQ(Check({"--pin-dir", "/run/x", "status", "--json"}),
            "the command comes first: program status --pin-dir /run/x --json");
  EXPECT_EQ(Check({""}), "unknown command ''; " + expected);
}

}  // namespace

}  // namespace internal
}  // namespace netmeter
