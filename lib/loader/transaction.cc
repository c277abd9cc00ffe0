// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/transaction.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include "absl/strings/str_cat.h"
#include "lib/core/status_util.h"
#include "lib/loader/attempts.h"
#include "lib/loader/step.h"

namespace netmeter {
namespace internal {

bool IsEmpty(const LoaderState& state) {
  return state.made.empty() && !state.mounted && state.config.empty();
}

absl::StatusOr<std::unique_ptr<Transaction>> Transaction::Begin(
    const std::string& pin_dir, const std::string& config,
    const std::string& cgroup) {
  // Not make_unique: the constructor is private.
  std::unique_ptr<Transaction> self(new Transaction(pin_dir));
  const absl::Status status = self->Prepare(config, cgroup);
  if (status.ok()) return self;
  self.reset();  // undoes what was done
  return WithState(status, kNothingWasChanged);
}

absl::Status Transaction::Prepare(const std::string& config,
                                  const std::string& cgroup) {
  const std::string& dir = pins_.path();
  // Before the lock: a load that is refused leaves no lock file.
  NETMETER_RETURN_IF_ERROR(CheckDirectory(dir));
  NETMETER_RETURN_IF_ERROR(CheckIsNoAlias(dir));
  NETMETER_RETURN_IF_ERROR(CheckContents(dir));
  absl::StatusOr<UniqueFd> lock = LockDirectory(dir, kLockSeconds);
  if (!lock.ok()) return lock.status();
  lock_ = std::move(*lock);
  Step("locked ", LockFile(dir));
  absl::StatusOr<LoaderState> state = ReadState(lock_.get(), LockFile(dir));
  if (!state.ok()) {
    keep_ = true;  // whatever it says
    return state.status();
  }
  state_ = *std::move(state);
  before_ = state_;

  // Written down before they are made, so that they are removed whatever
  // happens. The device of a mount is known only afterwards.
  const std::vector<std::string> missing = MissingDirectories(dir);
  state_.made.insert(state_.made.end(), missing.begin(), missing.end());
  const absl::StatusOr<bool> bpffs = LookForBpffs(dir);
  if (!bpffs.ok()) return bpffs.status();
  const bool mounts = !*bpffs;
  if (mounts) {
    // Of a mount whose device is 0 the next loader knows that it was about to
    // be made, and takes what is mounted there for it.
    state_.mounted = true;
    state_.device = 0;
  }
  if (mounts || !missing.empty()) {
    // There can be no meter: whoever kills this load is to find it as it was meant.
    if (IsEmpty(before_)) {
      state_.config = config;
      state_.cgroup = cgroup;
    }
    NETMETER_RETURN_IF_ERROR(WriteDown());
  }
  NETMETER_RETURN_IF_ERROR(PrepareDirectory(dir, &made_directory_, &mounted_));
  struct stat about;
  if (mounted_ && stat(dir.c_str(), &about) == 0) {
    state_.device = about.st_dev;
    NETMETER_RETURN_IF_ERROR(WriteDown());
  }
  Step(mounted_ ? "mounted a BPF file system on "
                : "uses the BPF file system at ",
       dir);
  return absl::OkStatus();
}

// In the reverse order of a load, the lock last: lock_ is closed after this.
Transaction::~Transaction() {
  if (keep_ || !lock_.ok()) return;
  // Maps first: by a link the next loader knows them, if this one is killed.
  for (auto path = pinned_.rbegin(); path != pinned_.rend(); ++path) {
    for (int i = 0; i < kAttempts && unlink(path->c_str()) != 0; i++) {
      if (errno == ENOENT) break;
      std::this_thread::sleep_for(kAttemptPause);
    }
  }
  absl::Status removed;
  // Ours may be one that a load which was killed has made.
  if (mounted_ || made_directory_ ||
      (found_nothing_ && IsOwnMount(pins_.path(), state_))) {
    removed =
        InAttempts([this] { return RemoveDirectory(pins_.path(), state_); });
  }
  RemoveDirectories(state_.made);
  // Whoever removes the file has the lock on it (LockDirectory()). It stays if
  // it knows of a meter that this load has not touched, or of what is left.
  if (!found_nothing_ && !IsEmpty(before_) &&
      LookForBpffs(pins_.path()).value_or(true)) {
    return;
  }
  if (removed.ok() && before_.config.empty()) {
    RemoveLockFile(pins_.path());
    return;
  }
  // A meter was here, damaged or half loaded: the next load starts from what it was.
  state_.config = before_.config;
  state_.cgroup = before_.cgroup;
  state_.created_ns = before_.created_ns;
  if (removed.ok()) {
    state_.made.clear();
    state_.mounted = false;
  }
  InAttempts([this] { return WriteDown(); }).IgnoreError();
}

absl::Status Transaction::WriteDown() {
  return WriteState(LockFile(pins_.path()), state_, &lock_);
}

bool Transaction::OwnsDirectory() const {
  return made_directory_ || IsOwnMount(pins_.path(), state_);
}

absl::Status Transaction::Pin(int fd, absl::string_view pin) {
  NETMETER_RETURN_IF_ERROR(pins_.Pin(fd, pin));
  UnpinOnFailure(pins_.PathOf(pin));
  return absl::OkStatus();
}

absl::Status Transaction::KeepConfig(const std::string& yaml,
                                     const std::string& cgroup,
                                     uint64_t created_ns) {
  if (state_.config == yaml && state_.cgroup == cgroup &&
      state_.created_ns == created_ns) {
    return absl::OkStatus();
  }
  const LoaderState old = state_;
  state_.config = yaml;
  state_.cgroup = cgroup;
  state_.created_ns = created_ns;
  const absl::Status status = InAttempts([this] { return WriteDown(); });
  if (!status.ok()) state_ = old;
  return status;
}

absl::Status Transaction::SetChanging(bool changing) {
  if (state_.changing == changing && !state_.failed) return absl::OkStatus();
  const LoaderState old = state_;
  state_.changing = changing;
  state_.failed = false;
  const absl::Status status = InAttempts([this] { return WriteDown(); });
  if (!status.ok()) state_ = old;
  return status;
}

absl::Status Transaction::Fail(const absl::Status& error) {
  std::string state = state_on_failure_;
  // A first load has nothing to go on with.
  if (!undo_.empty() && !found_nothing_) {
    state = "the meter goes on as it was before this load";
  } else if (state.empty() && found_nothing_) {
    state = "nothing is loaded";
    if (removed_rest_) {
      state = absl::StrCat("what was left of the old meter was removed, and ",
                           state);
    }
    if (!before_.config.empty()) {
      state += ": the next load starts from the configuration of before";
    }
  } else if (state.empty()) {
    state = kNothingWasChanged;
  }
  bool undone = state_on_failure_.empty();
  // Where there is no way back the next load has something to do.
  bool damaged = !undone;
  for (auto undo = undo_.rbegin(); undo != undo_.rend(); ++undo) {
    const absl::Status status =
        InAttempts(undo->call, undone ? Patience::kSeconds : Patience::kMoment);
    if (status.ok()) continue;
    undone = false;
    damaged |= undo->rest == Rest::kDamage;
    state = absl::StrCat("not all could be undone: ", status.message(),
                         ": the next load mends it");
  }
  undo_.clear();
  if (undone && !before_.changing) SetChanging(false).IgnoreError();
  if (!damaged && state_.changing && !state_.failed &&
      (!before_.changing || before_.failed)) {
    // What is left is an empty directory, which the next load removes.
    state_.failed = true;
    InAttempts([this] { return WriteDown(); }).IgnoreError();
  }
  return WithState(error, state);
}

}  // namespace internal
}  // namespace netmeter
