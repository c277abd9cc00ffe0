// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/load.h"

#include <bpf/bpf.h>

#include <cerrno>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lib/base/kernel_object.h"
#include "lib/base/libbpf_log.h"
#include "lib/base/status_util.h"
#include "lib/base/unique_fd.h"
#include "lib/base/version.h"
#include "lib/loader/adds.h"
#include "lib/loader/adopt.h"
#include "lib/loader/config.h"
#include "lib/loader/configured_object.h"
#include "lib/loader/existing.h"
#include "lib/loader/features.h"
#include "lib/loader/forwarding.h"
#include "lib/loader/links.h"
#include "lib/loader/locked_directory.h"
#include "lib/loader/meter_object.h"
#include "lib/loader/pin_dir.h"
#include "lib/loader/plan.h"
#include "lib/loader/retry.h"
#include "lib/loader/rules.h"
#include "lib/loader/step.h"
#include "lib/loader/system.h"
#include "lib/loader/unload.h"
#include "lib/loader/uplinks.h"
#include "lib/reader/pins.h"
#include "lib/reader/shared_maps.h"
#include "netmeter/abi.h"

namespace netmeter {
namespace internal {
namespace {

// --- The configuration, and the meter that is there --------------------------

// Starts from the loaded configuration, or from that of a meter whose pins are gone.
absl::Status ChangeConfig(const LockedDirectory& directory,
                          const ConfigChange& change, bool replaces,
                          Plan* plan) {
  Config config;
  const std::string& kept = directory.state().config;
  const bool rest =
      !plan->existing.found && (!kept.empty() || !plan->existing.rest.empty());
  if (plan->existing.found || rest) {
    absl::StatusOr<Config> loaded =
        ParseConfig(kept, "the loaded configuration", Config());
    if (loaded.ok() && !kept.empty()) {
      config = *loaded;
      config.sources = SourcesOf(kept);
      plan->loaded = SettingsOf(config);
    } else if (!replaces) {
      // A load from the defaults would drop settings that only the old configuration has,
      // such as register_by, and would count for the whole host.
      return absl::FailedPreconditionError(absl::StrCat(
          "the loaded configuration is unknown (",
          LockFile(directory.pins().path()),
          " does not have it): give --config FILE, or --defaults"));
    }
  }
  if (rest) {
    // Pins are missing if a first load was killed early, or an unload late.
    plan->notes.push_back(absl::StrCat(
        plan->existing.rest.empty()
            ? "found only a configuration: loaded a new meter"
        : plan->restart ? "unloaded first, then loaded"
                        : "found an incomplete meter: loaded a new one",
        replaces ? "" : ", with its configuration", ", counters start again"));
  }
  change(&config);
  config.pin_dir = directory.pins().path();
  plan->config = config;
  StepLines("configuration: ", ConfigAsYaml(config, Keys::kAll));
  NETMETER_RETURN_IF_ERROR(CheckConfig(config));
  for (const std::string& note : WhatHasNoEffect(config)) {
    plan->notes.push_back(note);
  }
  // The next load starts from this text, so it must be able to parse it.
  return ParseConfig(ConfigAsYaml(config, Keys::kChanged), "the configuration",
                     Config())
      .status();
}

std::string TextToKeep(const Config& config) {
  return absl::StrCat("# netmeter-loader ", kVersion, "\n",
                      ConfigAsYaml(config, Keys::kChanged));
}

// Whether all ids up to the sizes in `info` are handed out.
bool HasAllIds(const PinDir& pins, const nm_info& info) {
  const UniqueFd fd(bpf_obj_get(pins.PathOf("stats").c_str()));
  nm_stats stats = {};
  return fd.ok() && ReadOnlyValue(fd.get(), &stats) &&
         NM_SLOT_FIRST + stats.slots_made >= info.max_series &&
         NM_NAME_FIRST + stats.names_made >= info.max_names;
}

// Whether a load would change nothing.
bool IsUpToDate(const PinDir& pins, const Plan& plan) {
  const nm_info& info = plan.existing.info;
  if (!plan.existing.found || info.build_id != plan.build_id ||
      info.config_id != plan.config_id || TextOf(info.version) != kVersion) {
    return false;
  }
  for (const LinkPin& link : LinkPins()) {
    const bool wanted = link.feature == 0 || plan.existing.has(link.feature);
    if (wanted && !IsAttached(pins.PathOf(link.pin), plan.cgroup.id)) {
      return false;
    }
  }
  for (const MapPin& map : MapPins()) {
    if (!pins.Has(map.pin)) return false;
  }
  for (const char* link : kForwardLinks) {
    if (plan.existing.has(NM_FEATURE_FORWARDED) && !pins.Has(link)) {
      return false;
    }
  }
  return HasAllIds(pins, info);
}

// --- Invisible steps ---------------------------------------------------------

// Reuses the maps that an upgrade keeps. A missing map is an error, except an extent that
// `info` does not list yet.
absl::Status ReuseMaps(const PinDir& pins, const nm_info& info,
                       MeterObject* object) {
  for (const MapPin& map : MapPins()) {
    if (!map.kept) continue;
    absl::StatusOr<UniqueFd> fd = pins.Open(map.pin);
    if (!fd.ok()) return fd.status();
    NETMETER_RETURN_IF_ERROR(object->Reuse(map.pin, fd->get(), pins.path()));
  }
  for (const ExtentPin& map : ExtentPins()) {
    if (object->map(map.pin) == nullptr) continue;
    UniqueFd fd(bpf_obj_get(pins.PathOf(map.pin).c_str()));
    if (fd.ok()) {
      NETMETER_RETURN_IF_ERROR(object->Reuse(map.pin, fd.get(), pins.path()));
      continue;
    }
    const bool used = map.extent < (map.map == kNames ? info.names_extents
                                                      : info.series_extents);
    if (errno != ENOENT || used) {
      return ErrnoStatus(errno, absl::StrCat("open ", pins.PathOf(map.pin)));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<MeterObject>> LoadObjectWith(const Plan& plan,
                                                            const PinDir& pins,
                                                            bool tracing) {
  MeterObjectOptions options = ObjectOptionsOf(plan.config);
  options.sizes = plan.sizes;
  options.adds = plan.adds;
  options.types_file = plan.types_file;
  options.tracing = tracing;
  options.registrants = static_cast<uint32_t>(plan.registrants.size());
  absl::StatusOr<std::unique_ptr<MeterObject>> object =
      MeterObject::Open(options);
  if (!object.ok()) return object.status();
  Step("opened the BPF object", tracing ? "" : ", without tracing programs");
  if (plan.existing.found) {
    NETMETER_RETURN_IF_ERROR(
        ReuseMaps(pins, plan.existing.info, object->get()));
  }
  NETMETER_RETURN_IF_ERROR((*object)->Load());
  // libbpf creates objects without names after one attempt with a name has failed, for
  // any reason. Later loads would not recognize these objects as ours.
  if (IdentifyObject((*object)->MapFd("info")).name != ObjectNameOf("info")) {
    return absl::UnavailableError(
        "the kernel would not name a BPF object: run it again");
  }
  ReportObject(**object, plan.existing.found);
  return object;
}

// Fills new maps. Maps that an upgrade keeps already have this content.
absl::Status FillMaps(const PinDir& pins, const Plan& plan, MeterObject* object,
                      UplinkMaps* uplinks) {
  if (!plan.existing.found) {
    NETMETER_RETURN_IF_ERROR(object->FillReserved());
    NETMETER_RETURN_IF_ERROR(object->PushFreeIds());
  }
  NETMETER_RETURN_IF_ERROR(
      uplinks->Fill(plan.config.uplinks, plan.existing.info, pins, object));
  // The new links of these count at once.
  if (!plan.existing.found || plan.existing.moved) {
    NETMETER_RETURN_IF_ERROR(uplinks->Begin(pins));
  }
  return FillRules(plan.config, plan.registrants, *object);
}

// After this only BPF programs can write these maps. The loader skips maps that are
// frozen already: the kernel answers EPERM for them, as for a caller without the
// permission.
absl::Status FreezeSharedMaps(const MeterObject& object) {
  const auto freeze = [&object](const char* pin) {
    const int fd = object.MapFd(pin);
    if (fd < 0 || FdInfoNumber(fd, "frozen") != 0) return absl::OkStatus();
    return ErrnoStatus(bpf_map_freeze(fd), absl::StrCat("freeze ", pin));
  };
  for (const MapPin& map : MapPins()) {
    if (map.shared()) NETMETER_RETURN_IF_ERROR(freeze(map.pin));
  }
  for (const ExtentPin& map : ExtentPins()) {
    NETMETER_RETURN_IF_ERROR(freeze(map.pin));
  }
  Step("froze the maps that readers see");
  return absl::OkStatus();
}

void NoteLeftOut(const LeftOut& left_out, const char* what, Plan* plan) {
  if (left_out.count == 0) return;
  plan->notes.push_back(
      absl::StrCat(left_out.count, " ", what, ": ", left_out.why.message()));
}

// The objects that only this process holds.
struct Prepared {
  std::unique_ptr<MeterObject> object;
  std::unique_ptr<Links> links;
  std::unique_ptr<Forwarding> forwarding;
  UplinkMaps uplinks;
  std::string stands = kNothingWasChanged;  // after an error
};

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
  const ExistingMeter& existing = plan->existing;
  const uint64_t had = existing.found ? existing.info.features : 0;
  NETMETER_RETURN_IF_ERROR(
      links->Attach(LinkStage::kProcess, had, &plan->features));
  const bool attaches_all = !existing.found || existing.moved;
  if (attaches_all) NameProcesses(object, plan);
  NETMETER_RETURN_IF_ERROR(
      links->Attach(LinkStage::kSocket, had, &plan->features));
  // An upgrade keeps the owners of sockets.
  if (attaches_all) {
    NoteLeftOut(AdoptOpenSockets(plan->cgroup.path, object),
                "open sockets have no owner, and are unattributed until closed",
                plan);
  }
  NETMETER_RETURN_IF_ERROR(
      links->Attach(LinkStage::kPacket, had, &plan->features));
  NETMETER_RETURN_IF_ERROR(prepared->forwarding->Attach(
      {!plan->config.uplinks.empty(), existing.has(NM_FEATURE_FORWARDED),
       plan->types_file},
      object, &plan->features));
  if (attaches_all) return absl::OkStatus();
  for (const std::string& pin : links->attached_anew()) {
    plan->notes.push_back(absl::StrCat(pin, " was missing: attached again"));
  }
  return absl::OkStatus();
}

// Loads with the tracing programs, or without them. They need permissions that some
// kernels refuse (lockdown, CAP_PERFMON).
absl::Status PrepareWith(LockedDirectory* directory, bool tracing, Plan* plan,
                         Prepared* prepared) {
  const PinDir& pins = directory->pins();
  prepared->forwarding.reset();
  prepared->links.reset();
  prepared->uplinks = UplinkMaps();
  absl::StatusOr<std::unique_ptr<MeterObject>> object =
      LoadObjectWith(*plan, pins, tracing);
  if (!object.ok()) return object.status();
  prepared->object = *std::move(object);
  TurnOffWhatItLacks(*prepared->object, &plan->features);
  // The kernel has accepted the new programs, so the leftover pins can go.
  if (!plan->existing.rest.empty()) {
    NETMETER_RETURN_IF_ERROR(TellReaders(pins));
    // A load after a kill finds leftover pins from here on, and the new configuration.
    prepared->stands = "a part of the old meter is left: run load again";
    NETMETER_RETURN_IF_ERROR(
        directory->KeepConfig(TextToKeep(plan->config), plan->cgroup.path));
    NETMETER_RETURN_IF_ERROR(RemoveRest(plan->existing, pins));
    prepared->stands = "nothing is loaded";
  }
  NETMETER_RETURN_IF_ERROR(
      FillMaps(pins, *plan, prepared->object.get(), &prepared->uplinks));
  NETMETER_RETURN_IF_ERROR(FreezeSharedMaps(*prepared->object));
  prepared->links =
      std::make_unique<Links>(plan->cgroup, pins, *prepared->object);
  prepared->forwarding = std::make_unique<Forwarding>(pins);
  return Attach(plan, prepared);
}

absl::Status Prepare(LockedDirectory* directory, Plan* plan,
                     Prepared* prepared) {
  absl::Status status =
      absl::UnimplementedError("the kernel has no BTF of its own");
  if (plan->types_file.empty()) {
    status = PrepareWith(directory, true, plan, prepared);
    if (!status.ok() && IsTransient(status)) {
      status = PrepareWith(directory, true, plan, prepared);
    }
  }
  if (status.ok() || (IsTransient(status) &&
                      plan->existing.has(NM_FEATURE_PROCESS_TRACKING))) {
    return status;
  }
  const bool transient = IsTransient(status);
  const std::string reason = absl::StrCat(
      status.message(), ": processes are named when they open a socket");
  if (transient) {
    plan->features.TurnOffForNow(NM_FEATURE_PROCESS_TRACKING, reason);
  } else {
    plan->features.TurnOff(NM_FEATURE_PROCESS_TRACKING, reason);
  }
  // If the second attempt fails too, the first error says more.
  return PrepareWith(directory, false, plan, prepared).ok() ? absl::OkStatus()
                                                            : status;
}

// --- Visible steps -----------------------------------------------------------

void NoteChanges(Plan* plan) {
  const std::string changes =
      DescribeChanges(plan->loaded, SettingsOf(plan->config));
  if (changes.empty()) return;
  plan->notes.push_back(absl::StrCat("the configuration changed: ", changes));
}

LoadResult MakeResult(LoadResult::Action action, const Plan& plan) {
  LoadResult result;
  result.action = action;
  result.cgroup = plan.cgroup.path;
  result.notes = plan.features.notes();
  result.notes.insert(result.notes.begin(), plan.notes.begin(),
                      plan.notes.end());
  return result;
}

// Pins maps that have no pin yet. Readers ignore them until `info` lists them.
absl::Status PinNewMaps(const PinDir& pins, const MeterObject& object) {
  const auto pin_new = [&pins](int fd, const char* pin) {
    return fd < 0 || pins.Has(pin) ? absl::OkStatus() : pins.Pin(fd, pin);
  };
  for (const ExtentPin& map : ExtentPins()) {
    NETMETER_RETURN_IF_ERROR(pin_new(object.MapFd(map.pin), map.pin));
  }
  for (const MapPin& map : MapPins()) {
    if (map.reader == kInfo) continue;
    NETMETER_RETURN_IF_ERROR(pin_new(object.MapFd(map.pin), map.pin));
  }
  return absl::OkStatus();
}

// These maps belong to the programs of one load, so each load replaces them.
absl::Status ReplaceRenewedMaps(const PinDir& pins, const MeterObject& object) {
  for (const MapPin& map : MapPins()) {
    if (map.kept) continue;
    NETMETER_RETURN_IF_ERROR(pins.Replace(object.MapFd(map.pin), map.pin));
  }
  return absl::OkStatus();
}

// After this `info` says that the meter is complete.
absl::Status Finish(const Plan& plan, bool own_directory, const PinDir& pins,
                    const MeterObject& object) {
  NETMETER_RETURN_IF_ERROR(object.WriteInfo(MakeInfo(plan)));
  Step("wrote ", Describe(object.MapFd("info")));
  if (!pins.Has("info")) {
    NETMETER_RETURN_IF_ERROR(pins.Pin(object.MapFd("info"), "info"));
  }
  NETMETER_RETURN_IF_ERROR(SetModes(pins, plan.access, own_directory));
  // All programs know the new ids by now, and readers see the new maps.
  NETMETER_RETURN_IF_ERROR(object.PushFreeIds());
  Step("handed out new ids");
  // An extent may be left by a resize that was killed before it wrote `info`, and that is
  // no longer wanted.
  for (const ExtentPin& map : ExtentPins()) {
    if (object.MapFd(map.pin) < 0 && pins.Has(map.pin)) {
      NETMETER_RETURN_IF_ERROR(pins.Remove(map.pin));
    }
  }
  return absl::OkStatus();
}

absl::Status Upgrade(LockedDirectory* directory, Plan* plan,
                     Prepared* prepared) {
  const PinDir& pins = directory->pins();
  const MeterObject& object = *prepared->object;
  const LoaderState before = directory->state();
  absl::Status status = PinNewMaps(pins, object);
  // Readers that may open the old extents must be able to open the new ones before `info`
  // lists them.
  if (status.ok()) status = SetModes(pins, plan->access, directory->is_own());
  if (status.ok()) {
    status = directory->KeepConfig(TextToKeep(plan->config), plan->cgroup.path);
  }
  if (!status.ok()) return WithState(status, kNothingWasChanged);
  // `info` needs the names of uplinks before a packet counts under one of them.
  nm_info unfinished = plan->existing.info;
  unfinished.build_id = 0;
  status = Retry([&] { return object.WriteInfo(unfinished); });
  if (!status.ok()) {
    directory->KeepConfig(before.config, before.cgroup).IgnoreError();
    return WithState(status, kNothingWasChanged);
  }
  Step("began: ", Describe(object.MapFd("info")));
  if (!plan->existing.moved) NameProcesses(object, plan);
  size_t done = 0;
  status = Retry([&] {
    NETMETER_RETURN_IF_ERROR(prepared->uplinks.Begin(pins));
    NETMETER_RETURN_IF_ERROR(ReplaceRenewedMaps(pins, object));
    NETMETER_RETURN_IF_ERROR(prepared->links->Put(plan->features, &done));
    NETMETER_RETURN_IF_ERROR(prepared->forwarding->Put());
    NETMETER_RETURN_IF_ERROR(prepared->uplinks.End());
    return Finish(*plan, directory->is_own(), pins, object);
  });
  if (status.ok()) return status;
  return WithState(
      status, absl::StrCat(
                  done, " of ", LinkPins().size(),
                  " programs are new, and counting continues: run load again"));
}

// Links come first: a link tells the next loader that the other pins are ours.
absl::Status Install(LockedDirectory* directory, const Plan& plan,
                     Prepared* prepared) {
  const PinDir& pins = directory->pins();
  return Retry([&] {
    NETMETER_RETURN_IF_ERROR(
        directory->KeepConfig(TextToKeep(plan.config), plan.cgroup.path));
    NETMETER_RETURN_IF_ERROR(directory->Make());
    size_t done = 0;
    NETMETER_RETURN_IF_ERROR(prepared->links->Put(plan.features, &done));
    NETMETER_RETURN_IF_ERROR(PinNewMaps(pins, *prepared->object));
    NETMETER_RETURN_IF_ERROR(SetModes(pins, plan.access, directory->is_own()));
    NETMETER_RETURN_IF_ERROR(prepared->forwarding->Put());
    return Finish(plan, directory->is_own(), pins, *prepared->object);
  });
}

// Decides what to load. Changes nothing.
absl::Status MakePlan(const LockedDirectory& directory,
                      const ConfigChange& change, bool replaces, Plan* plan) {
  const PinDir& pins = directory.pins();
  NETMETER_RETURN_IF_ERROR(
      FindExisting(pins, directory.state(), plan->restart, &plan->existing));
  const bool upgrade = plan->existing.found;
  NETMETER_RETURN_IF_ERROR(ChangeConfig(directory, change, replaces, plan));
  NETMETER_RETURN_IF_ERROR(OpenDefaultCgroup(directory.state(), plan));
  if (upgrade) {
    NETMETER_RETURN_IF_ERROR(CheckCgroup(pins, plan));
    NETMETER_RETURN_IF_ERROR(CheckNetworkOfUplinks(plan->config.uplinks, pins));
  }
  NETMETER_RETURN_IF_ERROR(DecideSizes(pins.path(), plan));
  return DecideIdentity(plan);
}

// The caller holds the lock.
absl::StatusOr<LoadResult> LoadLocked(LockedDirectory* directory,
                                      const ConfigChange& change, bool replaces,
                                      Plan* plan, Prepared* prepared) {
  const PinDir& pins = directory->pins();
  const absl::Status planned = MakePlan(*directory, change, replaces, plan);
  if (!planned.ok()) return WithState(planned, kNothingWasChanged);
  const bool upgrade = plan->existing.found;
  if (IsUpToDate(pins, *plan)) {
    NETMETER_RETURN_IF_ERROR(SetModes(pins, plan->access, directory->is_own()));
    NETMETER_RETURN_IF_ERROR(
        directory->KeepConfig(TextToKeep(plan->config), plan->cgroup.path));
    return MakeResult(LoadResult::Action::kUnchanged, *plan);
  }
  if (upgrade && plan->existing.info.build_id == 0) {
    plan->notes.push_back(
        "finished an upgrade that a killed or failed load had begun");
  }
  plan->adds = FindAdds();
  Step("adds: received ", NameOf(plan->adds.ingress), ", sent ",
       NameOf(plan->adds.egress));
  const absl::Status status = Prepare(directory, plan, prepared);
  if (!status.ok()) return WithState(status, prepared->stands);
  if (upgrade) {
    NETMETER_RETURN_IF_ERROR(Upgrade(directory, plan, prepared));
    NoteChanges(plan);
    return MakeResult(LoadResult::Action::kUpgraded, *plan);
  }
  const absl::Status installed = Install(directory, *plan, prepared);
  if (installed.ok()) return MakeResult(LoadResult::Action::kLoaded, *plan);
  if (pins.Has("info")) {
    return WithState(installed, "the meter counts: the next load completes it");
  }
  // Readers cannot open this meter without `info`, so remove it as an unload does.
  prepared->links.reset();
  const absl::Status removed = RemoveMeter(pins.path(), directory->state());
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
  Plan plan;
  plan.restart = restart;
  change(&plan.config);
  plan.config.pin_dir = pin_dir;
  absl::Status checked = CheckWhatIsAsked(&plan);
  if (checked.ok()) checked = CountCells(&plan);
  if (!checked.ok()) return WithState(checked, kNothingWasChanged);
  absl::StatusOr<std::unique_ptr<LockedDirectory>> directory =
      LockedDirectory::Lock(pin_dir);
  if (!directory.ok()) return WithState(directory.status(), kNothingWasChanged);
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
