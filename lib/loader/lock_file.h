// SPDX-License-Identifier: BSD-3-Clause
// The lock of a pin directory, and the state that its file holds for the next loader.
//
//   absl::StatusOr<UniqueFd> lock =
//       LockDirectory("/run/netmeter", LOCK_EX, std::chrono::seconds(30));
//   absl::StatusOr<LoaderState> state =
//       ReadState(lock->get(), LockFile("/run/netmeter"));
//
// Threads: any.

#ifndef NETMETER_LIB_LOADER_LOCK_FILE_H_
#define NETMETER_LIB_LOADER_LOCK_FILE_H_

#include <sys/file.h>

#include <chrono>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/base/unique_fd.h"

namespace netmeter {
namespace internal {

// The content of the lock file while a meter is loaded.
struct LoaderState {
  std::string config;  // the loaded one, as YAML
  std::string cgroup;  // for which the meter counts; "" if `config` is empty
};

// Reads a lock file and ignores lines that it cannot parse. Errors are those of
// reading the file.
absl::StatusOr<LoaderState> ReadState(int lock_fd, const std::string& file);
// Writes a new file and renames it over `file`. If the write fails or is killed, the old
// file stays. *lock becomes the lock on the new file. The new file is locked before it
// gets its name, so other processes never find it unlocked.
absl::Status WriteState(const std::string& file, const LoaderState& state,
                        UniqueFd* lock);

// How long to wait for another loader.
constexpr std::chrono::seconds kLockTime(30);

// Keeps two loaders from working on one pin directory: a flock(2) on a file
// that only root can open. LOCK_EX is for a loader, and creates the file.
// LOCK_SH keeps loaders out, so hold it only for an instant; the descriptor is
// empty if there is no file, and so no loader. DeadlineExceeded after `most`.
// Cancelled if a blocked signal that asks the process to end arrives during the
// wait. PermissionDenied unless root calls. An unload removes the file while it
// holds the lock.
absl::StatusOr<UniqueFd> LockDirectory(const std::string& path, int how,
                                       std::chrono::milliseconds most);
std::string LockFile(const std::string& path);

// Reads the lock file of a pin directory without its lock, which is safe
// because the file is always replaced as a whole. The state is empty if there
// is no file. PermissionDenied unless root calls.
absl::StatusOr<LoaderState> PeekState(const std::string& path);

// Removes the file, and the file that a killed WriteState() has left beside it.
// The caller must hold the lock.
void RemoveLockFile(const std::string& path);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_LOCK_FILE_H_
