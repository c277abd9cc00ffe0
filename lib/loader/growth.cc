// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/growth.h"

#include <bpf/bpf.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "lib/core/pins.h"
#include "lib/core/status_util.h"
#include "lib/core/unique_fd.h"
#include "lib/loader/attempts.h"
#include "lib/loader/kernel_object.h"
#include "lib/loader/shares.h"
#include "lib/loader/step.h"
#include "lib/loader/switch.h"
#include "lib/loader/uplinks.h"

namespace netmeter {
namespace internal {
namespace {

// What stands after the switch, until the old info is closed.
constexpr char kReadersAreNotTold[] =
    "the larger tables are in place, but readers that run see the old totals "
    "until the next load";

absl::Status DrainQueues(const PinDir& pins) {
  absl::StatusOr<UniqueFd> slots = pins.Open("free_slots"),
                           names = pins.Open("free_names");
  for (const auto* fd : {&slots, &names}) {
    if (!fd->ok()) return fd->status();
  }
  return DrainFreeIds({slots->get(), names->get()}, WaitForRunningPrograms);
}

// Whether the queue has at least one element.
absl::StatusOr<bool> HasFreeIds(int queue) {
  uint32_t id;
  bpf_map_info map = {};
  const std::string what = "look into a queue of free ids";
  if (!GetInfo(queue, &map)) return ErrnoStatus(errno, what);
  if (map.value_size != sizeof(id)) return ErrnoStatus(EINVAL, what);
  const int error = bpf_map_lookup_elem(queue, nullptr, &id);
  if (error == 0 || error == -ENOENT) return error == 0;
  return ErrnoStatus(error, what);
}

// Whether the meter has handed out no slot, or no name, for a while: the queue is empty,
// although not all are in use.
absl::StatusOr<bool> AreDrained(const PinDir& pins) {
  absl::StatusOr<UniqueFd> slots = pins.Open("free_slots"),
                           names = pins.Open("free_names"),
                           stats = pins.Open("stats"), info = pins.Open("info");
  for (const auto* fd : {&slots, &names, &stats, &info}) {
    if (!fd->ok()) return fd->status();
  }
  const auto are_drained = [&]() -> absl::StatusOr<bool> {
    nm_stats used = {};
    nm_info limits = {};
    if (!ReadOnlyValue(stats->get(), &used) ||
        !ReadOnlyValue(info->get(), &limits)) {
      return ErrnoStatus(errno, "read how many ids are in use");
    }
    const absl::StatusOr<bool> slot = HasFreeIds(slots->get()),
                               name = HasFreeIds(names->get());
    if (!slot.ok()) return slot;
    if (!name.ok()) return name;
    return (!*slot && NM_SLOT_FIRST + used.series_used < limits.max_series) ||
           (!*name && NM_NAME_FIRST + used.names_used < limits.max_names);
  };
  const absl::StatusOr<bool> drained = are_drained();
  if (!drained.ok() || !*drained) return drained;
  // Or a program has taken the last one, and is about to say so.
  WaitForRunningPrograms();
  return are_drained();
}

// What is free by the tables of the old meter, into its queues: both, or one would
// be filled twice.
absl::Status RefillQueues(const PinDir& pins, const nm_info& existing) {
  absl::StatusOr<UniqueFd> series = pins.Open("series"),
                           name_ids = pins.Open("name_ids"),
                           free_slots = pins.Open("free_slots"),
                           free_names = pins.Open("free_names"),
                           counters = pins.Open("counters"),
                           names = pins.Open("names");
  for (const auto* fd :
       {&series, &name_ids, &free_slots, &free_names, &counters, &names}) {
    if (!fd->ok()) return fd->status();
  }
  NETMETER_RETURN_IF_ERROR(DrainQueues(pins));
  NETMETER_RETURN_IF_ERROR(FillQueuesOfFreeIds(
      {series->get(), name_ids->get(), free_slots->get(), free_names->get(),
       counters->get(), names->get(), existing.cells_per_series},
      existing.max_series, existing.max_names, /*object=*/nullptr));
  Step("filled free_slots and free_names again");
  return absl::OkStatus();
}

// `info` first: with it the next load would finish the growth.
// What cannot be removed ends it: without `info` the rest means nothing, and not the
// other way round.
absl::Status RemoveSuccessors(const PinDir& pins) {
  for (auto map = MapPins().rbegin(); map != MapPins().rend(); ++map) {
    NETMETER_RETURN_IF_ERROR(pins.Remove(NewPin(map->pin)));
  }
  return pins.Remove(kMergedPin);
}

}  // namespace

absl::Status DrainFreeIds(const std::vector<int>& queues,
                          const std::function<void()>& wait_for_programs) {
  for (bool first = true, found = true; found; first = false) {
    found = first;
    for (const int queue : queues) {
      uint32_t id;
      int end;
      while ((end = bpf_map_lookup_and_delete_elem(queue, nullptr, &id)) == 0) {
        found = true;
      }
      // With anything left in it the old programs would go on handing out.
      if (end != -ENOENT) {
        return ErrnoStatus(end, absl::StrCat("drain ", Describe(queue)));
      }
      if (first) Step("drained ", Describe(queue));
    }
    // A program that took an id is still on its way to use it, or to give it back.
    if (found) wait_for_programs();
  }
  return absl::OkStatus();
}

absl::Status Growth::Plan(Config* config, uint32_t* cells_per_series,
                          std::vector<std::string>* notes) {
  nm_info sizes = existing_;
  if (pins_.Has(NewPin("info"))) {
    absl::StatusOr<UniqueFd> info = pins_.Open(NewPin("info"));
    if (!info.ok()) return info.status();
    bpf_map_info map = {};
    if (!GetInfo(info->get(), &map) || map.value_size != sizeof(sizes)) {
      return absl::FailedPreconditionError(
          "info_new is of another version, whose load has to finish first");
    }
    const uint32_t zero = 0;
    if (int error = bpf_map_lookup_elem(info->get(), &zero, &sizes)) {
      return ErrnoStatus(error, "read info_new");
    }
    newest_ = sizes;
    stage_ = Stage::kFinish;
  }
  // Smaller tables would take slots and names from those who have them.
  auto keep = [&](const char* name, uint32_t loaded, bool may_grow,
                  uint32_t* wanted) {
    if (*wanted == loaded) return;
    const bool grows = may_grow && *wanted > loaded;
    if (grows && stage_ != Stage::kFinish) {
      stage_ = Stage::kStart;
      return;
    }
    if (grows) {
      grows_on_ = true;
    } else {
      notes->push_back(absl::StrCat(name, " stays ", loaded,
                                    " until unload, not ", *wanted));
    }
    *wanted = loaded;
  };
  config->max_sockets = RoundUpToPowerOfTwo(config->max_sockets);
  keep("max_series", sizes.max_series, true, &config->max_series);
  keep("max_names", sizes.max_names, true, &config->max_names);
  keep("max_processes", sizes.max_processes, false, &config->max_processes);
  keep("max_sockets", sizes.max_sockets, false, &config->max_sockets);
  if (stage_ == Stage::kFinish) {
    *cells_per_series = sizes.cells_per_series;
  } else if (*cells_per_series != sizes.cells_per_series) {
    stage_ = Stage::kStart;
  }
  if (stage_ != Stage::kFinish) {
    NETMETER_RETURN_IF_ERROR(RemoveSuccessors(pins_));
  }
  return absl::OkStatus();
}

absl::Status Growth::ReuseMaps(MeterObject* object) const {
  for (const MapPin& map : MapPins()) {
    if (!map.kept) continue;
    std::string pin = map.pin;
    if (any() && map.grows) {
      if (from_the_start()) continue;  // made anew
      // What was renamed already is the new one.
      if (pins_.Has(NewPin(pin))) pin = NewPin(pin);
    }
    absl::StatusOr<UniqueFd> fd = pins_.Open(pin);
    if (!fd.ok()) return fd.status();
    NETMETER_RETURN_IF_ERROR(object->Reuse(map.pin, fd->get(), pins_.path()));
  }
  NETMETER_RETURN_IF_ERROR(ReuseInterfaces(pins_, object));
  NETMETER_RETURN_IF_ERROR(ReuseShares(pins_, /*required=*/false, object));
  return any() ? ReuseOldCounters(object) : absl::OkStatus();
}

absl::Status Growth::ReuseOldCounters(MeterObject* object) const {
  // Where the totals come from. Once counters is the new one, all are merged: an
  // older version renamed one pin after the other.
  if (!from_the_start() && !pins_.Has(NewPin("counters"))) {
    return absl::OkStatus();
  }
  absl::StatusOr<UniqueFd> counters = pins_.Open("counters");
  if (!counters.ok()) return counters.status();
  absl::StatusOr<UniqueFd> tcp = pins_.Open("tcp");
  if (!tcp.ok()) return tcp.status();
  absl::StatusOr<UniqueFd> merged = UniqueFd();
  if (!from_the_start()) merged = pins_.Open(kMergedPin);
  if (!merged.ok()) return merged.status();
  return object->ReuseOldCounters(
      counters->get(), tcp->get(), merged->get(),
      existing_.max_series * existing_.cells_per_series);
}

// --- Parts 1 and 2 -----------------------------------------------------------

absl::Status Growth::DrainAndCopy(MeterObject* object,
                                  Transaction* transaction) {
  // As if nothing had been tried. The queues come last: what is pinned tells the
  // next load that it has to look at them, and it finds no successors.
  const PinDir& pins = pins_;
  const nm_info existing = existing_;
  transaction->OnFailure([&pins] { return SettleTables(pins); },
                         Transaction::Rest::kHarmless);
  NETMETER_RETURN_IF_ERROR(InAttempts([&] { return TrySwitch(pins); }));
  transaction->OnFailure([&pins, existing] {
    NETMETER_RETURN_IF_ERROR(RemoveSuccessors(pins));
    return RefillQueues(pins, existing);
  });
  // Not earlier: the verifier has taken its time, and while the queues are
  // empty a new series is overflow and a registration is refused.
  NETMETER_RETURN_IF_ERROR(DrainQueues(pins_));
  return CopyTables(object);
}

absl::Status Growth::CopyTables(MeterObject* object) const {
  absl::StatusOr<UniqueFd> names = pins_.Open("names"),
                           series = pins_.Open("series"),
                           name_ids = pins_.Open("name_ids"),
                           counters = pins_.Open("counters");
  for (const auto* fd : {&names, &series, &name_ids, &counters}) {
    if (!fd->ok()) return fd->status();
  }
  auto update = [&](const char* pin, const void* key, const void* value) {
    return ErrnoStatus(
        bpf_map_update_elem(object->MapFd(pin), key, value, BPF_ANY),
        absl::StrCat("fill ", ObjectNameOf(pin)));
  };
  // Names before their ids, and ids before series, each of which points to the
  // one before; the queues last, of what is free then.
  for (uint32_t id = 0; id < existing_.max_names; id++) {
    nm_name name;
    if (int error = bpf_map_lookup_elem(names->get(), &id, &name)) {
      return ErrnoStatus(error, "copy names");
    }
    if (name.length == 0) continue;
    NETMETER_RETURN_IF_ERROR(update("names", &id, &name));
  }
  NETMETER_RETURN_IF_ERROR((ForEachElement<nm_name_key, uint32_t>(
      name_ids->get(), [&](const nm_name_key& key, uint32_t id) {
        return update("name_ids", &key, &id);
      })));
  NETMETER_RETURN_IF_ERROR((ForEachElement<nm_series_key, nm_series_value>(
      series->get(),
      [&](const nm_series_key& key, const nm_series_value& value) {
        return update("series", &key, &value);
      })));
  return object->FillQueues(counters->get(), existing_.cells_per_series);
}

// The order is that of the table, with `info` last: it is what tells the next
// load that all others are there.
absl::Status Growth::PinSuccessors(const MeterObject& object) {
  NETMETER_RETURN_IF_ERROR(pins_.Pin(object.MergedFd(), kMergedPin));
  for (const MapPin& map : MapPins()) {
    if (!map.grows) continue;
    NETMETER_RETURN_IF_ERROR(pins_.Pin(object.MapFd(map.pin), NewPin(map.pin)));
  }
  return absl::OkStatus();
}

// --- Parts 4 and 5 -----------------------------------------------------------

absl::Status Growth::PrepareToClose() {
  absl::StatusOr<UniqueFd> info = pins_.Open("info");
  if (!info.ok()) return info.status();
  absl::StatusOr<UniqueFd> closer = LoadCloser(info->get());
  if (!closer.ok()) return closer.status();
  closer_ = *std::move(closer);
  Step("loaded what will close ", Describe(info->get()));
  return absl::OkStatus();
}

absl::Status Growth::MergeAndSwitch(const MeterObject& object,
                                    const ReadAccess& access,
                                    Transaction* transaction) {
  // One that has failed, in an attempt before this one.
  NETMETER_RETURN_IF_ERROR(SettleTables(pins_));
  NETMETER_RETURN_IF_ERROR(MergeCounters(object));
  // Whoever reads the old maps opens the new ones, once they are in place;
  // until then he sees the old totals. The load has done this already, but the group
  // may be another one by now.
  NETMETER_RETURN_IF_ERROR(SetModes(pins_, /*successors=*/true, access,
                                    transaction->OwnsDirectory()));
  if (pins_.Has(NewPin("info"))) {
    // A second name, so that a load that is killed between the two steps
    // leaves it for the next one to retire.
    const std::string old_info = pins_.PathOf(kOldInfoPin);
    unlink(old_info.c_str());
    if (link(pins_.PathOf("info").c_str(), old_info.c_str()) != 0) {
      return ErrnoStatus(errno, absl::StrCat("link ", old_info));
    }
    Step("linked ", old_info);
    const absl::Status switched = SwitchTables(pins_);
    if (LeadsToNewTables(pins_)) transaction->NoWayBack(kReadersAreNotTold);
    NETMETER_RETURN_IF_ERROR(switched);
  }
  // Or an attempt before this one has made it.
  transaction->NoWayBack(kReadersAreNotTold);
  if (pins_.Has(kMergedPin)) {
    NETMETER_RETURN_IF_ERROR(pins_.Remove(kMergedPin));
    Step("unpinned ", pins_.PathOf(kMergedPin));
  }
  return CloseOldInfo(pins_, closer_.get());
}

// The old programs have been replaced at all hooks. Those that were running
// then may still add to old cells, so that their end is waited for first.
absl::Status Growth::MergeCounters(const MeterObject& object) const {
  WaitForRunningPrograms();
  // In portions: the verifier bounds how long the loop of a program may be.
  const uint32_t cells = existing_.max_series * existing_.cells_per_series;
  for (uint32_t first = 0; first < cells; first += NM_MERGE_CELLS) {
    const nm_merge merge = {first,
                            std::min<uint32_t>(NM_MERGE_CELLS, cells - first)};
    absl::StatusOr<uint32_t> done =
        object.RunCommand(NM_COMMAND_MERGE, &merge, sizeof(merge));
    if (!done.ok()) return done.status();
    if (first == 0 || first + merge.count == cells) {
      Step("added the totals of ", first + merge.count, " of ", cells,
           " cells");
    }
  }
  return absl::OkStatus();
}

// --- What a killed growth leaves behind --------------------------------------

absl::Status RefillDrainedQueues(const nm_info& existing, bool killed,
                                 Transaction* transaction, bool* refilled) {
  const PinDir& pins = transaction->pins();
  // Of a queue that was drained in part nothing but the lock file tells.
  if (!killed) {
    bool drained = false;
    NETMETER_RETURN_IF_ERROR(InAttempts([&] {
      const absl::StatusOr<bool> found = AreDrained(pins);
      drained = found.value_or(false);
      return found.status();
    }));
    *refilled = drained;
    if (!drained) return absl::OkStatus();
  }
  // It drains the other queue as well, and nothing else tells of a kill in between.
  NETMETER_RETURN_IF_ERROR(transaction->SetChanging(true));
  const auto refill = [&pins, existing] {
    return RefillQueues(pins, existing);
  };
  const absl::Status filled = InAttempts(refill);
  if (!filled.ok()) {
    transaction->OnFailure(refill);
    return filled;
  }
  return killed ? absl::OkStatus() : transaction->SetChanging(false);
}

absl::Status CloseOldInfo(const PinDir& pins, int closer) {
  if (!pins.Has(kOldInfoPin)) return absl::OkStatus();
  absl::StatusOr<UniqueFd> info = pins.Open(kOldInfoPin);
  if (!info.ok()) return info.status();
  absl::StatusOr<UniqueFd> current = pins.Open("info");
  bpf_map_info about = {}, other = {};
  if (!current.ok() || !GetInfo(info->get(), &about) ||
      !GetInfo(current->get(), &other)) {
    return absl::InternalError("read info_old");
  }
  // Killed before the rename, it is still the one that is in use.
  if (about.id != other.id) {
    NETMETER_RETURN_IF_ERROR(closer >= 0 ? RunCloser(closer)
                                         : CloseInfo(info->get()));
    Step("closed ", Describe(info->get()));
  }
  NETMETER_RETURN_IF_ERROR(pins.Remove(kOldInfoPin));
  Step("unpinned ", pins.PathOf(kOldInfoPin));
  return absl::OkStatus();
}

bool IsUnfinished(const std::string& pin_dir) {
  const PinDir pins(pin_dir);
  if (pins.HasOurs(kMergedPin, kMergedPin) ||
      pins.HasOurs(kOldInfoPin, "info") || LeadThroughSwitch(pins)) {
    return true;
  }
  for (const MapPin& map : MapPins()) {
    if (pins.HasOurs(NewPin(map.pin), map.pin)) return true;
  }
  return AreDrained(pins).value_or(false);
}

}  // namespace internal
}  // namespace netmeter
