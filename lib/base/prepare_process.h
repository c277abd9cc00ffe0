// SPDX-License-Identifier: BSD-3-Clause
// What a privileged program does first, so that nothing that it was started with ends it
// in the middle of its work, or gives its files other modes.
//
//   PrepareProcess();
//
// Threads: before there is a second one.

#ifndef NETMETER_LIB_BASE_PREPARE_PROCESS_H_
#define NETMETER_LIB_BASE_PREPARE_PROCESS_H_

#include <signal.h>

namespace netmeter {
namespace internal {

// A file that becomes too long (ulimit -f) is an error, and no signal; so is a pipe that
// nobody reads any more. Of modes nothing is taken away but writing by others: pins are
// for root whatever the shell's mask says, and the directories above are for all, as a
// group has to come to the pins.
// Takes as many descriptors as it may have: an object of BPF has one for each of its
// maps and programs. A standard stream that is closed keeps its number, and stays of no
// use. What is refused stays as it was.
void PrepareProcess();

// While this lives, a signal waits: a load is to come to its end. A load that
// is killed does no harm, but a meter that is half upgraded until the next load
// is nothing that Ctrl-C should leave. SIGKILL remains. What was done has to be said
// while this lives, and not to stay in a buffer of stdio.
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
