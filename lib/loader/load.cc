// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/load.h"
#include "lib/base/loader_command.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "lib/base/cgroup.h"
#include "lib/base/clock.h"
#include "lib/base/kernel_object.h"
#include "lib/base/libbpf_log.h"
#include "lib/base/path.h"
#include "lib/base/pins.h"
#include "lib/base/privileges.h"
#include "lib/base/status_util.h"
#include "lib/base/users.h"
#include "lib/base/version.h"
#include "lib/loader/adopt.h"
#include "lib/loader/config.h"
#include "lib/loader/hooks.h"
#include "lib/loader/lock_file.h"
#include "lib/loader/meter_state.h"
#include "lib/loader/object.h"
#include "lib/loader/pin_dir.h"
#include "lib/loader/system.h"
#include "lib/loader/tables.h"
#include "lib/loader/trace.h"
#include "lib/loader/unload.h"
#include "lib/loader/uplinks.h"
#include "lib/reader/shared_maps.h"
#include "netmeter/abi.h"

namespace netmeter {
namespace internal {
namespace {

// --- What to load -------------------------------------------------------------

// What a load is about to do. MakePlan() fills it and changes nothing on the host.
struct Plan {
  bool restart = false;  // do not continue a meter
  FoundMeter meter;
  bool upgrade = false;  // this load continues the meter
  bool moved = false;    // its cgroup was removed and created again
  // The pins of a meter that this load does not continue.
  std::vector<std::string> old_pins;
  Config config;                     // with the final sizes
  std::optional<Config> old_config;  // before this load, if it is known
  Cgroup cgroup;
  TableSizes sizes;
  std::optional<gid_t> readers;  // the group that may read; none: root only
  std::string types_file;        // empty: the kernel shows its own
  Registrants registrants;
  Adds adds;
  FeatureSet features{NM_FEATURE_SOCKET_TABLE | NM_FEATURE_CONTROL |
                      NM_FEATURE_PROCESS_TRACKING | NM_FEATURE_GROUP_ACCESS |
                      NM_FEATURE_MPTCP | NM_FEATURE_CGROUP_NAMES};
  uint64_t config_id = 0;
  std::vector<std::string> notes;
};

// Starts from the loaded configuration, or from that of a meter whose pins are gone.
absl::Status ChangeConfig(const LockedDirectory& directory,
                          const ConfigChange& change, bool replaces,
                          Plan* plan) {
  Config config;
  const std::string& kept = directory.state().config;
  const bool leftover =
      !plan->upgrade && (!kept.empty() || !plan->old_pins.empty());
  if (plan->upgrade || leftover) {
    absl::StatusOr<Config> loaded =
        ParseConfig(kept, "the loaded configuration", Config());
    if (loaded.ok() && !kept.empty()) {
      config = *loaded;
      config.sources = SourcesOf(kept);
      plan->old_config = config;
    } else if (!replaces) {
      // A load from the defaults would drop settings that only the old configuration has,
      // such as register_by, and would count for the whole host.
      return absl::FailedPreconditionError(absl::StrCat(
          "the loaded configuration is unknown (",
          LockFile(directory.pins().path()),
          " does not have it): give --config FILE, or --defaults"));
    }
  }
  if (leftover) {
    // Pins are missing if a first load was killed early, or an unload late.
    plan->notes.push_back(absl::StrCat(
        plan->old_pins.empty()
            ? "found only a configuration: loaded a new meter"
        : plan->restart ? "loaded a new meter, then unloaded the old one"
                        : "found an incomplete meter: loaded a new one",
        replaces ? "" : ", with its configuration", ", counters start again"));
  }
  change(&config);
  config.pin_dir = directory.pins().path();
  plan->config = config;
  for (const absl::string_view line : absl::StrSplit(
           ConfigAsYaml(config, Keys::kAll), '\n', absl::SkipEmpty())) {
    Trace("configuration: ", line);
  }
  return CheckConfig(config);
}

// Opens the cgroup that the configuration names. If it names none, a meter keeps its
// cgroup, or that of before it was damaged. A new meter counts for the whole host.
absl::Status FindCgroup(const LoaderState& before, Plan* plan) {
  absl::StatusOr<std::string> path = plan->config.cgroup;
  std::string hint;
  if (!path->empty()) {
    // The path is compared with the lines of /proc/PID/cgroup.
    path = CanonicalPath(*path);
  } else if (plan->upgrade) {
    path = TextOf(plan->meter.info.cgroup);
    hint = " (the meter counts for it: create it again, or ";
  } else if (!before.cgroup.empty()) {
    path = before.cgroup;
    hint = " (the meter here counted for it: give --cgroup, or ";
  } else if (!plan->old_pins.empty()) {
    return absl::FailedPreconditionError(
        "the cgroup of the leftover meter is unknown: give --cgroup");
  } else {
    path = FindCgroupRoot();
  }
  if (!path.ok()) return path.status();
  absl::StatusOr<Cgroup> opened = OpenCgroup(*path);
  if (opened.ok()) {
    plan->cgroup = *std::move(opened);
    return absl::OkStatus();
  }
  if (!absl::IsNotFound(opened.status()) || hint.empty()) {
    return opened.status();
  }
  return absl::NotFoundError(
      absl::StrCat(opened.status().message(), hint,
                   LoaderCommand("unload", plan->config.pin_dir), " first)"));
}

// A meter counts for one cgroup. If this cgroup was removed and created again, its
// programs are gone, and the load attaches them to the new cgroup.
absl::Status CheckCgroup(const PinDir& pins, Plan* plan) {
  const nm_info& info = plan->meter.info;
  if (info.cgroup_id == plan->cgroup.id) return absl::OkStatus();
  const std::string counted = TextOf(info.cgroup);
  if (counted == plan->cgroup.path && CgroupIsGone(info.cgroup_id)) {
    plan->moved = true;
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

// Decides the sizes of the tables. Existing tables keep their entries. FailedPrecondition
// if they cannot grow to the requested size.
absl::Status DecideSizes(const std::string& pin_dir, Plan* plan) {
  Config& config = plan->config;
  TableSizes& sizes = plan->sizes;
  const nm_info& info = plan->meter.info;
  const bool upgrade = plan->upgrade;
  // Possible CPUs and not online ones: a CPU that is plugged in later needs cells, too.
  const int cpus = libbpf_num_possible_cpus();
  if (cpus < 1) return ErrnoStatus(cpus, "count the possible CPUs");
  sizes.cells_per_series = static_cast<uint32_t>(cpus) + 1;
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
                             " possible CPUs, now there are ", cpus),
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

// Decides who may read, by the configuration and the kernel. The group may read only if
// it cannot write. NotFound if the configuration requires a group that does not exist.
absl::Status DecideAccess(const Config& config, Plan* plan) {
  const auto root_only = [plan](absl::string_view reason) {
    plan->features.TurnOff(NM_FEATURE_GROUP_ACCESS,
                           absl::StrCat(reason, ": root only"));
    return absl::OkStatus();
  };
  if (config.group.empty()) return root_only("no group is configured");
  const absl::StatusOr<gid_t> group = FindGroup(config.group);
  if (!group.ok()) {
    return config.group_required ? group.status()
                                 : root_only(group.status().message());
  }
  if (UnprivilegedBpfDisabled() == 0) {
    // Freezing stops bpf(2) and mmap(2), but no program. With this setting any user may
    // load a socket filter, which could write any map that the user can open.
    plan->features.TurnOff(
        NM_FEATURE_GROUP_ACCESS,
        "kernel.unprivileged_bpf_disabled is 0, so readers could write: root "
        "only (run: sysctl kernel.unprivileged_bpf_disabled=2)");
    return absl::OkStatus();
  }
  plan->readers = *group;
  // The pins get the group anyway: another kernel may be booted tomorrow, and
  // netmeter-fds takes its group from the pins.
  NETMETER_ASSIGN_OR_RETURN(const bool direct, UsersMayOpenPins());
  if (!direct) {
    plan->features.Remark(NM_FEATURE_GROUP_ACCESS,
                          "this kernel refuses bpf(2) to users: they read "
                          "through netmeter-fds");
  }
  return absl::OkStatus();
}

// Finds the group, the types and the users of this host.
absl::Status LookAtHost(Plan* plan) {
  const Config& config = plan->config;
  NETMETER_ASSIGN_OR_RETURN(const bool reads_kernel, MayReadKernelMemory());
  if (!reads_kernel) {
    return absl::UnimplementedError(
        "the kernel lets no program read its memory (lockdown=confidentiality: "
        "boot with lockdown=integrity)");
  }
  NETMETER_RETURN_IF_ERROR(DecideAccess(config, plan));
  NETMETER_ASSIGN_OR_RETURN(plan->types_file, FindKernelTypes(config.btf));
  NETMETER_ASSIGN_OR_RETURN(plan->registrants,
                            FindRegistrants(config.register_by));
  return absl::OkStatus();
}

// An id of all that decides what a load of the same programs makes: the configuration and
// its effects on this host. IsUpToDate() compares it with that of the loaded meter.
absl::Status DecideConfigId(Plan* plan) {
  NETMETER_ASSIGN_OR_RETURN(const std::string uplinks,
                            FingerprintOfUplinks(plan->config.uplinks));
  Config settings = plan->config;
  settings.sources.clear();
  plan->config_id = HashOf(absl::StrCat(
      ConfigAsYaml(settings, Keys::kChanged), "|", plan->features.bits(), "|",
      plan->readers.value_or(0), "|",
      // Several mounts may name one cgroup, and the mount in the path may go away.
      plan->cgroup.id, "|", plan->cgroup.path, "|",
      // When the kernel shows its own types later, a load can turn on more features.
      !plan->types_file.empty(), "|", TextOf(plan->registrants), "|", uplinks,
      "|", ForwardingBuildId()));
  return absl::OkStatus();
}

// Finds the meter that this load continues, or the pins that it removes.
absl::Status LookAtMeter(const PinDir& pins, Plan* plan) {
  NETMETER_ASSIGN_OR_RETURN(plan->meter, FindMeter(pins));
  FoundMeter& meter = plan->meter;
  if (meter.state == MeterState::kOtherAbi && !plan->restart) {
    return absl::FailedPreconditionError(absl::StrCat(
        pins.PathOf("info"),
        " is not of this version's ABI (run the loader that made it: ",
        LoaderCommand("unload", pins.path()), "; or ",
        RestartCommand(pins.path()), ")"));
  }
  plan->upgrade = meter.can_continue() && !plan->restart;
  if (plan->upgrade) {
    Trace("found a meter of version ", TextOf(meter.info.version));
    return absl::OkStatus();
  }
  meter.info = {};
  NETMETER_ASSIGN_OR_RETURN(plan->old_pins, pins.Find());
  return absl::OkStatus();
}

// Decides what to load. Changes nothing.
absl::Status MakePlan(const LockedDirectory& directory,
                      const ConfigChange& change, bool replaces, Plan* plan) {
  const PinDir& pins = directory.pins();
  NETMETER_RETURN_IF_ERROR(CheckPinDirectory(pins.path()).status());
  NETMETER_RETURN_IF_ERROR(LookAtMeter(pins, plan));
  NETMETER_RETURN_IF_ERROR(ChangeConfig(directory, change, replaces, plan));
  NETMETER_RETURN_IF_ERROR(FindCgroup(directory.state(), plan));
  if (plan->upgrade) {
    NETMETER_RETURN_IF_ERROR(CheckCgroup(pins, plan));
    NETMETER_RETURN_IF_ERROR(CheckNetworkOfUplinks(
        plan->config.uplinks, plan->meter.info, pins.path()));
  }
  NETMETER_RETURN_IF_ERROR(DecideSizes(pins.path(), plan));
  NETMETER_RETURN_IF_ERROR(LookAtHost(plan));
  return DecideConfigId(plan);
}

// Whether a load would change nothing.
bool IsUpToDate(const PinDir& pins, const Plan& plan) {
  const nm_info& info = plan.meter.info;
  return plan.upgrade && plan.meter.state == MeterState::kLoaded &&
         info.build_id == BuildId() && info.config_id == plan.config_id &&
         // Records of a version without the field may have no room for it.
         (info.config_hash == HashOfConfig(plan.config) ||
          info.info_size <= offsetof(nm_info, config_hash)) &&
         TextOf(info.version) == kVersion && pins.Has(kCommandPin) &&
         AllIdsAreOut(pins, info);
}

std::string TextToKeep(const Config& config) {
  return absl::StrCat("# netmeter-loader ", kVersion, "\n",
                      ConfigAsYaml(config, Keys::kChanged));
}

// --- Steps that can fail -----------------------------------------------------
//
// Nothing that others see is removed or replaced. A new meter is made beside an old one:
// its links count into maps that have no pin yet. Three things are visible:
//
// - New names of an upgrade are in the tables, with no counts.
// - Both control channels answer a setsockopt(2). It fails if one of them refuses it.
// - The old meter had no links if its cgroup was removed and created again. Then the new
//   ones count at once, so `info` is marked as unfinished before.

absl::StatusOr<std::unique_ptr<MeterObject>> LoadObjectWith(
    const Plan& plan, const PinDir& pins, bool tracing, bool* tracing_failed) {
  ObjectOptions options;
  options.config = plan.config;
  options.sizes = plan.sizes;
  options.adds = plan.adds;
  options.types_file = plan.types_file;
  options.tracing = tracing;
  options.registrants = static_cast<uint32_t>(plan.registrants.size());
  NETMETER_ASSIGN_OR_RETURN(auto object, MeterObject::Open(options));
  Trace("opened the BPF object", tracing ? "" : ", without tracing programs");
  if (plan.upgrade) {
    NETMETER_RETURN_IF_ERROR(ReuseMaps(pins, plan.meter.info, object.get()));
  }
  const absl::Status loaded = object->Load();
  *tracing_failed =
      !loaded.ok() &&
      std::any_of(LinkPins().begin(), LinkPins().end(), [](const LinkPin& pin) {
        return pin.tracing() &&
               ObjectNameOf(pin.pin) == ProgramThatLibbpfRefused();
      });
  NETMETER_RETURN_IF_ERROR(loaded);
  // libbpf creates objects without names after one attempt with a name has failed, for
  // any reason. Later loads would not recognize these objects as ours.
  if (IdentifyObject(object->MapFd("info")).name != ObjectNameOf("info")) {
    return absl::UnavailableError(
        "the kernel would not name a BPF object: run it again");
  }
  return object;
}

void SetSides(const Plan& plan, const UplinkMaps& uplinks,
              MeterObject* object) {
  std::vector<std::string> names;
  for (const auto& uplink : plan.config.uplinks) names.push_back(uplink.first);
  const uint32_t configured = uplinks.BitsOf(names);
  const uint32_t clients = uplinks.BitsOf(plan.config.forwarded_clients);
  object->uplink_info()->paid = configured & ~clients;
  const uint32_t before =
      plan.meter.info.client_uplinks & ~(1U << NM_UPLINK_OTHER);
  object->uplink_info()->clients = clients | (before & ~configured);
}

// Fills new maps. Maps that an upgrade keeps already have this content.
absl::Status FillMaps(const PinDir& pins, const Plan& plan, MeterObject* object,
                      UplinkMaps* uplinks) {
  if (!plan.upgrade) {
    NETMETER_RETURN_IF_ERROR(object->FillReserved());
    NETMETER_RETURN_IF_ERROR(object->PushFreeIds());
  }
  NETMETER_RETURN_IF_ERROR(
      uplinks->Fill(plan.config.uplinks, plan.meter.info, pins, object));
  SetSides(plan, *uplinks, object);
  // The new links of these count at once.
  if (!plan.upgrade || plan.moved) {
    NETMETER_RETURN_IF_ERROR(uplinks->Begin(pins));
  }
  return FillRules(plan.config, plan.registrants, *object);
}

// Turns off the features that the loaded programs lack on this kernel.
void TurnOffWhatItLacks(const MeterObject& object, FeatureSet* features) {
  if (!object.follows_mptcp()) {
    features->TurnOff(NM_FEATURE_MPTCP,
                      "the kernel has no MPTCP, or does not tell the owner of "
                      "a subflow (Linux 5.19 does): unattributed");
  }
  if (!object.may_read_cgroups()) {
    features->TurnOff(NM_FEATURE_CGROUP_NAMES,
                      "no process_tracking: no names by unit or container");
  }
}

void NoteLeftOut(const LeftOut& left_out, const char* what, Plan* plan) {
  if (left_out.count == 0) return;
  plan->notes.push_back(
      absl::StrCat(left_out.count, " ", what, ": ", left_out.why.message()));
}

// The objects that only this process holds.
struct Prepared {
  std::unique_ptr<PinDir> pins;  // hidden, unless this is an upgrade
  std::unique_ptr<MeterObject> object;
  std::unique_ptr<Links> links;
  std::unique_ptr<Forwarding> forwarding;
  UplinkMaps uplinks;
  bool tracing_failed = false;  // the error is that of a tracing program
  std::string stands = kNothingWasChanged;  // after an error
};

// The next load finishes what this one begins. `info` needs the names of uplinks before a
// packet counts under one of them.
absl::Status MarkUnfinished(const Plan& plan, const MeterObject& object) {
  nm_info unfinished = plan.meter.info;
  unfinished.build_id = 0;
  NETMETER_RETURN_IF_ERROR(object.WriteInfo(unfinished));
  Trace("began: ", Traced{object.MapFd("info")});
  return absl::OkStatus();
}

void NameProcesses(const MeterObject& object, Plan* plan) {
  NoteLeftOut(
      NameRunningProcesses(plan->config, plan->registrants, object),
      "running processes have no name until they open a socket or execute",
      plan);
}

// The name of a process must be known before a socket gets its owner, and the owner
// before packets are counted. So running processes and open sockets are named between the
// stages.
absl::Status Attach(Plan* plan, Prepared* prepared) {
  const MeterObject& object = *prepared->object;
  Links* const links = prepared->links.get();
  const uint64_t had = plan->meter.info.features;
  const absl::Status traced =
      links->Attach(LinkStage::kProcess, had, &plan->features);
  prepared->tracing_failed = !traced.ok();
  if (!traced.ok()) return traced;
  const bool attaches_all = !plan->upgrade || plan->moved;
  if (attaches_all) NameProcesses(object, plan);
  NETMETER_RETURN_IF_ERROR(
      links->Attach(LinkStage::kSocket, had, &plan->features));
  // An upgrade keeps the owners of sockets.
  if (attaches_all) {
    const LeftOut left_out = AdoptOpenSockets(plan->cgroup.path, object);
    NoteLeftOut(left_out,
                "open sockets have no owner, and are unattributed until closed",
                plan);
    if (!left_out.unreached.ok()) {
      plan->notes.push_back(
          absl::StrCat("open sockets are unattributed until closed: ",
                       left_out.unreached.message()));
    }
  }
  NETMETER_RETURN_IF_ERROR(
      links->Attach(LinkStage::kPacket, had, &plan->features));
  if (plan->config.uplinks.empty()) return absl::OkStatus();
  return prepared->forwarding->Attach(
      plan->meter.has(NM_FEATURE_FORWARDED), plan->types_file,
      prepared->uplinks.BitsOf(plan->config.forwarded_clients), object,
      &plan->features);
}

// Loads with the tracing programs, or without them. They need permissions that some
// kernels refuse (lockdown, CAP_PERFMON).
absl::Status PrepareWith(bool tracing, Plan* plan, Prepared* prepared) {
  const PinDir& pins = *prepared->pins;
  prepared->forwarding.reset();
  prepared->links.reset();
  prepared->uplinks = UplinkMaps();
  prepared->tracing_failed = false;
  NETMETER_ASSIGN_OR_RETURN(
      prepared->object,
      LoadObjectWith(*plan, pins, tracing, &prepared->tracing_failed));
  TurnOffWhatItLacks(*prepared->object, &plan->features);
  NETMETER_RETURN_IF_ERROR(
      FillMaps(pins, *plan, prepared->object.get(), &prepared->uplinks));
  NETMETER_RETURN_IF_ERROR(FreezeSharedMaps(*prepared->object));
  prepared->links =
      std::make_unique<Links>(plan->cgroup, pins, *prepared->object);
  prepared->forwarding = std::make_unique<Forwarding>(pins);
  // The new links count at once.
  if (plan->moved) {
    NETMETER_RETURN_IF_ERROR(MarkUnfinished(*plan, *prepared->object));
    prepared->stands = "an upgrade has begun: run load again";
  }
  return Attach(plan, prepared);
}

absl::Status Prepare(const std::string& pin_dir, Plan* plan,
                     Prepared* prepared) {
  prepared->pins = std::make_unique<PinDir>(pin_dir, !plan->upgrade);
  // Each attempt notes anew what it lacks.
  const auto begin_again = [plan, features = plan->features,
                            notes = plan->notes] {
    plan->features = features;
    plan->notes = notes;
  };
  absl::Status status =
      absl::UnimplementedError("the kernel has no BTF of its own");
  if (plan->types_file.empty()) {
    status = PrepareWith(true, plan, prepared);
    // If libbpf has no memory, it may return any errno.
    if (!status.ok() && (IsTransient(status) || !prepared->tracing_failed)) {
      begin_again();
      status = PrepareWith(true, plan, prepared);
    }
    // Only a refusal of the tracing programs is a reason to load without them.
    if (status.ok() || !prepared->tracing_failed ||
        (IsTransient(status) && plan->meter.has(NM_FEATURE_PROCESS_TRACKING))) {
      return status;
    }
  }
  begin_again();
  plan->features.TurnOff(
      NM_FEATURE_PROCESS_TRACKING,
      absl::StrCat(status.message(),
                   ": processes are named when they open a socket"),
      /*for_now=*/IsTransient(status));
  const absl::Status second = PrepareWith(false, plan, prepared);
  // The first error says more, if there was an attempt.
  return second.ok() || !plan->types_file.empty() ? second : status;
}

template <size_t N>
void CopyText(absl::string_view text, char (&field)[N]) {
  memset(field, 0, N);
  memcpy(field, text.data(), std::min(text.size(), N - 1));
}

// WriteInfo() adds what the object knows. Only nm_command sets `closed`.
nm_info MakeInfo(const Plan& plan) {
  const Config& config = plan.config;
  nm_info info = {};
  info.magic = NM_MAGIC;
  info.abi_major = NM_ABI_MAJOR;
  info.abi_minor = NM_ABI_MINOR;
  info.cell_size = sizeof(nm_cell);
  info.name_size = sizeof(nm_name);
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
  info.created_ns = plan.upgrade ? plan.meter.info.created_ns : info.loaded_ns;
  info.features = plan.features.bits();
  info.build_id = BuildId();
  // No configuration has id 0, so the next load finds something to do.
  info.config_id = plan.features.any_off_for_now() ? 0 : plan.config_id;
  info.config_hash = HashOfConfig(config);
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

// --- Visible steps -----------------------------------------------------------

LoadResult MakeResult(LoadResult::Action action, const Plan& plan) {
  LoadResult result;
  result.action = action;
  result.cgroup = plan.cgroup.path;
  result.notes = plan.features.notes();
  result.notes.insert(result.notes.begin(), plan.notes.begin(),
                      plan.notes.end());
  return result;
}

// Sets owner and mode of all map pins, and of the directory.
// PermissionDenied: needs CAP_CHOWN.
absl::Status SetModes(const PinDir& pins, const std::optional<gid_t>& readers) {
  const auto set = [&](const std::string& path, bool shared, mode_t mode) {
    const gid_t gid = shared ? readers.value_or(0) : 0;
    if (chown(path.c_str(), 0, gid) != 0) {
      const int error = errno;
      return ErrnoStatus(error, absl::StrCat("give ", path, " to group ", gid),
                         error == EPERM ? "needs CAP_CHOWN" : "");
    }
    // The bits of the group are those of the owner.
    if (!shared || !readers.has_value()) mode &= 0700;
    if (chmod(path.c_str(), mode) == 0) return absl::OkStatus();
    return ErrnoStatus(errno, absl::StrCat("set the mode of ", path));
  };
  // 0660: a map that is opened read-only cannot be mapped. A map of uplinks is neither
  // frozen nor mapped.
  for (const ExtentPin& map : ExtentPins()) {
    if (!pins.Has(map.pin)) continue;
    NETMETER_RETURN_IF_ERROR(set(pins.PathOf(map.pin), true, 0660));
  }
  for (const MapPin& map : MapPins()) {
    // `info` is pinned last.
    if (map.reader == kInfo && !pins.Has(map.pin)) continue;
    NETMETER_RETURN_IF_ERROR(set(pins.PathOf(map.pin),
                                 map.shared() || map.is_uplinks(),
                                 map.is_uplinks() ? 0640 : 0660));
  }
  for (const char* pin : {kForwardedPin, kForwardedByPin, kClientsPin}) {
    if (!pins.Has(pin)) continue;
    NETMETER_RETURN_IF_ERROR(set(pins.PathOf(pin), true, 0640));
  }
  NETMETER_RETURN_IF_ERROR(set(pins.path(), true, 0750));
  Trace("set the modes below ", pins.path(), ": ",
        readers.has_value() ? absl::StrCat("group ", *readers, " may read")
                            : "root only");
  return absl::OkStatus();
}

// After this `info` says that the meter is complete.
absl::Status Finish(const PinDir& pins, const Plan& plan,
                    const MeterObject& object) {
  NETMETER_RETURN_IF_ERROR(pins.Replace(object.command_fd(), kCommandPin));
  NETMETER_RETURN_IF_ERROR(object.WriteInfo(MakeInfo(plan)));
  Trace("wrote ", Traced{object.MapFd("info")});
  NETMETER_RETURN_IF_ERROR(pins.Pin(object.MapFd("info"), "info"));
  NETMETER_RETURN_IF_ERROR(SetModes(pins, plan.readers));
  // All programs know the new ids by now, and readers see the new maps. A run of an old
  // program may still be under way: it must not take an id that it has no room for.
  NETMETER_RETURN_IF_ERROR(WaitForRunningPrograms());
  NETMETER_RETURN_IF_ERROR(object.PushFreeIds());
  Trace("handed out new ids");
  return absl::OkStatus();
}

absl::Status Upgrade(LockedDirectory* directory, Plan* plan,
                     Prepared* prepared) {
  const PinDir& pins = directory->pins();
  const MeterObject& object = *prepared->object;
  const LoaderState before = directory->state();
  absl::Status status = PinNewMaps(pins, object);
  if (status.ok()) {
    status = directory->KeepConfig(TextToKeep(plan->config), plan->cgroup.path);
  }
  if (!status.ok()) return WithState(status, prepared->stands);
  // Readers that may open the old extents must be able to open the new ones before `info`
  // lists them.
  status = SetModes(pins, plan->readers);
  if (status.ok())
    status = Retry([&] { return MarkUnfinished(*plan, object); });
  if (!status.ok()) {
    directory->KeepConfig(before.config, before.cgroup).IgnoreError();
    return WithState(status, "only modes of pins were changed");
  }
  if (!plan->moved) NameProcesses(object, plan);
  // From the last renewed map, `interfaces`, until End() an interface that changes its
  // uplink counts for both. So the programs that count packets come first.
  Links* const links = prepared->links.get();
  status = Retry([&] {
    NETMETER_RETURN_IF_ERROR(prepared->uplinks.Begin(pins));
    NETMETER_RETURN_IF_ERROR(ReplaceRenewedMaps(pins, object));
    NETMETER_RETURN_IF_ERROR(links->Put(LinkStage::kPacket, plan->features));
    NETMETER_RETURN_IF_ERROR(prepared->forwarding->Put());
    NETMETER_RETURN_IF_ERROR(prepared->uplinks.End());
    NETMETER_RETURN_IF_ERROR(links->Put(LinkStage::kProcess, plan->features));
    NETMETER_RETURN_IF_ERROR(links->Put(LinkStage::kSocket, plan->features));
    return Finish(pins, *plan, object);
  });
  if (status.ok()) return status;
  return WithState(
      status, absl::StrCat(
                  links->count_put(), " of ", LinkPins().size(),
                  " programs are new, and counting continues: run load again"));
}

// The new meter counts already. Packets until the links of the old one are removed, some
// 0.3 ms, are in both: none is missing, and the old counts cannot be read any more.
absl::Status RemoveOldMeter(LockedDirectory* directory, const Plan& plan) {
  if (plan.old_pins.empty()) return absl::OkStatus();
  const PinDir& pins = directory->pins();
  const LoaderState before = directory->state();
  absl::Status status =
      directory->KeepConfig(TextToKeep(plan.config), plan.cgroup.path);
  if (status.ok()) status = Retry([&] { return TellReaders(pins); });
  if (!status.ok()) {
    directory->KeepConfig(before.config, before.cgroup).IgnoreError();
    return WithState(status, kNothingWasChanged);
  }
  // A wait here would be a time without a meter that can be read.
  status = Retry([&] {
    return RemovePins(pins, plan.old_pins, nullptr, /*waits=*/false);
  });
  return status.ok()
             ? status
             : WithState(status,
                         "the old meter has ended, and a part of it is left: "
                         "run load again");
}

// Links come first: if this load is killed, they tell `status` of a damaged meter.
absl::Status Install(LockedDirectory* directory, const Plan& plan,
                     Prepared* prepared) {
  const PinDir& pins = directory->pins();
  return Retry([&] {
    NETMETER_RETURN_IF_ERROR(
        directory->KeepConfig(TextToKeep(plan.config), plan.cgroup.path));
    NETMETER_RETURN_IF_ERROR(directory->Make());
    for (const LinkStage stage :
         {LinkStage::kProcess, LinkStage::kSocket, LinkStage::kPacket}) {
      NETMETER_RETURN_IF_ERROR(prepared->links->Put(stage, plan.features));
    }
    NETMETER_RETURN_IF_ERROR(PinNewMaps(pins, *prepared->object));
    NETMETER_RETURN_IF_ERROR(SetModes(pins, plan.readers));
    NETMETER_RETURN_IF_ERROR(prepared->forwarding->Put());
    return Finish(pins, plan, *prepared->object);
  });
}

// The caller holds the lock.
absl::StatusOr<LoadResult> LoadLocked(LockedDirectory* directory,
                                      const ConfigChange& change, bool replaces,
                                      Plan* plan, Prepared* prepared) {
  const PinDir& pins = directory->pins();
  const bool knew_config = !directory->state().config.empty();
  const absl::Status planned = MakePlan(*directory, change, replaces, plan);
  if (!planned.ok()) return WithState(planned, kNothingWasChanged);
  if (IsUpToDate(pins, *plan)) {
    NETMETER_RETURN_IF_ERROR(SetModes(pins, plan->readers));
    NETMETER_RETURN_IF_ERROR(
        directory->KeepConfig(TextToKeep(plan->config), plan->cgroup.path));
    return MakeResult(LoadResult::Action::kUnchanged, *plan);
  }
  if (plan->upgrade && plan->meter.state == MeterState::kUnfinished) {
    plan->notes.push_back(
        "finished an upgrade that a killed or failed load had begun");
  }
  const absl::StatusOr<Preemption> preemption = ReadPreemption();
  if (!preemption.ok()) {
    return WithState(preemption.status(), kNothingWasChanged);
  }
  plan->adds = ChooseAdds(*preemption);
  Trace("adds: received ", NameOf(plan->adds.ingress), ", sent ",
        NameOf(plan->adds.egress));
  const absl::Status status = Prepare(pins.path(), plan, prepared);
  if (!status.ok()) return WithState(status, prepared->stands);
  if (plan->upgrade) {
    NETMETER_RETURN_IF_ERROR(Upgrade(directory, plan, prepared));
    const std::string changed =
        SourceOfKeys("the configuration changed",
                     plan->old_config.value_or(plan->config), plan->config);
    if (!changed.empty()) plan->notes.push_back(changed);
    return MakeResult(LoadResult::Action::kUpgraded, *plan);
  }
  NETMETER_RETURN_IF_ERROR(RemoveOldMeter(directory, *plan));
  const absl::Status installed = Install(directory, *plan, prepared);
  if (installed.ok()) return MakeResult(LoadResult::Action::kLoaded, *plan);
  if (pins.Has("info")) {
    return WithState(installed, "the meter counts: the next load completes it");
  }
  // Readers cannot open this meter without `info`, so remove it as an unload does.
  prepared->links.reset();
  const absl::Status removed = RemoveMeter(*directory);
  // The next load must not start from the configuration of a meter that never was.
  if (removed.ok() && !knew_config) directory->ForgetState();
  return WithState(
      installed, removed.ok()
                     ? std::string("nothing is loaded")
                     : absl::StrCat("a part of the meter is left (run: ",
                                    LoaderCommand("unload", pins.path()), ")"));
}

}  // namespace

absl::StatusOr<LoadResult> Load(const std::string& pin_dir,
                                const ConfigChange& change, bool replaces,
                                bool restart) {
  CaptureLibbpfMessages();
  // Early, because the reason helps more than what would fail without it.
  const absl::Status checked = CheckHost();
  if (!checked.ok()) return WithState(checked, kNothingWasChanged);
  absl::StatusOr<std::unique_ptr<LockedDirectory>> directory =
      LockedDirectory::Lock(pin_dir);
  if (!directory.ok()) return WithState(directory.status(), kNothingWasChanged);
  Plan plan;
  plan.restart = restart;
  Prepared prepared;  // refers to the plan and to the directory
  return LoadLocked(directory->get(), change, replaces, &plan, &prepared);
}

absl::StatusOr<LoadResult> Load(const Config& config) {
  return Load(
      config.pin_dir, [&config](Config* all) { *all = config; },
      /*replaces=*/true);
}

}  // namespace internal
}  // namespace netmeter
