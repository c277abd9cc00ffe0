// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/existing.h"

#include <bpf/bpf.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/kernel_object.h"
#include "lib/base/status_util.h"
#include "lib/base/unique_fd.h"
#include "lib/loader/meter_object.h"
#include "lib/loader/pin_dir.h"
#include "lib/loader/retry.h"
#include "lib/loader/step.h"
#include "lib/loader/system.h"
#include "lib/reader/shared_maps.h"

namespace netmeter {
namespace internal {
namespace {

// Reads the info of a meter that can be upgraded, or finds that there is none.
absl::Status ReadExistingInfo(const PinDir& pins, ExistingMeter* existing) {
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
  existing->info = read;
  existing->found = true;
  Step("found a meter of version ", TextOf(read.version), ": ",
       Describe(info.get()));
  return absl::OkStatus();
}

// FailedPrecondition if the directory is below another meter's. An unload of that meter
// would leave its file system mounted because of the foreign pins in it.
absl::Status CheckForMeterAbove(const PinDir& pins) {
  // Uses the path without symbolic links, because parents are compared by path. The
  // directory itself need not exist yet.
  std::string there = pins.path();
  char* real = realpath(there.c_str(), nullptr);
  while (real == nullptr && there.rfind('/') != 0 &&
         there.rfind('/') != std::string::npos) {
    there.resize(there.rfind('/'));
    real = realpath(there.c_str(), nullptr);
  }
  std::string above = absl::StrCat(real == nullptr ? "" : real,
                                   pins.path().substr(there.size()));
  free(real);
  for (size_t slash = above.rfind('/'); slash != std::string::npos && slash > 0;
       slash = above.rfind('/')) {
    above.resize(slash);
    const absl::StatusOr<bool> bpffs = LookForBpffs(above);
    if (!bpffs.ok()) return bpffs.status();
    if (!*bpffs) continue;
    const auto theirs = PinDir(above).FindOurs(LoaderState());
    // These pins belong to other programs and do not matter here.
    if (absl::IsFailedPrecondition(theirs.status())) continue;
    if (!theirs.ok()) return theirs.status();
    if (theirs->empty()) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(pins.path(), " is below ", above,
                     ", which is another meter's: choose another --pin-dir"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status FindExisting(const PinDir& pins, const LoaderState& state,
                          bool restart, ExistingMeter* existing) {
  absl::StatusOr<std::vector<std::string>> ours = pins.FindOurs(state);
  if (!ours.ok()) return ours.status();
  if (!restart) NETMETER_RETURN_IF_ERROR(ReadExistingInfo(pins, existing));
  if (existing->found) return absl::OkStatus();
  if (restart && !ours->empty()) {
    const std::vector<std::string> newer = pins.FindNewer();
    ours->insert(ours->begin(), newer.begin(), newer.end());
  }
  NETMETER_RETURN_IF_ERROR(CheckForMeterAbove(pins));
  existing->rest = *std::move(ours);
  return absl::OkStatus();
}

// The first link that a load attaches counts nothing, so it can go late.
std::vector<std::string> OrderOfRemoval(const std::vector<std::string>& pins) {
  const auto rank = [&pins](const std::string& pin) {
    if (pin == "info") return 3;
    if (!absl::StartsWith(pin, "link_")) return 1;
    for (const LinkPin& link : LinkPins()) {
      if (std::find(pins.begin(), pins.end(), link.pin) == pins.end()) continue;
      return pin == link.pin ? 2 : 0;
    }
    return 0;
  };
  std::vector<std::string> order(pins.rbegin(), pins.rend());
  std::stable_sort(order.begin(), order.end(),
                   [&](const std::string& a, const std::string& b) {
                     return rank(a) < rank(b);
                   });
  return order;
}

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
  Step("closed ", Describe(fd.get()));
  return absl::OkStatus();
}

absl::Status RemoveRest(const ExistingMeter& existing, const PinDir& pins) {
  NETMETER_RETURN_IF_ERROR(TellReaders(pins));
  for (const std::string& pin : OrderOfRemoval(existing.rest)) {
    NETMETER_RETURN_IF_ERROR(pins.Remove(pin));
    Step("removed ", pins.PathOf(pin), ", left by a load or an unload");
  }
  return absl::OkStatus();
}

std::vector<std::string> FindMissingLinks(const PinDir& pins,
                                          const nm_info& info) {
  std::vector<std::string> missing;
  for (const LinkPin& link : LinkPins()) {
    const std::string path = pins.PathOf(link.pin);
    // Only root can inspect a link.
    if (geteuid() == 0 ? IsAttached(path, info.cgroup_id)
                       : access(path.c_str(), F_OK) == 0) {
      continue;
    }
    if (link.feature == 0 || (info.features & link.feature) != 0) {
      missing.push_back(link.pin);
    }
  }
  for (const char* link : kForwardLinks) {
    if ((info.features & NM_FEATURE_FORWARDED) != 0 && !pins.Has(link)) {
      missing.push_back(link);
    }
  }
  return missing;
}

bool IsRestOfMeter(const PinDir& pins) {
  const UniqueFd fd(bpf_obj_get(pins.PathOf("info").c_str()));
  nm_info info = {};
  if (fd.ok() && ReadOnlyValue(fd.get(), &info)) {
    return info.magic == NM_MAGIC && !info.closed;
  }
  return std::any_of(LinkPins().begin(), LinkPins().end(),
                     [&](const LinkPin& link) { return pins.Has(link.pin); });
}

}  // namespace internal
}  // namespace netmeter
