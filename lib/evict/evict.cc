// SPDX-License-Identifier: BSD-3-Clause
#include "lib/evict/evict.h"
#include "lib/base/loader_command.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "bpf/internal.h"
#include "lib/base/clock.h"
#include "lib/base/kernel_object.h"
#include "lib/base/libbpf_log.h"
#include "lib/base/pins.h"
#include "lib/base/status_util.h"
#include "lib/base/unique_fd.h"
#include "lib/loader/meter_state.h"
#include "lib/loader/object.h"
#include "lib/loader/pin_dir.h"
#include "lib/loader/tables.h"
#include "lib/loader/trace.h"
#include "lib/reader/shared_maps.h"

namespace netmeter {
namespace internal {
namespace {

// This many slots or names change hands in one call. Readers have their turn after it.
constexpr size_t kAtOnce = 128;
static_assert(kAtOnce <= NM_MOST_IDLE, "they fit into a packet");
constexpr std::chrono::milliseconds kTurnOfReaders(1);

constexpr uint32_t kBatch = 4096;
constexpr size_t kWordsPerCell = sizeof(nm_cell) / sizeof(nm_u64);

// What the map `idle` has of a slot.
struct LastUse {
  uint64_t head = 0;
  uint64_t total = 0;
  uint64_t since_ns = 0;  // CLOCK_BOOTTIME at which it was first seen so
  uint64_t user = 0;      // whose quota it uses, since its key is gone
};

// An idle slot.
struct IdleSlot {
  uint32_t slot = 0;
  uint64_t total = 0;
  nm_series_key key = {};
  bool linked = false;  // it has a key, or had one: `value`
  nm_series_value value = {};
};

struct IdleName {
  uint32_t id = 0;
  nm_name_key key = {};
  bool linked = false;
};

// What sockets hold: NM_MARK_* by slot or id.
using Marks = std::vector<uint32_t>;

// Calls body(key, value) for each element. The kernel copies bucket by bucket, so an
// element that stays in the map is seen, even if others come and go.
template <typename Key, typename Value, typename Body>
absl::Status ReadAll(int fd, size_t value_size, const char* what, Body body) {
  std::vector<Key> keys(kBatch);
  std::vector<char> values(kBatch * value_size);
  uint32_t position = 0;
  bool begun = false;
  for (;;) {
    uint32_t count = kBatch;
    const int error =
        bpf_map_lookup_batch(fd, begun ? &position : nullptr, &position,
                             keys.data(), values.data(), &count, nullptr);
    if (error != 0 && error != -ENOENT) {
      return ErrnoStatus(error, absl::StrCat("read ", what));
    }
    for (uint32_t i = 0; i < count; i++) {
      Value value;
      memcpy(&value, &values[i * value_size], sizeof(value));
      body(keys[i], value);
    }
    if (error != 0) return absl::OkStatus();
    begun = true;
  }
}

class Sweep {
 public:
  Sweep(const PinDir& pins, const EvictOptions& options,
        std::shared_ptr<const SharedMaps> maps)
      : pins_(pins), options_(options), maps_(std::move(maps)) {}
  ~Sweep() {
    // A program that looks up a key from here on does not find a deleted one.
    if (object_ != nullptr) Say(false).IgnoreError();
    if (uses_ != nullptr) munmap(uses_, uses_bytes_);
  }
  Sweep(const Sweep&) = delete;
  Sweep& operator=(const Sweep&) = delete;

  absl::Status Run(EvictResult* result) {
    // First, because without these waits nothing may be taken back.
    NETMETER_RETURN_IF_ERROR(WaitForRunningPrograms());
    NETMETER_RETURN_IF_ERROR(OpenObject());
    NETMETER_RETURN_IF_ERROR(OpenUses());
    NETMETER_RETURN_IF_ERROR(ReadProcesses());
    NETMETER_RETURN_IF_ERROR(Say(true));
    Trace("sweeps");
    NETMETER_RETURN_IF_ERROR(WaitForRunningPrograms());

    NETMETER_ASSIGN_OR_RETURN(std::vector<IdleSlot> slots, FindIdleSlots());
    std::vector<nm_idle> idle;
    if (!slots.empty()) {
      NETMETER_RETURN_IF_ERROR(UnlinkSlots(&slots));
      NETMETER_ASSIGN_OR_RETURN(slots, KeepWhatIsUsed(slots));
      for (const IdleSlot& one : slots) {
        idle.push_back({static_cast<nm_u16>(one.slot), one.value.user});
      }
    }
    NETMETER_ASSIGN_OR_RETURN(result->series,
                              TakeBack(NM_COMMAND_FOLD, "series", idle));
    // The next series of a slot may have the same head and total: it is new.
    for (const nm_idle& one : idle) uses_[one.id] = LastUse();

    NETMETER_RETURN_IF_ERROR(ReadProcesses());
    NETMETER_ASSIGN_OR_RETURN(std::vector<IdleName> names, FindUnusedNames());
    idle.clear();
    if (!names.empty()) {
      NETMETER_RETURN_IF_ERROR(UnlinkNames(&names));
      NETMETER_ASSIGN_OR_RETURN(names, KeepNamesInUse(names));
      for (const IdleName& name : names) {
        idle.push_back({static_cast<nm_u16>(name.id), 0});
      }
    }
    NETMETER_ASSIGN_OR_RETURN(result->names,
                              TakeBack(NM_COMMAND_FORGET, "names", idle));
    return CountWireNames();
  }

 private:
  const MapView& view() const { return maps_->view(); }
  const nm_u64* Cell(uint32_t slot, uint32_t number) const {
    return CellAt(view(), slot, number);
  }

  // --- What there is -----------------------------------------------------------

  // The shared cell has the head of every series.
  nm_cell HeadOf(uint32_t slot) const {
    const nm_u64 word = __atomic_load_n(Cell(slot, view().cells_per_series - 1),
                                        __ATOMIC_RELAXED);
    nm_cell head = {};
    memcpy(&head, &word, sizeof(word));
    return head;
  }

  // The sum of all counters: if a slot has counted anything since, its sum is another
  // one.
  uint64_t TotalOf(uint32_t slot, bool with_tcp) const {
    uint64_t total = 0;
    for (uint32_t i = 0; i < view().cells_per_series; i++) {
      for (size_t word = 1; word < kWordsPerCell; word++) {
        total += __atomic_load_n(Cell(slot, i) + word, __ATOMIC_RELAXED);
      }
    }
    // The map is never null: SharedMaps::Open() fails without it.
    if (!with_tcp || view().tcp == nullptr) return total;
    const auto* const tcp =
        reinterpret_cast<const nm_u64*>(&TcpAt(view(), slot));
    for (size_t word = 1; word < sizeof(nm_tcp) / sizeof(*tcp); word++) {
      total += __atomic_load_n(tcp + word, __ATOMIC_RELAXED);
    }
    return total;
  }

  nm_name_key KeyOfName(uint32_t id) const {
    const nm_name& name = NameAt(view(), id);
    nm_name_key key = {};
    key.kind = name.kind;
    key.encoding = name.encoding;
    key.length = name.length;
    memcpy(key.bytes, name.bytes, sizeof(key.bytes));
    return key;
  }

  // nm_command and nm_scan, over the maps of the meter that is loaded.
  absl::Status OpenObject() {
    // A file with types does not help: nm_scan is an iterator, of a type of the kernel's.
    NETMETER_ASSIGN_OR_RETURN(const bool shown, KernelShowsTypes());
    if (!shown) {
      return absl::UnimplementedError(
          "the kernel has no BTF (CONFIG_DEBUG_INFO_BTF), without which evict "
          "cannot tell what sockets use");
    }
    NETMETER_ASSIGN_OR_RETURN(const bool may_crash, SocketIteratorMayCrash());
    if (may_crash) {
      return absl::UnimplementedError(
          absl::StrCat("evict could crash this kernel, as any from Linux 7.0 "
                       "on: use larger tables (run: ",
                       LoaderCommand("load", pins_.path()),
                       " --max-series N --max-names N)"));
    }
    const nm_info& info = *view().info;
    ObjectOptions options;
    options.only_sweeps = true;
    options.sizes.cells_per_series = info.cells_per_series;
    options.sizes.max_series = info.max_series;
    options.sizes.max_names = info.max_names;
    options.sizes.max_processes = info.max_processes;
    options.sizes.max_sockets = info.max_sockets;
    options.sizes.first_series = info.first_series;
    options.sizes.first_names = info.first_names;
    NETMETER_ASSIGN_OR_RETURN(auto object, MeterObject::Open(options));
    NETMETER_RETURN_IF_ERROR(ReuseMaps(pins_, info, object.get()));
    NETMETER_RETURN_IF_ERROR(object->Load());
    object_ = std::move(object);
    Trace("loaded nm_command and nm_scan");
    return absl::OkStatus();
  }

  // Makes the map if there is none, or if its size is that of before a growth. Then all
  // series count as just used.
  absl::Status OpenUses() {
    const uint32_t entries = view().max_series;
    uses_bytes_ = sizeof(LastUse) * entries;
    UniqueFd map(bpf_obj_get(pins_.PathOf(kIdlePin).c_str()));
    bpf_map_info about = {};
    if (!map.ok() || !GetInfo(map.get(), &about) ||
        about.max_entries != entries || about.value_size != sizeof(LastUse)) {
      LIBBPF_OPTS(bpf_map_create_opts, options);
      options.map_flags = BPF_F_MMAPABLE;
      map = UniqueFd(bpf_map_create(BPF_MAP_TYPE_ARRAY, "nm_idle",
                                    sizeof(uint32_t), sizeof(LastUse), entries,
                                    &options));
      if (!map.ok()) return ErrnoStatus(errno, "make nm_idle");
      NETMETER_RETURN_IF_ERROR(pins_.Replace(map.get(), kIdlePin));
    }
    void* const memory = mmap(nullptr, uses_bytes_, PROT_READ | PROT_WRITE,
                              MAP_SHARED, map.get(), 0);
    if (memory == MAP_FAILED) return ErrnoStatus(errno, "map nm_idle");
    uses_ = static_cast<LastUse*>(memory);
    return absl::OkStatus();
  }

  // Whether programs look up keys twice.
  absl::Status Say(bool sweeping) const {
    const uint32_t value = sweeping ? 1 : 0;
    absl::StatusOr<uint32_t> done =
        object_->RunCommand(NM_COMMAND_SWEEP, &value, sizeof(value));
    return done.status();
  }

  // A process without a socket may have no id yet: its name's counts.
  absl::Status ReadProcesses() {
    of_processes_.assign(view().max_names, false);
    const int name_ids = object_->MapFd("name_ids");
    return ReadAll<uint32_t, nm_process>(
        object_->MapFd("processes"), sizeof(nm_process), "processes",
        [&](uint32_t, const nm_process& process) {
          nm_name_key key = {};
          uint32_t id = 0;
          key.kind = process.kind;
          memcpy(key.bytes, process.bytes, sizeof(key.bytes));
          key.length = static_cast<nm_u16>(
              strnlen(reinterpret_cast<const char*>(key.bytes), NM_NAME_BYTES));
          bpf_map_lookup_elem(name_ids, &key, &id);
          for (const uint32_t one : {id, uint32_t{process.name}}) {
            if (one < of_processes_.size()) of_processes_[one] = true;
          }
        });
  }

  // The socket table is read first, because owners and state move from there to socket
  // storage, and never back. The entry of a socket that is over holds nothing. Only a
  // packet in a softirq of another CPU may still find that entry, and
  // WaitForRunningPrograms() waits for softirqs, too. If close(2) is to send a RST after
  // the end, the owner is in socket storage (may_send_reset() in bpf/tcp.bpf.h).
  absl::StatusOr<Marks> Held() const {
    Marks held(std::max(view().max_series, view().max_names));
    const auto mark = [&held](uint32_t index, uint32_t bit) {
      if (index < held.size()) held[index] |= bit;
    };
    // As mark_what_is_held() of bpf/evict.bpf.h.
    NETMETER_RETURN_IF_ERROR((ReadAll<uint32_t, nm_entry>(
        object_->MapFd("sockets"), sizeof(nm_entry), "sockets",
        [&](uint32_t, const nm_entry& entry) {
          const nm_u8 life = entry.socket.life;
          if ((life & NM_LIFE_OVER) == NM_LIFE_OVER) return;
          mark(NM_WORD_SLOT(entry.socket.word), NM_MARK_SLOT);
          if ((life & NM_LIFE_OWNED) == 0) return;
          const nm_owner& owner = entry.owner;
          mark(owner.attribution.service, NM_MARK_NAME);
          mark(owner.tag, NM_MARK_NAME);
          mark(owner.wire_destination, NM_MARK_NAME);
          mark(owner.pending_service, NM_MARK_NAME);
          mark(owner.counted, NM_MARK_SLOT);
        })));
    NETMETER_ASSIGN_OR_RETURN(const Marks scanned, object_->ScanSockets());
    for (size_t i = 0; i < std::min(held.size(), scanned.size()); i++) {
      held[i] |= scanned[i];
    }
    return held;
  }

  // A listener may close after the first look. The second look sees the sockets that it
  // has handed on.
  absl::StatusOr<Marks> HeldInTwoLooks() const {
    NETMETER_ASSIGN_OR_RETURN(Marks held, Held());
    NETMETER_ASSIGN_OR_RETURN(const Marks again, Held());
    for (size_t i = 0; i < held.size(); i++) held[i] |= again[i];
    return held;
  }

  // --- Series ------------------------------------------------------------------

  bool IsNeeded(const nm_cell& head, uint32_t slot, const Marks& held) const {
    return head.service >= of_processes_.size() ||
           of_processes_[head.service] ||
           (held[head.service] & NM_MARK_NAME) != 0 ||
           (held[slot] & NM_MARK_SLOT) != 0;
  }

  absl::StatusOr<std::vector<IdleSlot>> FindIdleSlots() {
    NETMETER_ASSIGN_OR_RETURN(const Marks held, Held());
    const uint64_t now = ClockNs(CLOCK_BOOTTIME);
    std::vector<IdleSlot> idle;
    for (uint32_t slot = NM_SLOT_FIRST; slot < view().max_series; slot++) {
      const nm_cell head = HeadOf(slot);
      // A free slot, an evicted series, or `unattributed` of an uplink.
      if (head.service <= NM_NAME_UNATTRIBUTED) continue;
      IdleSlot found;
      found.slot = slot;
      found.value.user = static_cast<nm_u16>(uses_[slot].user);
      found.total = TotalOf(slot, /*with_tcp=*/true);
      LastUse use;
      memcpy(&use.head, &head, sizeof(use.head));
      use.total = found.total;
      use.since_ns = now;
      if (uses_[slot].head != use.head || uses_[slot].total != use.total) {
        // The slot has the series of the call before, which was killed before it gave
        // back the quota.
        if (uses_[slot].head == use.head) use.user = uses_[slot].user;
        uses_[slot] = use;
      }
      const uint64_t idle_ns = now - uses_[slot].since_ns;
      if (idle_ns / 1000000000 < options_.idle_seconds) continue;
      if (IsNeeded(head, slot, held)) continue;
      // The amounts of a pending series settle when its connections end. Then they are 0.
      if (head.kind == NM_KIND_PENDING && TotalOf(slot, false) != 0) continue;
      found.key.service = head.service;
      found.key.destination = head.destination;
      found.key.transport = head.transport;
      found.key.path = head.path;
      found.key.special =
          head.kind == NM_KIND_PENDING ? NM_SPECIAL_PENDING : NM_SPECIAL_NONE;
      idle.push_back(found);
    }
    return idle;
  }

  absl::Status UnlinkSlots(std::vector<IdleSlot>* slots) const {
    const int series = object_->MapFd("series");
    for (IdleSlot& one : *slots) {
      nm_series_value value;
      // The key may be another slot's, if a call was killed.
      if (bpf_map_lookup_elem(series, &one.key, &value) != 0 ||
          value.slot != one.slot) {
        continue;
      }
      one.value = value;
      one.linked = true;
      uses_[one.slot].user =
          value.user;  // for the next call, if this one is killed
      if (int error = bpf_map_delete_elem(series, &one.key)) {
        return ErrnoStatus(error, "unlink a series");
      }
    }
    Trace("unlinked ", slots->size(), " series");
    return WaitForRunningPrograms();
  }

  // Gives used slots their keys back. Returns the others, which only their cells know
  // now.
  absl::StatusOr<std::vector<IdleSlot>> KeepWhatIsUsed(
      const std::vector<IdleSlot>& slots) const {
    NETMETER_ASSIGN_OR_RETURN(const Marks held, HeldInTwoLooks());
    const int series = object_->MapFd("series");
    std::vector<IdleSlot> rest;
    for (const IdleSlot& one : slots) {
      if (!IsNeeded(HeadOf(one.slot), one.slot, held) &&
          TotalOf(one.slot, true) == one.total) {
        rest.push_back(one);
      } else if (one.linked) {
        // The key exists already if a packet has created the series again.
        bpf_map_update_elem(series, &one.key, &one.value, BPF_NOEXIST);
      }
    }
    Trace("looked for the sockets of ", slots.size(), " series: ", rest.size(),
          " have none");
    NETMETER_RETURN_IF_ERROR(WaitForRunningPrograms());
    return rest;
  }

  // --- Names -------------------------------------------------------------------

  absl::StatusOr<std::vector<bool>> NamesInUse(const Marks& held) const {
    std::vector<bool> used = of_processes_;
    const auto use = [&used](uint32_t id) {
      if (id < used.size()) used[id] = true;
    };
    for (uint32_t id = 0; id < NM_NAME_FIRST; id++) use(id);
    for (const uint32_t id : view().info->uplinks) use(id);
    for (uint32_t id = 0; id < used.size(); id++) {
      if (held[id] & NM_MARK_NAME) use(id);
    }
    for (uint32_t slot = 1; slot < view().max_series; slot++) {
      const nm_cell head = HeadOf(slot);
      if (head.kind == NM_KIND_EVICTED) continue;
      use(head.service);
      use(head.destination);
    }
    // A series that was made just now has its key before its head.
    NETMETER_RETURN_IF_ERROR((ReadAll<nm_series_key, nm_series_value>(
        object_->MapFd("series"), sizeof(nm_series_value), "series",
        [&](const nm_series_key& key, const nm_series_value&) {
          if (key.special == NM_SPECIAL_EVICTED) return;
          use(key.service);
          use(key.destination);
        })));
    NETMETER_ASSIGN_OR_RETURN(const UniqueFd rules, pins_.Open("rules"));
    for (uint32_t i = 0; i < NM_MAX_RULES; i++) {
      nm_rule rule = {};
      if (bpf_map_lookup_elem(rules.get(), &i, &rule) == 0) {
        use(rule.destination);
      }
    }
    return used;
  }

  absl::StatusOr<std::vector<IdleName>> FindUnusedNames() const {
    NETMETER_ASSIGN_OR_RETURN(const Marks held, Held());
    NETMETER_ASSIGN_OR_RETURN(const std::vector<bool> used, NamesInUse(held));
    std::vector<IdleName> names;
    for (uint32_t id = NM_NAME_FIRST; id < view().max_names; id++) {
      if (used[id] || NameAt(view(), id).length == 0) continue;
      IdleName name;
      name.id = id;
      name.key = KeyOfName(id);
      names.push_back(name);
    }
    return names;
  }

  // A listener of SCTP that has closed may have left a note about its owner. A connection
  // that it accepted, and that had no packet yet, is then unattributed.
  absl::Status ForgetListeners(const std::vector<IdleName>& names) const {
    std::set<uint32_t> ids;
    for (const IdleName& name : names) ids.insert(name.id);
    std::vector<nm_listener_key> gone;
    NETMETER_ASSIGN_OR_RETURN(const UniqueFd map, pins_.Open("listeners"));
    NETMETER_RETURN_IF_ERROR((ReadAll<nm_listener_key, nm_listener>(
        map.get(), sizeof(nm_listener), "listeners",
        [&](const nm_listener_key& key, const nm_listener& listener) {
          if (ids.count(listener.attribution.service) != 0 ||
              ids.count(listener.tag) != 0) {
            gone.push_back(key);
          }
        })));
    for (const nm_listener_key& key : gone) {
      const int error = bpf_map_delete_elem(map.get(), &key);
      if (error != 0 && error != -ENOENT) {
        return ErrnoStatus(error, "forget a listener");
      }
    }
    return absl::OkStatus();
  }

  absl::Status UnlinkNames(std::vector<IdleName>* names) const {
    const int name_ids = object_->MapFd("name_ids");
    for (IdleName& name : *names) {
      uint32_t id = 0;
      if (bpf_map_lookup_elem(name_ids, &name.key, &id) != 0 || id != name.id) {
        continue;
      }
      name.linked = true;
      if (int error = bpf_map_delete_elem(name_ids, &name.key)) {
        return ErrnoStatus(error, "unlink a name");
      }
    }
    NETMETER_RETURN_IF_ERROR(ForgetListeners(*names));
    Trace("unlinked ", names->size(), " names");
    return WaitForRunningPrograms();
  }

  absl::StatusOr<std::vector<IdleName>> KeepNamesInUse(
      const std::vector<IdleName>& names) const {
    NETMETER_ASSIGN_OR_RETURN(const Marks held, HeldInTwoLooks());
    // A program may still run for a socket that is closed by now, and make a series of
    // that name.
    NETMETER_RETURN_IF_ERROR(WaitForRunningPrograms());
    NETMETER_ASSIGN_OR_RETURN(const std::vector<bool> used, NamesInUse(held));
    const int name_ids = object_->MapFd("name_ids");
    std::vector<IdleName> rest;
    for (const IdleName& name : names) {
      uint32_t id = 0;
      // A name without a key at the first look was just being made by a program, or is
      // left from a call that was killed.
      const bool has_key =
          bpf_map_lookup_elem(name_ids, &name.key, &id) == 0 && id == name.id;
      const nm_name_key key = KeyOfName(name.id);
      const bool same = memcmp(&key, &name.key, sizeof(key)) == 0;
      if (!used[name.id] && !has_key && same) {
        rest.push_back(name);
      } else if (name.linked) {
        bpf_map_update_elem(name_ids, &name.key, &name.id, BPF_NOEXIST);
      }
    }
    Trace("looked for users of ", names.size(), " names: ", rest.size(),
          " have none");
    return rest;
  }

  // Lowers each service's number of wire names, which is bounded, by those that were
  // evicted. A name that the service adds at this moment may be missing in it.
  absl::Status CountWireNames() const {
    std::vector<std::set<uint32_t>> names(view().max_names);
    for (uint32_t slot = NM_SLOT_FIRST; slot < view().max_series; slot++) {
      const nm_cell head = HeadOf(slot);
      if (head.kind == NM_KIND_EVICTED || head.service >= names.size() ||
          head.destination >= names.size() ||
          NameAt(view(), head.destination).kind != NM_KIND_WIRE) {
        continue;
      }
      names[head.service].insert(head.destination);
    }
    const int counts = object_->MapFd("wire_names");
    return ReadAll<uint32_t, uint32_t>(
        counts, sizeof(uint32_t), "nm_wire_names",
        [&](uint32_t service, uint32_t count) {
          if (service >= names.size() || count <= names[service].size()) return;
          count = static_cast<uint32_t>(names[service].size());
          bpf_map_update_elem(counts, &service, &count, BPF_ANY);
        });
  }

  // --- The sweep ---------------------------------------------------------------

  absl::StatusOr<uint32_t> TakeBack(nm_command_code code, const char* what,
                                    const std::vector<nm_idle>& idle) const {
    for (size_t first = 0; first < idle.size(); first += kAtOnce) {
      const size_t count = std::min(kAtOnce, idle.size() - first);
      if (first != 0) std::this_thread::sleep_for(kTurnOfReaders);
      NETMETER_RETURN_IF_ERROR(object_
                                   ->RunCommand(code, &idle[first],
                                                count * sizeof(nm_idle),
                                                static_cast<uint32_t>(count))
                                   .status());
      Trace("took back ", first + count, " of ", idle.size(), " ", what);
    }
    return static_cast<uint32_t>(idle.size());
  }

  const PinDir& pins_;
  const EvictOptions& options_;
  const std::shared_ptr<const SharedMaps> maps_;
  std::unique_ptr<MeterObject> object_;
  LastUse* uses_ = nullptr;  // the map `idle`
  size_t uses_bytes_ = 0;
  std::vector<bool> of_processes_;  // ids of names that running processes have
};

// Under the lock.
absl::Status CheckMeter(const PinDir& pins) {
  NETMETER_ASSIGN_OR_RETURN(const FoundMeter meter, FindMeter(pins));
  const auto refuse = [&](absl::string_view why, const char* command) {
    return absl::FailedPreconditionError(absl::StrCat(
        pins.path(), why, LoaderCommand(command, pins.path()), ")"));
  };
  const auto& missing =
      meter.missing_maps.empty() ? meter.missing_links : meter.missing_maps;
  switch (meter.state) {
    case MeterState::kNotLoaded:
      return absl::NotFoundError(absl::StrCat(pins.path(), ": not loaded"));
    case MeterState::kUnfinished:
      return refuse(": an unfinished upgrade comes first (run: ", "load");
    case MeterState::kOtherAbi:
    case MeterState::kLoaded:
      if (meter.info.build_id == BuildId()) return absl::OkStatus();
      return refuse(" was loaded by another version (run: ", "load");
    default:
      return refuse(absl::StrCat(" is damaged: ",
                                 missing.empty() ? "an unload was killed"
                                 : meter.missing_maps.empty()
                                     ? "programs are not attached: "
                                     : "these maps are missing: ",
                                 absl::StrJoin(missing, ", "), " (see: "),
                    "status");
  }
}

}  // namespace

absl::StatusOr<EvictResult> Evict(const EvictOptions& options) {
  const std::string& pin_dir = options.pin_dir;
  const PinDir pins(pin_dir);
  CaptureLibbpfMessages();
  NETMETER_ASSIGN_OR_RETURN(const auto lock, LockedDirectory::Lock(pin_dir));
  NETMETER_RETURN_IF_ERROR(CheckMeter(pins));
  NETMETER_ASSIGN_OR_RETURN(const auto maps, SharedMaps::Open(pin_dir));
  const MapView& view = maps->view();

  EvictResult result;
  const auto measure = [&] {
    result.series_used =
        __atomic_load_n(&view.stats->series_used, __ATOMIC_RELAXED);
    result.names_used =
        __atomic_load_n(&view.stats->names_used, __ATOMIC_RELAXED);
    result.series_limit = view.max_series - NM_SLOT_FIRST;
    result.names_limit = view.max_names - NM_NAME_FIRST;
  };
  measure();
  const uint64_t part = options.full_percent;
  result.needed = result.series_used * 100 >= result.series_limit * part ||
                  result.names_used * 100 >= result.names_limit * part;
  if (!result.needed) return result;
  NETMETER_RETURN_IF_ERROR(Sweep(pins, options, maps).Run(&result));
  Trace("swept");
  measure();
  return result;
}

namespace {

// As the timer in docs/operations.md: the other half of the table fills slowly, and a
// host with room in its tables seldom evicts.
constexpr uint32_t kFullPercentAtLoad = 50;

}  // namespace

std::string EvictAfterLoad(const std::string& pin_dir) {
  EvictOptions options;
  options.pin_dir = pin_dir;
  options.full_percent = kFullPercentAtLoad;
  const absl::StatusOr<EvictResult> result = Evict(options);
  if (!result.ok()) {
    return absl::StrCat("idle series were not evicted: ",
                        result.status().message());
  }
  if (!result->needed) return "";
  return absl::StrCat("the tables are more than half full: evicted ",
                      result->series, " idle series and ", result->names,
                      " idle names");
}

}  // namespace internal
}  // namespace netmeter
