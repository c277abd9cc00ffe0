// SPDX-License-Identifier: BSD-3-Clause
// Takes back the room of what is idle: series of names that no process and no
// socket has, and that have counted nothing for a time, and names that nothing has
// any more. Their totals go, to the byte, into a series of kind `retired`
// (bpf/retire.bpf.h).
//
//   RetireOptions options;
//   options.pin_dir = "/run/netmeter";
//   absl::StatusOr<RetireResult> result = Retire(options);
//
// There is no daemon: root calls it when he likes, and a timer of systemd's can; and
// each `load` does that finds a meter with tables that are half full.
// How long a series has been idle is told by comparing its totals with those that
// the call before has noted in the map `idle`, which only this function knows. So
// it costs packets nothing.
//
// Packets go on meanwhile. A slot is in four places: under its key in `series`,
// with sockets (in `sockets` and `owners`), in the registers of programs that run,
// and in its cells. It is taken out of them in this order:
//
// 1. Unlink. The key is deleted. Nobody finds the slot any more. A packet that
//    still belongs there makes the series anew, in another slot; to readers both
//    are one.
// 2. Wait for all programs that run: what they had found is with a socket, or
//    nowhere.
// 3. Look whether a socket has it, twice, as a listener may have closed after the
//    first look, but what it handed on has no such successor. If one has, or if
//    something was counted, it is linked again, or left to the next call.
// 4. Wait once more, for a program that runs for a socket which is closed by now.
// 5. Fold. A program adds the totals to the series `retired`, clears the cells and
//    gives the slot back, in one run. Readers notice that (nm_stats.moves).
//
// Then the same with names. Where it is killed in between, slots and names are left
// that have no key: they count, and readers see them; the next call takes them
// from step 2 on. A growth gives none of them away.
//
// Threads: one at a time, under the lock of lib/loader/locked_directory.h.

#ifndef NETMETER_LIB_LOADER_RETIRE_H_
#define NETMETER_LIB_LOADER_RETIRE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace netmeter {
namespace internal {

struct RetireOptions {
  std::string pin_dir;
  // What has counted something since is not idle. As seen by calls: the first one
  // only notes the totals, unless this is 0.
  uint32_t idle_seconds = 3600;
  // Nothing is done unless this part of the series or of the names is in use.
  uint32_t full_percent = 0;
};

struct RetireResult {
  bool needed = false;  // not: the tables are emptier than full_percent
  uint32_t series = 0;  // retired
  uint32_t names = 0;   // forgotten
  uint64_t series_used = 0, series_limit = 0;  // after that
  uint64_t names_used = 0, names_limit = 0;
};

// NotFound if no meter is loaded. FailedPrecondition if another version's is, or a
// load is to be finished first.
absl::StatusOr<RetireResult> Retire(const RetireOptions& options);

// What every `load` does at its end: takes back what has been idle for an hour if
// half of the series, or of the names, is in use. A load that did its work does not
// fail because of it: what is to be said is returned, a note for people, or "".
std::string RetireAfterLoad(const std::string& pin_dir);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_RETIRE_H_
