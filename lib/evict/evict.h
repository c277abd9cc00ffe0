// SPDX-License-Identifier: BSD-3-Clause
// Frees idle entries: series whose names no process and no socket has and that have
// counted nothing for some time, and names that are no longer used. Their totals are
// added, to the byte, to a series of kind `evicted` (bpf/evict.bpf.h).
//
//   EvictOptions options;
//   options.pin_dir = "/run/netmeter";
//   absl::StatusOr<EvictResult> result = Evict(options);
//
// There is no daemon: root or a systemd timer calls it, and so does `netmeter-loader
// load` if it finds a meter with half-full tables. To see how long a series has been
// idle, each call compares its totals with those that the previous call stored in the map
// `idle`. Only this function uses that map, so packets pay nothing.
//
// Packets are counted meanwhile. A slot is in four places: under its key in `series`,
// with sockets (in `sockets` and `owners`), in the registers of running programs, and in
// its cells. It is removed from them in this order:
//
// 1. Unlink. The key is deleted, so no program finds the slot any more. The next packet
//    of the series creates it again, in another slot. Readers add both slots.
// 2. Wait for all running programs: a slot that they had found is now with a socket,
//    or nowhere.
// 3. Check whether a socket has it, twice: a listener may have closed after the first
//    check, but the sockets that it handed on have no such successor. If a socket has it,
//    or something was counted, it is linked again, or left to the next call.
// 4. Wait again, for a program that runs for a socket that has closed meanwhile.
// 5. Fold. A program adds the totals to the series `evicted`, clears the cells and
//    returns the slot, in one run. Readers notice that (nm_stats.moves).
//
// Names are then freed in the same way; with its key go the notes about listeners of SCTP
// that have the name. If a call is killed in between, or the kernel does not wait (no
// memory), slots and names without a key are left. They still count, readers see them,
// and the next call continues with step 2. A resize does not hand them out.
//
// Threads: one at a time, under the lock of lib/loader/pin_dir.h.

#ifndef NETMETER_LIB_EVICT_EVICT_H_
#define NETMETER_LIB_EVICT_EVICT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace netmeter {
namespace internal {

struct EvictOptions {
  std::string pin_dir;
  // A series that has counted something within this time is not idle. The time is
  // measured between calls: the first call only stores the totals, unless this is 0.
  uint32_t idle_seconds = 3600;
  // Does nothing unless this part of the series or of the names is in use.
  uint32_t full_percent = 0;
};

struct EvictResult {
  bool needed = false;  // not: the tables are emptier than full_percent
  uint32_t series = 0;  // evicted
  uint32_t names = 0;   // forgotten
  uint64_t series_used = 0, series_limit = 0;  // after that
  uint64_t names_used = 0, names_limit = 0;
};

// NotFound if no meter is loaded. Unimplemented if the kernel has no types of its own, or
// could crash: SocketIteratorMayCrash() in lib/loader/object.h. FailedPrecondition if the
// meter is of another version, or an unfinished load must complete first.
absl::StatusOr<EvictResult> Evict(const EvictOptions& options);

// `netmeter-loader load` ends with this, unless the meter is new. It evicts what has been
// idle for an hour, if half of the series or names are in use. A load does not fail
// because of it: errors are returned as a note for people, or "".
std::string EvictAfterLoad(const std::string& pin_dir);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_EVICT_EVICT_H_
