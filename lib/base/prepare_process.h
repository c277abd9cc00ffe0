// SPDX-License-Identifier: BSD-3-Clause
// The first step of a privileged program. After it, no inherited setting can end the
// program in the middle of its work or change the modes of its files.
//
//   PrepareProcess();
//
// Threads: call it before there is a second one.

#ifndef NETMETER_LIB_BASE_PREPARE_PROCESS_H_
#define NETMETER_LIB_BASE_PREPARE_PROCESS_H_

#include <signal.h>

namespace netmeter {
namespace internal {

// Does four things, and leaves unchanged what the kernel refuses:
// - A file that exceeds `ulimit -f`, and a pipe without a reader, cause an error and no
//   signal.
// - The umask only removes writing by others. Pins are for root whatever the shell's mask
//   is. The directories above are for all users, because a group has to reach the pins.
// - The limit of descriptors is raised to its maximum: a BPF object has one descriptor
//   for each of its maps and programs.
// - A closed standard stream keeps its number, and stays unusable.
void PrepareProcess();

// Signals are delayed while this object lives, so that Ctrl-C cannot interrupt a load.
// Killing a load does no harm, but leaves a half-upgraded meter until the next load.
// SIGKILL still works. Output has to be written, and stdio flushed, while this object
// lives.
class SignalsBlocked {
 public:
  SignalsBlocked();
  ~SignalsBlocked();

 private:
  sigset_t before_;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_BASE_PREPARE_PROCESS_H_
