// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/status.h"
#include "lib/base/loader_command.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <time.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "bpf/internal.h"
#include "lib/base/clock.h"
#include "lib/base/kernel_object.h"
#include "lib/base/map_elements.h"
#include "lib/base/misattributions.h"
#include "lib/base/pins.h"
#include "lib/base/status_util.h"
#include "lib/base/text.h"
#include "lib/base/text_table.h"
#include "lib/base/unique_fd.h"
#include "lib/loader/config.h"
#include "lib/loader/hooks.h"
#include "lib/loader/lock_file.h"
#include "lib/loader/object.h"
#include "lib/loader/pin_dir.h"
#include "lib/loader/system.h"
#include "lib/reader/shared_maps.h"
#include "nlohmann/json.hpp"

namespace netmeter {
namespace internal {
namespace {

// How long to wait for a load that is at work.
constexpr std::chrono::seconds kLockTimeout(3);

uint64_t Load(const nm_u64& value) {
  return __atomic_load_n(&value, __ATOMIC_RELAXED);
}

// The number of processes, -1 if they cannot be read. The iteration may begin again while
// programs write the map; `most` ends it.
int64_t CountProcesses(const std::string& path, uint64_t most) {
  const UniqueFd fd(bpf_obj_get(path.c_str()));
  uint64_t count = 0;
  const absl::Status read = ForEachElement<uint32_t, nm_process>(
      fd.get(), [&](uint32_t, const nm_process&) {
        return ++count <= 2 * most ? absl::OkStatus() : absl::AbortedError("");
      });
  return read.ok() || absl::IsAborted(read) ? static_cast<int64_t>(count) : -1;
}

// The load wrote the reasons as lines "feature: reason" (hooks.h).
std::vector<FeatureStatus> FeaturesOf(const nm_info& info) {
  const std::vector<std::string> lines =
      absl::StrSplit(TextOf(info.reasons), '\n', absl::SkipEmpty());
  std::vector<FeatureStatus> features;
  for (const Feature& feature : Features()) {
    FeatureStatus status = {feature.name, (info.features & feature.bit) != 0,
                            ""};
    for (absl::string_view line : lines) {
      if (absl::ConsumePrefix(&line, absl::StrCat(feature.name, ": "))) {
        status.reason = std::string(line);
      }
    }
    // A meter without uplinks does not have this feature.
    if (feature.bit == NM_FEATURE_FORWARDED && !status.active &&
        status.reason.empty()) {
      continue;
    }
    features.push_back(status);
  }
  return features;
}

// `in_info`: 1 + enum nm_adds.
const char* AddsOf(nm_u8 in_info) {
  for (const nm_adds adds : {NM_ADDS_ATOMIC, NM_ADDS_PLAIN, NM_ADDS_CLAIMED}) {
    if (in_info == 1 + adds) return NameOf(adds);
  }
  return "unknown";
}

std::vector<TableStatus> TablesOf(const PinDir& pins, const nm_info& info,
                                  const nm_stats& stats) {
  const int64_t processes =
      CountProcesses(pins.PathOf("processes"), info.max_processes);
  const uint64_t claimed = Load(stats.sockets_claimed);
  const uint64_t freed = Load(stats.sockets_freed);
  return {
      {"series", Load(stats.series_used), info.max_series - NM_SLOT_FIRST,
       true},
      {"names", Load(stats.names_used), info.max_names - NM_NAME_FIRST, true},
      {"processes", processes < 0 ? 0 : static_cast<uint64_t>(processes),
       info.max_processes, processes >= 0},
      // The two counters are not read at the same moment.
      {"sockets", claimed > freed ? claimed - freed : 0, info.max_sockets,
       true},
  };
}

std::vector<CountStatus> MisattributionsOf(const nm_stats& stats) {
  std::vector<CountStatus> all;
  for (const MisattributionRow& row : kMisattributions) {
    all.push_back({row.reason, Load(stats.*row.count), row.meaning, row.unit});
  }
  return all;
}

std::vector<CountStatus> EventsOf(const nm_stats& stats) {
  return {
      {"socket_collisions", Load(stats.socket_collisions),
       "sockets counted on the slower path, as exactly"},
      {"unowned_sockets", Load(stats.unowned_sockets),
       "sockets of the kernel, or older than the meter"},
      {"connections_named", Load(stats.connections_named),
       "connections that named their destination"},
      {"connections_unnamed", Load(stats.connections_unnamed),
       "connections that ended, or sent 16 KiB, without a name"},
      {"destinations_over_quota", Load(stats.destinations_over_quota),
       "names refused: a service had too many of them"},
      {"series_evicted", Load(stats.series_evicted),
       "idle series that went into kind evicted"},
      {"names_evicted", Load(stats.names_evicted),
       "unused names that were forgotten"},
      {"registrations", Load(stats.registrations),
       "services registered by setsockopt"},
      {"refused_controls", Load(stats.refused_controls),
       "control calls refused with EPERM"},
  };
}

// Work in progress of a loader looks like the leftovers of a killed one.
absl::StatusOr<MeterStatus> ReadStatus(const std::string& pin_dir) {
  // Without /proc no link can be inspected, and each would seem to be missing.
  NETMETER_RETURN_IF_ERROR(CheckProc());
  const PinDir pins(pin_dir);
  MeterStatus status;
  status.pin_dir = pin_dir;
  absl::StatusOr<std::shared_ptr<const SharedMaps>> maps =
      SharedMaps::Open(pin_dir);
  // Without permission "not loaded" would be a guess.
  if (absl::IsPermissionDenied(maps.status())) return maps.status();
  absl::StatusOr<FoundMeter> meter =
      FindMeter(pins, maps.ok() ? (*maps)->view().info : nullptr);
  // Unavailable: an extent that `info` lists will be there in a moment.
  if (!meter.ok() || (!maps.ok() && (meter->can_be_read() ||
                                     meter->state == MeterState::kOtherAbi))) {
    return maps.status();
  }
  static_cast<FoundMeter&>(status) = *std::move(meter);
  const absl::StatusOr<LoaderState> state = PeekState(pin_dir);
  // In a container the lock file may be missing although the host has it.
  status.config_is_lost =
      status.sees_pins && state.ok() && state->config.empty();
  if (status.state == MeterState::kNotLoaded) {
    // If a load would be refused, the advice must not be to load.
    status.load_refusal = CheckPinDirectory(pin_dir).status();
  }
  if (!status.can_be_read()) return status;
  const nm_info& info = status.info;
  const nm_stats& stats = *(*maps)->view().stats;
  status.features = FeaturesOf(info);
  status.adds_received = AddsOf(info.adds_received);
  status.adds_sent = AddsOf(info.adds_sent);
  status.tables = TablesOf(pins, info, stats);
  status.misattributed = MisattributionsOf(stats);
  status.seen = EventsOf(stats);
  return status;
}

}  // namespace

absl::StatusOr<MeterStatus> GetStatus(const std::string& pin_dir) {
  absl::StatusOr<MeterStatus> status = ReadStatus(pin_dir);
  if (status.ok() ? status->state == MeterState::kLoaded
                  : absl::IsPermissionDenied(status.status())) {
    return status;
  }
  const absl::StatusOr<UniqueFd> lock =
      LockDirectory(pin_dir, LOCK_SH, kLockTimeout);
  if (absl::IsPermissionDenied(lock.status())) return status;
  // Read again, with the lock if it is free.
  status = ReadStatus(pin_dir);
  if (status.ok() && status->state != MeterState::kLoaded) {
    status->loader_at_work = absl::IsDeadlineExceeded(lock.status());
  }
  return status;
}

absl::StatusOr<std::string> LoadedConfig(const std::string& pin_dir) {
  NETMETER_ASSIGN_OR_RETURN(MeterStatus status, GetStatus(pin_dir));
  if (status.state == MeterState::kNotLoaded) {
    return absl::NotFoundError(absl::StrCat(pin_dir, ": not loaded"));
  }
  const std::string file = LockFile(pin_dir);
  NETMETER_ASSIGN_OR_RETURN(const LoaderState state, PeekState(pin_dir));
  if (state.config.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the loaded configuration is unknown (", file,
        " does not have it): give --config FILE, or --defaults, to ",
        LoaderCommand("load", pin_dir)));
  }
  NETMETER_ASSIGN_OR_RETURN(Config config,
                            ParseConfig(state.config, file, Config()));
  config.sources = SourcesOf(state.config);
  config.pin_dir = pin_dir;
  const std::string counted = TextOf(status.info.cgroup);
  config.cgroup = counted.empty() ? state.cgroup : counted;
  return ConfigAsYaml(config, Keys::kAll);
}

namespace {

using Json = nlohmann::ordered_json;

// A time of info in UTC, as in RFC 3339, so that hosts in several zones can be compared.
std::string TimeOf(uint64_t boottime_ns) {
  const time_t seconds =
      static_cast<time_t>(UnixTimeNs(boottime_ns) / 1000000000);
  tm parts;
  char text[32];
  if (gmtime_r(&seconds, &parts) == nullptr ||
      strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts) == 0) {
    return "unknown";
  }
  return text;
}

// The command that repairs a damaged meter, and what it costs. It keeps the
// configuration and the cgroup if they are known.
std::string RepairOf(const MeterStatus& status) {
  const bool restart =
      status.needs_restart && status.state != MeterState::kClosed;
  const std::string counted = TextOf(status.info.cgroup);
  std::string repair =
      LoaderCommand(restart ? "load --restart" : "load", status.pin_dir);
  if (status.config_is_lost) {
    absl::StrAppend(
        &repair, " --config FILE --cgroup ",
        counted.empty() ? "CGROUP" : ShellWord(counted),
        ": write FILE, because the loaded configuration is unknown");
  }
  if (restart || !status.can_continue()) {
    absl::StrAppend(&repair, ": counters start again; or ",
                    LoaderCommand("unload", status.pin_dir));
  }
  return repair;
}

// Apparent damage may be the work in progress of a loader.
std::string AdviceOf(const MeterStatus& status, absl::string_view command) {
  return status.loader_at_work ? "(look again: a netmeter-loader is running)"
                               : absl::StrCat("(run: ", command, ")");
}

std::string TextWithoutInfo(const MeterStatus& status) {
  if (status.state != MeterState::kNotLoaded) {
    return absl::StrCat(
        "damaged: ", status.pin_dir,
        ": these maps are missing: ", absl::StrJoin(status.missing_maps, ", "),
        " ", AdviceOf(status, RepairOf(status)), "\n");
  }
  if (absl::IsFailedPrecondition(status.load_refusal)) {
    return absl::StrCat("not loaded: ", status.load_refusal.message(), "\n");
  }
  return absl::StrCat("not loaded: no meter at ", status.pin_dir, " ",
                      AdviceOf(status, LoaderCommand("load", status.pin_dir)),
                      "\n");
}

// One line for each defect, with the command that repairs it, and one line for
// what the caller cannot see.
void AddDamage(const MeterStatus& status, TextTable* table) {
  const std::string run = AdviceOf(status, RepairOf(status));
  const auto add = [&](const char* what, const std::string& text) {
    table->Add({what, absl::StrCat(text, " ", run)});
  };
  if (!status.sees_pins) {
    table->Add({"UNSEEN",
                "the pins, so missing programs and maps are not reported (run "
                "on the host as root)"});
  }
  // An unload sets `closed`, and so does a first load that fails. It has
  // removed the missing pins, and a load creates them again.
  if (status.state == MeterState::kClosed) {
    return add("CLOSED",
               "an unload or a first load is running, was killed or failed");
  }
  if (status.cgroup_gone) {
    add("GONE",
        "the cgroup was removed: nothing is counted until it is created again");
  }
  for (const std::string& pin : status.missing_links) {
    if (status.cgroup_gone) break;  // they went with it
    add("MISSING", absl::StrCat(pin, ": its program is not attached"));
  }
  for (const std::string& pin : status.missing_maps) {
    add("MISSING", absl::StrCat(pin, ": a map"));
  }
  if (status.state == MeterState::kUnfinished) {
    add("UNFINISHED",
        "an upgrade: until it is finished, new series may count as overflow");
  }
}

// Excludes the reserved series and names, which users can neither fill nor free.
std::string UseOf(const TableStatus& table) {
  return table.known
             ? absl::StrCat(table.used, " of ", table.limit, " (",
                            HumanPercent(static_cast<double>(table.used),
                                         static_cast<double>(table.limit)),
                            ")")
             : absl::StrCat("? of ", table.limit, " (root only)");
}

// The lines are never cut: their texts are advice, often to be copied.
std::string Section(const std::string& title, const TextTable& table) {
  return absl::StrCat(title, "\n", table.Format(/*width=*/0, /*indent=*/2));
}

}  // namespace

std::string StatusAsText(const MeterStatus& status) {
  if (!status.can_be_read()) return TextWithoutInfo(status);
  const nm_info& info = status.info;
  TextTable meter({{}, {}}), features({{}, {}, {}}), tables({{}, {}});
  TextTable misattributed({{}, {}, {"", TextColumn::kRight}, {}});
  TextTable seen({{}, {"", TextColumn::kRight}, {}});
  meter.Add({"pins", status.pin_dir});
  meter.Add({"cgroup", TextOf(info.cgroup)});
  meter.Add(
      {"kernel", absl::StrCat(TextOf(info.kernel), ", ",
                              libbpf_num_possible_cpus(), " possible CPUs")});
  meter.Add({"counting since", TimeOf(info.created_ns)});
  meter.Add({"loaded at", TimeOf(info.loaded_ns)});
  meter.Add(
      {"configuration", info.config_hash == 0
                            ? "loaded by an older version: no hash"
                            : absl::StrFormat("hash %016x", info.config_hash)});
  meter.Add({"adds", absl::StrCat("received ", status.adds_received, ", sent ",
                                  status.adds_sent)});
  AddDamage(status, &meter);
  for (const FeatureStatus& feature : status.features) {
    features.Add({feature.name, feature.active ? "on" : "off", feature.reason});
  }
  for (const TableStatus& table : status.tables) {
    tables.Add({table.name, UseOf(table)});
  }
  for (const CountStatus& one : status.misattributed) {
    misattributed.Add({one.unit, one.name, absl::StrCat(one.count),
                       one.count == 0 ? "" : one.meaning});
  }
  for (const CountStatus& event : status.seen) {
    seen.Add({event.name, absl::StrCat(event.count), event.meaning});
  }
  return absl::StrCat(
      Section(absl::StrCat(
                  status.state == MeterState::kLoaded ? "loaded" : "damaged",
                  ": libnetmeter ", TextOf(info.version), ", ABI ",
                  info.abi_major, ".", info.abi_minor),
              meter),
      Section("optional parts:", features), Section("tables:", tables),
      Section("misattributed:", misattributed), Section("seen:", seen));
}

// Programs read this, so keys are only ever added. A number that could not be read is
// null, never 0. Invalid UTF-8 in names is replaced, because JSON cannot hold it.
std::string StatusAsJson(const MeterStatus& status) {
  Json json;
  json["loaded"] = status.can_be_read();
  json["pin_dir"] = status.pin_dir;
  json["damaged"] = status.state != MeterState::kNotLoaded &&
                    status.state != MeterState::kLoaded;
  json["loader_at_work"] = status.loader_at_work;
  json["missing_links"] = status.missing_links;
  json["missing_maps"] = status.missing_maps;
  json["unfinished"] = status.state == MeterState::kUnfinished;
  json["closed"] = status.state == MeterState::kClosed;
  if (status.can_be_read()) {
    const nm_info& info = status.info;
    json["version"] = TextOf(info.version);
    json["abi"] = absl::StrCat(info.abi_major, ".", info.abi_minor);
    json["build_id"] = absl::StrFormat("%016x", info.build_id);
    json["config_hash"] =
        info.config_hash == 0 ? "" : absl::StrFormat("%016x", info.config_hash);
    json["kernel"] = TextOf(info.kernel);
    json["cgroup"] = TextOf(info.cgroup);
    json["cgroup_id"] = info.cgroup_id;
    json["cpus"] = libbpf_num_possible_cpus();
    json["start_time"] = TimeOf(info.created_ns);
    json["load_time"] = TimeOf(info.loaded_ns);
    json["cgroup_gone"] = status.cgroup_gone;
    json["pins_seen"] = status.sees_pins;
    for (const FeatureStatus& feature : status.features) {
      json["features"][feature.name] = {{"active", feature.active},
                                        {"reason", feature.reason}};
    }
    json["adds"] = {{"received", status.adds_received},
                    {"sent", status.adds_sent}};
    for (const TableStatus& table : status.tables) {
      json["tables"][table.name] = {
          {"used", table.known ? Json(table.used) : Json(nullptr)},
          {"limit", table.limit}};
    }
    for (const CountStatus& one : status.misattributed) {
      json["misattributed"][one.unit][one.name] = one.count;
    }
    for (const CountStatus& event : status.seen) {
      json["seen"][event.name] = event.count;
    }
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace internal
}  // namespace netmeter
