// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/existing.h"

#include <bpf/bpf.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "lib/core/shared_maps.h"
#include "lib/core/status_util.h"
#include "lib/core/unique_fd.h"
#include "lib/loader/kernel_object.h"
#include "lib/loader/pin_dir.h"
#include "lib/loader/step.h"
#include "lib/loader/switch.h"
#include "lib/loader/system.h"

namespace netmeter {
namespace internal {
namespace {

// Reads the info of a meter that may be upgraded, or finds that there is none.
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
        LoaderCommand("unload", pins.path()), ")"));
  }
  if (read.closed) return absl::OkStatus();  // an unload was killed
  existing->info = read;
  existing->found = true;
  Step("found a meter of version ", TextOf(read.version), ": ",
       Describe(info.get()));
  return absl::OkStatus();
}

// FailedPrecondition if the directory is below that of another meter: the unload of that
// one would leave its file system, for the foreign pins in it.
absl::Status CheckForMeterAbove(const PinDir& pins) {
  // By the path without links: what is above that is above the directory.
  char* const real = realpath(pins.path().c_str(), nullptr);
  std::string above = real == nullptr ? pins.path() : real;
  free(real);
  for (size_t slash = above.rfind('/'); slash != std::string::npos && slash > 0;
       slash = above.rfind('/')) {
    above.resize(slash);
    const absl::StatusOr<bool> bpffs = LookForBpffs(above);
    if (!bpffs.ok()) return bpffs.status();
    if (!*bpffs) continue;
    const auto theirs = PinDir(above).FindOurs(LoaderState());
    // Pins of others, which are no concern of ours.
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

absl::Status FindExisting(Transaction* transaction, ExistingMeter* existing) {
  const PinDir& pins = transaction->pins();
  absl::StatusOr<std::vector<std::string>> ours =
      pins.FindOurs(transaction->state());
  if (ours.ok() && !ours->empty() && IsSwitching(pins)) {
    NETMETER_RETURN_IF_ERROR(SettleTables(pins));
    ours = pins.FindOurs(transaction->state());
  }
  if (!ours.ok()) return ours.status();
  NETMETER_RETURN_IF_ERROR(ReadExistingInfo(pins, existing));
  if (existing->found) {
    transaction->KeepOnFailure();
    return absl::OkStatus();
  }
  NETMETER_RETURN_IF_ERROR(CheckForMeterAbove(pins));
  existing->rest = *std::move(ours);
  if (existing->rest.empty()) transaction->FoundNothing(false);
  return absl::OkStatus();
}

absl::Status RemoveRest(const ExistingMeter& existing,
                        Transaction* transaction) {
  if (existing.rest.empty()) return absl::OkStatus();
  transaction->FoundNothing(true);
  // Links first, so that no program counts into maps that nobody sees.
  for (const std::string& pin : existing.rest) {
    const std::string path = transaction->pins().PathOf(pin);
    if (unlink(path.c_str()) != 0 && errno != ENOENT) {
      return ErrnoStatus(errno, absl::StrCat("unpin ", path));
    }
    Step("removed ", path, ", the rest of a load or an unload that was killed");
  }
  return absl::OkStatus();
}

std::vector<std::string> FindMissingLinks(const PinDir& pins,
                                          const nm_info& info) {
  std::vector<std::string> missing;
  for (const LinkPin& link : LinkPins()) {
    const std::string path = pins.PathOf(link.pin);
    // Only root can look into a link.
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
  for (const LinkPin& link : LinkPins()) {
    if (pins.Has(link.pin)) return true;
  }
  const UniqueFd fd(bpf_obj_get(pins.PathOf("info").c_str()));
  nm_info info = {};
  return fd.ok() && ReadOnlyValue(fd.get(), &info) && info.magic == NM_MAGIC &&
         !info.closed;
}

}  // namespace internal
}  // namespace netmeter
