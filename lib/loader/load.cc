// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/load.h"

#include <bpf/bpf.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lib/core/clock.h"
#include "lib/core/pins.h"
#include "lib/core/shared_maps.h"
#include "lib/core/status_util.h"
#include "lib/core/unique_fd.h"
#include "lib/core/version.h"
#include "lib/loader/adds.h"
#include "lib/loader/adopt.h"
#include "lib/loader/attach.h"
#include "lib/loader/attempts.h"
#include "lib/loader/configured_object.h"
#include "lib/loader/existing.h"
#include "lib/loader/features.h"
#include "lib/loader/forwarding.h"
#include "lib/loader/growth.h"
#include "lib/loader/kernel_object.h"
#include "lib/loader/libbpf_log.h"
#include "lib/loader/lost_info.h"
#include "lib/loader/meter_object.h"
#include "lib/loader/pin_dir.h"
#include "lib/loader/plan.h"
#include "lib/loader/registrants.h"
#include "lib/loader/renewed_maps.h"
#include "lib/loader/rules.h"
#include "lib/loader/settings.h"
#include "lib/loader/shares.h"
#include "lib/loader/step.h"
#include "lib/loader/system.h"
#include "lib/loader/transaction.h"
#include "lib/loader/uplinks.h"
#include "netmeter/abi.h"

namespace netmeter {
namespace internal {
namespace {

// --- What is pinned already --------------------------------------------------

// Brings what is loaded into a state from which an upgrade can go on, and plans
// it.
absl::Status PlanUpgrade(bool killed, Plan* plan, Growth* growth,
                         Transaction* transaction) {
  const PinDir& pins = transaction->pins();
  const nm_info& info = plan->existing.info;
  NETMETER_RETURN_IF_ERROR(CloseOldInfo(pins));
  NETMETER_RETURN_IF_ERROR(CheckCgroup(pins, plan));
  // An older version made no spare cells: so many are either layout's.
  if (info.cells_per_series != plan->num_cpus + 1 &&
      info.cells_per_series != plan->num_cpus) {
    return absl::FailedPreconditionError(absl::StrCat(
        pins.path(), " was loaded for ", info.cells_per_series - 1,
        " possible CPUs, now there are ", plan->num_cpus, " (",
        LoaderCommand("unload", pins.path()), " first: counters start again)"));
  }
  NETMETER_RETURN_IF_ERROR(
      growth->Plan(&plan->config, &plan->cells_per_series, &plan->notes));
  plan->grows_on = growth->grows_on();
  // One that is to be finished has queues that are new and full.
  if (growth->any() && !growth->from_the_start()) return absl::OkStatus();
  NETMETER_RETURN_IF_ERROR(
      RefillDrainedQueues(info, killed, transaction, &plan->repaired));
  if (plan->repaired) {
    plan->notes.push_back(
        "free series and names were missing from their queues: put back");
  }
  return absl::OkStatus();
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
    if (plan.existing.has(NM_FEATURE_FORWARDED) && !pins.Has(link))
      return false;
  }
  return pins.Has(kInterfacesPin);
}

// --- The object --------------------------------------------------------------

absl::StatusOr<std::unique_ptr<MeterObject>> LoadObjectWith(
    const Plan& plan, const Growth& growth, bool tracing) {
  MeterObjectOptions options = ObjectOptionsOf(plan.config);
  options.sizes.cells_per_series = plan.cells_per_series;
  options.has_spare_cell = plan.cells_per_series > plan.num_cpus;
  options.adds = plan.adds;
  if (plan.existing.found) {
    options.old_cells_per_series = plan.existing.info.cells_per_series;
  }
  options.types_file = plan.types_file;
  options.tracing = tracing;
  options.registrants = static_cast<uint32_t>(plan.registrants.size());
  absl::StatusOr<std::unique_ptr<MeterObject>> object =
      MeterObject::Open(options);
  if (!object.ok()) return object.status();
  Step("opened the BPF object", tracing ? "" : ", without tracing programs");
  if (plan.existing.found) {
    NETMETER_RETURN_IF_ERROR(growth.ReuseMaps(object->get()));
  }
  NETMETER_RETURN_IF_ERROR((*object)->Load());
  // libbpf makes objects without names where a try with one has failed, for what
  // reason ever. Nobody would know these as ours.
  if (IdentifyObject((*object)->MapFd("info")).name != ObjectNameOf("info")) {
    return absl::UnavailableError(
        "the kernel would not name a BPF object: run it again");
  }
  ReportObject(**object, plan.existing.found);
  return object;
}

// Into the kernel. Where that fails, once more without the tracing programs:
// they need what not every kernel allows (lockdown, CAP_PERFMON). `untraceable`: an
// error where these were loaded before and could not be attached.
absl::StatusOr<std::unique_ptr<MeterObject>> LoadObject(
    const Plan& plan, const Growth& growth, const absl::Status& untraceable,
    FeatureSet* features) {
  Step("adds: received ", NameOf(plan.adds.ingress), ", sent ",
       NameOf(plan.adds.egress));
  // The kernel finds a tracepoint by its own types, not by those of a file.
  if (!plan.types_file.empty()) {
    auto without = LoadObjectWith(plan, growth, /*tracing=*/false);
    if (!without.ok()) return without;
    features->TurnOff(NM_FEATURE_PROCESS_TRACKING,
                      "the kernel shows no BTF of its own: processes are named "
                      "when they open a socket");
    TurnOffWhatItLacks(**without, features);
    return without;
  }
  const auto load = [&]() -> absl::StatusOr<std::unique_ptr<MeterObject>> {
    if (!untraceable.ok()) return untraceable;
    return LoadObjectWith(plan, growth, /*tracing=*/true);
  };
  absl::StatusOr<std::unique_ptr<MeterObject>> object = load();
  // The kernel had no memory at that moment, maybe.
  if (!object.ok()) object = load();
  if (object.ok()) {
    TurnOffWhatItLacks(**object, features);
    return object;
  }
  const bool transient = IsTransient(object.status());
  // What has it is not to lose it for that (Linker::Attach()).
  if (transient && plan.existing.has(NM_FEATURE_PROCESS_TRACKING)) {
    return object;
  }
  absl::StatusOr<std::unique_ptr<MeterObject>> without =
      LoadObjectWith(plan, growth, /*tracing=*/false);
  if (!without.ok()) return object;  // that was not it
  const std::string reason =
      absl::StrCat(object.status().message(),
                   ": processes are named when they open a socket");
  if (transient) {
    features->TurnOffForNow(NM_FEATURE_PROCESS_TRACKING, reason);
  } else {
    features->TurnOff(NM_FEATURE_PROCESS_TRACKING, reason);
  }
  TurnOffWhatItLacks(**without, features);
  return without;
}

// What new maps start with. Those that an upgrade keeps have it.
absl::Status FillMaps(Plan* plan, Growth* growth, MeterObject* object,
                      Transaction* transaction) {
  if (!plan->existing.found) {
    NETMETER_RETURN_IF_ERROR(object->FillReserved());
  }
  if (growth->from_the_start()) {
    NETMETER_RETURN_IF_ERROR(growth->DrainAndCopy(object, transaction));
  }
  if (growth->any()) {
    NETMETER_RETURN_IF_ERROR(CopyShares(transaction->pins(), *object));
  }
  NETMETER_RETURN_IF_ERROR(FillUplinks(plan->config.uplinks, growth->newest(),
                                       object, transaction,
                                       &plan->other_network));
  return FillRules(plan->config, plan->registrants, *object);
}

// From here on only BPF programs can write them. Of a map that an upgrade
// keeps, and that is frozen already, the kernel would answer EPERM, as it
// answers one who may not freeze it.
absl::Status FreezeSharedMaps(const MeterObject& object) {
  for (const MapPin& map : MapPins()) {
    if (!map.shared()) continue;
    const int fd = object.MapFd(map.pin);
    if (FdInfoNumber(fd, "frozen") == 0) {
      if (int error = bpf_map_freeze(fd)) {
        return ErrnoStatus(error, absl::StrCat("freeze ", map.pin));
      }
    }
    Step("froze ", Describe(fd));
  }
  return absl::OkStatus();
}

// --- In place ----------------------------------------------------------------

void NoteLeftOut(const LeftOut& left_out, const char* what, Plan* plan) {
  if (left_out.count == 0) return;
  plan->notes.push_back(
      absl::StrCat(left_out.count, " ", what, ": ", left_out.why.message()));
}

// Who a process is must be known before the owner of a socket is asked for, and
// both before packets are counted: what runs already is named in between.
absl::Status AttachPrograms(const MeterObject& object, bool grows,
                            Transaction* transaction, Plan* plan) {
  const ExistingMeter& existing = plan->existing;
  Linker linker(plan->cgroup, existing.found, transaction);
  const absl::Status traced =
      linker.Attach(LinkStage::kProcess, object, &plan->features);
  if (!traced.ok() && !(existing.found && IsTransient(traced))) {
    plan->untraceable = traced;
  }
  NETMETER_RETURN_IF_ERROR(traced);
  NoteLeftOut(
      NameRunningProcesses(plan->config, plan->registrants, object),
      "running processes have no name until they open a socket or execute",
      plan);
  // While there is a way back: it may find no memory, and its tables never grow.
  NETMETER_RETURN_IF_ERROR(
      AttachForwarding({!plan->config.uplinks.empty(), existing.found,
                        plan->other_network, plan->types_file},
                       object, transaction, &plan->features));
  // From here on programs count into the new tables.
  if (grows) {
    transaction->NoWayBack(
        "some programs count into larger tables, which readers do not see yet: "
        "the next load completes them");
  }
  NETMETER_RETURN_IF_ERROR(
      linker.Attach(LinkStage::kSocket, object, &plan->features));
  // An upgrade keeps the owners of sockets.
  if (!existing.found || existing.moved) {
    NoteLeftOut(AdoptOpenSockets(plan->cgroup.path, object),
                "open sockets have no owner, and are unattributed until closed",
                plan);
  }
  NETMETER_RETURN_IF_ERROR(
      linker.Attach(LinkStage::kPacket, object, &plan->features));
  NETMETER_RETURN_IF_ERROR(InAttempts([&] { return linker.RemoveUnwanted(); },
                                      transaction->patience()));
  if (!existing.found || existing.moved) return absl::OkStatus();
  for (const LinkPin* link : linker.attached_anew()) {
    if (link->feature != 0 && !existing.has(link->feature)) continue;
    plan->notes.push_back(
        absl::StrCat(link->pin, " was missing: attached anew"));
  }
  return absl::OkStatus();
}

absl::Status WriteInfo(const MeterObject& object, const Plan& plan) {
  NETMETER_RETURN_IF_ERROR(object.WriteInfo(MakeInfo(plan)));
  Step("wrote ", Describe(object.MapFd("info")));
  return absl::OkStatus();
}

// Writes the info and pins the maps, `info` last: with it the meter is complete.
absl::Status Publish(const MeterObject& object, const Plan& plan,
                     Transaction* transaction) {
  NETMETER_RETURN_IF_ERROR(WriteInfo(object, plan));
  NETMETER_RETURN_IF_ERROR(
      transaction->Pin(object.InterfacesFd(), kInterfacesPin));
  for (const MapPin& map : MapPins()) {
    NETMETER_RETURN_IF_ERROR(transaction->Pin(object.MapFd(map.pin), map.pin));
  }
  const absl::Status status =
      SetModes(transaction->pins(), /*successors=*/false, plan.access,
               transaction->OwnsDirectory());
  // Who has opened the meter already is told that there is none.
  if (!status.ok()) {
    InAttempts([&] { return CloseInfo(object.MapFd("info")); }).IgnoreError();
  }
  return status;
}

// Writes the info last: with it nothing is left to be done.
absl::Status PublishUpgrade(const MeterObject& object, const Plan& plan,
                            Transaction* transaction) {
  return InAttempts(
      [&] {
        NETMETER_RETURN_IF_ERROR(SetModes(transaction->pins(),
                                          /*successors=*/false, plan.access,
                                          transaction->OwnsDirectory()));
        return WriteInfo(object, plan);
      },
      transaction->patience());
}

// Starts from the loaded configuration, or from that of a meter whose pins have gone.
absl::Status ChangeConfig(const Transaction& transaction,
                          const ConfigChange& change, bool replaces,
                          Plan* plan) {
  Config config;
  const std::string& kept = transaction.before().config;
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
      // It would take back what only the old one says, such as register_by, and count
      // for the whole host.
      return absl::FailedPreconditionError(absl::StrCat(
          "the loaded configuration is not known (",
          LockFile(transaction.pins().path()),
          " does not tell it): give --config FILE, or --defaults"));
    }
  }
  if (rest) {
    plan->notes.push_back(absl::StrCat(
        "what was loaded here was not whole: loaded anew",
        replaces ? "" : ", with its configuration", ", counters start again"));
  }
  change(&config);
  config.pin_dir = transaction.pins().path();
  plan->config = config;
  StepLines("configuration: ", ConfigAsYaml(config, Keys::kAll));
  NETMETER_RETURN_IF_ERROR(CheckConfig(config));
  for (const std::string& note : WhatHasNoEffect(config)) {
    plan->notes.push_back(note);
  }
  // The next load starts from this text, and has to be able to read it.
  return ParseConfig(ConfigAsYaml(config, Keys::kChanged), "the configuration",
                     Config())
      .status();
}

std::string TextToKeep(const Config& config) {
  return absl::StrCat("# netmeter-loader ", kVersion, "\n",
                      ConfigAsYaml(config, Keys::kChanged));
}

// What cannot be written down the next load cannot start from, and would take back, such
// as register_by: a load without it is none. What is killed after this the next load
// takes to its end. ~Transaction() forgets that of a first load, once its pins have gone:
// while there are some, a load needs it.
absl::Status KeepConfig(Transaction* transaction, const Plan& plan) {
  if (plan.existing.found) {
    transaction->OnFailure([transaction] {
      const LoaderState& before = transaction->before();
      return transaction->KeepConfig(before.config, before.cgroup,
                                     before.created_ns);
    });
  }
  return transaction->KeepConfig(TextToKeep(plan.config), plan.cgroup.path,
                                 plan.created_ns);
}

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

// The rest of 5: what the maps start with, and all pins that can be made while there is a
// way back.
absl::Status FillAndPin(Plan* plan, Growth* growth, MeterObject* object,
                        Transaction* transaction) {
  NETMETER_RETURN_IF_ERROR(FillMaps(plan, growth, object, transaction));
  NETMETER_RETURN_IF_ERROR(FreezeSharedMaps(*object));
  if (growth->from_the_start()) {
    NETMETER_RETURN_IF_ERROR(object->WriteInfo(MakeInfo(*plan)));
    NETMETER_RETURN_IF_ERROR(growth->PinSuccessors(*object));
  }
  // Who may not do this (CAP_CHOWN) never may.
  if (growth->any()) {
    NETMETER_RETURN_IF_ERROR(SetModes(transaction->pins(), /*successors=*/true,
                                      plan->access,
                                      transaction->OwnsDirectory()));
  }
  if (!plan->existing.found) return absl::OkStatus();
  // A number has the name of its uplink before a packet counts under it. The rest of
  // the info is the old one's: the load is not done.
  if (!growth->from_the_start()) {
    NETMETER_RETURN_IF_ERROR(
        InAttempts([&] { return object->WriteInfo(growth->newest()); }));
  }
  return PinRenewedMaps(*object, transaction);
}

// Names may find no room in the tables of a killed growth, which has to be finished
// first, although this load asks for larger ones.
absl::Status WithHint(const absl::Status& filled, const Plan& plan,
                      const PinDir& pins) {
  if (!plan.grows_on || !IsNoRoom(filled)) {
    return filled;
  }
  return absl::Status(
      filled.code(),
      absl::StrCat(filled.message(),
                   ": a growth has to be finished first, to smaller tables "
                   "than these (run: ",
                   LoaderCommand("load", pins.path()),
                   " without other options)"));
}

// What a meter has left of which the info has gone.
absl::Status ClearAway(const ExistingMeter& existing,
                       Transaction* transaction) {
  if (existing.found) return absl::OkStatus();
  NETMETER_RETURN_IF_ERROR(RemoveRest(existing, transaction));
  return CloseLostInfo(transaction->before().created_ns);
}

// Under the lock. What it fails to do the transaction undoes.
absl::StatusOr<LoadResult> LoadLocked(Transaction* transaction,
                                      const ConfigChange& change, bool replaces,
                                      const absl::Status& untraceable,
                                      Plan* plan) {
  const PinDir& pins = transaction->pins();

  // 3. What is there: a meter to be upgraded, the rest of one, or nothing. An upgrade
  //    that was killed is finished below.
  NETMETER_RETURN_IF_ERROR(FindExisting(transaction, &plan->existing));
  const bool upgrade = plan->existing.found;
  plan->created_ns =
      upgrade ? plan->existing.info.created_ns : ClockNs(CLOCK_BOOTTIME);
  NETMETER_RETURN_IF_ERROR(ChangeConfig(*transaction, change, replaces, plan));
  NETMETER_RETURN_IF_ERROR(OpenDefaultCgroup(transaction->before(), plan));
  Growth growth(pins, plan->existing.info);
  const bool killed = transaction->state().changing;
  if (upgrade) {
    NETMETER_RETURN_IF_ERROR(PlanUpgrade(killed, plan, &growth, transaction));
    if (killed) {
      plan->notes.push_back(
          "a load that was killed, or failed, had begun an upgrade: finished");
    }
  }

  // 4. Is there anything to do?
  NETMETER_RETURN_IF_ERROR(DecideIdentity(plan));
  if (!growth.any() && !killed && IsUpToDate(pins, *plan)) {
    // A load that was killed may not have come to the modes.
    NETMETER_RETURN_IF_ERROR(SetModes(pins, /*successors=*/false, plan->access,
                                      transaction->OwnsDirectory()));
    NETMETER_RETURN_IF_ERROR(KeepConfig(transaction, *plan));
    return MakeResult(plan->repaired ? LoadResult::Action::kRepaired
                                     : LoadResult::Action::kUnchanged,
                      *plan);
  }

  // 5. The rest of a load that was killed is cleared away: what was asked for is known
  //    to be good. Programs and maps, which nobody sees yet. Killed: the kernel frees
  //    what no descriptor holds. A growth is forgotten, or, with info_new, finished.
  NETMETER_RETURN_IF_ERROR(ClearAway(plan->existing, transaction));
  plan->adds = FindAdds(plan->cells_per_series > plan->num_cpus);
  absl::StatusOr<std::unique_ptr<MeterObject>> loaded =
      LoadObject(*plan, growth, untraceable, &plan->features);
  if (!loaded.ok()) return loaded.status();
  MeterObject* const object = loaded->get();
  if (growth.any()) NETMETER_RETURN_IF_ERROR(growth.PrepareToClose());
  if (upgrade) NETMETER_RETURN_IF_ERROR(transaction->SetChanging(true));
  NETMETER_RETURN_IF_ERROR(KeepConfig(transaction, *plan));
  if (upgrade) NETMETER_RETURN_IF_ERROR(KeepModesOnFailure(transaction));
  NETMETER_RETURN_IF_ERROR(
      WithHint(FillAndPin(plan, &growth, object, transaction), *plan, pins));

  // 6. Counting begins, or goes on with the new programs. Killed: links without
  //    an info are removed by the next load; of an upgrade some programs are
  //    new and some are old, which count into the same maps, and the next load
  //    sees by the build_id of the info that it is not done.
  NETMETER_RETURN_IF_ERROR(
      AttachPrograms(*object, growth.any(), transaction, plan));
  if (growth.any()) {
    NETMETER_RETURN_IF_ERROR(InAttempts(
        [&] {
          return growth.MergeAndSwitch(*object, plan->access, transaction);
        },
        transaction->patience()));
    transaction->NoWayBack(
        "the larger tables are in use, and the next load completes the rest");
  }

  // 7. Done.
  if (!upgrade) {
    NETMETER_RETURN_IF_ERROR(Publish(*object, *plan, transaction));
    // Of an upgrade of what was left, that was killed.
    transaction->SetChanging(false).IgnoreError();
    return MakeResult(LoadResult::Action::kLoaded, *plan);
  }
  NETMETER_RETURN_IF_ERROR(PublishUpgrade(*object, *plan, transaction));
  transaction->SetChanging(false).IgnoreError();
  NoteChanges(plan);
  return MakeResult(LoadResult::Action::kUpgraded, *plan);
}

// What one load tells the next one, which is made at once.
struct Next {
  bool again = false;
  // The tracing programs, once loaded, could not be attached: without them.
  absl::Status untraceable;
  // It has finished what was begun, and there is more to be done: what it says of that.
  bool finished = false;
  std::vector<std::string> notes;
};

// What `next` has of the loads before this one, which is all one to the caller.
void AddEarlier(const Next& next, LoadResult* result) {
  // Somebody has unloaded in between: what they did has gone.
  if (result->action == LoadResult::Action::kLoaded) return;
  std::vector<std::string> notes = next.notes;
  for (const std::string& note : result->notes) {
    if (std::find(notes.begin(), notes.end(), note) == notes.end()) {
      notes.push_back(note);
    }
  }
  result->notes = notes;
  if (next.finished) result->action = LoadResult::Action::kUpgraded;
}

absl::StatusOr<LoadResult> LoadOnce(const std::string& pin_dir,
                                    const ConfigChange& change, bool replaces,
                                    bool want_spare_cells, Next* next) {
  CaptureLibbpfMessages();
  Plan plan;
  change(&plan.config);
  plan.config.pin_dir = pin_dir;
  next->again = false;

  // 1. What the host has, before anything is changed.
  absl::Status checked = CheckWhatIsAsked(&plan);
  if (checked.ok()) checked = CountCells(want_spare_cells, &plan);
  if (!checked.ok()) return WithState(checked, kNothingWasChanged);

  // 2. The lock and the directory. From here on a return undoes what was done.
  //    Killed: a directory or a mount, which the lock file names.
  absl::StatusOr<std::unique_ptr<Transaction>> begun =
      Transaction::Begin(pin_dir, TextToKeep(plan.config), plan.cgroup.path);
  if (!begun.ok()) return begun.status();
  Transaction* const transaction = begun->get();
  absl::StatusOr<LoadResult> result =
      LoadLocked(transaction, change, replaces, next->untraceable, &plan);
  if (!result.ok()) {
    next->again = !plan.untraceable.ok();
    next->untraceable = plan.untraceable;
    return transaction->Fail(result.status());
  }
  transaction->KeepOnFailure();
  AddEarlier(*next, &*result);
  // It has finished a growth to smaller tables than these, or an older version's, to
  // tables without spare cells.
  next->again =
      plan.grows_on || (plan.cells_per_series == plan.num_cpus &&
                        result->action != LoadResult::Action::kUnchanged &&
                        result->action != LoadResult::Action::kRepaired);
  // Those of the features are the next one's to find.
  next->notes.insert(next->notes.end(), plan.notes.begin(), plan.notes.end());
  next->finished = next->again;
  return result;
}

}  // namespace

absl::StatusOr<LoadResult> Load(const std::string& pin_dir,
                                const ConfigChange& change, bool replaces) {
  Next next;
  absl::StatusOr<LoadResult> result =
      LoadOnce(pin_dir, change, replaces, true, &next);
  for (int i = 0; i < 2 && next.again; i++) {
    result = LoadOnce(pin_dir, change, replaces, true, &next);
  }
  if (!result.ok() && next.finished) {
    return WithState(result.status(),
                     "before that, the growth of an earlier load was finished, "
                     "with all settings but the larger tables");
  }
  return result;
}

absl::StatusOr<LoadResult> Load(const Config& config) {
  return Load(
      config.pin_dir, [&config](Config* all) { *all = config; },
      /*replaces=*/true);
}

absl::StatusOr<LoadResult> LoadWithoutSpareCells(const Config& config) {
  Next next;
  return LoadOnce(
      config.pin_dir, [&config](Config* all) { *all = config; },
      /*replaces=*/true, false, &next);
}

}  // namespace internal
}  // namespace netmeter
