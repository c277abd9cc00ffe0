// SPDX-License-Identifier: BSD-3-Clause
#include "test/program/programs.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <net/if.h>
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

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

Programs::Programs(const ProgramOptions& options)
    : options_(options), skeleton_(nullptr, netmeter_bpf__destroy) {}

Programs::~Programs() {
  for (bpf_link* link : links_) bpf_link__destroy(link);
}

std::unique_ptr<Programs> Programs::Load(const ProgramOptions& options,
                                         std::string* error) {
  std::unique_ptr<Programs> self(new Programs(options));
  self->num_cpus_ = static_cast<uint32_t>(libbpf_num_possible_cpus());
  self->ethernet_ifindex_ = FindEthernet();
  self->skeleton_.reset(netmeter_bpf__open());
  netmeter_bpf* skeleton = self->skeleton_.get();
  if (skeleton == nullptr) {
    *error = "open the BPF object";
    return nullptr;
  }

  auto& progs = skeleton->progs;
  for (bpf_program* program : {progs.nm_exec, progs.nm_fork, progs.nm_exit}) {
    bpf_program__set_autoload(program, options.tracing);
  }
  for (bpf_program* program : {progs.nm_sock_create, progs.nm_sock_release,
                               progs.nm_sockops, progs.nm_setsockopt}) {
    bpf_program__set_autoload(program, options.socket_hooks);
  }
  auto& maps = skeleton->maps;
  bpf_map__set_max_entries(maps.nm_counters,
                           options.max_series * self->num_cpus_);
  for (bpf_map* map : {maps.nm_old_counters, maps.nm_merged}) {
    bpf_map__set_max_entries(map, bpf_map__max_entries(maps.nm_counters));
  }
  bpf_map__set_max_entries(maps.nm_series, options.max_series);
  bpf_map__set_max_entries(maps.nm_free_slots, options.max_series);
  bpf_map__set_max_entries(maps.nm_names, options.max_names);
  bpf_map__set_max_entries(maps.nm_name_ids, options.max_names);
  bpf_map__set_max_entries(maps.nm_free_names, options.max_names);
  bpf_map__set_max_entries(maps.nm_wire_names, options.max_names);
  bpf_map__set_max_entries(maps.nm_processes, options.max_processes);
  bpf_map__set_max_entries(maps.nm_sockets, options.max_sockets);

  auto& settings = const_cast<nm_config&>(skeleton->rodata->nm_config);
  settings.num_cpus = self->num_cpus_;
  settings.max_series = options.max_series;
  settings.socket_mask = options.max_sockets - 1;
  settings.tgid_helper =
      libbpf_probe_bpf_helper(BPF_PROG_TYPE_CGROUP_SOCKOPT,
                              BPF_FUNC_get_current_pid_tgid, nullptr) == 1;
  settings.task_access =
      libbpf_probe_bpf_helper(BPF_PROG_TYPE_CGROUP_SOCK,
                              BPF_FUNC_get_current_task_btf, nullptr) == 1
          ? NM_TASK_BTF
          : NM_TASK_PROBE;
  settings.proxy_ports_count =
      static_cast<uint32_t>(options.proxy_ports.size());
  std::copy(options.proxy_ports.begin(), options.proxy_ports.end(),
            settings.proxy_ports);

  if (int code = netmeter_bpf__load(skeleton)) {
    *error = std::string("load the BPF programs: ") + std::strerror(-code);
    return nullptr;
  }
  if (!self->Fill(error)) return nullptr;

  const btf* types = bpf_object__btf(skeleton->obj);
  const int id = btf__find_by_name_kind(types, "nm_entry", BTF_KIND_STRUCT);
  const btf_type* entry = id < 0 ? nullptr : btf__type_by_id(types, id);
  for (int i = 0; entry != nullptr && i < btf_vlen(entry); ++i) {
    const char* name =
        btf__name_by_offset(types, btf_members(entry)[i].name_off);
    if (std::strcmp(name, "socket") == 0) {
      self->socket_offset_ = btf_member_bit_offset(entry, i) / 8;
    }
  }
  if (self->socket_offset_ == 0) {
    *error = "no struct nm_entry in the object's BTF";
    return nullptr;
  }
  return self;
}

// As the loader does: the reserved names and the queues of free ids.
bool Programs::Fill(std::string* error) {
  auto& maps = skeleton_->maps;
  auto update = [&](bpf_map* map, const void* key, const void* value) {
    if (bpf_map_update_elem(bpf_map__fd(map), key, value, BPF_ANY) == 0) {
      return true;
    }
    *error = std::string("fill ") + bpf_map__name(map);
    return false;
  };
  const struct {
    uint32_t id;
    uint8_t kind;
    const char* text;
  } reserved[] = {
      {NM_NAME_UNATTRIBUTED, NM_KIND_UNATTRIBUTED, "unattributed"},
      {NM_NAME_OVERFLOW, NM_KIND_OVERFLOW, "overflow"},
  };
  for (const auto& name : reserved) {
    nm_name value = {};
    value.length = static_cast<uint16_t>(std::strlen(name.text));
    value.kind = name.kind;
    std::memcpy(value.bytes, name.text, value.length);
    if (!update(maps.nm_names, &name.id, &value)) return false;
  }
  for (uint32_t slot = NM_SLOT_FIRST; slot < options_.max_series; ++slot) {
    if (!update(maps.nm_free_slots, nullptr, &slot)) return false;
  }
  for (uint32_t name = NM_NAME_FIRST; name < options_.max_names; ++name) {
    if (!update(maps.nm_free_names, nullptr, &name)) return false;
  }
  return true;
}

int Programs::ProgramFd(Direction direction) const {
  return bpf_program__fd(direction == Direction::kEgress
                             ? skeleton_->progs.nm_egress
                             : skeleton_->progs.nm_ingress);
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
  auto& progs = skeleton_->progs;
  return Attach({progs.nm_setsockopt, progs.nm_sock_create,
                 progs.nm_sock_release, progs.nm_sockops},
                cgroup_fd, error);
}

bool Programs::AttachPacketHooks(int cgroup_fd, std::string* error) {
  return Attach({skeleton_->progs.nm_ingress, skeleton_->progs.nm_egress},
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
    for (uint32_t cpu = 0; cpu < num_cpus_; ++cpu) {
      const nm_cell cell =
          Lookup<nm_cell>(skeleton_->maps.nm_counters, slot * num_cpus_ + cpu);
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
  return Lookup<nm_stats>(skeleton_->maps.nm_stats, 0);
}

nm_info Programs::ReadInfo() const {
  return Lookup<nm_info>(skeleton_->maps.nm_info, 0);
}

RunResult Programs::Command(uint16_t command, const void* payload,
                            size_t size) const {
  std::vector<uint8_t> packet(sizeof(nm_control) + size);
  nm_control header = {};
  header.command = command;
  std::memcpy(packet.data(), &header, sizeof(header));
  if (size != 0) std::memcpy(packet.data() + sizeof(header), payload, size);
  LIBBPF_OPTS(bpf_test_run_opts, run);
  run.data_in = packet.data();
  run.data_size_in = static_cast<uint32_t>(packet.size());
  RunResult result;
  result.error = bpf_prog_test_run_opts(
      bpf_program__fd(skeleton_->progs.nm_control), &run);
  result.retval = run.retval;
  return result;
}

nm_socket Programs::ReadSocket(uint32_t index) const {
  std::vector<uint8_t> entry(bpf_map__value_size(skeleton_->maps.nm_sockets));
  nm_socket socket = {};
  if (bpf_map_lookup_elem(bpf_map__fd(skeleton_->maps.nm_sockets), &index,
                          entry.data()) == 0) {
    std::memcpy(&socket, entry.data() + socket_offset_, sizeof(socket));
  }
  return socket;
}

bool Programs::WriteSocket(uint32_t index, const nm_socket& socket) const {
  std::vector<uint8_t> entry(bpf_map__value_size(skeleton_->maps.nm_sockets));
  std::memcpy(entry.data() + socket_offset_, &socket, sizeof(socket));
  return bpf_map_update_elem(bpf_map__fd(skeleton_->maps.nm_sockets), &index,
                             entry.data(), BPF_ANY) == 0;
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
