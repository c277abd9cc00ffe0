// SPDX-License-Identifier: BSD-3-Clause
// A command of the program `netmeter`, such as `list`: its options and its work. Each
// has a file; netmeter_main.cc is the table of them.
//
//   class ListCommand : public Command { ... };
//   std::unique_ptr<Command> NewListCommand();
//
// Threads: one; these are parts of a main().

#ifndef NETMETER_LIB_APPS_NETMETER_COMMAND_H_
#define NETMETER_LIB_APPS_NETMETER_COMMAND_H_

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lib/base/flags.h"

namespace netmeter {
namespace internal {

constexpr int kExitError = 1;
constexpr int kExitUsage = 2;

class Command {
 public:
  virtual ~Command() = default;

  virtual std::string Name() const = 0;

  // One line of `netmeter --help`.
  virtual std::string Description() const = 0;

  // Adds options and footer. They are kept in the object, which outlives `flags`.
  virtual void Declare(Flags* flags) = 0;

  // Both are called after the options are parsed. InvalidArgument from CheckOptions()
  // is wrong usage. Run() returns the exit status.
  virtual absl::Status CheckOptions() { return absl::OkStatus(); }
  virtual int Run() = 0;
};

// Adds --pin-dir, with its default in *pin_dir.
void AddPinDir(Flags* flags, std::string* pin_dir);

// Refuses an empty value, such as an unset shell variable in quotes.
absl::Status CheckPinDir(const std::string& pin_dir);

// Prints "netmeter: <message>" on stderr, safe for a terminal. Returns `exit_status`.
int Fail(absl::string_view message, int exit_status = kExitError);

// Writes `text` to stdout and returns the exit status. If the reader of a pipe has
// gone, prints no error. SIGPIPE must be ignored.
int Print(absl::string_view text);

// Waits for `time`, or until a signal. Returns true as soon as standard output is a
// pipe, a socket or a terminal whose other end has gone. A command that has nothing to
// print finds out in this way.
bool WaitForLostReader(std::chrono::nanoseconds time);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_NETMETER_COMMAND_H_
