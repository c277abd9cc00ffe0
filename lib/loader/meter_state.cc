// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/meter_state.h"

#include <bpf/bpf.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "lib/base/cgroup.h"
#include "lib/base/kernel_object.h"
#include "lib/base/pins.h"
#include "lib/base/status_util.h"
#include "lib/base/unique_fd.h"
#include "lib/loader/tables.h"

namespace netmeter {
namespace internal {
namespace {

// False if the directory is closed to the caller, its file system is not
// mounted in the caller's container, or a seccomp filter refuses bpf(2). Such a
// caller gets the maps from netmeter-fds.
bool SeesPins(const PinDir& pins) {
  struct statfs about;
  if (statfs(pins.path().c_str(), &about) != 0 ||
      static_cast<unsigned long>(about.f_type) != BPF_FS_MAGIC ||
      access(pins.path().c_str(), X_OK) != 0) {
    return false;
  }
  // Users only check the names.
  if (geteuid() != 0) return true;
  const UniqueFd info(bpf_obj_get(pins.PathOf("info").c_str()));
  return info.ok() || (errno != EPERM && errno != EACCES && errno != ENOSYS);
}

// All zero if `info` is of another ABI.
absl::Status ReadInfo(const PinDir& pins, int fd, nm_info* info) {
  if (!ReadOnlyValue(fd, info) && errno != EINVAL) {
    return ErrnoStatus(errno, absl::StrCat("read ", pins.PathOf("info")));
  }
  if (info->info_size < NM_INFO_LEAST_BYTES || info->magic != NM_MAGIC ||
      info->abi_major != NM_ABI_MAJOR || info->tcp_size != sizeof(nm_tcp)) {
    *info = {};
  }
  return absl::OkStatus();
}

// The features in `info` say which optional links must exist: a meter on a kernel without
// tracing programs misses nothing.
void FindMissingLinks(const PinDir& pins, FoundMeter* meter) {
  for (const LinkPin& link : LinkPins()) {
    if (link.feature != 0 && !meter->has(link.feature)) continue;
    // Only root can inspect a link.
    if (geteuid() == 0
            ? IsAttached(pins.PathOf(link.pin), meter->info.cgroup_id)
            : access(pins.PathOf(link.pin).c_str(), F_OK) == 0) {
      continue;
    }
    meter->missing_links.push_back(link.pin);
  }
  if (!meter->has(NM_FEATURE_FORWARDED)) return;
  for (const char* link : kForwardLinks) {
    if (!pins.Has(link)) meter->missing_links.push_back(link);
  }
}

// The maps that `info` lists and that have no pin. Returns whether readers need one.
bool FindMissingMaps(const PinDir& pins, FoundMeter* meter) {
  bool lost = false;
  const auto look = [&](const char* pin, bool kept, bool shared) {
    if (pins.Has(pin)) return;
    meter->missing_maps.push_back(pin);
    meter->needs_restart |= kept;
    lost |= shared;
  };
  for (const MapPin& map : MapPins()) look(map.pin, map.kept, map.shared());
  for (const ExtentPin& map : ExtentPins()) {
    if (IsUsed(map, meter->info)) look(map.pin, true, true);
  }
  if (!meter->has(NM_FEATURE_FORWARDED)) return lost;
  for (const char* pin : {kForwardersPin, kForwardedPin, kForwardedByPin}) {
    look(pin, false, false);
  }
  return lost;
}

}  // namespace

absl::StatusOr<FoundMeter> FindMeter(const PinDir& pins, const nm_info* seen) {
  FoundMeter meter;
  nm_info& info = meter.info;
  absl::Status read;
  if (seen != nullptr) {
    info = *seen;
    meter.sees_pins = SeesPins(pins);
  } else {
    const absl::StatusOr<UniqueFd> fd = pins.OpenIfPinned("info");
    if (fd.ok() && !fd->ok()) {
      if (std::any_of(
              LinkPins().begin(), LinkPins().end(),
              [&](const LinkPin& link) { return pins.Has(link.pin); })) {
        meter.state = MeterState::kWithoutInfo;
        meter.missing_maps = {"info"};
      }
      return meter;
    }
    read = fd.ok() ? ReadInfo(pins, fd->get(), &info) : fd.status();
    if (read.ok() && info.magic == 0) {
      meter.state = MeterState::kOtherAbi;
      return meter;
    }
    // A caller that may only look at names can still find that one is missing.
    if (!read.ok() && !(absl::IsPermissionDenied(read) && pins.Has("info"))) {
      return read;
    }
  }
  if (meter.sees_pins && FindMissingMaps(pins, &meter) && seen == nullptr) {
    if (info.closed == 0) meter.state = MeterState::kLost;
    return meter;
  }
  if (!read.ok()) return read;
  if (meter.sees_pins) FindMissingLinks(pins, &meter);
  meter.cgroup_gone = CgroupIsGone(info.cgroup_id);
  meter.state = info.closed != 0     ? MeterState::kClosed
                : info.build_id == 0 ? MeterState::kUnfinished
                : meter.cgroup_gone || !meter.missing_links.empty() ||
                        !meter.missing_maps.empty()
                    ? MeterState::kDamaged
                    : MeterState::kLoaded;
  return meter;
}

}  // namespace internal
}  // namespace netmeter
