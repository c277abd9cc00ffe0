// SPDX-License-Identifier: BSD-3-Clause
// The command line of a program: its commands, their options, --help, and what is
// said of a wrong one.
//
//   bool json = false;
//   int seconds = 5;
//   Flags flags("Prints what the meter costs.", "program");
//   Flags* const cost = flags.AddCommand("cost", "Measures it");
//   cost->AddFlag("--json", &json, "One JSON object");
//   cost->AddOption("--seconds", &seconds, "Measure for so long")
//       .Type("N")
//       .InRange(1, 3600)
//       .ShowDefault();
//   std::string help;
//   const absl::Status parsed = flags.Parse(argc, argv, &help);
//   if (!parsed.ok()) return WrongUsage(parsed.message());
//   if (!help.empty()) return Print(help);
//
// CLI11 does the work. No other file of our programs includes it: one #include
// of its header compiles for seconds.
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

// An option of a Flags. Copies are the same option; none outlives its Flags.
class Option {
 public:
  // Whether --help tells the range of a number. Where it is plain what makes
  // sense, it need not.
  enum class InHelp { kYes, kNo };

  // What stands for the value in --help, such as FILE.
  Option Type(const std::string& name) const;

  // --help shows the value that the variable has now.
  Option ShowDefault() const;

  // --help shows this text, and it is the value of an option that is given
  // without one.
  Option Default(const std::string& text) const;

  // The option may be given without a value. It then has that of Default().
  Option OptionalValue() const;

  // Refuses a command line without the option.
  Option Required() const;

  // Refuses a number that is out of this range, both ends included.
  Option InRange(int lowest, int highest, InHelp help = InHelp::kYes) const;
  Option InRange(double lowest, double highest,
                 InHelp help = InHelp::kYes) const;

  // Refuses all but these words, which --help lists.
  Option OneOf(const std::vector<std::string>& words) const;

  // Refuses a value that `check` has an error for; "" is none.
  Option Check(std::function<std::string(const std::string&)> check) const;

  // Refuses the two together, in any order.
  Option Excludes(const Option& other) const;

  // Refuses this one without the other.
  Option Needs(const Option& other) const;

 private:
  friend class Flags;
  explicit Option(CLI::Option* option) : option_(option) {}

  CLI::Option* option_;
};

// The options of a program, or of one of its commands. Parse() sets the variables
// of those that are given; the others keep their value. Variables live until then.
class Flags {
 public:
  // --help begins with the description.
  Flags(const std::string& description, const std::string& program);
  ~Flags();
  Flags(const Flags&) = delete;
  Flags& operator=(const Flags&) = delete;

  // --help ends with this text. A command has that of its program, if it is set
  // before and the command has none.
  void SetFooter(const std::string& text);

  // Where descriptions begin in --help, for the commands that are added after it,
  // too.
  void SetColumnWidth(size_t characters);

  // --version, which prints this line.
  void AddVersion(const std::string& version,
                  const std::string& description =
                      "Display program version information and exit");

  // A command, which lives as long as this object. A program that has commands
  // is refused without one.
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

  // Reads the command line. After OK the variables are set; but if --help or
  // --version is asked for, *help has the text to print, and is empty otherwise.
  // InvalidArgument says in one line what is wrong, and for a misspelt option which
  // one was meant, where there is one:
  //   unknown option '--max-serie' (did you mean --max-series?)
  //   unexpected argument 'now'
  // Only for the program, not for a command; once.
  absl::Status Parse(int argc, const char* const* argv, std::string* help);

  // --- After Parse() ---

  // The command that was given; null if there is none.
  const Flags* command() const;
  std::string name() const;

  // Whether the command line has this option. False if there is no such option.
  bool WasGiven(const std::string& name) const;

  // The same, with the value "".
  bool WasGivenEmpty(const std::string& name) const;

  // The first of its options that was given with the value "", as "--name"; "" if none
  // was.
  std::string FirstGivenEmpty() const;

 private:
  explicit Flags(std::shared_ptr<CLI::App> app);

  Option AddChoice(const std::string& name,
                   const std::map<std::string, int>& words,
                   const std::function<void(int)>& set,
                   const std::string& description);

  // CLI11 has the child in its parent, too.
  const std::shared_ptr<CLI::App> app_;
  std::vector<std::unique_ptr<Flags>> commands_;
  // The program's arguments, the last one first.
  std::vector<std::string> reversed_;
};

// What our programs say of their command line before the parser does.
//
// Threads: any.

// "" if the first argument is one of `commands`, or asks for help or the
// version; else one line that says what is wrong:
//   unknown command 'laod' (did you mean load?)
//   the command comes first: netmeter-loader status --json
std::string CheckCommand(int argc, const char* const* argv,
                         const std::string& program,
                         const std::vector<std::string>& commands);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_BASE_FLAGS_H_
