// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/unload.h"

#include <bpf/bpf.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "lib/base/kernel_object.h"
#include "lib/base/libbpf_log.h"
#include "lib/base/status_util.h"
#include "lib/base/unique_fd.h"
#include "lib/loader/existing.h"
#include "lib/loader/locked_directory.h"
#include "lib/loader/meter_object.h"
#include "lib/loader/pin_dir.h"
#include "lib/loader/retry.h"
#include "lib/loader/step.h"
#include "lib/loader/system.h"
#include "lib/reader/shared_maps.h"
#include "netmeter/abi.h"

namespace netmeter {
namespace internal {
absl::Status RemoveMeter(const std::string& pin_dir, const LoaderState& state,
                         bool* was_loaded, std::string* note) {
  const absl::StatusOr<bool> bpffs = LookForBpffs(pin_dir);
  if (!bpffs.ok()) return bpffs.status();
  if (!*bpffs) {
    if (access(pin_dir.c_str(), R_OK | X_OK) != 0 && errno != ENOENT) {
      return ErrnoStatus(errno, absl::StrCat("open ", pin_dir), "run as root");
    }
    RemoveDirectories(state.made);
    return absl::OkStatus();
  }
  const PinDir pins(pin_dir);
  absl::StatusOr<std::vector<std::string>> found = pins.FindOurs(state);
  if (!found.ok()) return found.status();
  if (!found->empty()) {
    const std::vector<std::string> newer = pins.FindNewer();
    found->insert(found->begin(), newer.begin(), newer.end());
  }
  NETMETER_RETURN_IF_ERROR(TellReaders(pins));
  std::vector<uint32_t> programs;
  for (const std::string& pin : OrderOfRemoval(*found)) {
    const UniqueFd fd(bpf_obj_get(pins.PathOf(pin).c_str()));
    if (!fd.ok() && errno == ENOENT) continue;
    if (!fd.ok()) return ErrnoStatus(errno, absl::StrCat("open ", pin));
    if (was_loaded != nullptr) *was_loaded = true;
    const KernelObject object = IdentifyObject(fd.get());
    if (object.kind == KernelObject::kLink) {
      programs.push_back(object.program);
      // Detaches at once, even if another process holds the link. A tracing link cannot
      // be detached (ENOTSUPP): it ends with its last descriptor and pin.
      bpf_link_detach(fd.get());
    }
    NETMETER_RETURN_IF_ERROR(pins.Remove(pin));
    Step("unpinned ", pin);
  }
  WaitUntilProgramsAreFreed(programs);
  if (IsOwnMount(pin_dir, state)) {
    const absl::Status removed = RemoveDirectory(pin_dir, state);
    if (absl::IsFailedPrecondition(removed) && note != nullptr) {
      *note = std::string(removed.message());
      return absl::OkStatus();
    }
    NETMETER_RETURN_IF_ERROR(removed);
    Step("unmounted ", pin_dir);
  }
  RemoveDirectories(state.made);
  return absl::OkStatus();
}

absl::Status Unload(const std::string& pin_dir, bool* was_loaded,
                    std::string* note) {
  std::string unheard;
  if (note == nullptr) note = &unheard;
  note->clear();
  *was_loaded = false;
  NETMETER_RETURN_IF_ERROR(CheckDirectory(pin_dir));
  NETMETER_RETURN_IF_ERROR(CheckIsNoAlias(pin_dir));
  if (access(pin_dir.c_str(), F_OK) != 0 && errno == ENOENT &&
      access(LockFile(pin_dir).c_str(), F_OK) != 0) {
    return absl::OkStatus();
  }
  NETMETER_RETURN_IF_ERROR(CheckProc());
  CaptureLibbpfMessages();
  absl::StatusOr<UniqueFd> lock = LockDirectory(pin_dir, kLockSeconds);
  if (!lock.ok()) return lock.status();
  const absl::StatusOr<LoaderState> state =
      ReadState(lock->get(), LockFile(pin_dir));
  if (!state.ok()) return state.status();
  absl::Status status =
      Retry([&] { return RemoveMeter(pin_dir, *state, was_loaded, note); });
  if (!status.ok() && *was_loaded) {
    status =
        WithState(status, absl::StrCat("a part of the meter is left (run: ",
                                       LoaderCommand("unload", pin_dir), ")"));
  }
  // The lock file stays as long as it holds state of a meter.
  const bool says_nothing =
      state->made.empty() && !state->mounted && state->config.empty();
  if ((status.ok() && note->empty()) || says_nothing) RemoveLockFile(pin_dir);
  return status;
}

}  // namespace internal
}  // namespace netmeter
