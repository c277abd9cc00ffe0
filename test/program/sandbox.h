// SPDX-License-Identifier: BSD-3-Clause
// A cgroup of one's own, so that tests and benchmarks neither see nor disturb what
// else the machine does.
//
//   std::string error;
//   auto cgroup = OwnCgroup::Make("nm-test", &error);
//   if (cgroup == nullptr || !cgroup->Enter(&error)) ...
//
// Threads: the process is moved, so use it before there are others.

#ifndef NETMETER_TEST_PROGRAM_SANDBOX_H_
#define NETMETER_TEST_PROGRAM_SANDBOX_H_

#include <memory>
#include <string>

#include "lib/base/unique_fd.h"

namespace netmeter {
namespace internal {

// Runs a command line with its output on stderr; true if it succeeded.
bool RunCommand(const std::string& command, std::string* error);

// A cgroup below the root of cgroup v2; never the root itself. Sockets made
// while the process is in it belong to it.
class OwnCgroup {
 public:
  // <prefix>-<pid>. Removes what earlier processes of this name left behind
  // when they were killed. nullptr: *error says why.
  static std::unique_ptr<OwnCgroup> Make(const std::string& prefix,
                                         std::string* error);
  ~OwnCgroup();  // leaves and removes it

  int fd() const { return fd_.get(); }
  bool Enter(std::string* error);
  bool Leave();
  // A cgroup below for single threads of a process that is in this one. Each moves
  // itself. Not ok: *error says why.
  static constexpr char kThreads[] = "threads";
  UniqueFd MakeForThreads(std::string* error);

 private:
  OwnCgroup() = default;

  std::string path_;
  std::string home_;  // where the process was
  UniqueFd fd_;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_TEST_PROGRAM_SANDBOX_H_
