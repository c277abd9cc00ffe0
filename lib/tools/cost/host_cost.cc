// SPDX-License-Identifier: BSD-3-Clause
#include "lib/tools/cost/host_cost.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/bpf.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lib/base/kernel_object.h"
#include "lib/base/status_util.h"
#include "lib/base/text.h"
#include "lib/base/text_table.h"
#include "lib/base/unique_fd.h"
#include "lib/tools/cost/program_holders.h"

namespace netmeter {
namespace internal {
namespace {

std::string ProgramType(uint32_t type) {
  const char* const name =
      libbpf_bpf_prog_type_str(static_cast<bpf_prog_type>(type));
  return name == nullptr ? absl::StrCat(type) : name;
}

std::string MapType(uint32_t type) {
  const char* const name =
      libbpf_bpf_map_type_str(static_cast<bpf_map_type>(type));
  return name == nullptr ? absl::StrCat(type) : name;
}

// Returns false if the program has gone.
bool ReadProgram(uint32_t id, HostProgram* program) {
  const UniqueFd fd(bpf_prog_get_fd_by_id(id));
  bpf_prog_info info = {};
  if (!fd.ok() || !GetInfo(fd.get(), &info)) return false;
  program->id = info.id;
  program->name = TextOf(info.name);
  program->type = ProgramType(info.type);
  program->runs = info.run_cnt;
  program->run_ns = info.run_time_ns;
  program->recursion_misses = info.recursion_misses;
  program->jited_bytes = info.jited_prog_len;
  // The second call has room for the ids, whose number is now known.
  program->maps.resize(info.nr_map_ids);
  bpf_prog_info with_maps = {};
  with_maps.map_ids = reinterpret_cast<uintptr_t>(program->maps.data());
  with_maps.nr_map_ids = info.nr_map_ids;
  if (!GetInfo(fd.get(), &with_maps)) return false;
  program->maps.resize(
      std::min<size_t>(program->maps.size(), with_maps.nr_map_ids));
  return true;
}

void ReadMap(uint32_t id, std::map<uint32_t, HostMap>* maps) {
  if (maps->count(id) != 0) return;
  const UniqueFd fd(bpf_map_get_fd_by_id(id));
  bpf_map_info info = {};
  if (!fd.ok() || !GetInfo(fd.get(), &info)) return;
  HostMap& map = (*maps)[id];
  map.id = id;
  map.name = TextOf(info.name);
  map.type = MapType(info.type);
  map.bytes = FdInfoNumber(fd.get(), "memlock");
}

uint64_t MapBytes(const HostCost& cost, const HostProgram& program) {
  uint64_t bytes = 0;
  for (const uint32_t id : program.maps) {
    const auto map = cost.maps.find(id);
    if (map != cost.maps.end()) bytes += map->second.bytes;
  }
  return bytes;
}

double NsPerRun(const HostProgram& program) {
  return program.runs == 0 ? 0
                           : static_cast<double>(program.run_ns) /
                                 static_cast<double>(program.runs);
}

double CpuPercent(const HostProgram& program, double seconds) {
  return static_cast<double>(program.run_ns) / seconds / 1e7;
}

// The first of each kind, and the number of further ones.
std::string HeldBy(const HostProgram& program) {
  std::vector<std::string> parts;
  if (!program.processes.empty()) parts.push_back(program.processes[0]);
  if (!program.pins.empty()) parts.push_back(program.pins[0]);
  if (parts.empty()) return "(not found)";
  const size_t more =
      program.processes.size() + program.pins.size() - parts.size();
  if (more > 0) parts.push_back(absl::StrCat("+", more));
  return ToTerminal(absl::StrJoin(parts, " "));
}

}  // namespace

absl::StatusOr<HostCost> ReadHostCost() {
  HostCost cost;
  uint32_t id = 0;
  while (bpf_prog_get_next_id(id, &id) == 0) {
    HostProgram program;
    if (ReadProgram(id, &program)) cost.programs.push_back(std::move(program));
  }
  if (errno != ENOENT) {
    return ErrnoStatus(errno, "list the BPF programs", "run as root");
  }
  const ProgramHolders holders = ReadProgramHolders();
  for (HostProgram& program : cost.programs) {
    for (const uint32_t map : program.maps) ReadMap(map, &cost.maps);
    const auto held = holders.find(program.id);
    if (held == holders.end()) continue;
    program.processes = held->second.processes;
    program.pins = held->second.pins;
  }
  return cost;
}

HostCost CostBetween(const HostCost& before, HostCost after, double seconds) {
  std::map<uint32_t, const HostProgram*> old;
  for (const HostProgram& program : before.programs) {
    old[program.id] = &program;
  }
  for (HostProgram& program : after.programs) {
    const auto known = old.find(program.id);
    if (known == old.end()) continue;
    // The kernel sums the CPUs without a lock, so a sum may appear to shrink.
    const auto subtract = [](uint64_t from, uint64_t* value) {
      *value = *value < from ? 0 : *value - from;
    };
    subtract(known->second->runs, &program.runs);
    subtract(known->second->run_ns, &program.run_ns);
    subtract(known->second->recursion_misses, &program.recursion_misses);
  }
  std::stable_sort(after.programs.begin(), after.programs.end(),
                   [](const HostProgram& a, const HostProgram& b) {
                     return a.run_ns > b.run_ns;
                   });
  after.seconds = seconds;
  return after;
}

std::string HostCostTable(const HostCost& cost, SizeUnits units, size_t width) {
  constexpr auto kLeft = TextColumn::kLeft, kRight = TextColumn::kRight;
  TextTable table({{"ID", kRight, 2},
                   {"NAME", kLeft, 0, 16},
                   {"TYPE", kLeft, 3},
                   {"RUNS/S", kRight},
                   {"NS/RUN", kRight},
                   {"OF A CPU", kRight},
                   {"MAPS", kRight, 1},
                   {"HELD BY"}});
  const auto add = [&](const std::string& id, const std::string& name,
                       const std::string& type, const HostProgram& program,
                       uint64_t map_bytes, const std::string& held) {
    table.Add({id, name, type,
               absl::StrFormat(
                   "%.1f", static_cast<double>(program.runs) / cost.seconds),
               absl::StrFormat("%.1f", NsPerRun(program)),
               HumanPercent(CpuPercent(program, cost.seconds), 100, 4),
               HumanBytes(map_bytes, units), held});
  };
  HostProgram all;
  for (const HostProgram& program : cost.programs) {
    add(absl::StrCat(program.id), ToTerminal(program.name), program.type,
        program, MapBytes(cost, program), HeldBy(program));
    all.runs += program.runs;
    all.run_ns += program.run_ns;
  }
  // A map that several programs share counts once.
  uint64_t bytes = 0;
  for (const auto& map : cost.maps) bytes += map.second.bytes;
  add("", "all",
      absl::StrCat(cost.programs.size(), " programs, ", cost.maps.size(),
                   " maps"),
      all, bytes, absl::StrFormat("over %.1f s", cost.seconds));
  return table.Format(width);
}

std::string HostCostJson(const HostCost& cost) {
  using Json = nlohmann::ordered_json;
  Json json;
  json["seconds"] = cost.seconds;
  json["programs"] = Json::array();
  for (const HostProgram& program : cost.programs) {
    Json processes = Json::array(), pins = Json::array();
    for (const auto& text : program.processes)
      processes.push_back(ToUtf8(text));
    for (const auto& text : program.pins) pins.push_back(ToUtf8(text));
    json["programs"].push_back(
        {{"id", program.id},
         {"name", ToUtf8(program.name)},
         {"type", program.type},
         {"runs", program.runs},
         {"run_ns", program.run_ns},
         {"ns_per_run", NsPerRun(program)},
         {"runs_per_second", static_cast<double>(program.runs) / cost.seconds},
         {"cpu_percent", CpuPercent(program, cost.seconds)},
         {"recursion_misses", program.recursion_misses},
         {"jited_bytes", program.jited_bytes},
         {"map_ids", program.maps},
         {"map_bytes", MapBytes(cost, program)},
         {"processes", processes},
         {"pins", pins}});
  }
  json["maps"] = Json::array();
  for (const auto& map : cost.maps) {
    json["maps"].push_back({{"id", map.first},
                            {"name", ToUtf8(map.second.name)},
                            {"type", map.second.type},
                            {"bytes", map.second.bytes}});
  }
  return json.dump() + "\n";
}

}  // namespace internal
}  // namespace netmeter
