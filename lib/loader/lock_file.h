// SPDX-License-Identifier: BSD-3-Clause
// The lock of a pin directory, and what its file tells the next loader.
//
//   absl::StatusOr<UniqueFd> lock = LockDirectory("/run/netmeter", 30);
//   absl::StatusOr<LoaderState> state =
//       ReadState(lock->get(), LockFile("/run/netmeter"));
//
// Threads: any.

#ifndef NETMETER_LIB_LOADER_LOCK_FILE_H_
#define NETMETER_LIB_LOADER_LOCK_FILE_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/base/unique_fd.h"

namespace netmeter {
namespace internal {

// What the lock file holds while a meter is loaded, for the next loader.
struct LoaderState {
  std::vector<std::string> made;  // directories, topmost first
  bool mounted = false;           // on the last of these, or about to be
  uint64_t device = 0;  // st_dev of that; 0: killed before it was known
  std::string config;   // the loaded one, as YAML
  std::string cgroup;   // which it counts for; "" where config is
};

// Of a lock file; of lines that are not as they were written nothing is known. Errors
// are those of reading it.
absl::StatusOr<LoaderState> ReadState(int lock_fd, const std::string& file);
// Into another file, which takes the place of `file`, or nothing is changed: killed in
// the middle of it, or without room, the old one stays. *lock becomes the lock on the new
// one, which nobody finds without it.
absl::Status WriteState(const std::string& file, const LoaderState& state,
                        UniqueFd* lock);

// Keeps two loaders from working on one pin directory: an exclusive flock(2)
// on a file that only root can open. DeadlineExceeded after `seconds`; Cancelled where a
// signal that asks the process to end, and that it holds back, comes meanwhile. Whoever
// unloads removes the file while he has it.
absl::StatusOr<UniqueFd> LockDirectory(const std::string& path, int seconds);
std::string LockFile(const std::string& path);

// A shared lock: no loader is at work while it is held, so hold it for an instant only.
// An empty descriptor where there is no file, and so no loader; DeadlineExceeded where a
// loader has it for longer than `most`; PermissionDenied, but for root.
absl::StatusOr<UniqueFd> ShareLock(const std::string& path,
                                   std::chrono::milliseconds most);

// What the lock file of a pin directory tells, without its lock: it is replaced as a
// whole. Nothing is known if there is no file. PermissionDenied unless root calls.
absl::StatusOr<LoaderState> PeekState(const std::string& path);

// The file, and what a WriteState() that was killed has left beside it. By who has the
// lock.
void RemoveLockFile(const std::string& path);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_LOCK_FILE_H_
