// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/netmeter/cost/meter_cost.h"
#include "lib/base/loader_command.h"

#include <bpf/bpf.h>
#include <linux/bpf.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <map>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/kernel_object.h"
#include "lib/base/pins.h"
#include "lib/base/status_util.h"
#include "lib/base/text.h"
#include "lib/base/text_table.h"
#include "lib/base/unique_fd.h"
#include "lib/reader/shared_maps.h"
#include "nlohmann/json.hpp"

namespace netmeter {
namespace internal {
namespace {

constexpr size_t kMostMaps = 64;  // in one program

absl::Status CannotLookAt(const std::string& what) {
  return ErrnoStatus(errno, absl::StrCat("look at ", what));
}

// The missing privilege if errno is a refusal by the kernel; "" for other errors.
std::string Hint(const char* capability) {
  if (errno != EPERM && errno != EACCES) return "";
  return geteuid() == 0 ? absl::StrCat("needs ", capability) : "run as root";
}

// The runs between two readings. A program that was replaced in between starts at 0.
// The kernel adds to run_time_ns and run_cnt of each CPU at the end of a run, without a
// lock, so a reading may miss runs that end at that moment.
std::vector<ProgramCost> Difference(const MeterCost& before,
                                    const MeterCost& after) {
  std::vector<ProgramCost> programs = after.programs;
  for (ProgramCost& program : programs) {
    for (const ProgramCost& old : before.programs) {
      if (old.id != program.id) continue;
      program.run_ns -= old.run_ns;
      program.runs -= old.runs;
    }
  }
  return programs;
}

double NsPerRun(const ProgramCost& program) {
  return program.runs == 0 ? 0
                           : static_cast<double>(program.run_ns) /
                                 static_cast<double>(program.runs);
}

std::string ToJson(const std::vector<ProgramCost>& programs,
                   const std::vector<MapCost>& maps, double seconds) {
  using Json = nlohmann::ordered_json;
  Json json;
  json["seconds"] = seconds;
  json["programs"] = Json::array();
  for (const ProgramCost& program : programs) {
    json["programs"].push_back(
        {{"name", program.name},
         {"runs", program.runs},
         {"run_ns", program.run_ns},
         {"ns_per_run", NsPerRun(program)},
         {"runs_per_second", static_cast<double>(program.runs) / seconds},
         {"cpu_percent", static_cast<double>(program.run_ns) / seconds / 1e7}});
  }
  json["maps"] = Json::array();
  for (const MapCost& map : maps) {
    json["maps"].push_back({{"name", map.name}, {"bytes", map.bytes}});
  }
  return json.dump(2) + "\n";
}

// Enters the maps of a program, and of the programs that it runs by tail calls. Returns
// false, with errno, if the kernel does not tell about the program.
bool ReadProgramAndMaps(int program, bpf_prog_info* info,
                        std::map<uint32_t, MapCost>* maps) {
  // The kernel writes the ids that have room, and returns the number of all.
  uint32_t ids[kMostMaps];
  info->map_ids = reinterpret_cast<uintptr_t>(ids);
  info->nr_map_ids = kMostMaps;
  if (!GetInfo(program, info)) return false;
  const uint32_t known = std::min<uint32_t>(info->nr_map_ids, kMostMaps);
  for (uint32_t i = 0; i < known; i++) {
    if (maps->count(ids[i]) != 0) continue;
    const UniqueFd map(bpf_map_get_fd_by_id(ids[i]));
    bpf_map_info shape = {};
    if (!map.ok() || !GetInfo(map.get(), &shape)) continue;
    (*maps)[ids[i]] = {TextOf(shape.name), FdInfoNumber(map.get(), "memlock")};
    if (shape.type != BPF_MAP_TYPE_PROG_ARRAY) continue;
    for (uint32_t index = 0; index < shape.max_entries; index++) {
      uint32_t id = 0;
      if (bpf_map_lookup_elem(map.get(), &index, &id) != 0) continue;
      const UniqueFd called(bpf_prog_get_fd_by_id(id));
      bpf_prog_info unused = {};
      if (called.ok()) ReadProgramAndMaps(called.get(), &unused, maps);
    }
  }
  return true;
}

std::string ToText(const std::vector<ProgramCost>& programs,
                   const std::vector<MapCost>& maps, double seconds,
                   SizeUnits units) {
  constexpr auto kLeft = TextColumn::kLeft, kRight = TextColumn::kRight;
  TextTable program_table({{"PROGRAM", kLeft, 0, 16, 16},
                           {"RUNS/S", kRight},
                           {"NS/RUN", kRight},
                           {"OF A CPU", kRight}});
  ProgramCost sum;
  sum.name = "all";
  const auto add = [&](const ProgramCost& program) {
    program_table.Add(
        {program.name,
         absl::StrFormat("%.1f", static_cast<double>(program.runs) / seconds),
         absl::StrFormat("%.1f", NsPerRun(program)),
         HumanPercent(static_cast<double>(program.run_ns), seconds * 1e9, 4)});
  };
  for (const ProgramCost& program : programs) {
    add(program);
    sum.runs += program.runs;
    sum.run_ns += program.run_ns;
  }
  add(sum);
  TextTable map_table({{"MAP", kLeft, 0, 16, 16}, {"MEMORY", kRight}});
  uint64_t bytes = 0;
  for (const MapCost& map : maps) {
    map_table.Add({map.name, HumanBytes(map.bytes, units)});
    bytes += map.bytes;
  }
  map_table.Add({"all", HumanBytes(bytes, units)});
  return absl::StrCat(program_table.Format(0), "\n", map_table.Format(0),
                      absl::StrFormat("\nmeasured for %.1f s\n", seconds));
}

}  // namespace

absl::StatusOr<MeterCost> ReadMeterCost(const std::string& pin_dir) {
  // From the links to their programs, and from the programs to their maps. This also
  // finds maps that are not pinned, such as the constants.
  MeterCost cost;
  std::map<uint32_t, MapCost> maps;
  std::vector<const char*> pins;
  for (const LinkPin& link : LinkPins()) pins.push_back(link.pin);
  // The time of these includes the programs that they call.
  pins.insert(pins.end(), kForwardLinks.begin(), kForwardLinks.end());
  for (const char* pin : pins) {
    const std::string path = absl::StrCat(pin_dir, "/", pin);
    const UniqueFd link(bpf_obj_get(path.c_str()));
    if (!link.ok()) {
      if (errno == ENOENT) continue;  // an optional part, or no meter
      return ErrnoStatus(errno, absl::StrCat("open ", path), Hint("CAP_BPF"));
    }
    bpf_link_info about = {};
    if (!GetInfo(link.get(), &about)) return CannotLookAt(path);
    const UniqueFd program(bpf_prog_get_fd_by_id(about.prog_id));
    if (!program.ok()) {
      return ErrnoStatus(errno, absl::StrCat("open the program of ", path),
                         Hint("CAP_SYS_ADMIN"));
    }
    bpf_prog_info info = {};
    if (!ReadProgramAndMaps(program.get(), &info, &maps)) {
      return CannotLookAt(path);
    }
    ProgramCost found;
    // Not the name of a variant, because this is a label of a metric.
    found.name = ObjectNameOf(pin);
    found.id = info.id;
    found.run_ns = info.run_time_ns;
    found.runs = info.run_cnt;
    cost.programs.push_back(found);
  }
  if (cost.programs.empty()) {
    return absl::NotFoundError(
        absl::StrCat("no meter at ", pin_dir,
                     " (run: ", LoaderCommand("load", pin_dir), ")"));
  }
  for (auto& map : maps) cost.maps.push_back(std::move(map.second));
  std::sort(cost.maps.begin(), cost.maps.end(),
            [](const MapCost& a, const MapCost& b) { return a.name < b.name; });
  return cost;
}

absl::StatusOr<UniqueFd> MeasureRunTimes() {
  UniqueFd stats(bpf_enable_stats(BPF_STATS_RUN_TIME));
  if (stats.ok()) return stats;
  return ErrnoStatus(errno, "enable the measurement of run times",
                     Hint("CAP_SYS_ADMIN"));
}

absl::StatusOr<std::string> MeasureCost(const std::string& pin_dir, int seconds,
                                        CostFormat format, SizeUnits units) {
  const absl::StatusOr<UniqueFd> stats = MeasureRunTimes();
  if (!stats.ok()) return stats.status();
  absl::StatusOr<MeterCost> before = ReadMeterCost(pin_dir);
  if (!before.ok()) return before.status();
  const auto begin = std::chrono::steady_clock::now();
  std::this_thread::sleep_for(std::chrono::seconds(seconds));
  absl::StatusOr<MeterCost> after = ReadMeterCost(pin_dir);
  if (!after.ok()) return after.status();
  const std::chrono::duration<double> took =
      std::chrono::steady_clock::now() - begin;
  const std::vector<ProgramCost> programs = Difference(*before, *after);
  return format == CostFormat::kJson
             ? ToJson(programs, after->maps, took.count())
             : ToText(programs, after->maps, took.count(), units);
}

namespace {

// Sums by name: after a killed upgrade there are the programs of two loads, and some of
// their maps twice.
MeterCost SumByName(const MeterCost& all) {
  MeterCost sums;
  const auto add = [](const auto& from, auto* to, const auto& sum) {
    for (const auto& one : from) {
      const auto known = std::find_if(
          to->begin(), to->end(),
          [&one](const auto& other) { return other.name == one.name; });
      if (known == to->end()) {
        to->push_back(one);
      } else {
        sum(one, &*known);
      }
    }
  };
  add(all.programs, &sums.programs,
      [](const ProgramCost& one, ProgramCost* sum) {
        sum->run_ns += one.run_ns;
        sum->runs += one.runs;
      });
  add(all.maps, &sums.maps,
      [](const MapCost& one, MapCost* sum) { sum->bytes += one.bytes; });
  return sums;
}

}  // namespace

// Totals since the load; Prometheus computes the rates. They only grow while sysctl
// kernel.bpf_stats_enabled is 1, which costs about 20 ns a run.
std::string CostMetrics(const MeterCost& all) {
  const MeterCost cost = SumByName(all);
  std::string text =
      "# HELP netmeter_bpf_run_seconds_total Time that the meter's BPF "
      "programs "
      "ran, while the kernel measured.\n"
      "# TYPE netmeter_bpf_run_seconds_total counter\n";
  for (const ProgramCost& program : cost.programs) {
    absl::StrAppendFormat(
        &text, "netmeter_bpf_run_seconds_total{program=\"%s\"} %d.%09d\n",
        program.name, program.run_ns / 1000000000, program.run_ns % 1000000000);
  }
  absl::StrAppend(&text,
                  "# HELP netmeter_bpf_runs_total Runs of the meter's BPF "
                  "programs, while the kernel measured.\n"
                  "# TYPE netmeter_bpf_runs_total counter\n");
  for (const ProgramCost& program : cost.programs) {
    absl::StrAppendFormat(&text, "netmeter_bpf_runs_total{program=\"%s\"} %d\n",
                          program.name, program.runs);
  }
  absl::StrAppend(&text,
                  "# HELP netmeter_bpf_map_bytes Kernel memory of the meter's "
                  "maps.\n"
                  "# TYPE netmeter_bpf_map_bytes gauge\n");
  for (const MapCost& map : cost.maps) {
    absl::StrAppendFormat(&text, "netmeter_bpf_map_bytes{map=\"%s\"} %d\n",
                          map.name, map.bytes);
  }
  return text;
}

bool StatsAreEnabled() {
  std::ifstream file("/proc/sys/kernel/bpf_stats_enabled");
  int value = 0;
  return file >> value && value != 0;
}

}  // namespace internal
}  // namespace netmeter
