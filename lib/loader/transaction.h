// SPDX-License-Identifier: BSD-3-Clause
// The part of a load that leaves traces outside of BPF, and that is undone if
// the load fails: the lock, the directories, the mount and the first pins.
//
//   auto transaction = Transaction::Begin("/run/netmeter", config, cgroup);
//   ...                                   // a return here undoes all of it
//   (*transaction)->KeepOnFailure();
//
// The lock file tells the next loader what this one made: it is written before
// anything is made, so that a load that is killed leaves nothing unknown. It
// stays while there is something to be known of a meter.
//
// What an upgrade changes it says how to undo (OnFailure()), up to where there is no
// way back (NoWayBack()): from there on the next load takes to its end what this one
// does not. Every step of it leaves a meter that counts, and that can be read.
//
// Threads: one at a time. Two loaders on one directory wait for each other.

#ifndef NETMETER_LIB_LOADER_TRANSACTION_H_
#define NETMETER_LIB_LOADER_TRANSACTION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/core/unique_fd.h"
#include "lib/loader/attempts.h"
#include "lib/loader/pin_dir.h"
#include "lib/loader/system.h"

namespace netmeter {
namespace internal {

// Another loader at work is waited for so long.
constexpr int kLockSeconds = 30;

// Whether the lock file knew nothing of a meter.
bool IsEmpty(const LoaderState& state);

class Transaction {
 public:
  // Takes the lock, makes the directory and mounts a BPF file system there if
  // it is on none. `config`, `cgroup`: what the next load starts from, if there is no
  // meter and this load is killed.
  static absl::StatusOr<std::unique_ptr<Transaction>> Begin(
      const std::string& pin_dir, const std::string& config,
      const std::string& cgroup);

  // Undoes what a first load has done, unless KeepOnFailure() was called.
  ~Transaction();

  const PinDir& pins() const { return pins_; }
  const LoaderState& state() const { return state_; }
  // What the lock file said when this load began.
  const LoaderState& before() const { return before_; }

  // Whether the directory is ours: made by us, now or earlier.
  bool OwnsDirectory() const;

  // There is no meter here: the lock file goes if this load fails. `removed_rest`: what
  // was left of one, such as after a load that was killed, was removed.
  void FoundNothing(bool removed_rest) {
    found_nothing_ = true;
    removed_rest_ = removed_rest;
  }
  // There is a meter here: what a first load makes is there to stay.
  void KeepOnFailure() { keep_ = true; }

  // What undoes a step of an upgrade. It may be tried again. `rest`: what that step
  // leaves where it cannot be undone.
  enum class Rest { kDamage, kHarmless };
  void OnFailure(std::function<absl::Status()> undo,
                 Rest rest = Rest::kDamage) {
    if (state_on_failure_.empty()) undo_.push_back({std::move(undo), rest});
  }
  // Forgets these, and all that come. `state`: what there is if the load fails from
  // here on.
  void NoWayBack(const std::string& state) {
    undo_.clear();
    state_on_failure_ = state;
  }
  // For how long a step is tried that stands now.
  Patience patience() const {
    return state_on_failure_.empty() ? Patience::kMoment : Patience::kSeconds;
  }
  // Undoes an upgrade, the last step first; the error, and what there is now.
  absl::Status Fail(const absl::Status& error);

  // Pins the object, and unpins it again if this load fails.
  absl::Status Pin(int fd, absl::string_view pin);
  void UnpinOnFailure(const std::string& path) { pinned_.push_back(path); }

  // Writes down what is being loaded, for which cgroup, and when its tables were made,
  // for the next load to start from.
  absl::Status KeepConfig(const std::string& yaml, const std::string& cgroup,
                          uint64_t created_ns);

  // Writes down that an upgrade begins, or is done. Killed in between, some programs
  // are another load's, and neither `info` nor the configuration tells.
  absl::Status SetChanging(bool changing);

 private:
  struct Undo {
    std::function<absl::Status()> call;
    Rest rest;
  };

  explicit Transaction(const std::string& pin_dir) : pins_(pin_dir) {}
  absl::Status Prepare(const std::string& config, const std::string& cgroup);
  // state_, into the lock file.
  absl::Status WriteDown();

  const PinDir pins_;
  UniqueFd lock_;  // until all else is undone
  LoaderState state_, before_;
  std::vector<std::string> pinned_;  // paths, by this load
  std::vector<Undo> undo_;
  std::string state_on_failure_;  // empty: there is a way back
  bool made_directory_ = false;
  bool mounted_ = false;
  bool found_nothing_ = false;
  bool removed_rest_ = false;
  bool keep_ = false;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_TRANSACTION_H_
