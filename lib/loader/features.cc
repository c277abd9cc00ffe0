// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/features.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "lib/base/privileges.h"
#include "lib/base/status_util.h"
#include "lib/base/users.h"
#include "lib/loader/step.h"
#include "lib/loader/system.h"
#include "lib/reader/pins.h"
#include "netmeter/abi.h"

namespace netmeter {
namespace internal {
namespace {

const char* NameOf(uint64_t bit) {
  for (const Feature& feature : Features()) {
    if (feature.bit == bit) return feature.name;
  }
  return "unknown";
}

// The owner of a file may give it to one of its own groups, and needs CAP_CHOWN for other
// groups, chown(2).
absl::Status SetMode(const std::string& path, uid_t uid, gid_t gid,
                     mode_t mode) {
  if (chown(path.c_str(), uid, gid) != 0) {
    const int error = errno;
    return ErrnoStatus(error, absl::StrCat("give ", path, " to group ", gid),
                       error == EPERM ? "needs CAP_CHOWN" : "");
  }
  if (chmod(path.c_str(), mode) != 0) {
    return ErrnoStatus(errno, absl::StrCat("set the mode of ", path));
  }
  return absl::OkStatus();
}

}  // namespace

const std::vector<Feature>& Features() {
  static const auto* const features = new std::vector<Feature>{
      {"process_tracking", NM_FEATURE_PROCESS_TRACKING},
      {"socket_table", NM_FEATURE_SOCKET_TABLE},
      {"control_channel", NM_FEATURE_CONTROL},
      {"group_access", NM_FEATURE_GROUP_ACCESS},
      {"mptcp", NM_FEATURE_MPTCP},
      {"places", NM_FEATURE_PLACES},
      {"forwarded", NM_FEATURE_FORWARDED},
  };
  return *features;
}

void TurnOffWhatItLacks(const MeterObject& object, FeatureSet* features) {
  if (!object.follows_mptcp()) {
    features->TurnOff(NM_FEATURE_MPTCP,
                      "the kernel has no MPTCP, or does not tell the owner of "
                      "a subflow (Linux 5.19 does): unattributed");
  }
  if (!object.may_read_places()) {
    features->TurnOff(NM_FEATURE_PLACES,
                      "lockdown=confidentiality, or no process_tracking: no "
                      "names by unit or container");
  }
}

// Text beyond NM_REASONS_BYTES is cut off in info, not here.
void FeatureSet::TurnOff(uint64_t bit, absl::string_view reason) {
  bits_ &= ~bit;
  absl::StrAppend(&reasons_, NameOf(bit), ": ", reason, "\n");
  notes_.push_back(absl::StrCat(NameOf(bit), " is off: ", reason));
}

void FeatureSet::TurnOffForNow(uint64_t bit, absl::string_view reason) {
  TurnOff(bit, reason);
  any_off_for_now_ = true;
}

void FeatureSet::Remark(uint64_t bit, absl::string_view remark) {
  const std::string line = absl::StrCat(NameOf(bit), ": ", remark);
  absl::StrAppend(&reasons_, line, "\n");
  notes_.push_back(line);
}

absl::StatusOr<ReadAccess> DecideAccess(const Config& config,
                                        FeatureSet* features) {
  ReadAccess access;
  auto root_only = [&](absl::string_view reason) {
    features->TurnOff(NM_FEATURE_GROUP_ACCESS, reason);
    return access;
  };
  if (config.group.empty()) {
    return root_only("no group is configured: root only");
  }
  absl::StatusOr<gid_t> group = FindGroup(config.group);
  if (!group.ok()) {
    if (config.group_required) return group.status();
    return root_only(absl::StrCat(group.status().message(), ": root only"));
  }
  access.gid = *group;
  if (UnprivilegedBpfDisabled() == 0) {
    // Freezing stops bpf(2) and mmap(2), but no program. With this setting any user may
    // load a socket filter, which could write any map that the user can open.
    return root_only(
        "kernel.unprivileged_bpf_disabled is 0, so readers could write: root "
        "only (run: sysctl kernel.unprivileged_bpf_disabled=2)");
  }
  access.group = true;
  // The pins get the group anyway: another kernel may be booted tomorrow, and
  // netmeter-fds takes its group from the pins.
  const absl::StatusOr<bool> direct = UsersMayOpenPins();
  if (!direct.ok()) return direct.status();
  if (!*direct) {
    features->Remark(NM_FEATURE_GROUP_ACCESS,
                     "this kernel refuses bpf(2) to users: they read through "
                     "netmeter-fds");
  }
  return access;
}

absl::Status SetModes(const PinDir& pins, const ReadAccess& access,
                      bool own_directory) {
  const gid_t gid = access.group ? access.gid : 0;
  const auto set = [&](const char* pin, bool may_be_shared) {
    const bool shared = may_be_shared && access.group;
    // 0660: a map that is opened read-only cannot be mapped.
    return SetMode(pins.PathOf(pin), 0, shared ? gid : 0, shared ? 0660 : 0600);
  };
  for (const ExtentPin& map : ExtentPins()) {
    if (!pins.Has(map.pin)) continue;
    NETMETER_RETURN_IF_ERROR(set(map.pin, true));
  }
  for (const MapPin& map : MapPins()) {
    if (map.reader == kInfo && !pins.Has(map.pin))
      continue;  // it is pinned last
    NETMETER_RETURN_IF_ERROR(set(map.pin, map.shared()));
  }
  // The directory belongs to the owner of that BPF file system.
  if (!own_directory) return absl::OkStatus();
  const std::string& dir = pins.path();
  NETMETER_RETURN_IF_ERROR(SetMode(dir, 0, gid, access.group ? 0750 : 0700));
  Step("set the modes below ", dir, ": ",
       access.group ? absl::StrCat("group ", gid, " may read") : "root only");
  return absl::OkStatus();
}

}  // namespace internal
}  // namespace netmeter
