// SPDX-License-Identifier: BSD-3-Clause
#include "lib/base/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <sstream>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/text.h"

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

// The arguments from last to first, as CLI11 takes them. CLI11 reads "--name=" as
// "--name" and then takes the next argument for the value. Here the value is empty, as
// the user wrote it.
std::vector<std::string> ReversedArguments(int argc, const char* const* argv) {
  std::vector<std::string> arguments;
  bool options = true;
  for (int i = 1; i < argc; ++i) {
    std::string argument = argv[i];
    if (argument == "--") options = false;
    const bool ends_with_equals = options && argument.size() > 3 &&
                                  argument.compare(0, 2, "--") == 0 &&
                                  argument.find('=') == argument.size() - 1;
    if (ends_with_equals) argument.pop_back();
    arguments.push_back(std::move(argument));
    if (ends_with_equals) arguments.emplace_back();
  }
  std::reverse(arguments.begin(), arguments.end());
  return arguments;
}

// One line for the error that app.parse() threw.
std::string DescribeParseError(const CLI::App& app,
                               const CLI::ParseError& error) {
  // CLI11's own message for a flag with a value names neither the dashes nor the mistake.
  const std::string text = error.what();
  const size_t flag = text.find(" was given a disallowed flag override");
  if (flag != std::string::npos) {
    return absl::StrCat("--", text.substr(0, flag), " takes no value");
  }
  const std::vector<std::string> extras = app.remaining(/*recurse=*/true);
  if (error.get_exit_code() != static_cast<int>(CLI::ExitCodes::ExtrasError) ||
      extras.empty()) {
    return error.what();
  }
  // CLI11 cannot distinguish the value of an unknown option from a separate argument.
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

// CLI11 reads 010 as 8, and rejects 08, which `date +%d` prints.
CLI::Option* InTens(CLI::Option* option) {
  const auto strip_zeros = [](std::string& text) -> std::string {
    const size_t first = text.find_first_not_of("+-") == 1 ? 1 : 0;
    const size_t digit = text.find_first_not_of('0', first);
    if (digit == text.npos || (text[digit] >= '0' && text[digit] <= '9')) {
      text.erase(first, std::min(digit, text.size() - 1) - first);
    }
    return "";
  };
  return option->transform(CLI::Validator(strip_zeros, ""));
}

// If the name of an option ends one column before the descriptions, CLI11 puts one space
// behind it, and the description looks like a value. Here such a name has a line of its
// own. help2man also needs two spaces to separate the two.
class ColumnFormatter : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option,
                          bool is_positional) const override {
    std::string text = CLI::Formatter::make_option(option, is_positional);
    const std::string name = "  " + make_option_name(option, is_positional) +
                             make_option_opts(option);
    const size_t width = get_column_width();
    if (name.size() + 1 == width && text.compare(0, width, name + " ") == 0) {
      text.replace(name.size(), 1, "\n" + std::string(width, ' '));
    }
    return text;
  }
};

// --help shows a check's description beside the type of the value.
template <typename Number>
CLI::Validator Range(Number lowest, Number highest, Option::InHelp help) {
  CLI::Range range(lowest, highest);
  if (help == Option::InHelp::kNo) range.description("");
  return range;
}

}  // namespace

// --- Option ------------------------------------------------------------------

Option Option::Type(const std::string& name) const {
  option_->type_name(name);
  return *this;
}

Option Option::ShowDefault() const {
  option_->capture_default_str();
  return *this;
}

Option Option::Default(const std::string& text) const {
  option_->default_str(text);
  return *this;
}

Option Option::OptionalValue() const {
  option_->expected(0, 1);
  return *this;
}

Option Option::Required() const {
  option_->required();
  return *this;
}

Option Option::InRange(int lowest, int highest, InHelp help) const {
  option_->check(Range(lowest, highest, help));
  return *this;
}

Option Option::InRange(double lowest, double highest, InHelp help) const {
  option_->check(Range(lowest, highest, help));
  // "nan" parses as a number, and compares as neither below nor above any limit.
  option_->check([](const std::string& text) -> std::string {
    double value;
    return absl::SimpleAtod(text, &value) && !std::isfinite(value)
               ? absl::StrCat("Value ", text, " is no number")
               : "";
  });
  return *this;
}

Option Option::OneOf(const std::vector<std::string>& words) const {
  option_->check(CLI::IsMember(words));
  return *this;
}

Option Option::Check(
    std::function<std::string(const std::string&)> check) const {
  option_->check(std::move(check));
  return *this;
}

Option Option::Excludes(const Option& other) const {
  option_->excludes(other.option_);
  return *this;
}

Option Option::Needs(const Option& other) const {
  option_->needs(other.option_);
  return *this;
}

// --- Flags -------------------------------------------------------------------

Flags::Flags(const std::string& description, const std::string& program)
    : app_(std::make_shared<CLI::App>(description, program)) {
  app_->formatter(std::make_shared<ColumnFormatter>());
}

Flags::Flags(std::shared_ptr<CLI::App> app) : app_(std::move(app)) {}

Flags::~Flags() = default;

void Flags::SetFooter(const std::string& text) { app_->footer(text); }

void Flags::SetColumnWidth(size_t characters) {
  app_->get_formatter()->column_width(characters);
}

void Flags::AddVersion(const std::string& version,
                       const std::string& description) {
  app_->set_version_flag("--version", version, description);
}

Flags* Flags::AddCommand(const std::string& name,
                         const std::string& description) {
  app_->require_subcommand(1);
  CLI::App* const command = app_->add_subcommand(name, description);
  commands_.emplace_back(new Flags(app_->get_subcommand_ptr(command)));
  return commands_.back().get();
}

Option Flags::AddFlag(const std::string& name, bool* value,
                      const std::string& description) {
  // Refuses --name=5: CLI11 would treat it as --name and ignore the 5.
  return Option(
      app_->add_flag(name, *value, description)->disable_flag_override());
}

Option Flags::AddOption(const std::string& name, std::string* value,
                        const std::string& description) {
  return Option(app_->add_option(name, *value, description));
}

Option Flags::AddOption(const std::string& name, int* value,
                        const std::string& description) {
  return Option(InTens(app_->add_option(name, *value, description)));
}

Option Flags::AddOption(const std::string& name, uint32_t* value,
                        const std::string& description) {
  return Option(InTens(app_->add_option(name, *value, description)));
}

Option Flags::AddOption(const std::string& name, uint64_t* value,
                        const std::string& description) {
  return Option(InTens(app_->add_option(name, *value, description)));
}

Option Flags::AddOption(const std::string& name, double* value,
                        const std::string& description) {
  return Option(app_->add_option(name, *value, description));
}

Option Flags::AddOption(const std::string& name,
                        std::vector<std::string>* values,
                        const std::string& description) {
  return Option(
      app_->add_option(name, *values, description)->allow_extra_args(false));
}

Option Flags::AddOption(const std::string& name, std::vector<int>* values,
                        const std::string& description) {
  return Option(InTens(
      app_->add_option(name, *values, description)->allow_extra_args(false)));
}

Option Flags::AddChoice(const std::string& name,
                        const std::map<std::string, int>& words,
                        const std::function<void(int)>& set,
                        const std::string& description) {
  // CLI11's own text for a choice also shows its numbers.
  const std::string choice =
      absl::StrCat("{",
                   absl::StrJoin(words, ",",
                                 [](std::string* out, const auto& entry) {
                                   absl::StrAppend(out, entry.first);
                                 }),
                   "}");
  const auto number_of = [words, choice](std::string& word) -> std::string {
    const auto found = words.find(word);
    if (found == words.end()) return absl::StrCat(word, " not in ", choice);
    word = absl::StrCat(found->second);
    return "";
  };
  return Option(app_->add_option_function<int>(name, set, description)
                    ->transform(CLI::Validator(number_of, choice)));
}

absl::Status Flags::Parse(int argc, const char* const* argv,
                          std::string* help) {
  help->clear();
  reversed_ = ReversedArguments(argc, argv);
  for (const auto& command : commands_) command->reversed_ = reversed_;
  try {
    app_->parse(std::vector<std::string>(reversed_));
  } catch (const CLI::ParseError& error) {
    std::ostringstream out;
    std::ostringstream ignored;
    if (app_->exit(error, out, ignored) != 0) {
      return absl::InvalidArgumentError(DescribeParseError(*app_, error));
    }
    *help = out.str();
  }
  return absl::OkStatus();
}

const Flags* Flags::command() const {
  for (const auto& command : commands_) {
    if (app_->got_subcommand(command->app_.get())) return command.get();
  }
  return nullptr;
}

std::string Flags::name() const { return app_->get_name(); }

bool Flags::WasGiven(const std::string& name) const {
  const CLI::Option* option =
      static_cast<const CLI::App&>(*app_).get_option_no_throw(name);
  return option != nullptr && !option->empty();
}

std::string Flags::FirstGivenEmpty(const std::string& except) const {
  for (const CLI::Option* option : app_->get_options()) {
    const std::vector<std::string>& names = option->get_lnames();
    const std::string name =
        names.empty() ? option->get_name() : "--" + names.front();
    if (name == except) continue;
    // If the value is optional, CLI11 gives the same result for "--name" and "--name ''".
    if (option->get_expected_min() == 0) {
      const std::string empty[] = {"", name};
      if (std::search(reversed_.begin(), reversed_.end(), empty, empty + 2) !=
          reversed_.end()) {
        return name;
      }
      continue;
    }
    for (const std::string& value : option->results()) {
      if (value.empty()) return name;
    }
  }
  return "";
}

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
