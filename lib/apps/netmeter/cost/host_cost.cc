// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/netmeter/cost/host_cost.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/bpf.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lib/apps/netmeter/cost/program_attachments.h"
#include "lib/apps/netmeter/cost/program_holders.h"
#include "lib/base/kernel_object.h"
#include "lib/base/status_util.h"
#include "lib/base/text.h"
#include "lib/base/text_table.h"
#include "lib/base/unique_fd.h"

namespace netmeter {
namespace internal {
namespace {

constexpr char kProgramArray[] = "prog_array";

std::string ProgramType(uint32_t type) {
  constexpr uint32_t kNetfilter = 32;  // Linux 6.4; libbpf 1.1 does not know it
  if (type == kNetfilter) return "netfilter";
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
  program->runs = program->total_runs = info.run_cnt;
  program->run_ns = program->total_run_ns = info.run_time_ns;
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

// "a +2": the first, and the number of further ones.
std::string FirstOf(const std::vector<std::string>& texts) {
  if (texts.empty()) return "";
  return ToTerminal(texts[0]) +
         (texts.size() > 1 ? absl::StrCat(" +", texts.size() - 1) : "");
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
  ProgramHolders holders = ReadProgramHolders();
  ProgramAttachments attachments = ReadProgramAttachments();
  for (HostProgram& program : cost.programs) {
    for (const uint32_t map : program.maps) {
      ReadMap(map, &cost.maps);
      program.tail_calls |= cost.maps[map].type == kProgramArray;
    }
    HoldersOfProgram& held = holders[program.id];
    program.processes = std::move(held.processes);
    program.pins = std::move(held.pins);
    held.attachments.merge(attachments[program.id]);
    program.attachments.assign(held.attachments.begin(),
                               held.attachments.end());
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

namespace {

struct Column {
  const char* name;
  TextColumn text;
  std::string (*cell)(const HostCost&, const HostProgram&, SizeUnits);
  // Null: sorted by the cell, A first. Otherwise the largest first.
  double (*number)(const HostCost&, const HostProgram&);
};

const std::vector<Column>& Columns() {
  constexpr auto kLeft = TextColumn::kLeft, kRight = TextColumn::kRight;
  using Cost = HostCost;
  using Program = HostProgram;
  // The sum has no id.
  static const auto* const kColumns = new std::vector<Column>{
      {"id",
       {"ID", kRight, 3},
       [](const Cost&, const Program& program, SizeUnits) {
         return program.id == 0 ? "" : absl::StrCat(program.id);
       },
       [](const Cost&, const Program& program) { return -1.0 * program.id; }},
      {"name",
       {"NAME", kLeft, 0, 16},
       [](const Cost&, const Program& program, SizeUnits) {
         return ToTerminal(program.name) + (program.tail_calls ? "*" : "");
       },
       nullptr},
      {"type",
       {"TYPE", kLeft, 5},
       [](const Cost&, const Program& program, SizeUnits) {
         return program.type;
       },
       nullptr},
      {"attached",
       {"ATTACHED TO", kLeft, 4},
       [](const Cost&, const Program& program, SizeUnits) {
         return FirstOf(program.attachments);
       },
       nullptr},
      {"runs",
       {"RUNS/S", kRight},
       [](const Cost& cost, const Program& program, SizeUnits) {
         return absl::StrFormat(
             "%.1f", static_cast<double>(program.runs) / cost.seconds);
       },
       [](const Cost&, const Program& program) { return 1.0 * program.runs; }},
      {"ns",
       {"NS/RUN", kRight},
       [](const Cost&, const Program& program, SizeUnits) {
         return absl::StrFormat("%.1f", NsPerRun(program));
       },
       [](const Cost&, const Program& program) { return NsPerRun(program); }},
      {"cpu",
       {"OF A CPU", kRight},
       [](const Cost& cost, const Program& program, SizeUnits) {
         return HumanPercent(CpuPercent(program, cost.seconds), 100, 4);
       },
       [](const Cost&, const Program& program) {
         return 1.0 * program.run_ns;
       }},
      {"total",
       {"SINCE LOAD", kRight, 1},
       [](const Cost&, const Program& program, SizeUnits) {
         return HumanDuration(program.total_run_ns / 1000000);
       },
       [](const Cost&, const Program& program) {
         return 1.0 * program.total_run_ns;
       }},
      {"maps",
       {"MAPS", kRight, 2},
       [](const Cost& cost, const Program& program, SizeUnits units) {
         return HumanBytes(MapBytes(cost, program), units);
       },
       [](const Cost& cost, const Program& program) {
         return 1.0 * MapBytes(cost, program);
       }},
      {"held",
       {"HELD BY"},
       [](const Cost&, const Program& program, SizeUnits) {
         return HeldBy(program);
       },
       nullptr},
  };
  return *kColumns;
}

bool Matches(const HostProgram& program, const std::string& filter) {
  const auto has = [&filter](const std::string& text) {
    return absl::StrContains(text, filter);
  };
  const auto any = [&has](const std::vector<std::string>& texts) {
    return std::any_of(texts.begin(), texts.end(), has);
  };
  return has(program.name) || has(program.type) || any(program.attachments) ||
         any(program.processes) || any(program.pins);
}

}  // namespace

std::vector<std::string> HostCostColumns() {
  std::vector<std::string> names;
  for (const Column& column : Columns()) names.push_back(column.name);
  return names;
}

HostCost Select(HostCost cost, const HostCostView& view) {
  auto& programs = cost.programs;
  programs.erase(std::remove_if(programs.begin(), programs.end(),
                                [&view](const HostProgram& program) {
                                  return !Matches(program, view.filter);
                                }),
                 programs.end());
  std::map<uint32_t, HostMap> maps;
  for (const HostProgram& program : programs) {
    for (const uint32_t id : program.maps) {
      const auto map = cost.maps.find(id);
      if (map != cost.maps.end()) maps.insert(*map);
    }
  }
  cost.maps = std::move(maps);
  for (const Column& column : Columns()) {
    if (view.sort != column.name) continue;
    std::stable_sort(programs.begin(), programs.end(),
                     [&](const HostProgram& a, const HostProgram& b) {
                       return column.number != nullptr
                                  ? column.number(cost, a) >
                                        column.number(cost, b)
                                  : column.cell(cost, a, SizeUnits::kExact) <
                                        column.cell(cost, b, SizeUnits::kExact);
                     });
  }
  return cost;
}

std::string HostCostTable(const HostCost& cost, const HostCostView& view,
                          SizeUnits units, size_t width) {
  std::vector<const Column*> columns;
  std::vector<TextColumn> texts;
  for (const Column& column : Columns()) {
    const bool chosen =
        std::count(view.columns.begin(), view.columns.end(), column.name) != 0;
    if (!view.columns.empty() && !chosen) continue;
    columns.push_back(&column);
    texts.push_back(column.text);
    if (chosen) texts.back().drop = 0;
  }
  TextTable table(std::move(texts));
  const auto add = [&](const HostProgram& program) {
    std::vector<std::string> cells;
    for (const Column* const column : columns) {
      cells.push_back(column->cell(cost, program, units));
    }
    table.Add(cells);
  };
  HostProgram all;
  all.name = "all";
  all.type = absl::StrCat(cost.programs.size(), " programs, ", cost.maps.size(),
                          " maps");
  all.processes = {absl::StrFormat("over %.1f s", cost.seconds)};
  bool tail_calls = false;
  size_t shown = 0;
  for (const HostProgram& program : cost.programs) {
    if (shown++ < view.most) {
      add(program);
      tail_calls |= program.tail_calls;
    }
    all.runs += program.runs;
    all.run_ns += program.run_ns;
    all.total_run_ns += program.total_run_ns;
  }
  // A map that several programs share counts once.
  for (const auto& map : cost.maps) all.maps.push_back(map.first);
  add(all);
  return table.Format(width) +
         (tail_calls ? "* has the time of the programs that it runs by tail "
                       "calls, too\n"
                     : "");
}

std::string HostCostJson(const HostCost& cost, const HostCostView& view) {
  using Json = nlohmann::ordered_json;
  Json json;
  json["seconds"] = cost.seconds;
  json["programs"] = Json::array();
  for (const HostProgram& program : cost.programs) {
    if (json["programs"].size() >= view.most) break;
    Json processes = Json::array(), pins = Json::array();
    for (const auto& text : program.processes)
      processes.push_back(ToUtf8(text));
    for (const auto& text : program.pins) pins.push_back(ToUtf8(text));
    json["programs"].push_back(
        {{"id", program.id},
         {"name", ToUtf8(program.name)},
         {"type", program.type},
         {"attached", program.attachments},
         {"runs", program.runs},
         {"run_ns", program.run_ns},
         {"ns_per_run", NsPerRun(program)},
         {"runs_per_second", static_cast<double>(program.runs) / cost.seconds},
         {"cpu_percent", CpuPercent(program, cost.seconds)},
         {"total_runs", program.total_runs},
         {"total_run_ns", program.total_run_ns},
         {"tail_calls", program.tail_calls},
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

// Prometheus computes the rates.
std::string HostCostMetrics(const HostCost& cost) {
  std::string text;
  const auto family = [&](const char* name, const char* type, const char* help,
                          const auto& value) {
    absl::StrAppendFormat(&text, "# HELP %s %s\n# TYPE %s %s\n", name, help,
                          name, type);
    for (const HostProgram& program : cost.programs) {
      // The kernel allows letters, digits, "_" and "." in a name.
      absl::StrAppendFormat(&text, "%s{id=\"%d\",program=\"%s\",type=\"%s\"} ",
                            name, program.id, program.name, program.type);
      absl::StrAppend(&text, value(program), "\n");
    }
  };
  family("netmeter_host_bpf_run_seconds_total", "counter",
         "Time that BPF programs ran, while the kernel measured.",
         [](const HostProgram& program) {
           return absl::StrFormat("%d.%09d", program.total_run_ns / 1000000000,
                                  program.total_run_ns % 1000000000);
         });
  family("netmeter_host_bpf_runs_total", "counter",
         "Runs of BPF programs, while the kernel measured.",
         [](const HostProgram& program) { return program.total_runs; });
  family(
      "netmeter_host_bpf_map_bytes", "gauge",
      "Kernel memory of the maps of BPF programs.",
      [&cost](const HostProgram& program) { return MapBytes(cost, program); });
  return text;
}

}  // namespace internal
}  // namespace netmeter
