// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/pin_dir.h"

#include <bpf/bpf.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "bpf/internal.h"
#include "lib/base/kernel_object.h"
#include "lib/base/status_util.h"
#include "lib/loader/retry.h"
#include "lib/loader/step.h"
#include "lib/reader/pins.h"
#include "lib/reader/shared_maps.h"
#include "netmeter/abi.h"

namespace netmeter {
namespace internal {
namespace {

constexpr char kNewSuffix[] = "_new";
constexpr size_t kKernelNameBytes = 15;  // BPF_OBJ_NAME_LEN less the NUL

// Whether a map is the info of a meter of any version.
bool IsInfo(int fd) {
  std::vector<char> value;
  if (!ReadWholeValue(fd, &value)) return false;
  nm_info info = {};
  memcpy(&info, value.data(), std::min(value.size(), sizeof(info)));
  return info.magic == NM_MAGIC;
}

// The program of a link may be a variant: nm_egress_claim at link_egress.
bool IsNameOf(const std::string& name, absl::string_view pin) {
  const std::string ours = ObjectNameOf(pin).substr(0, kKernelNameBytes);
  return name == ours || (absl::StartsWith(pin, "link_") &&
                          absl::StartsWith(name, absl::StrCat(ours, "_")));
}

// Whether each meter has this pin. Pins of work in progress may be missing.
bool MustBeThere(absl::string_view pin) {
  for (const MapPin& map : MapPins()) {
    if (pin == map.pin) return true;
  }
  return false;
}

struct Opened {
  UniqueFd fd;
  int error = 0;      // if there is no descriptor, or it cannot be inspected
  bool ours = false;  // it is the object that belongs there
};

// Whether a bpf(2) error means that the file is no BPF object, or one that cannot be
// opened this way. All other errors are transient and say nothing about the object.
bool IsNoObject(int error) {
  return error == EACCES || error == EINVAL || error == ELOOP;
}

// Without CAP_SYS_ADMIN a process may open a pinned link, but not its program, which is
// reachable only by its id (BPF_PROG_GET_FD_BY_ID). Before 5.19 even the link needs
// CAP_BPF. Both calls fail with EPERM, also for root in a container. EPERM does not tell
// whose link it is.
absl::Status CheckRefusal(const Opened& opened, const std::string& path) {
  if (opened.ours || opened.error != EPERM) return absl::OkStatus();
  if (!opened.fd.ok()) {
    return ErrnoStatus(EPERM, absl::StrCat("open ", path),
                       geteuid() == 0 ? "needs CAP_BPF" : "run as root");
  }
  return ErrnoStatus(EPERM, absl::StrCat("open the program of ", path),
                     geteuid() == 0 ? "needs CAP_SYS_ADMIN" : "run as root");
}

// Retries, because a link of ours must not be taken for a foreign one when the kernel is
// short of memory for a moment.
Opened OpenExpected(const std::string& path, absl::string_view pin) {
  const KernelObject::Kind kind =
      absl::StartsWith(pin, "link_") ? KernelObject::kLink : KernelObject::kMap;
  Opened opened;
  for (int i = 0; i < kTries && !opened.ours; i++) {
    opened.fd = UniqueFd(bpf_obj_get(path.c_str()));
    opened.error = errno;
    if (!opened.fd.ok()) continue;
    const KernelObject object = IdentifyObject(opened.fd.get());
    opened.error = object.error;
    opened.ours = object.kind == kind && IsNameOf(object.name, pin);
  }
  return opened;
}

}  // namespace

std::string NewPin(absl::string_view pin) {
  return absl::StrCat(pin, kNewSuffix);
}

// If a removal in this order is killed, there is still either a link, which shows that
// the other pins are ours, or a set of maps with its `info`.
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
  append(kIdlePin);
  for (const ExtentPin& extent : ExtentPins()) append(extent.pin);
  for (const MapPin& map : MapPins()) append(map.pin);
  return pins;
}

std::string PinDir::PathOf(absl::string_view pin) const {
  return absl::StrCat(path_, "/", pin);
}

// Does not open the pin, so it works for users without permission. If the path cannot be
// checked, the pin counts as existing: the caller that opens it gets the error, and no
// caller skips work because of it.
bool PinDir::Has(absl::string_view pin) const {
  const std::string path = PathOf(pin);
  for (int i = 0; i < kTries; i++) {
    if (access(path.c_str(), F_OK) == 0) return true;
    if (errno == ENOENT || errno == ENOTDIR) return false;
    if (errno == EACCES && geteuid() != 0) return false;
  }
  return true;
}

absl::StatusOr<UniqueFd> PinDir::Open(absl::string_view pin) const {
  const std::string path = PathOf(pin);
  UniqueFd fd(bpf_obj_get(path.c_str()));
  if (fd.ok()) return fd;
  const int error = errno;
  if (error == ENOENT && MustBeThere(pin)) {
    return ErrnoStatus(error, absl::StrCat("the meter is damaged: open ", path),
                       absl::StrCat("see: ", LoaderCommand("status", path_)));
  }
  return ErrnoStatus(error, absl::StrCat("open ", path));
}

absl::Status PinDir::Pin(int fd, absl::string_view pin) const {
  const std::string path = PathOf(pin);
  if (int error = bpf_obj_pin(fd, path.c_str())) {
    return ErrnoStatus(error, absl::StrCat("pin ", path));
  }
  Step("pinned ", path, ": ", Describe(fd));
  return absl::OkStatus();
}

// A rename in bpffs is atomic, as in any file system: a process that opens the path gets
// the old object or the new one, and the old object lives on for the processes that hold
// it.
absl::Status PinDir::Replace(int fd, absl::string_view pin) const {
  const std::string path = PathOf(pin), next = PathOf(NewPin(pin));
  unlink(next.c_str());
  if (int error = bpf_obj_pin(fd, next.c_str())) {
    return ErrnoStatus(error, absl::StrCat("pin ", next));
  }
  if (rename(next.c_str(), path.c_str()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("rename ", next));
  }
  Step("pinned ", path, ": ", Describe(fd));
  return absl::OkStatus();
}

absl::Status PinDir::Remove(absl::string_view pin) const {
  const std::string path = PathOf(pin);
  int error = 0;
  for (int i = 0; i < kTries; i++) {
    if (unlink(path.c_str()) == 0 || errno == ENOENT) return absl::OkStatus();
    error = errno;
  }
  return ErrnoStatus(error, absl::StrCat("remove ", path));
}

absl::StatusOr<std::vector<std::string>> PinDir::FindOurs(
    const LoaderState& state) const {
  std::vector<std::string> found;
  bool ours = false;
  for (const std::string& pin : EveryPin()) {
    const std::string path = PathOf(pin);
    struct stat about;
    if (lstat(path.c_str(), &about) != 0) {
      if (errno == ENOENT) continue;
      return ErrnoStatus(errno, absl::StrCat("look at ", path));
    }
    // A file of another file system is never ours: bpf(2) says EACCES.
    const absl::string_view expected = absl::StripSuffix(pin, kNewSuffix);
    const Opened opened = OpenExpected(path, expected);
    const int fd = opened.fd.get();
    const int error = opened.error;
    if (!opened.fd.ok() && error == ENOENT) continue;
    NETMETER_RETURN_IF_ERROR(CheckRefusal(opened, path));
    if (error == EACCES && geteuid() != 0) {
      return ErrnoStatus(error, absl::StrCat("open ", path), "run as root");
    }
    if (!opened.ours && error != 0 && error != ENOENT && !IsNoObject(error)) {
      return ErrnoStatus(error, absl::StrCat("open ", path));
    }
    if (!opened.ours || !S_ISREG(about.st_mode)) {
      return absl::FailedPreconditionError(absl::StrCat(
          path, " does not belong to the meter (",
          opened.fd.ok() ? Describe(fd) : std::string("not a BPF object"),
          "): choose another --pin-dir"));
    }
    ours |= absl::StartsWith(expected, "link_") ||
            (expected == "info" && IsInfo(fd));
    found.push_back(pin);
  }
  // The maps have the right names, but nothing shows whose they are.
  if (!found.empty() && !ours && !IsOwnMount(path_, state)) {
    const std::string path = PathOf(found[0]);
    return absl::FailedPreconditionError(absl::StrCat(
        path, " does not belong to the meter (",
        Describe(UniqueFd(bpf_obj_get(path.c_str())).get()),
        ", without a meter's info beside it): choose another --pin-dir"));
  }
  return found;
}

std::vector<std::string> PinDir::FindNewer() const {
  std::vector<std::string> found;
  const std::vector<std::string> known = EveryPin();
  DIR* const handle = opendir(path_.c_str());
  if (handle == nullptr) return found;
  while (const dirent* entry = readdir(handle)) {
    const std::string pin = entry->d_name;
    if (entry->d_type != DT_REG ||
        std::find(known.begin(), known.end(), pin) != known.end()) {
      continue;
    }
    const absl::string_view expected = absl::StripSuffix(pin, kNewSuffix);
    if (OpenExpected(PathOf(pin), expected).ours) found.push_back(pin);
  }
  closedir(handle);
  return found;
}

}  // namespace internal
}  // namespace netmeter
