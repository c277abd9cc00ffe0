// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/unload.h"

#include <bpf/bpf.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/core/pins.h"
#include "lib/core/shared_maps.h"
#include "lib/core/status_util.h"
#include "lib/core/unique_fd.h"
#include "lib/loader/attempts.h"
#include "lib/loader/host.h"
#include "lib/loader/kernel_object.h"
#include "lib/loader/libbpf_log.h"
#include "lib/loader/lost_info.h"
#include "lib/loader/meter_object.h"
#include "lib/loader/pin_dir.h"
#include "lib/loader/step.h"
#include "lib/loader/switch.h"
#include "lib/loader/system.h"
#include "lib/loader/transaction.h"
#include "netmeter/abi.h"

namespace netmeter {
namespace internal {
namespace {

// Links first and in the reverse order of attaching, so that packets are the
// first that are no longer counted; then the others as they are.
std::vector<std::string> OrderOfRemoval(const std::vector<std::string>& pins) {
  std::vector<std::string> order;
  for (auto link = LinkPins().rbegin(); link != LinkPins().rend(); ++link) {
    order.push_back(link->pin);
    order.push_back(NewPin(link->pin));
  }
  for (const bool links : {true, false}) {
    for (const std::string& pin : pins) {
      const bool there =
          std::find(order.begin(), order.end(), pin) != order.end();
      if (!there && absl::StartsWith(pin, "link_") == links) {
        order.push_back(pin);
      }
    }
  }
  return order;
}

// What is pinned there; without a descriptor if there is nothing. A link that cannot
// be opened for want of memory is not one that is not there: it would go on counting.
absl::Status OpenIfThere(const std::string& path, UniqueFd* fd) {
  return InAttempts([&] {
    *fd = UniqueFd(bpf_obj_get(path.c_str()));
    if (fd->ok() || errno == ENOENT) return absl::OkStatus();
    return ErrnoStatus(errno, absl::StrCat("open ", path));
  });
}

// Whether this version's program can be run over it: where it could not, it may the next
// time.
bool IsOfThisVersion(int info_fd) {
  nm_info info = {};
  return ReadOnlyValue(info_fd, &info) && CheckInfo(info, "info").ok() &&
         info.info_size == sizeof(info);
}

// Readers of another version's meter keep what they have, if this version's
// program cannot be run over its info.
absl::Status TellReaders(const PinDir& pins, bool* begun) {
  for (const char* pin : {"info", kOldInfoPin}) {
    UniqueFd info;
    NETMETER_RETURN_IF_ERROR(OpenIfThere(pins.PathOf(pin), &info));
    if (!info.ok()) continue;
    // libbpf says EINVAL where the kernel had no memory, or no descriptor.
    const absl::Status status =
        InAttempts([&] { return CloseInfo(info.get()); });
    // Who is not told keeps these maps for good, and sees them stand still:
    // where that may pass, nothing is removed yet.
    if (!status.ok() && (absl::IsPermissionDenied(status) ||
                         IsTransient(status) || IsOfThisVersion(info.get()))) {
      return status;
    }
    if (!status.ok()) continue;
    *begun = true;
    Step("closed ", Describe(info.get()));
  }
  return absl::OkStatus();
}

// After an unload that failed: whether something is left that is no whole meter. By
// names, too, where the kernel opens nothing. An unload closes `info` before all else.
bool APartIsLeft(const std::string& pin_dir, const LoaderState& state,
                 bool begun) {
  const PinDir pins(pin_dir);
  bool any = false, all = pins.Has("info");
  for (const MapPin& map : MapPins()) any |= pins.Has(map.pin);
  for (const LinkPin& link : LinkPins()) {
    const bool there = pins.Has(link.pin);
    any |= there;
    all &= there || link.feature != 0;
  }
  if (!any) return IsOwnMount(pin_dir, state);
  const UniqueFd fd(bpf_obj_get(pins.PathOf("info").c_str()));
  nm_info info = {};
  const bool closed =
      fd.ok() && ReadOnlyValue(fd.get(), &info) && info.closed != 0;
  return begun || closed || !all;
}

// Under the lock: removes pins, mount and directories of a meter, or of what a
// killed load or unload left of it.
absl::Status RemoveMeter(const std::string& pin_dir, const LoaderState& state,
                         bool* was_loaded, bool* begun, std::string* note) {
  const absl::StatusOr<bool> bpffs = LookForBpffs(pin_dir);
  if (!bpffs.ok()) return bpffs.status();
  if (!*bpffs) {
    if (access(pin_dir.c_str(), R_OK | X_OK) != 0) {
      return ErrnoStatus(errno, absl::StrCat("open ", pin_dir), "run as root");
    }
    // Somebody's directory, or, empty, what an unload that was killed between
    // unmounting and removing has left.
    RemoveDirectories(state.made);
    return absl::OkStatus();
  }
  const PinDir pins(pin_dir);
  absl::StatusOr<std::vector<std::string>> found = pins.FindOurs(state);
  if (found.ok() && !found->empty() && IsSwitching(pins)) {
    NETMETER_RETURN_IF_ERROR(InAttempts([&] { return SettleTables(pins); }));
    found = pins.FindOurs(state);
  }
  if (!found.ok()) return found.status();
  if (!found->empty()) {
    const std::vector<std::string> newer = pins.FindNewer();
    found->insert(found->begin(), newer.begin(), newer.end());
  }
  NETMETER_RETURN_IF_ERROR(TellReaders(pins, begun));

  std::vector<uint32_t> programs;
  for (const std::string& pin : OrderOfRemoval(*found)) {
    const std::string path = pins.PathOf(pin);
    UniqueFd fd;
    NETMETER_RETURN_IF_ERROR(OpenIfThere(path, &fd));
    if (!fd.ok()) continue;
    *was_loaded = true;
    const std::string what = Describe(fd.get());
    const KernelObject object = IdentifyObject(fd.get());
    if (object.kind == KernelObject::kLink) {
      programs.push_back(object.program);
      // At once, whoever else holds the link. A tracing link cannot be detached
      // (ENOTSUPP): it ends with its last descriptor and pin.
      bpf_link_detach(fd.get());
    }
    NETMETER_RETURN_IF_ERROR(InAttempts([&path] {
      if (unlink(path.c_str()) == 0 || errno == ENOENT) return absl::OkStatus();
      return ErrnoStatus(
          errno, absl::StrCat("unpin ", path),
          errno == EACCES || errno == EPERM ? "run as root" : "");
    }));
    Step("unpinned ", path, ": ", what);
  }
  WaitUntilProgramsAreFreed(programs);
  if (IsOwnMount(pin_dir, state)) {
    const absl::Status removed = RemoveDirectory(pin_dir, state);
    if (absl::IsFailedPrecondition(removed)) {
      *note = std::string(removed.message());
      return absl::OkStatus();
    }
    NETMETER_RETURN_IF_ERROR(removed);
    Step("unmounted ", pin_dir);
  }
  RemoveDirectories(state.made);
  return absl::OkStatus();
}

}  // namespace

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
  const absl::StatusOr<LoaderState> read =
      ReadState(lock->get(), LockFile(pin_dir));
  if (!read.ok()) return read.status();
  const LoaderState& state = *read;
  absl::Status status;
  if (!PinDir(pin_dir).Has("info")) {
    NETMETER_RETURN_IF_ERROR(CloseLostInfo(state.created_ns));
  }
  if (access(pin_dir.c_str(), F_OK) == 0 || errno != ENOENT) {
    bool begun = false;
    status = RemoveMeter(pin_dir, state, was_loaded, &begun, note);
    begun |= *was_loaded;
    // Objects that are not ours are no part of a meter, and nothing was done to them.
    const bool foreign = absl::IsFailedPrecondition(status) && !begun;
    if (!status.ok() && !foreign && APartIsLeft(pin_dir, state, begun)) {
      status = absl::Status(
          status.code(),
          absl::StrCat(status.message(), "; a part of the meter is left (run: ",
                       LoaderCommand("unload", pin_dir), ")"));
    }
  } else {
    RemoveDirectories(state.made);
  }
  // It stays while there is something to be known of a meter.
  if ((status.ok() && note->empty()) || IsEmpty(state)) RemoveLockFile(pin_dir);
  return status;
}

}  // namespace internal
}  // namespace netmeter
