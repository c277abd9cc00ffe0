// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/locked_directory.h"

#include <sys/stat.h>

#include <utility>

#include "lib/base/status_util.h"
#include "lib/loader/step.h"

namespace netmeter {
namespace internal {

absl::StatusOr<std::unique_ptr<LockedDirectory>> LockedDirectory::Lock(
    const std::string& pin_dir) {
  // Check before the lock, so that a refused load leaves no lock file.
  NETMETER_RETURN_IF_ERROR(CheckDirectory(pin_dir));
  NETMETER_RETURN_IF_ERROR(CheckIsNoAlias(pin_dir));
  NETMETER_RETURN_IF_ERROR(CheckContents(pin_dir));
  absl::StatusOr<UniqueFd> lock = LockDirectory(pin_dir, kLockSeconds);
  if (!lock.ok()) return lock.status();
  absl::StatusOr<LoaderState> state = ReadState(lock->get(), LockFile(pin_dir));
  if (!state.ok()) return state.status();
  // Not make_unique: the constructor is private.
  std::unique_ptr<LockedDirectory> self(new LockedDirectory(pin_dir));
  self->lock_ = std::move(*lock);
  self->state_ = *std::move(state);
  Step("locked ", LockFile(pin_dir));
  return self;
}

LockedDirectory::~LockedDirectory() {
  if (state_.made.empty() && !state_.mounted && state_.config.empty()) {
    RemoveLockFile(pins_.path());
  }
}

absl::Status LockedDirectory::WriteDown() {
  return WriteState(LockFile(pins_.path()), state_, &lock_);
}

absl::Status LockedDirectory::Make() {
  const std::string& dir = pins_.path();
  const std::vector<std::string> missing = MissingDirectories(dir);
  const absl::StatusOr<bool> bpffs = LookForBpffs(dir);
  if (!bpffs.ok()) return bpffs.status();
  if (*bpffs && missing.empty()) return absl::OkStatus();
  state_.made.insert(state_.made.end(), missing.begin(), missing.end());
  if (!*bpffs) {
    // The device of a mount is known only afterwards. 0 means that the mount was about to
    // be made.
    state_.mounted = true;
    state_.device = 0;
  }
  NETMETER_RETURN_IF_ERROR(WriteDown());
  bool made = false, mounted = false;
  NETMETER_RETURN_IF_ERROR(PrepareDirectory(dir, &made, &mounted));
  struct stat about;
  if (mounted && stat(dir.c_str(), &about) == 0) {
    state_.device = about.st_dev;
    NETMETER_RETURN_IF_ERROR(WriteDown());
  }
  Step("made ", dir);
  return absl::OkStatus();
}

absl::Status LockedDirectory::KeepConfig(const std::string& yaml,
                                         const std::string& cgroup) {
  if (state_.config == yaml && state_.cgroup == cgroup) return absl::OkStatus();
  state_.config = yaml;
  state_.cgroup = cgroup;
  NETMETER_RETURN_IF_ERROR(WriteDown());
  Step("wrote ", LockFile(pins_.path()));
  return absl::OkStatus();
}

}  // namespace internal
}  // namespace netmeter
