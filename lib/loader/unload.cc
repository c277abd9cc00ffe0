// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/unload.h"
#include "lib/base/loader_command.h"

#include <bpf/bpf.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/kernel_object.h"
#include "lib/base/libbpf_log.h"
#include "lib/base/status_util.h"
#include "lib/base/unique_fd.h"
#include "lib/loader/lock_file.h"
#include "lib/loader/object.h"
#include "lib/loader/system.h"
#include "lib/loader/trace.h"
#include "netmeter/abi.h"

namespace netmeter {
namespace internal {

absl::Status TellReaders(const PinDir& pins) {
  NETMETER_ASSIGN_OR_RETURN(const UniqueFd command,
                            pins.OpenIfPinned(kCommandPin));
  if (!command.ok()) return absl::OkStatus();
  NETMETER_RETURN_IF_ERROR(
      RunProgram(command.get(), NM_COMMAND_CLOSE).status());
  Trace("closed info");
  return absl::OkStatus();
}

absl::Status RemovePins(const PinDir& pins,
                        const std::vector<std::string>& found, bool* removed,
                        bool waits) {
  std::vector<uint32_t> programs;
  // Links first, then nothing counts. `info` goes last: until then it tells that an
  // unload has begun.
  std::vector<std::string> order = found;
  const auto rank = [](const std::string& pin) {
    return absl::StartsWith(pin, "link_") ? 0 : pin == "info" ? 2 : 1;
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](const std::string& a, const std::string& b) {
                     return rank(a) < rank(b);
                   });
  for (const std::string& pin : order) {
    NETMETER_ASSIGN_OR_RETURN(const UniqueFd fd, pins.OpenIfPinned(pin));
    if (!fd.ok()) continue;
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
  if (waits) WaitUntilProgramsAreFreed(programs);
  return absl::OkStatus();
}

absl::Status RemoveMeter(const LockedDirectory& directory, bool* removed,
                         std::string* note) {
  const PinDir& pins = directory.pins();
  NETMETER_ASSIGN_OR_RETURN(const bool mounted, CheckPinDirectory(pins.path()));
  if (mounted) {
    NETMETER_ASSIGN_OR_RETURN(const auto found, pins.Find());
    NETMETER_RETURN_IF_ERROR(TellReaders(pins));
    NETMETER_RETURN_IF_ERROR(RemovePins(pins, found, removed));
  }
  const absl::Status removed_all =
      RemovePinDirectory(pins.path(), !directory.state().config.empty());
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
  NETMETER_RETURN_IF_ERROR(Retry(CheckHost));
  CaptureLibbpfMessages();
  NETMETER_ASSIGN_OR_RETURN(const auto directory,
                            LockedDirectory::Lock(pin_dir));
  const absl::Status status =
      Retry([&] { return RemoveMeter(*directory, was_loaded, note); });
  // The lock file stays as long as it holds state of a meter.
  if (status.ok() && note->empty()) directory->ForgetState();
  if (status.ok() || !*was_loaded) return status;
  return WithState(status, absl::StrCat("a part of the meter is left (run: ",
                                        LoaderCommand("unload", pin_dir), ")"));
}

}  // namespace internal
}  // namespace netmeter
