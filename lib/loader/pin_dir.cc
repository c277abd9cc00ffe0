// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/pin_dir.h"

#include <bpf/bpf.h>
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
#include "lib/loader/object.h"
#include "lib/loader/trace.h"
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

// Without CAP_SYS_ADMIN a process may open a pinned link, but not its program,
// which is reachable only by its id (BPF_PROG_GET_FD_BY_ID). Before 5.19 even
// the link needs CAP_BPF. Both calls fail with EPERM, also for root in a
// container. EPERM does not tell whose link it is.
absl::Status CheckRefusal(const Opened& opened, const std::string& path) {
  if (opened.ours || opened.error != EPERM) return absl::OkStatus();
  if (!opened.fd.ok()) {
    return ErrnoStatus(EPERM, absl::StrCat("open ", path),
                       geteuid() == 0 ? "needs CAP_BPF" : "run as root");
  }
  return ErrnoStatus(EPERM, absl::StrCat("open the program of ", path),
                     geteuid() == 0 ? "needs CAP_SYS_ADMIN" : "run as root");
}

// Retries, because a link of ours must not be taken for a foreign one when the
// kernel is short of memory for a moment.
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
  Trace("pinned ", path, ": ", Describe(fd));
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
  if (rename(next.c_str(), path.c_str()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("rename ", next));
  }
  Trace("pinned ", path, ": ", Describe(fd));
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
  absl::StatusOr<std::vector<std::string>> names = ListDirectory(path_);
  if (!names.ok()) return names.status();
  const std::vector<std::string> known = EveryPin();
  bool ours = false;
  for (const std::string& pin : *names) {
    const std::string path = PathOf(pin);
    const absl::string_view expected = absl::StripSuffix(pin, kNewSuffix);
    const Opened opened = OpenExpected(path, expected);
    const int fd = opened.fd.get();
    const int error = opened.error;
    if (!opened.fd.ok() && error == ENOENT) continue;
    if (!opened.ours) {
      if (std::find(known.begin(), known.end(), pin) == known.end()) continue;
      NETMETER_RETURN_IF_ERROR(CheckRefusal(opened, path));
      if (error == EACCES && geteuid() != 0) {
        return ErrnoStatus(error, absl::StrCat("open ", path), "run as root");
      }
      if (error != 0 && !IsNoObject(error)) {
        return ErrnoStatus(error, absl::StrCat("open ", path));
      }
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

// The reverse of the order of a load, except the first link: it counts nothing,
// so it can go late, and shows until then that the maps are ours. After it
// `info` shows that.
std::vector<std::string> OrderOfRemoval(const std::vector<std::string>& pins) {
  const auto& links = LinkPins();
  const auto position = [&links](const std::string& pin) {
    return std::find_if(
        links.begin(), links.end(),
        [&pin](const LinkPin& link) { return link.pin == pin; });
  };
  auto first = links.end();
  for (const std::string& pin : pins) first = std::min(first, position(pin));
  const auto rank = [&](const std::string& pin) {
    if (pin == "info") return kLinkPins + 3;
    if (!absl::StartsWith(pin, "link_")) return kLinkPins + 1;
    const auto at = position(pin);
    return at != links.end() && at == first
               ? kLinkPins + 2
               : static_cast<size_t>(links.end() - at);
  };
  std::vector<std::string> order = pins;
  std::stable_sort(order.begin(), order.end(),
                   [&](const std::string& a, const std::string& b) {
                     return rank(a) < rank(b);
                   });
  return order;
}

bool HasLeftoverMeter(const PinDir& pins) {
  const UniqueFd fd(bpf_obj_get(pins.PathOf("info").c_str()));
  nm_info info = {};
  if (fd.ok() && ReadOnlyValue(fd.get(), &info)) {
    return info.magic == NM_MAGIC && !info.closed;
  }
  return std::any_of(LinkPins().begin(), LinkPins().end(),
                     [&](const LinkPin& link) { return pins.Has(link.pin); });
}

namespace {

// Reads the info of a meter that can be upgraded, or finds that there is none.
absl::Status ReadInfo(const PinDir& pins, LoadedMeter* meter) {
  const std::string path = pins.PathOf("info");
  UniqueFd info(bpf_obj_get(path.c_str()));
  if (!info.ok()) {
    return errno == ENOENT ? absl::OkStatus()
                           : ErrnoStatus(errno, absl::StrCat("open ", path));
  }
  nm_info read = {};
  bpf_map_info about = {};
  const uint32_t zero = 0;
  if (!GetInfo(info.get(), &about)) {
    return ErrnoStatus(errno, absl::StrCat("look at ", path));
  }
  const bool fits =
      about.type == BPF_MAP_TYPE_ARRAY && about.value_size == sizeof(read);
  if (fits && bpf_map_lookup_elem(info.get(), &zero, &read) != 0) {
    return ErrnoStatus(errno, absl::StrCat("read ", path));
  }
  if (!fits || read.magic != NM_MAGIC || read.abi_major != NM_ABI_MAJOR ||
      read.tcp_size != sizeof(nm_tcp)) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, " is not of this version's ABI (run the loader that made it: ",
        LoaderCommand("unload", pins.path()), "; or ",
        RestartCommand(pins.path()), ")"));
  }
  if (read.closed) return absl::OkStatus();  // an unload was killed
  meter->info = read;
  meter->found = true;
  Trace("found a meter of version ", TextOf(read.version), ": ",
        Describe(info.get()));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LoadedMeter> FindMeter(const PinDir& pins,
                                      const LoaderState& state, bool restart) {
  absl::StatusOr<std::vector<std::string>> ours = pins.FindOurs(state);
  if (!ours.ok()) return ours.status();
  LoadedMeter meter;
  if (!restart) NETMETER_RETURN_IF_ERROR(ReadInfo(pins, &meter));
  if (!meter.found) meter.leftover = *std::move(ours);
  return meter;
}

absl::StatusOr<std::unique_ptr<LockedDirectory>> LockedDirectory::Lock(
    const std::string& pin_dir) {
  NETMETER_RETURN_IF_ERROR(CheckDirectory(pin_dir));
  absl::StatusOr<UniqueFd> lock = LockDirectory(pin_dir, LOCK_EX, kLockTime);
  if (!lock.ok()) return lock.status();
  absl::StatusOr<LoaderState> state = ReadState(lock->get(), LockFile(pin_dir));
  if (!state.ok()) return state.status();
  // Not make_unique: the constructor is private.
  std::unique_ptr<LockedDirectory> self(new LockedDirectory(pin_dir));
  self->lock_ = std::move(*lock);
  self->state_ = *std::move(state);
  Trace("locked ", LockFile(pin_dir));
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
    // The device of a mount is known only afterwards. 0 means that the mount
    // was about to be made.
    state_.mounted = true;
    state_.device = 0;
  }
  NETMETER_RETURN_IF_ERROR(WriteDown());
  NETMETER_RETURN_IF_ERROR(PrepareDirectory(dir));
  struct stat about;
  if (!*bpffs && stat(dir.c_str(), &about) == 0) {
    state_.device = about.st_dev;
    NETMETER_RETURN_IF_ERROR(WriteDown());
  }
  Trace("made ", dir);
  return absl::OkStatus();
}

absl::Status LockedDirectory::KeepConfig(const std::string& yaml,
                                         const std::string& cgroup) {
  if (state_.config == yaml && state_.cgroup == cgroup) return absl::OkStatus();
  state_.config = yaml;
  state_.cgroup = cgroup;
  NETMETER_RETURN_IF_ERROR(WriteDown());
  Trace("wrote ", LockFile(pins_.path()));
  return absl::OkStatus();
}

}  // namespace internal
}  // namespace netmeter
