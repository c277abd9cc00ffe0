// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/unload.h"

#include <bpf/bpf.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "lib/base/kernel_object.h"
#include "lib/base/libbpf_log.h"
#include "lib/base/status_util.h"
#include "lib/base/unique_fd.h"
#include "lib/loader/lock_file.h"
#include "lib/loader/object.h"
#include "lib/loader/system.h"
#include "lib/loader/trace.h"
#include "lib/reader/shared_maps.h"
#include "netmeter/abi.h"

namespace netmeter {
namespace internal {
absl::Status TellReaders(const PinDir& pins) {
  const UniqueFd fd(bpf_obj_get(pins.PathOf("info").c_str()));
  if (!fd.ok()) {
    return errno == ENOENT ? absl::OkStatus() : ErrnoStatus(errno, "open info");
  }
  nm_info info = {};
  const bool ours = ReadOnlyValue(fd.get(), &info) &&
                    CheckInfo(info, "info").ok() &&
                    info.info_size == sizeof(info);
  if (ours && info.closed != 0) return absl::OkStatus();
  const absl::Status status = CloseInfo(fd.get());
  if (!status.ok() && (ours || IsTransient(status))) return status;
  Trace("closed ", Describe(fd.get()));
  return absl::OkStatus();
}

absl::Status RemovePins(const PinDir& pins,
                        const std::vector<std::string>& found, bool* removed) {
  NETMETER_RETURN_IF_ERROR(TellReaders(pins));
  std::vector<uint32_t> programs;
  for (const std::string& pin : OrderOfRemoval(found)) {
    const UniqueFd fd(bpf_obj_get(pins.PathOf(pin).c_str()));
    if (!fd.ok() && errno == ENOENT) continue;
    if (!fd.ok()) return ErrnoStatus(errno, absl::StrCat("open ", pin));
    if (removed != nullptr) *removed = true;
    const KernelObject object = IdentifyObject(fd.get());
    if (object.kind == KernelObject::kLink) {
      programs.push_back(object.program);
      // Detaches at once, even if another process holds the link. A tracing link cannot
      // be detached (ENOTSUPP): it ends with its last descriptor and pin.
      bpf_link_detach(fd.get());
    }
    NETMETER_RETURN_IF_ERROR(pins.Remove(pin));
    Trace("unpinned ", pin);
  }
  WaitUntilProgramsAreFreed(programs);
  return absl::OkStatus();
}

absl::Status RemoveMeter(const LockedDirectory& directory, bool* removed,
                         std::string* note) {
  const PinDir& pins = directory.pins();
  const std::string& path = pins.path();
  const LoaderState& state = directory.state();
  const absl::StatusOr<bool> bpffs = LookForBpffs(path);
  if (!bpffs.ok()) return bpffs.status();
  if (*bpffs) {
    const absl::StatusOr<std::vector<std::string>> found = pins.FindOurs(state);
    if (!found.ok()) return found.status();
    NETMETER_RETURN_IF_ERROR(RemovePins(pins, *found, removed));
  }
  const absl::Status removed_all = RemoveDirectory(path, state);
  if (!absl::IsFailedPrecondition(removed_all) || note == nullptr) {
    return removed_all;
  }
  *note = std::string(removed_all.message());
  return absl::OkStatus();
}

absl::Status Unload(const std::string& pin_dir, bool* was_loaded,
                    std::string* note) {
  std::string unheard;
  if (note == nullptr) note = &unheard;
  note->clear();
  *was_loaded = false;
  if (access(pin_dir.c_str(), F_OK) != 0 && errno == ENOENT &&
      access(LockFile(pin_dir).c_str(), F_OK) != 0) {
    return absl::OkStatus();
  }
  NETMETER_RETURN_IF_ERROR(CheckProc());
  CaptureLibbpfMessages();
  const absl::StatusOr<std::unique_ptr<LockedDirectory>> directory =
      LockedDirectory::Lock(pin_dir);
  if (!directory.ok()) return directory.status();
  const absl::Status status =
      Retry([&] { return RemoveMeter(**directory, was_loaded, note); });
  // The lock file stays as long as it holds state of a meter.
  if (status.ok() && note->empty()) (*directory)->ForgetState();
  if (status.ok() || !*was_loaded) return status;
  return WithState(status, absl::StrCat("a part of the meter is left (run: ",
                                        LoaderCommand("unload", pin_dir), ")"));
}

}  // namespace internal
}  // namespace netmeter
