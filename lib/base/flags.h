// SPDX-License-Identifier: BSD-3-Clause
// The command line of a program: its commands, their options, --help, and the error
// messages for a wrong one.
//
//   bool json = false;
//   int seconds = 5;
//   Flags flags("Prints what the meter costs.", "program");
//   Flags* const cost = flags.AddCommand("cost", "Measures it");
//   cost->AddFlag("--json", &json, "One JSON object");
//   cost->AddOption("--seconds", &seconds, "Length of the measurement")
//       .Type("N")
//       .InRange(1, 3600)
//       .ShowDefault();
//   std::string help;
//   const absl::Status parsed = flags.Parse(argc, argv, &help);
//   if (!parsed.ok()) return WrongUsage(parsed.message());
//   if (!help.empty()) return Print(help);
//
// CLI11 does the work. No other file of our programs includes it, because its header
// takes seconds to compile.
//
// Threads: one.

#ifndef NETMETER_LIB_BASE_FLAGS_H_
#define NETMETER_LIB_BASE_FLAGS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace netmeter {
namespace internal {

// An option of a Flags. Copies refer to the same option; none outlives its Flags.
class Option {
 public:
  // Whether --help shows the range of a number. Not needed if the sensible range is
  // plain.
  enum class InHelp { kYes, kNo };

  // The placeholder for the value in --help, such as FILE.
  Option Type(const std::string& name) const;

  // --help shows the value that the variable has now.
  Option ShowDefault() const;

  // --help shows this text. An option that is given without a value gets this text.
  Option Default(const std::string& text) const;

  // The option may be given without a value. It then has the value of Default().
  Option OptionalValue() const;

  // Refuses a command line that lacks the option.
  Option Required() const;

  // Refuses a number outside this range. Both ends belong to the range.
  Option InRange(int lowest, int highest, InHelp help = InHelp::kYes) const;
  Option InRange(double lowest, double highest,
                 InHelp help = InHelp::kYes) const;

  // Refuses all values except these words, which --help lists.
  Option OneOf(const std::vector<std::string>& words) const;

  // Refuses a value if `check` returns an error for it. "" means no error.
  Option Check(std::function<std::string(const std::string&)> check) const;

  // Refuses a command line that has both options.
  Option Excludes(const Option& other) const;

  // Refuses a command line that has this option without the other.
  Option Needs(const Option& other) const;

 private:
  friend class Flags;
  explicit Option(CLI::Option* option) : option_(option) {}

  CLI::Option* option_;
};

// The options of a program, or of one of its commands. Parse() sets the variables of the
// options that are given, and leaves the others unchanged. The variables must live until
// then.
class Flags {
 public:
  // --help begins with the description.
  Flags(const std::string& description, const std::string& program);
  ~Flags();
  Flags(const Flags&) = delete;
  Flags& operator=(const Flags&) = delete;

  // --help ends with this text. A command without a footer takes that of its program, if
  // the program's footer was set before the command was added.
  void SetFooter(const std::string& text);

  // The column at which descriptions begin in --help. Also holds for commands that are
  // added later.
  void SetColumnWidth(size_t characters);

  // --version, which prints this line.
  void AddVersion(const std::string& version,
                  const std::string& description =
                      "Display program version information and exit");

  // A command, which lives as long as this object. A program with commands refuses a
  // command line without one.
  Flags* AddCommand(const std::string& name, const std::string& description);

  // `name` is "--json", or "-q,--quiet".
  Option AddFlag(const std::string& name, bool* value,
                 const std::string& description);

  // An option with a value.
  Option AddOption(const std::string& name, std::string* value,
                   const std::string& description);
  Option AddOption(const std::string& name, int* value,
                   const std::string& description);
  Option AddOption(const std::string& name, uint32_t* value,
                   const std::string& description);
  Option AddOption(const std::string& name, uint64_t* value,
                   const std::string& description);
  Option AddOption(const std::string& name, double* value,
                   const std::string& description);

  // An option that may be given many times, each time with one value.
  Option AddOption(const std::string& name, std::vector<std::string>* values,
                   const std::string& description);
  Option AddOption(const std::string& name, std::vector<int>* values,
                   const std::string& description);

  // An option with a word for a value; --help lists the words. `Value` is `Enum`,
  // or can be assigned one, as std::optional<Enum> can.
  template <typename Value, typename Enum>
  Option AddChoice(const std::string& name, Value* value,
                   const std::map<std::string, Enum>& words,
                   const std::string& description) {
    std::map<std::string, int> numbers;
    for (const auto& word : words) {
      numbers[word.first] = static_cast<int>(word.second);
    }
    return AddChoice(
        name, numbers,
        [value](int number) { *value = static_cast<Enum>(number); },
        description);
  }

  // Reads the command line. After OK the variables are set. If the user asks for --help
  // or --version, *help has the text to print; otherwise it is empty. InvalidArgument has
  // one line that says what is wrong, with a suggestion for a misspelt option:
  //   unknown option '--max-serie' (did you mean --max-series?)
  //   unexpected argument 'now'
  // Call it once, on the program, not on a command.
  absl::Status Parse(int argc, const char* const* argv, std::string* help);

  // --- After Parse() ---

  // The command that was given; null if there is none.
  const Flags* command() const;
  std::string name() const;

  // Whether the command line has this option. False if there is no such option.
  bool WasGiven(const std::string& name) const;

  // The first option that was given with the value "", as "--name" or "FILE"; "" if none
  // was. `except` may be empty.
  std::string FirstGivenEmpty(const std::string& except = "") const;

 private:
  explicit Flags(std::shared_ptr<CLI::App> app);

  Option AddChoice(const std::string& name,
                   const std::map<std::string, int>& words,
                   const std::function<void(int)>& set,
                   const std::string& description);

  // CLI11 also keeps the child in its parent.
  const std::shared_ptr<CLI::App> app_;
  std::vector<std::unique_ptr<Flags>> commands_;
  // The program's arguments, the last one first.
  std::vector<std::string> reversed_;
};

// Checks of the command line that run before the parser.
//
// Threads: any.

// "" if the first argument is one of `commands`, or asks for help or the version.
// Otherwise one line that says what is wrong:
//   unknown command 'laod' (did you mean load?)
//   the command comes first: netmeter-loader status --json
std::string CheckCommand(int argc, const char* const* argv,
                         const std::string& program,
                         const std::vector<std::string>& commands);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_BASE_FLAGS_H_
