// SPDX-License-Identifier: BSD-3-Clause
// Growth: an upgrade to larger tables of series and names, while packets go on
// being counted. No byte is lost, no counter goes back, and every series and
// name keeps its number.
//
// A BPF map has one size for its life, and the verifier took the sizes as
// constants of the programs: so there are new maps and new programs, and the
// change from one to the other has five parts.
//
// 1. Drain. The new programs are loaded, beside new maps that are still empty.
//    Then the queues of free slots and names of the old meter are emptied. From
//    here on the old programs hand out no slot and no name. That makes the old
//    tables a fixed set which can be copied. Until part 3 is done, a new series
//    is counted as overflow and a new name is refused: 0.1 s, or seconds.
// 2. Copy. The new tables get the same slots and names, and the new queues all
//    the others. Then all of it is pinned, as NAME_new, `info_new` last: from
//    here on the next load finishes a growth that was killed; before, it
//    forgets it.
// 3. Move. The links are switched to the new programs, as by any upgrade. Old
//    and new programs count side by side for a moment, each into its own cells.
// 4. Merge. Once no old program runs any more, the old totals are added to the
//    new cells by the program nm_command: user space cannot write a frozen map.
//    The map `merged` notes each cell that was added, so that nothing is added
//    twice when a growth is killed here and finished by the next load.
// 5. Switch. NAME_new takes the place of NAME, all of them at one instant
//    (switch.h). Before it, the old info gets a second name, `info_old`: readers
//    who have mapped it must be told that it is closed, even if this load is
//    killed.
//
// A reader sees the old totals until it opens the new maps, which have as much
// or more.
//
// What fails in the parts 1 and 2 is undone, as if nothing had been tried. Part 3
// cannot be: what new programs have counted is in no old table. From there on each
// step is tried again, and what fails for good is finished by the next load.
//
// Sockets, owners, processes and statistics are not replaced: what they hold
// does not depend on the sizes. That is why max_sockets and max_processes stay
// as they are until unload.
//
// Threads: one at a time, under the lock of lib/loader/transaction.h.

#ifndef NETMETER_LIB_LOADER_GROWTH_H_
#define NETMETER_LIB_LOADER_GROWTH_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lib/core/unique_fd.h"
#include "lib/loader/config.h"
#include "lib/loader/features.h"
#include "lib/loader/meter_object.h"
#include "lib/loader/pin_dir.h"
#include "lib/loader/transaction.h"
#include "netmeter/abi.h"

namespace netmeter {
namespace internal {

class Growth {
 public:
  // `existing` is of the meter that is loaded. Plans nothing yet.
  Growth(const PinDir& pins, const nm_info& existing)
      : pins_(pins), existing_(existing) {}

  Growth(const Growth&) = delete;
  Growth& operator=(const Growth&) = delete;

  // Compares the sizes that are wanted with those that are loaded. Sets those
  // that cannot be changed to what they are, with a note. Finds a growth that
  // was killed after part 2, which is to be finished first, at its own sizes, and
  // otherwise removes what a killed one left. Tables without spare cells, an older
  // version's, grow by them.
  absl::Status Plan(Config* config, uint32_t* cells_per_series,
                    std::vector<std::string>* notes);

  // The info that knows most: of the growth that is to be finished, or of the meter.
  const nm_info& newest() const { return newest_; }

  bool any() const { return stage_ != Stage::kNone; }
  // From the beginning. Otherwise, if any(), from part 3.
  bool from_the_start() const { return stage_ == Stage::kStart; }
  // What is to be finished is smaller than what is wanted: one more is to follow.
  bool grows_on() const { return grows_on_; }

  // Gives the object the maps that are kept, and what to merge from. Between
  // its Open() and Load().
  absl::Status ReuseMaps(MeterObject* object) const;

  // Parts 1 and 2, but for the pins. If the transaction fails before part 3, the old
  // queues are filled again, and the successors go.
  absl::Status DrainAndCopy(MeterObject* object, Transaction* transaction);
  // The end of part 2. `info` is written already.
  absl::Status PinSuccessors(const MeterObject& object);
  // Before part 3: loads what will close the old info in part 5.
  absl::Status PrepareToClose();
  // Parts 4 and 5. Says to the transaction what stands if the rest fails.
  absl::Status MergeAndSwitch(const MeterObject& object,
                              const ReadAccess& access,
                              Transaction* transaction);

 private:
  enum class Stage { kNone, kStart, kFinish };

  absl::Status CopyTables(MeterObject* object) const;
  absl::Status ReuseOldCounters(MeterObject* object) const;
  absl::Status MergeCounters(const MeterObject& object) const;

  const PinDir& pins_;
  const nm_info existing_;
  nm_info newest_ = existing_;
  Stage stage_ = Stage::kNone;
  bool grows_on_ = false;
  UniqueFd closer_;
};

// Empties the queues of free ids, so that no program of the old meter has one of
// them any more. One that was about to make what another CPU made first gives its id
// back: a queue stays empty only where a wait for programs has found nothing in it.
absl::Status DrainFreeIds(const std::vector<int>& queues,
                          const std::function<void()>& wait_for_programs);

// A load that was killed in part 1 left the meter without free slots and names:
// gives them back. Tables that are full are left alone. `killed`: as the lock file says.
// *refilled: whether any were missing.
absl::Status RefillDrainedQueues(const nm_info& existing, bool killed,
                                 Transaction* transaction, bool* refilled);

// A load that was killed in part 5 left readers with an info that nobody has
// retired: does it. `closer`: of LoadCloser(), or -1.
absl::Status CloseOldInfo(const PinDir& pins, int closer = -1);

// Whether a growth was killed, or has failed, in any part. What another program has
// pinned by one of the names is none.
bool IsUnfinished(const std::string& pin_dir);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_GROWTH_H_
