// SPDX-License-Identifier: BSD-3-Clause
#include "test/program/programs.h"

#include <bpf/bpf.h>
#include <net/if.h>
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/statusor.h"
#include "lib/base/libbpf_log.h"
#include "lib/base/pins.h"
#include "lib/base/status_util.h"
#include "lib/netlink/uplink_names.h"

namespace netmeter {
namespace internal {
namespace {

// The first interface but loopback; the test run wants one that exists.
uint32_t FindEthernet() {
  struct if_nameindex* all = if_nameindex();
  uint32_t found = 0;
  for (auto* entry = all; entry != nullptr && entry->if_index != 0; ++entry) {
    if (entry->if_index != Programs::kLoopback) {
      found = entry->if_index;
      break;
    }
  }
  if (all != nullptr) if_freenameindex(all);
  return found;
}

template <typename Value>
Value Lookup(bpf_map* map, uint32_t key) {
  Value value = {};
  bpf_map_lookup_elem(bpf_map__fd(map), &key, &value);
  return value;
}

}  // namespace

ProgramOptions DefaultOptions() {
  const Config config;
  ProgramOptions options;
  options.max_series = config.max_series;
  options.max_names = config.max_names;
  options.max_processes = config.max_processes;
  options.max_sockets = config.max_sockets;
  options.proxy_ports = config.proxy_ports;
  options.sni_ports = config.sni_ports;
  options.http_ports = config.http_ports;
  options.rules = config.destinations;
  options.socket_hooks = true;
  return options;
}

Programs::Programs(const ProgramOptions& options) : options_(options) {}

Programs::~Programs() { Detach(); }

void Programs::Detach() {
  for (bpf_link* link : links_) bpf_link__destroy(link);
  links_.clear();
}

netmeter_bpf* Programs::skeleton() const { return object_->skeleton(); }

std::unique_ptr<Programs> Programs::Load(const ProgramOptions& options,
                                         std::string* error) {
  std::unique_ptr<Programs> self(new Programs(options));
  const absl::Status status = self->LoadObject();
  if (!status.ok()) {
    *error = std::string(status.message());
    return nullptr;
  }
  self->ethernet_ifindex_ = FindEthernet();
  return self;
}

// Does what the loader does, except for the programs that the case does not need.
absl::Status Programs::LoadObject() {
  PrintLibbpfMessages(true);  // why the verifier refuses a program
  cells_per_series_ = static_cast<uint32_t>(libbpf_num_possible_cpus()) + 1;
  ObjectOptions options;
  NETMETER_ASSIGN_OR_RETURN(const Preemption preemption, ReadPreemption());
  options.adds =
      options_.adds != nullptr ? *options_.adds : ChooseAdds(preemption);
  options.sizes.cells_per_series = cells_per_series_;
  options.elf = options_.elf;
  options.sizes.max_series = options_.max_series;
  options.sizes.max_names = options_.max_names;
  options.sizes.max_processes = options_.max_processes;
  options.sizes.max_sockets = options_.max_sockets;
  options.sizes.first_series = options_.first_series;
  options.config.proxy_ports = options_.proxy_ports;
  options.config.sni_ports = options_.sni_ports;
  options.config.http_ports = options_.http_ports;
  options.config.destinations = options_.rules;
  if (!options_.uplinks.empty()) {
    options.config.uplinks["uplink"] = options_.uplinks;
  }
  options.registrants = options_.registrants;
  options.config.names_from = options_.names_from;
  absl::StatusOr<std::unique_ptr<MeterObject>> object =
      MeterObject::Open(options);
  if (!object.ok()) return object.status();
  object_ = std::move(*object);

  for (const LinkPin& link : LinkPins()) {
    bool wanted = true;
    if (link.stage == LinkStage::kProcess) wanted = options_.tracing;
    if (link.stage == LinkStage::kSocket) wanted = options_.socket_hooks;
    bpf_program__set_autoload(object_->program(link.pin), wanted);
  }
  bpf_program__set_autoload(skeleton()->progs.nm_scan, options_.sweeps);
  bpf_map__set_max_entries(skeleton()->maps.nm_marks,
                           std::max(options_.max_series, options_.max_names));
  nm_config& config = const_cast<nm_config&>(skeleton()->rodata->nm_config);
  config.ways = options_.ways;
  config.destination_kinds = options_.destination_kinds;
  if (options_.rules.empty()) {
    config.rules_count = options_.rules_count;
    config.rules_port_first = options_.rules_ports.first;
    config.rules_ports = options_.rules_ports.count;
  }
  if (options_.verifier_logs != nullptr) AskForLogs();
  absl::Status status = object_->Load();
  if (status.ok()) status = object_->FillReserved();
  if (status.ok()) status = object_->PushFreeIds();
  return status.ok() ? FillRules() : status;
}

absl::Status Programs::FillRules() {
  uint32_t number = 0;
  for (const std::string& pattern : options_.uplinks) {
    const nm_uplink_key key = UplinkKey(pattern);
    ++number;
    if (bpf_map_update_elem(object_->MapFd("uplink_names"), &key, &number,
                            BPF_ANY) != 0) {
      return absl::InternalError("fill nm_uplink_names");
    }
  }
  uint32_t index = 0;
  for (const DestinationRule& rule : options_.rules) {
    const absl::StatusOr<uint32_t> id =
        object_->NameId(NM_KIND_DESTINATION, rule.name);
    if (!id.ok()) return id.status();
    const nm_rule value = RuleEntry(rule, *id);
    if (bpf_map_update_elem(bpf_map__fd(skeleton()->maps.nm_rules), &index,
                            &value, BPF_ANY) != 0) {
      return absl::InternalError("fill nm_rules");
    }
    ++index;
  }
  return absl::OkStatus();
}

void Programs::AskForLogs() {
  constexpr uint32_t kStatisticsOnly = 4;  // BPF_LOG_STATS of the kernel
  constexpr size_t kLogBytes = 65536;      // more than it takes
  bpf_program* program;
  bpf_object__for_each_program(program, skeleton()->obj) {
    std::string* const log =
        &(*options_.verifier_logs)[bpf_program__name(program)];
    log->assign(kLogBytes, '\0');
    bpf_program__set_log_level(program, kStatisticsOnly);
    bpf_program__set_log_buf(program, &(*log)[0], log->size());
  }
}

int Programs::ProgramFd(Direction direction) const {
  return bpf_program__fd(object_->program(
      direction == Direction::kEgress ? "link_egress" : "link_ingress"));
}

RunResult Programs::Run(Direction direction, const Packet& packet,
                        const RunOptions& options) const {
  const std::vector<uint8_t> frame = packet.Frame();
  __sk_buff context = {};
  context.ifindex = options.ifindex != 0 ? options.ifindex : ethernet_ifindex_;
  context.gso_segs = options.gso_segs;
  context.gso_size = options.gso_size;
  LIBBPF_OPTS(bpf_test_run_opts, run);
  run.data_in = frame.data();
  run.data_size_in = static_cast<uint32_t>(frame.size());
  run.ctx_in = &context;
  run.ctx_size_in = sizeof(context);
  run.repeat = static_cast<int>(options.repeat);
  RunResult result;
  result.error = bpf_prog_test_run_opts(ProgramFd(direction), &run);
  result.retval = run.retval;
  return result;
}

bool Programs::AttachSocketHooks(int cgroup_fd, std::string* error) {
  auto& progs = skeleton()->progs;
  return Attach({progs.nm_setsockopt, progs.nm_sock_create,
                 progs.nm_sock_release, progs.nm_sockops},
                cgroup_fd, error);
}

bool Programs::AttachPacketHooks(int cgroup_fd, std::string* error) {
  return Attach(
      {object_->program("link_ingress"), object_->program("link_egress")},
      cgroup_fd, error);
}

bool Programs::Attach(const std::vector<bpf_program*>& programs, int cgroup_fd,
                      std::string* error) {
  for (bpf_program* program : programs) {
    bpf_link* link = bpf_program__attach_cgroup(program, cgroup_fd);
    if (link == nullptr) {
      *error = std::string("attach ") + bpf_program__name(program) + ": " +
               std::strerror(errno);
      return false;
    }
    links_.push_back(link);
  }
  return true;
}

Counters Programs::ReadCounters() const {
  Counters counters;
  for (uint32_t slot = 0; slot < options_.max_series; ++slot) {
    nm_cell sum = {};
    for (uint32_t cpu = 0; cpu < cells_per_series_; ++cpu) {
      const nm_cell cell = Lookup<nm_cell>(skeleton()->maps.nm_counters,
                                           slot * cells_per_series_ + cpu);
      if (cell.service == 0 && cell.tx_packets == 0 && cell.rx_packets == 0) {
        continue;
      }
      sum.service = cell.service;
      sum.destination = cell.destination;
      sum.transport = cell.transport;
      sum.path = cell.path;
      sum.kind = cell.kind;
      sum.flags |= cell.flags;
      sum.tx_bytes += cell.tx_bytes;
      sum.rx_bytes += cell.rx_bytes;
      sum.tx_packets += cell.tx_packets;
      sum.rx_packets += cell.rx_packets;
      sum.tx_payload_bytes += cell.tx_payload_bytes;
      sum.rx_payload_bytes += cell.rx_payload_bytes;
      sum.tx_retransmit_bytes += cell.tx_retransmit_bytes;
    }
    if (sum.tx_packets != 0 || sum.rx_packets != 0) counters[slot] = sum;
  }
  return counters;
}

nm_stats Programs::ReadStats() const {
  return Lookup<nm_stats>(skeleton()->maps.nm_stats, 0);
}

nm_info Programs::ReadInfo() const {
  return Lookup<nm_info>(skeleton()->maps.nm_info, 0);
}

RunResult Programs::Command(uint16_t code, const void* payload, size_t size,
                            uint32_t times) const {
  std::vector<uint8_t> packet(sizeof(nm_command) + size);
  nm_command header = {};
  header.code = code;
  std::memcpy(packet.data(), &header, sizeof(header));
  if (size != 0) std::memcpy(packet.data() + sizeof(header), payload, size);
  LIBBPF_OPTS(bpf_test_run_opts, run);
  run.data_in = packet.data();
  run.data_size_in = static_cast<uint32_t>(packet.size());
  run.repeat = static_cast<int>(times);
  RunResult result;
  result.error = bpf_prog_test_run_opts(
      bpf_program__fd(skeleton()->progs.nm_command), &run);
  result.retval = run.retval;
  return result;
}

nm_entry Programs::ReadEntry(uint32_t index) const {
  return Lookup<nm_entry>(skeleton()->maps.nm_sockets, index);
}

nm_socket Programs::ReadSocket(uint32_t index) const {
  return ReadEntry(index).socket;
}

bool Programs::WriteSocket(uint32_t index, const nm_socket& socket) const {
  nm_entry entry = {};
  entry.socket = socket;
  return bpf_map_update_elem(bpf_map__fd(skeleton()->maps.nm_sockets), &index,
                             &entry, BPF_ANY) == 0;
}

uint64_t NextCookie() {
  const UniqueFd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  uint64_t cookie = 0;
  socklen_t size = sizeof(cookie);
  getsockopt(fd.get(), SOL_SOCKET, SO_COOKIE, &cookie, &size);
  return cookie + 1;
}

bool PinToCpu(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  return sched_setaffinity(0, sizeof(set), &set) == 0;
}

std::vector<int> AllowedCpus() {
  std::vector<int> cpus;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

}  // namespace internal
}  // namespace netmeter
