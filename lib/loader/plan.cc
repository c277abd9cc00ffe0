// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/plan.h"

#include <bpf/libbpf.h>
#include <string.h>
#include <time.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "bpf/internal.h"
#include "lib/base/clock.h"
#include "lib/base/path.h"
#include "lib/base/status_util.h"
#include "lib/base/version.h"
#include "lib/loader/forwarding.h"
#include "lib/loader/meter_object.h"
#include "lib/loader/probes.h"
#include "lib/loader/system.h"
#include "lib/loader/uplinks.h"
#include "lib/reader/shared_maps.h"

namespace netmeter {
namespace internal {
namespace {

template <size_t N>
void CopyText(absl::string_view text, char (&field)[N]) {
  memset(field, 0, N);
  memcpy(field, text.data(), std::min(text.size(), N - 1));
}

}  // namespace

absl::Status CountCells(Plan* plan) {
  // Possible CPUs and not online ones: a CPU that is plugged in later needs cells, too.
  const int cpus = libbpf_num_possible_cpus();
  if (cpus < 1) return ErrnoStatus(cpus, "count the possible CPUs");
  plan->num_cpus = static_cast<uint32_t>(cpus);
  plan->sizes.cells_per_series = plan->num_cpus + 1;
  return absl::OkStatus();
}

absl::Status CheckWhatIsAsked(Plan* plan) {
  NETMETER_RETURN_IF_ERROR(CheckConfig(plan->config));
  NETMETER_RETURN_IF_ERROR(CheckHost());
  if (plan->config.cgroup.empty()) return absl::OkStatus();
  // The path is compared with the lines of /proc/PID/cgroup.
  return OpenCgroup(CanonicalPath(plan->config.cgroup), &plan->cgroup);
}

absl::Status OpenDefaultCgroup(const LoaderState& before, Plan* plan) {
  if (!plan->config.cgroup.empty()) return absl::OkStatus();
  absl::StatusOr<std::string> path = before.cgroup;
  if (plan->existing.found) {
    path = TextOf(plan->existing.info.cgroup);
  } else if (before.cgroup.empty() && !plan->existing.rest.empty()) {
    return absl::FailedPreconditionError(
        "the cgroup of the leftover meter is unknown: give --cgroup");
  } else if (before.cgroup.empty()) {
    path = FindCgroupRoot();
  }
  if (!path.ok()) return path.status();
  const absl::Status opened = OpenCgroup(*path, &plan->cgroup);
  if (!absl::IsNotFound(opened)) return opened;
  return absl::NotFoundError(
      absl::StrCat(opened.message(),
                   plan->existing.found
                       ? " (the meter counts for it: create it again, or "
                       : " (the meter here counted for it: give --cgroup, or ",
                   LoaderCommand("unload", plan->config.pin_dir), " first)"));
}

absl::Status CheckCgroup(const PinDir& pins, Plan* plan) {
  ExistingMeter* const existing = &plan->existing;
  if (existing->info.cgroup_id == plan->cgroup.id) return absl::OkStatus();
  const std::string counted = TextOf(existing->info.cgroup);
  if (counted == plan->cgroup.path && CgroupIsGone(existing->info.cgroup_id)) {
    existing->moved = true;
    plan->notes.push_back(absl::StrCat(
        counted,
        " was removed and created again: attached again, counters kept"));
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      pins.path(), " counts for cgroup ", counted, ", not ", plan->cgroup.path,
      " (", LoaderCommand("unload", pins.path()),
      " first, or choose another --pin-dir)"));
}

absl::Status DecideSizes(const std::string& pin_dir, Plan* plan) {
  Config& config = plan->config;
  TableSizes& sizes = plan->sizes;
  const nm_info& info = plan->existing.info;
  const bool upgrade = plan->existing.found;
  const auto keep = [plan, &pin_dir](const char* what, uint32_t now,
                                     uint32_t* wanted) {
    if (*wanted == now) return;
    plan->notes.push_back(
        absl::StrCat(what, " stays ", now, " (", RestartCommand(pin_dir), ")"));
    *wanted = now;
  };
  if (upgrade) {
    const bool old = info.first_series == 0 || info.first_names == 0;
    if (old || info.cells_per_series != sizes.cells_per_series) {
      return absl::FailedPreconditionError(absl::StrCat(
          pin_dir,
          old ? " was loaded by an older version"
              : absl::StrCat(" was loaded for ", info.cells_per_series - 1,
                             " possible CPUs, now there are ", plan->num_cpus),
          " (", RestartCommand(pin_dir), ")"));
    }
    if (config.max_series < info.max_series) {
      keep("max_series", info.max_series, &config.max_series);
    }
    if (config.max_names < info.max_names) {
      keep("max_names", info.max_names, &config.max_names);
    }
    keep("max_processes", info.max_processes, &config.max_processes);
    if (RoundUpToPowerOfTwo(config.max_sockets) != info.max_sockets) {
      keep("max_sockets", info.max_sockets, &config.max_sockets);
    }
  }
  sizes.first_series = upgrade ? info.first_series : config.max_series;
  sizes.first_names = upgrade ? info.first_names : config.max_names;
  for (const auto& table :
       {std::make_tuple("max_series", config.max_series, sizes.first_series),
        std::make_tuple("max_names", config.max_names, sizes.first_names)}) {
    const uint32_t most = CeilingOf(std::get<2>(table));
    if (std::get<1>(table) <= most) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        std::get<0>(table), ": tables made for ", std::get<2>(table),
        " grow to ", most, " at most (", RestartCommand(pin_dir), ")"));
  }
  sizes.max_series = config.max_series;
  sizes.max_names = config.max_names;
  sizes.max_processes = config.max_processes;
  sizes.max_sockets = RoundUpToPowerOfTwo(config.max_sockets);
  return absl::OkStatus();
}

absl::Status DecideIdentity(Plan* plan) {
  absl::StatusOr<ReadAccess> access =
      DecideAccess(plan->config, &plan->features);
  if (!access.ok()) return access.status();
  plan->access = *access;
  absl::StatusOr<std::string> types = FindKernelTypes(plan->config.btf);
  if (!types.ok()) return types.status();
  plan->types_file = *std::move(types);
  if (!plan->config.btf.empty() && plan->types_file.empty()) {
    plan->notes.push_back("btf has no effect: the kernel has its own types");
  }
  plan->build_id = BuildId();
  plan->config_id =
      ConfigIdOf(plan->config, plan->cgroup.id,
                 plan->features.bits() | uint64_t{plan->access.gid} << 8);
  // Several mounts may name one cgroup, and the mount in the path may go away.
  plan->config_id =
      HashOf(absl::StrCat(plan->config_id, "|", plan->cgroup.path));
  // When the kernel shows its own types later, a load can turn on more features.
  if (!plan->types_file.empty()) {
    plan->config_id = HashOf(absl::StrCat(plan->config_id, "|types of a file"));
  }
  const absl::StatusOr<std::string> place =
      PlaceOfUplinks(plan->config.uplinks);
  if (!place.ok()) return place.status();
  if (!place->empty()) {
    plan->config_id = HashOf(
        absl::StrCat(plan->config_id, "|", *place, "|", ForwardingBuildId()));
  }
  absl::StatusOr<Registrants> registrants =
      FindRegistrants(plan->config.register_by);
  if (!registrants.ok()) return registrants.status();
  plan->registrants = *std::move(registrants);
  if (!plan->registrants.empty()) {
    plan->config_id =
        HashOf(absl::StrCat(plan->config_id, "|", TextOf(plan->registrants)));
  }
  return absl::OkStatus();
}

nm_info MakeInfo(const Plan& plan) {
  const Config& config = plan.config;
  nm_info info = {};
  info.magic = NM_MAGIC;
  info.abi_major = NM_ABI_MAJOR;
  info.abi_minor = NM_ABI_MINOR;
  info.info_size = sizeof(nm_info);
  info.cell_size = sizeof(nm_cell);
  info.name_size = sizeof(nm_name);
  info.stats_size = sizeof(nm_stats);
  info.tcp_size = sizeof(nm_tcp);
  info.cells_per_series = plan.sizes.cells_per_series;
  info.max_series = config.max_series;
  info.max_names = config.max_names;
  info.max_processes = config.max_processes;
  info.max_sockets = plan.sizes.max_sockets;
  info.first_series = plan.sizes.first_series;
  info.first_names = plan.sizes.first_names;
  info.series_extents =
      static_cast<nm_u8>(ExtentsFor(info.first_series, config.max_series));
  info.names_extents =
      static_cast<nm_u8>(ExtentsFor(info.first_names, config.max_names));
  info.loaded_ns = ClockNs(CLOCK_BOOTTIME);
  info.created_ns =
      plan.existing.found ? plan.existing.info.created_ns : info.loaded_ns;
  info.features = plan.features.bits();
  info.build_id = plan.build_id;
  // No configuration has id 0, so the next load finds something to do.
  info.config_id = plan.features.any_off_for_now() ? 0 : plan.config_id;
  info.cgroup_id = plan.cgroup.id;
  CopyText(kVersion, info.version);
  CopyText(KernelRelease(), info.kernel);
  CopyText(plan.cgroup.path, info.cgroup);
  CopyText(plan.features.reasons(), info.reasons);
  CopyText(absl::StrJoin(config.destination_suffixes, "\n"), info.suffixes);
  info.adds_received = static_cast<nm_u8>(1 + plan.adds.ingress);
  info.adds_sent = static_cast<nm_u8>(1 + plan.adds.egress);
  info.decimal_sizes = config.decimal_sizes ? 1 : 0;
  info.fold_unknown = config.fold_unknown_destinations ? 1 : 0;
  return info;
}

}  // namespace internal
}  // namespace netmeter
