// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/connections/follower.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "bpf/config.h"
#include "flows.skel.h"
#include "lib/base/cgroup.h"
#include "lib/base/kernel_object.h"
#include "lib/base/libbpf_log.h"
#include "lib/base/netfilter.h"
#include "lib/base/pins.h"
#include "lib/base/status_util.h"
#include "lib/base/unique_fd.h"
#include "lib/base/version.h"
#include "lib/netlink/interfaces.h"
#include "lib/reader/uplinks.h"

namespace netmeter {
namespace internal {
namespace {

constexpr std::chrono::milliseconds kScanInterval{250};
// The RST that ends a socket may follow its end, but within the same call.
constexpr uint64_t kRstNs = 100000000;
// Packets of a forwarded connection may follow its end: the last acknowledgement, and
// retransmissions.
constexpr uint64_t kLateNs = 1000000000;
constexpr uint32_t kBatch = 512;
constexpr uint32_t kSlots = 65536;  // nm_socket.word has 16 bits of a slot
constexpr uint32_t kMaxUnrecorded = 65536;  // maximum of nm_unrecorded
// The number of flows that a scan copies out of the kernel; the next scan continues from
// there. This takes some ten milliseconds, however many flows other hosts' SYNs make. A
// scan of a whole table of 262,144 takes four seconds.
constexpr uint32_t kFlowsOfScan = 16384;
// The number of records that are read at once: some ten milliseconds. For each
// kEndsAtOnce ends of flows, 2 * kEndsAtOnce records are read, so that these ends do not
// fill the buffer.
constexpr int kRecordsOfCall = 4096;
constexpr int kEndsAtOnce = 256;

uint64_t MonotonicNs() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000 +
         static_cast<uint64_t>(now.tv_nsec);
}

// The maps that the meter's programs use, by name, including those without a pin.
struct MeterMaps {
  std::map<std::string, UniqueFd> by_name;
  uint64_t cgroup_id = 0;
};

absl::Status AddMapsOfLink(const std::string& path, bool required,
                           MeterMaps* maps) {
  const UniqueFd link(bpf_obj_get(path.c_str()));
  if (!link.ok()) {
    if (!required && errno == ENOENT) return absl::OkStatus();
    return ErrnoStatus(errno, absl::StrCat("open ", path), "run as root");
  }
  bpf_link_info about = {};
  if (!GetInfo(link.get(), &about)) {
    return ErrnoStatus(errno, absl::StrCat("look at ", path), "run as root");
  }
  maps->cgroup_id = about.cgroup.cgroup_id;
  const UniqueFd program(bpf_prog_get_fd_by_id(about.prog_id));
  bpf_prog_info counted = {};
  if (!program.ok() || !GetInfo(program.get(), &counted)) {
    return ErrnoStatus(errno, absl::StrCat("open the program of ", path),
                       "run as root");
  }
  std::vector<uint32_t> ids(counted.nr_map_ids);
  bpf_prog_info with_maps = {};
  with_maps.map_ids = reinterpret_cast<uintptr_t>(ids.data());
  with_maps.nr_map_ids = counted.nr_map_ids;
  if (!GetInfo(program.get(), &with_maps)) {
    return ErrnoStatus(errno, absl::StrCat("list the maps of ", path));
  }
  for (const uint32_t id : ids) {
    UniqueFd map(bpf_map_get_fd_by_id(id));
    bpf_map_info info = {};
    if (!map.ok() || !GetInfo(map.get(), &info)) {
      return ErrnoStatus(errno, absl::StrCat("open a map of ", path));
    }
    maps->by_name.emplace(TextOf(info.name), std::move(map));
  }
  return absl::OkStatus();
}

absl::StatusOr<MeterMaps> OpenMeterMaps(const std::string& pin_dir) {
  MeterMaps maps;
  for (const LinkPin& pin : LinkPins()) {
    if (pin.tracing()) continue;
    NETMETER_RETURN_IF_ERROR(AddMapsOfLink(absl::StrCat(pin_dir, "/", pin.pin),
                                           pin.feature == 0, &maps));
  }
  return maps;
}

// Null if there is none.
const UniqueFd* FindSection(const MeterMaps& maps, absl::string_view name) {
  for (const auto& map : maps.by_name) {
    if (absl::EndsWith(map.first, name)) return &map.second;
  }
  return nullptr;
}

absl::Status OtherVersion(absl::string_view what) {
  return absl::FailedPreconditionError(
      absl::StrCat(what,
                   " is of another version (run the netmeter of the same "
                   "version as netmeter-loader)"));
}

// The configuration of the running programs.
absl::Status ReadConfig(const MeterMaps& maps, nm_config* config) {
  const UniqueFd* const section = FindSection(maps, ".rodata");
  bpf_map_info info = {};
  std::vector<char> value;
  if (section == nullptr || !GetInfo(section->get(), &info) ||
      !ReadWholeValue(section->get(), &value)) {
    return ErrnoStatus(section == nullptr ? ENOENT : errno,
                       "read the meter's configuration");
  }
  const std::unique_ptr<btf, decltype(&btf__free)> types(
      btf__load_from_kernel_by_id(info.btf_id), btf__free);
  const btf_type* const type =
      types ? btf__type_by_id(types.get(), info.btf_value_type_id) : nullptr;
  if (type != nullptr && btf_is_datasec(type)) {
    const btf_var_secinfo* const variables = btf_var_secinfos(type);
    for (int i = 0; i < btf_vlen(type); i++) {
      const btf_var_secinfo& variable = variables[i];
      const btf_type* const named = btf__type_by_id(types.get(), variable.type);
      const char* const name =
          btf__name_by_offset(types.get(), named->name_off);
      if (name == nullptr || strcmp(name, "nm_config") != 0 ||
          variable.size != sizeof(*config) ||
          value.size() < variable.offset + sizeof(*config)) {
        continue;
      }
      memcpy(config, value.data() + variable.offset, sizeof(*config));
      return absl::OkStatus();
    }
  }
  return OtherVersion("the meter");
}

// Programs of followers, at the cgroup, that use this map.
uint32_t CountFollowers(int cgroup, uint32_t map) {
  uint32_t programs[256], count = 256, found = 0;
  if (bpf_prog_query(cgroup, BPF_CGROUP_INET_EGRESS, 0, nullptr, programs,
                     &count) != 0) {
    return UINT32_MAX;
  }
  for (uint32_t i = 0; i < count; i++) {
    const UniqueFd program(bpf_prog_get_fd_by_id(programs[i]));
    uint32_t maps[64];
    bpf_prog_info info = {};
    info.map_ids = reinterpret_cast<uintptr_t>(maps);
    info.nr_map_ids = 64;
    if (!program.ok() || !GetInfo(program.get(), &info) ||
        TextOf(info.name) != "nm_flow_tx") {
      continue;
    }
    uint32_t* const end = maps + std::min(info.nr_map_ids, 64U);
    if (std::find(maps, end, map) != end) found++;
  }
  return found;
}

// Of nm_followers: one that begins or ends, and one that sees each packet.
constexpr uint32_t kBegun = 1;
constexpr uint32_t kSees = 1 << 16;

absl::StatusOr<UniqueFd> OpenMetersCgroup(const std::string& path,
                                          uint64_t id) {
  UniqueFd cgroup(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat about = {};
  if (cgroup.ok() && fstat(cgroup.get(), &about) == 0 && about.st_ino == id) {
    return cgroup;
  }
  const int error = cgroup.ok() ? 0 : errno;
  cgroup = OpenCgroupById(id);
  if (cgroup.ok()) return cgroup;
  if (error != 0) {
    return ErrnoStatus(error, absl::StrCat("open the meter's cgroup ", path),
                       "in the mount namespace of the host");
  }
  return absl::FailedPreconditionError(absl::StrCat(
      path, " is no longer the meter's cgroup (run: netmeter-loader load)"));
}

// The records of another minor version may be longer or shorter.
bool IsValueSize(const std::string& map, uint32_t bytes, uint32_t own) {
  if (map == "nm_info") return bytes >= NM_INFO_LEAST_BYTES;
  if (map == "nm_stats") return bytes >= NM_STATS_LEAST_BYTES;
  return bytes == own;
}

bool IsOurs(const char* map) {
  for (const char* const ours :
       {"nm_flow_prefixes", "nm_flow_refused", "nm_flows", "nm_flow_zero",
        "nm_flow_sockets", "nm_unrecorded", "nm_flow_stats", "nm_flow_events",
        "nm_flow_clocks", "nm_known"}) {
    if (strcmp(map, ours) == 0) return true;
  }
  return absl::EndsWith(map, ".rodata");
}

}  // namespace

Follower::Follower(const FollowOptions& options,
                   std::shared_ptr<const SharedMaps> maps)
    : options_(options),
      maps_(std::move(maps)),
      loaded_ns_(maps_->view().info->loaded_ns),
      next_scan_(std::chrono::steady_clock::now() + kScanInterval) {}

Follower::~Follower() {
  Detach();
  if (followers_ != nullptr) munmap(followers_, sizeof(*followers_));
  ring_buffer__free(events_);
  flows_bpf__destroy(skeleton_);
}

absl::StatusOr<std::unique_ptr<Follower>> Follower::Start(
    const FollowOptions& options) {
  auto maps = SharedMaps::Open(options.pin_dir);
  if (!maps.ok()) return maps.status();
  std::unique_ptr<Follower> follower(new Follower(options, *std::move(maps)));
  NETMETER_RETURN_IF_ERROR(follower->Load());
  NETMETER_RETURN_IF_ERROR(follower->Attach());
  return follower;
}

absl::Status Follower::ReuseMaps() {
  auto meter = OpenMeterMaps(options_.pin_dir);
  if (!meter.ok()) return meter.status();
  NETMETER_RETURN_IF_ERROR(ReadConfig(
      *meter, const_cast<nm_config*>(&skeleton_->rodata->nm_config)));
  bpf_map* map;
  bpf_object__for_each_map(map, skeleton_->obj) {
    const std::string name = bpf_map__name(map);
    if (IsOurs(name.c_str())) continue;
    const auto found = meter->by_name.find(name);
    const UniqueFd* fd =
        found == meter->by_name.end() ? nullptr : &found->second;
    if (absl::EndsWith(name, ".bss")) fd = FindSection(*meter, ".bss");
    bpf_map_info about = {};
    const bool needed = map == skeleton_->maps.nm_decisions ||
                        map == skeleton_->maps.data_followers;
    if (fd == nullptr && !needed) {
      bpf_map__set_autocreate(map, false);
      continue;
    }
    if (fd == nullptr || !GetInfo(fd->get(), &about) ||
        about.type != bpf_map__type(map) ||
        about.key_size != bpf_map__key_size(map) ||
        !IsValueSize(name, about.value_size, bpf_map__value_size(map))) {
      return OtherVersion(absl::StrCat(name, " of the meter"));
    }
    if (const int error = bpf_map__reuse_fd(map, fd->get())) {
      return ErrnoStatus(error, absl::StrCat("use ", name, " of the meter"));
    }
  }
  return absl::OkStatus();
}

absl::Status Follower::Load() {
  CaptureLibbpfMessages();
  skeleton_ = flows_bpf__open();
  if (skeleton_ == nullptr) return ErrnoStatus(errno, "open the BPF object");
  NETMETER_RETURN_IF_ERROR(ReuseMaps());
  bpf_map__set_max_entries(skeleton_->maps.nm_flows, options_.max_flows);
  *const_cast<uint32_t*>(&skeleton_->rodata->nm_most_strangers) =
      (options_.max_flows + 1) / 2;
  bpf_map__set_max_entries(skeleton_->maps.nm_flow_events,
                           options_.buffer_bytes);
  skeleton_->rodata->nm_flow_wakeup_bytes = options_.buffer_bytes / 16;
  SetFilter();
  NETMETER_RETURN_IF_ERROR(PrepareForwarded());
  if (const int error = flows_bpf__load(skeleton_)) {
    return ObjectStatus(error, "load the BPF programs",
                        error == -EPERM ? "run as root" : "");
  }
  NETMETER_RETURN_IF_ERROR(AddPrefixes());
  events_ = ring_buffer__new(bpf_map__fd(skeleton_->maps.nm_flow_events),
                             OnEvent, this, nullptr);
  if (events_ == nullptr) return ErrnoStatus(errno, "map the ring buffer");
  return absl::OkStatus();
}

absl::Status Follower::PrepareForwarded() {
  bpf_program* const program = skeleton_->progs.nm_flow_forward;
  PrepareForNetfilter(program);
  bpf_program__set_autoload(program, options_.forwarded);
  if (!options_.forwarded) return absl::OkStatus();
  const nm_info& info = *maps_->view().info;
  const std::string why_not = WhyNotForwarded(info);
  if (!why_not.empty()) {
    return absl::UnimplementedError(
        absl::StrCat("the meter does not count forwarded traffic: ", why_not));
  }
  NETMETER_ASSIGN_OR_RETURN(const uint32_t own, OwnNetworkInode());
  if (info.uplinks_network != own) {
    return absl::FailedPreconditionError(
        "the meter counts forwarded traffic in another network namespace (run "
        "this in that of netmeter-loader)");
  }
  const nm_config& config = skeleton_->rodata->nm_config;
  const_cast<uint32_t&>(skeleton_->rodata->nm_client_uplinks) =
      info.client_uplinks;
  first_bytes_.emplace(config, options_.max_flows);
  return absl::OkStatus();
}

void Follower::SetFilter() {
  const SocketFilter& filter = options_.filter;
  nm_u32* const filters = &skeleton_->rodata->nm_flow_filters;
  auto* const ports = skeleton_->rodata->nm_flow_ports;
  for (const uint16_t port : filter.ports) {
    *filters |= NM_FILTER_PORTS;
    ports[port / 64] |= nm_u64{1} << (port % 64);
  }
  if (!filter.addresses.empty()) {
    *filters |= NM_FILTER_ADDRESSES;
    bpf_map__set_max_entries(skeleton_->maps.nm_flow_prefixes,
                             static_cast<uint32_t>(filter.addresses.size()));
  }
  if (!options_.refuses) return;
  *filters |= NM_FILTER_SERIES;
  bpf_map__set_max_entries(skeleton_->maps.nm_flow_refused, kSlots);
}

absl::Status Follower::AddPrefixes() {
  for (const SocketFilter::Prefix& prefix : options_.filter.addresses) {
    nm_flow_prefix key = {};
    key.bits = static_cast<nm_u32>(prefix.bits);
    memcpy(key.address, prefix.address.data(), sizeof(key.address));
    const nm_u8 any = 1;
    if (bpf_map_update_elem(bpf_map__fd(skeleton_->maps.nm_flow_prefixes), &key,
                            &any, BPF_ANY) != 0) {
      return ErrnoStatus(errno, "add a prefix to the filter");
    }
  }
  return absl::OkStatus();
}

void Follower::Refuse(uint32_t slot, uint64_t moves) {
  const uint64_t mark = moves + 1;
  if (moves % 2 != 0 || (slot & NM_SLOT_FORWARDED) != 0) return;
  bpf_map_update_elem(bpf_map__fd(skeleton_->maps.nm_flow_refused), &slot,
                      &mark, BPF_ANY);
}

// Adds to nm_followers, if that is mapped.
void Follower::Tell(uint32_t amount) {
  if (followers_ == nullptr) return;
  __atomic_fetch_add(followers_, amount, __ATOMIC_SEQ_CST);
  told_ += amount;
}

// Killed followers still count in nm_followers. All others count after they are
// attached, and until they are detached. So if it is too high, and does not change, the
// difference is of the killed.
void Follower::ForgetTheKilled() {
  uint32_t told = __atomic_load_n(followers_, __ATOMIC_SEQ_CST);
  bpf_map_info map = {};
  if (told / kSees <= 1 ||
      !GetInfo(bpf_map__fd(skeleton_->maps.nm_decisions), &map)) {
    return;
  }
  const uint32_t attached = CountFollowers(cgroup_.get(), map.id);
  if (told / kSees <= attached) return;
  const uint32_t killed = told / kSees - attached;
  __atomic_compare_exchange_n(
      followers_, &told, told - killed * (kBegun + kSees),
      /*weak=*/false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

void Follower::Detach() {
  // Only then no packet waits for this follower.
  if (told_ / kSees != 0) Tell(-kSees);
  for (bpf_link* const link : links_) bpf_link__destroy(link);
  links_.clear();
  for (UniqueFd& link : forward_links_) link = UniqueFd();
  if (told_ != 0) Tell(-kBegun);
}

// sockops first, so that the beginning of a new connection is seen. Before a packet can
// meet these programs, the meter's have begun to leave decisions.
absl::Status Follower::Attach() {
  const nm_info& info = *maps_->view().info;
  const std::string path(info.cgroup,
                         strnlen(info.cgroup, sizeof(info.cgroup)));
  auto cgroup = OpenMetersCgroup(path, info.cgroup_id);
  if (!cgroup.ok()) return cgroup.status();
  cgroup_ = *std::move(cgroup);
  void* const memory =
      mmap(nullptr, sizeof(*followers_), PROT_READ | PROT_WRITE, MAP_SHARED,
           bpf_map__fd(skeleton_->maps.data_followers), 0);
  if (memory == MAP_FAILED) return ErrnoStatus(errno, "map nm_followers");
  followers_ = static_cast<uint32_t*>(memory);
  Tell(kBegun);
  NETMETER_RETURN_IF_ERROR(WaitForRunningPrograms());
  const auto& programs = skeleton_->progs;
  for (bpf_program* const program :
       {programs.nm_flow_sockops, programs.nm_flow_release, programs.nm_flow_tx,
        programs.nm_flow_rx}) {
    bpf_link* const link = bpf_program__attach_cgroup(program, cgroup_.get());
    if (link == nullptr) {
      return ErrnoStatus(
          errno,
          absl::StrCat("attach ", bpf_program__name(program), " to ", path));
    }
    links_.push_back(link);
  }
  Tell(kSees);
  ForgetTheKilled();
  return AttachForwarded();
}

absl::Status Follower::AttachForwarded() {
  if (!options_.forwarded) return absl::OkStatus();
  const int program = bpf_program__fd(skeleton_->progs.nm_flow_forward);
  NETMETER_RETURN_IF_ERROR(
      AttachToForward(program, kNetfilterIpv4, &forward_links_[0]));
  return AttachToForward(program, kNetfilterIpv6, &forward_links_[1]);
}

std::string Follower::WireNameOf(const nm_flow_record& record) {
  if (record.event.kind != NM_FLOW_FORWARDED) return "";
  return first_bytes_->Take(record);
}

// libbpf reads while there are records, possibly for ever. It stops at an error, after
// the record for which the error was returned.
int Follower::OnEvent(void* follower, void* data, size_t size) {
  auto* const self = static_cast<Follower*>(follower);
  self->Take(data, size);
  return --self->left_ > 0 ? 0 : -ECANCELED;
}

void Follower::Take(const void* data, size_t size) {
  nm_flow_event event;
  if (size < sizeof(event)) return;
  memcpy(&event, data, sizeof(event));
  // The limit is the number of flows. Further flows end by the time-out.
  if (event.type == NM_EVENT_SOCKET && released_.size() < options_.max_flows) {
    released_.insert(event.cookie);
  }
  if (event.type == NM_EVENT_BYTES && size >= sizeof(nm_flow_bytes)) {
    nm_flow_bytes bytes;
    memcpy(&bytes, data, sizeof(bytes));
    first_bytes_->Add(bytes);
  }
  nm_flow_record record;
  if (event.type != NM_EVENT_RECORD || size < sizeof(record)) return;
  memcpy(&record, data, sizeof(record));
  (*body_)(record);
}

// Reads records that are there, and waits for more until many are there, for wait_ms at
// most.
absl::Status Follower::TakeSome(int wait_ms, int most) {
  left_ = most;
  int count = wait_ms == 0 ? 0 : ring_buffer__poll(events_, wait_ms);
  // The programs rarely wake a reader, so records may wait even after a timeout.
  if (count == 0) count = ring_buffer__consume(events_);
  return count < 0 && count != -EINTR && count != -ECANCELED
             ? ErrnoStatus(count, "read the ring buffer")
             : absl::OkStatus();
}

absl::Status Follower::CheckMeter() const {
  if (!maps_->closed() && maps_->view().info->loaded_ns == loaded_ns_) {
    return absl::OkStatus();
  }
  return absl::AbortedError(
      absl::StrCat("the meter at ", options_.pin_dir,
                   " was unloaded, or loaded again (run this again)"));
}

absl::Status Follower::Poll(int wait_ms, const Body& body) {
  NETMETER_RETURN_IF_ERROR(CheckMeter());
  body_ = &body;
  NETMETER_RETURN_IF_ERROR(TakeSome(wait_ms, kRecordsOfCall));
  if (std::chrono::steady_clock::now() < next_scan_) return absl::OkStatus();
  next_scan_ = std::chrono::steady_clock::now() + kScanInterval;
  ForgetTheKilled();
  return Scan(/*all=*/false);
}

absl::Status Follower::Stop(const Body& body) {
  body_ = &body;
  Detach();
  absl::Status status = WaitForRunningPrograms();
  status.Update(TakeSome(/*wait_ms=*/0, INT_MAX));
  status.Update(Scan(/*all=*/true));
  status.Update(TakeSome(/*wait_ms=*/0, INT_MAX));
  // A signal may have arrived before the next check.
  status.Update(CheckMeter());
  return status;
}

// enum nm_flow_end, or 0 if the flow gets no record now.
uint32_t Follower::EndOf(const nm_flow_key& key, const nm_flow_state& state,
                         uint64_t now_ns, bool all) const {
  // A new flow may lack its times, and would look idle since 1970.
  if ((state.flags & NM_FLOW_MADE) == 0 && !all) return 0;
  if ((state.flags & NM_FLOW_CLOSED) != 0) {
    return all || (now_ns > state.closed_ns &&
                   now_ns - state.closed_ns > kRstNs)
               ? NM_END_CLOSED
               : 0;
  }
  const uint64_t idle_ns =
      static_cast<uint64_t>(std::chrono::nanoseconds(options_.idle).count());
  const bool idle = now_ns > state.last_ns && now_ns - state.last_ns > idle_ns;
  switch (key.kind) {
    case NM_FLOW_PEER:
      if (released_.count(key.cookie) + released_before_.count(key.cookie) !=
          0) {
        return NM_END_RELEASED;
      }
      if (idle) return NM_END_IDLE;
      break;
    case NM_FLOW_HANDSHAKE:
      if (idle || all) return NM_END_HANDSHAKE;
      break;
    case NM_FLOW_FORWARDED:
      if (nm_flow_is_over(state.flags) &&
          (all || idle ||
           (now_ns > state.last_ns && now_ns - state.last_ns > kLateNs))) {
        return NM_END_CLOSED;
      }
      if (idle) {
        return (state.flags & NM_FLOW_ESTABLISHED) != 0 ? NM_END_IDLE
                                                        : NM_END_HANDSHAKE;
      }
      break;
    default:
      if (idle && (state.flags & NM_FLOW_TOLD) == 0) return NM_END_IDLE;
  }
  if (all) return NM_END_OPEN;
  const uint64_t active_ns =
      static_cast<uint64_t>(std::chrono::nanoseconds(options_.active).count());
  const bool counted =
      state.counts.tx_packets != 0 || state.counts.rx_packets != 0;
  return active_ns != 0 && counted && key.kind != NM_FLOW_HANDSHAKE &&
                 now_ns > state.start_ns && now_ns - state.start_ns >= active_ns
             ? NM_END_ACTIVE
             : 0;
}

// Ends the flow within the kernel, so that no packet is lost in between.
bool Follower::End(const nm_flow_key& key, uint32_t end, uint64_t last_ns) {
  nm_flow_command command = {};
  command.end = static_cast<nm_u16>(end);
  command.last_ns = last_ns;
  command.key = key;
  LIBBPF_OPTS(bpf_test_run_opts, run);
  run.data_in = &command;
  run.data_size_in = sizeof(command);
  return bpf_prog_test_run_opts(bpf_program__fd(skeleton_->progs.nm_flow_end),
                                &run) == 0 &&
         run.retval != 0;
}

// Adds to *ends the ended ones of the next flows, kFlowsOfScan or somewhat more. At the
// end of the table position_ returns to the beginning.
absl::Status Follower::ScanSome(bool all, Ends* ends) {
  const int map = bpf_map__fd(skeleton_->maps.nm_flows);
  std::vector<nm_flow_key> keys(kBatch);
  std::vector<nm_flow> values(kBatch);
  const uint64_t now_ns = MonotonicNs();
  for (uint32_t seen = 0; seen < kFlowsOfScan;) {
    uint32_t count = static_cast<uint32_t>(keys.size());
    uint32_t next = 0;
    const int error = bpf_map_lookup_batch(
        map, position_.has_value() ? &*position_ : nullptr, &next, keys.data(),
        values.data(), &count, nullptr);
    if (error == -ENOSPC && keys.size() <= options_.max_flows) {
      keys.resize(keys.size() * 2);  // a bucket has more
      values.resize(keys.size());
      continue;
    }
    if (error != 0 && error != -ENOENT) {
      return ErrnoStatus(error, "read the table of flows");
    }
    for (uint32_t i = 0; i < count; i++) {
      const nm_flow_state& state = values[i].state;
      const uint32_t end = EndOf(keys[i], state, now_ns, all);
      if (end == 0) continue;
      const bool goes_on = end == NM_END_ACTIVE;
      ends->push_back({keys[i], {end, all || goes_on ? 0 : state.last_ns}});
    }
    seen += count;
    position_ = next;
    if (error == -ENOENT) {
      position_.reset();
      break;
    }
  }
  return absl::OkStatus();
}

// Scans a part of the table, or all of it, part by part.
absl::Status Follower::Scan(bool all) {
  if (all) position_.reset();
  do {
    // A socket that is released in the middle of a round waits for the next one.
    if (!position_.has_value()) {
      released_before_ = std::move(released_);
      released_.clear();
    }
    Ends ends;
    NETMETER_RETURN_IF_ERROR(ScanSome(all, &ends));
    if (!position_.has_value()) released_before_.clear();
    for (size_t i = 0; i < ends.size(); i++) {
      // At the end reads everything: no program adds records any more, so the buffer has
      // room for these.
      if (i % kEndsAtOnce == 0) {
        NETMETER_RETURN_IF_ERROR(
            TakeSome(/*wait_ms=*/0, all ? INT_MAX : 2 * kEndsAtOnce));
      }
      End(ends[i].first, ends[i].second.first, ends[i].second.second);
    }
  } while (all && position_.has_value());
  return absl::OkStatus();
}

nm_flow_stats Follower::Stats() const {
  nm_flow_stats stats = {};
  const uint32_t zero = 0;
  bpf_map_lookup_elem(bpf_map__fd(skeleton_->maps.nm_flow_stats), &zero,
                      &stats);
  return stats;
}

absl::StatusOr<std::vector<FlowUnrecorded>> Follower::Unrecorded() const {
  const int map = bpf_map__fd(skeleton_->maps.nm_unrecorded);
  std::vector<FlowUnrecorded> rests;
  std::vector<nm_unrecorded_key> keys(kBatch);
  std::vector<nm_unrecorded> values(kBatch);
  uint32_t position = 0, next = 0;
  bool first = true;
  for (;;) {
    uint32_t count = static_cast<uint32_t>(keys.size());
    const int error =
        bpf_map_lookup_batch(map, first ? nullptr : &position, &next,
                             keys.data(), values.data(), &count, nullptr);
    if (error == -ENOSPC && keys.size() <= kMaxUnrecorded) {
      keys.resize(keys.size() * 2);  // a bucket has more
      values.resize(keys.size());
      continue;
    }
    if (error != 0 && error != -ENOENT) {
      return ErrnoStatus(error, "read what is in no record");
    }
    for (uint32_t i = 0; i < count; i++) rests.push_back({keys[i], values[i]});
    if (error != 0) return rests;
    position = next;
    first = false;
  }
}

}  // namespace internal
}  // namespace netmeter
