// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/pin_dir.h"
#include "lib/base/loader_command.h"

#include <bpf/bpf.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "lib/base/kernel_object.h"
#include "lib/base/path.h"
#include "lib/base/pins.h"
#include "lib/base/status_util.h"
#include "lib/loader/system.h"
#include "lib/loader/trace.h"

namespace netmeter {
namespace internal {
namespace {

constexpr char kNewSuffix[] = "_new";
constexpr size_t kKernelNameBytes = 15;  // BPF_OBJ_NAME_LEN less the NUL

}  // namespace

std::string NewPin(absl::string_view pin) {
  return absl::StrCat(pin, kNewSuffix);
}

std::vector<std::string> EveryPin() {
  std::vector<std::string> pins;
  auto append = [&](const char* pin) {
    pins.push_back(pin);
    pins.push_back(NewPin(pin));
  };
  for (const LinkPin& link : LinkPins()) append(link.pin);
  for (const char* link : kForwardLinks) append(link);
  append(kForwardersPin);
  append(kForwardedPin);
  append(kForwardedByPin);
  append(kClientsPin);
  append(kCommandPin);
  append(kIdlePin);
  for (const ExtentPin& extent : ExtentPins()) append(extent.pin);
  for (const MapPin& map : MapPins()) append(map.pin);
  return pins;
}

std::string PinDir::PathOf(absl::string_view pin) const {
  return absl::StrCat(path_, "/", pin);
}

// Does not open the pin, so it works for users without permission. If the path
// cannot be checked, the pin counts as existing: the caller that opens it gets
// the error, and no caller skips work because of it.
bool PinDir::Has(absl::string_view pin) const {
  if (hidden_) return false;
  return access(PathOf(pin).c_str(), F_OK) == 0 ||
         !(errno == ENOENT || errno == ENOTDIR ||
           (errno == EACCES && geteuid() != 0));
}

absl::StatusOr<UniqueFd> PinDir::OpenIfPinned(absl::string_view pin) const {
  if (hidden_) return UniqueFd();
  const std::string path = PathOf(pin);
  UniqueFd fd(bpf_obj_get(path.c_str()));
  if (fd.ok() || errno == ENOENT) return fd;
  return ErrnoStatus(errno, absl::StrCat("open ", path));
}

absl::StatusOr<UniqueFd> PinDir::Open(absl::string_view pin) const {
  NETMETER_ASSIGN_OR_RETURN(UniqueFd fd, OpenIfPinned(pin));
  if (fd.ok()) return fd;
  const bool damaged =
      std::any_of(MapPins().begin(), MapPins().end(),
                  [&](const MapPin& map) { return pin == map.pin; });
  return ErrnoStatus(
      ENOENT,
      absl::StrCat(damaged ? "the meter is damaged: open " : "open ",
                   PathOf(pin)),
      damaged ? absl::StrCat("see: ", LoaderCommand("status", path_)) : "");
}

absl::Status PinDir::Pin(int fd, absl::string_view pin) const {
  const std::string path = PathOf(pin);
  const int error = bpf_obj_pin(fd, path.c_str());
  if (error == -EEXIST) return absl::OkStatus();
  if (error != 0) return ErrnoStatus(error, absl::StrCat("pin ", path));
  Trace("pinned ", path, ": ", Traced{fd});
  return absl::OkStatus();
}

// A rename in bpffs is atomic, as in any file system: a process that opens the
// path gets the old object or the new one, and the old object lives on for the
// processes that hold it.
absl::Status PinDir::Replace(int fd, absl::string_view pin) const {
  const std::string path = PathOf(pin), next = PathOf(NewPin(pin));
  unlink(next.c_str());
  if (int error = bpf_obj_pin(fd, next.c_str())) {
    return ErrnoStatus(error, absl::StrCat("pin ", next));
  }
  // Readers may open it as they opened the old one, at any time.
  struct stat old;
  if (stat(path.c_str(), &old) == 0 &&
      (chown(next.c_str(), old.st_uid, old.st_gid) != 0 ||
       chmod(next.c_str(), old.st_mode & 0777) != 0)) {
    return ErrnoStatus(errno, absl::StrCat("set the mode of ", next));
  }
  if (rename(next.c_str(), path.c_str()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("rename ", next));
  }
  Trace("pinned ", path, ": ", Traced{fd});
  return absl::OkStatus();
}

absl::Status PinDir::Remove(absl::string_view pin) const {
  const std::string path = PathOf(pin);
  if (unlink(path.c_str()) == 0 || errno == ENOENT) return absl::OkStatus();
  return ErrnoStatus(errno, absl::StrCat("remove ", path));
}

absl::StatusOr<std::vector<std::string>> PinDir::Find() const {
  NETMETER_ASSIGN_OR_RETURN(const auto names, ListDirectory(path_));
  const std::vector<std::string> known = EveryPin();
  std::vector<std::string> found;
  for (const std::string& pin : names) {
    const UniqueFd fd(bpf_obj_get(PathOf(pin).c_str()));
    if (std::find(known.begin(), known.end(), pin) != known.end() ||
        IdentifyObject(fd.get()).name ==
            ObjectNameOf(pin).substr(0, kKernelNameBytes)) {
      found.push_back(pin);
    }
  }
  return found;
}

absl::StatusOr<std::unique_ptr<LockedDirectory>> LockedDirectory::Lock(
    const std::string& pin_dir) {
  NETMETER_ASSIGN_OR_RETURN(UniqueFd lock,
                            LockDirectory(pin_dir, LOCK_EX, kLockTime));
  NETMETER_ASSIGN_OR_RETURN(LoaderState state,
                            ReadState(lock.get(), LockFile(pin_dir)));
  // Not make_unique: the constructor is private.
  std::unique_ptr<LockedDirectory> self(new LockedDirectory(pin_dir));
  self->lock_ = std::move(lock);
  self->state_ = std::move(state);
  Trace("locked ", LockFile(pin_dir));
  return self;
}

LockedDirectory::~LockedDirectory() {
  if (state_.config.empty()) {
    RemoveLockFile(pins_.path());
  }
}

absl::Status LockedDirectory::Make() const {
  const std::string& dir = pins_.path();
  if (IsOwnMount(dir)) return absl::OkStatus();
  NETMETER_RETURN_IF_ERROR(MakePinDirectory(dir));
  Trace("made ", dir);
  return absl::OkStatus();
}

absl::Status LockedDirectory::KeepConfig(const std::string& yaml,
                                         const std::string& cgroup) {
  if (state_.config == yaml && state_.cgroup == cgroup) return absl::OkStatus();
  const LoaderState state = {yaml, cgroup};
  const std::string file = LockFile(pins_.path());
  NETMETER_RETURN_IF_ERROR(WriteState(file, state, &lock_));
  state_ = state;
  Trace("wrote ", file);
  return absl::OkStatus();
}

}  // namespace internal
}  // namespace netmeter
