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

// Whether a map is the info of a meter, of whatever version.
bool IsInfo(int fd) {
  std::vector<char> value;
  if (!ReadWholeValue(fd, &value)) return false;
  nm_info info = {};
  memcpy(&info, value.data(), std::min(value.size(), sizeof(info)));
  return info.magic == NM_MAGIC;
}

// Whether a map of this name is a meter's interfaces. A loader of before uplinks
// leaves them behind where it unloads a meter in a BPF file system of others.
bool IsInterfaces(int fd) {
  bpf_map_info about = {};
  return GetInfo(fd, &about) && about.type == BPF_MAP_TYPE_HASH &&
         about.key_size == sizeof(nm_interface_key) &&
         about.value_size == sizeof(nm_interface);
}

// The program of a link may be a variant: nm_egress_claim at link_egress.
bool IsNameOf(const std::string& name, absl::string_view pin) {
  const std::string ours = ObjectNameOf(pin).substr(0, kKernelNameBytes);
  return name == ours || (absl::StartsWith(pin, "link_") &&
                          absl::StartsWith(name, absl::StrCat(ours, "_")));
}

// Of a meter. What only work in progress has may be missing.
bool MustBeThere(absl::string_view pin) {
  for (const MapPin& map : MapPins()) {
    if (pin == map.pin) return true;
  }
  return false;
}

struct Opened {
  UniqueFd fd;
  int error = 0;      // if there is no descriptor, or it cannot be looked at
  bool ours = false;  // it is the object that belongs there
};

// Of bpf(2): it is no object of BPF, or one that nobody may open so. All others are
// of this moment, and say nothing of what is there.
bool IsNoObject(int error) {
  return error == EACCES || error == EINVAL || error == ELOOP;
}

// Who has no CAP_SYS_ADMIN may open a link that is pinned, and not its program, which
// there is only by its id (BPF_PROG_GET_FD_BY_ID). Before 5.19 he needs CAP_BPF even for
// the link. Both say EPERM, as to root in a container, and nothing of whose the link is.
absl::Status CheckRefusal(const Opened& opened, const std::string& path) {
  if (opened.ours || opened.error != EPERM) return absl::OkStatus();
  if (!opened.fd.ok()) {
    return ErrnoStatus(EPERM, absl::StrCat("open ", path),
                       geteuid() == 0 ? "needs CAP_BPF" : "run as root");
  }
  return ErrnoStatus(EPERM, absl::StrCat("open the program of ", path),
                     geteuid() == 0 ? "needs CAP_SYS_ADMIN" : "run as root");
}

// More than once: where the kernel has no memory at this moment, ours must not be
// taken for another's.
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

// A kill while these are removed in this order leaves either a link, by which
// the rest is known as ours, or maps of which `info` is still there.
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
  append(kInterfacesPin);
  for (const ExtentPin& extent : ExtentPins()) append(extent.pin);
  for (const MapPin& map : MapPins()) append(map.pin);
  return pins;
}

std::string PinDir::PathOf(absl::string_view pin) const {
  return absl::StrCat(path_, "/", pin);
}

// Without opening it: also for those who may not. What cannot be looked at is taken
// for there: who opens it gets the error, and nothing is taken for done.
bool PinDir::Has(absl::string_view pin) const {
  const std::string path = PathOf(pin);
  for (int i = 0; i < kTries; i++) {
    if (access(path.c_str(), F_OK) == 0) return true;
    if (errno == ENOENT || errno == ENOTDIR) return false;
    if (errno == EACCES && geteuid() != 0) return false;
  }
  return true;
}

absl::StatusOr<bool> PinDir::IsOurs(absl::string_view at,
                                    absl::string_view pin) const {
  const std::string path = PathOf(at);
  struct stat about;
  if (lstat(path.c_str(), &about) != 0) {
    if (errno == ENOENT) return false;
    return ErrnoStatus(errno, absl::StrCat("look at ", path));
  }
  if (!S_ISREG(about.st_mode) || about.st_uid != 0) return false;
  if (geteuid() != 0) return true;
  const Opened opened = OpenExpected(path, pin);
  if (opened.ours) return true;
  NETMETER_RETURN_IF_ERROR(CheckRefusal(opened, path));
  const int error = opened.error;
  if (error == 0 || error == ENOENT || IsNoObject(error)) return false;
  return ErrnoStatus(error, absl::StrCat("open ", path));
}

bool PinDir::HasOurs(absl::string_view at, absl::string_view pin) const {
  return Has(at) && IsOurs(at, pin).value_or(true);
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

// bpffs renames as any file system: whoever opens the path gets the one or the
// other, and the old object lives on for those who have it.
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
    // A file of another file system is ours in no case: bpf(2) says EACCES.
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
          path, " is not ours (",
          opened.fd.ok() ? Describe(fd) : std::string("no object of BPF"),
          "): choose another --pin-dir"));
    }
    ours |= absl::StartsWith(expected, "link_") ||
            (expected == "info" && IsInfo(fd)) ||
            (pin == kInterfacesPin && IsInterfaces(fd));
    found.push_back(pin);
  }
  // Maps of the right names, and nothing that tells whose they are.
  if (!found.empty() && !ours && !IsOwnMount(path_, state)) {
    const std::string path = PathOf(found[0]);
    return absl::FailedPreconditionError(absl::StrCat(
        path, " is not ours (",
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
