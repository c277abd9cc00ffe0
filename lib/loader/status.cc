// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/status.h"

#include <bpf/bpf.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "lib/core/shared_maps.h"
#include "lib/core/status_util.h"
#include "lib/core/unique_fd.h"
#include "lib/loader/loader.h"
#include "lib/loader/system.h"
#include "netmeter/abi.h"
#include "nlohmann/json.hpp"

namespace netmeter {
namespace internal {
namespace {

using Json = nlohmann::ordered_json;

// A load sets the configuration anew.
constexpr char kOtherOptions[] =
    ", with the other options that it had, such as --config";

template <size_t N>
std::string Field(const char (&text)[N]) {
  return std::string(text, strnlen(text, N));
}

std::string Time(uint64_t ns) {
  const time_t seconds = static_cast<time_t>(ns / 1000000000);
  tm parts;
  char text[32];
  if (gmtime_r(&seconds, &parts) == nullptr ||
      strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts) == 0) {
    return "unknown";
  }
  return text;
}

struct Table {
  const char* name;
  uint64_t used;
  uint64_t max;
  bool known;
};

struct Loss {
  const char* name;
  uint64_t count;
  const char* meaning;
  const char* table = nullptr;  // advice holds while this one is full
  const char* advice = "";
};

// Number of keys, -1 where the map cannot be read.
int64_t CountKeys(const std::string& path, uint64_t most) {
  UniqueFd fd(bpf_obj_get(path.c_str()));
  if (!fd.ok()) return -1;
  uint32_t key = 0, next = 0;
  const void* from = nullptr;
  uint64_t count = 0;
  while (count <= 2 * most && bpf_map_get_next_key(fd.get(), from, &next) == 0) {
    key = next;
    from = &key;
    count++;
  }
  return static_cast<int64_t>(count);
}

// What was lost stays counted; what to do is said while there is need to.
std::string Meaning(const Loss& loss, const std::vector<Table>& tables) {
  for (const Table& table : tables) {
    if (loss.table == nullptr || strcmp(table.name, loss.table) != 0) continue;
    if (!table.known) return loss.meaning;
    return absl::StrCat(loss.meaning, ": ",
                        table.used >= table.max
                            ? loss.advice
                            : "earlier, now there is room");
  }
  return loss.meaning;
}

}  // namespace

absl::StatusOr<StatusReport> GetStatus(const std::string& pin_dir) {
  absl::Status usable = CheckDirectory(pin_dir);
  if (!usable.ok()) return usable;
  StatusReport report;
  Json json;
  json["loaded"] = false;
  json["pin_dir"] = pin_dir;
  absl::StatusOr<std::shared_ptr<const SharedMaps>> maps =
      SharedMaps::Open(pin_dir);
  size_t present = 0;
  for (const std::string& pin : LinkPins()) {
    if (access(absl::StrCat(pin_dir, "/", pin).c_str(), F_OK) == 0) present++;
  }
  if (!maps.ok()) {
    if (!absl::IsNotFound(maps.status()) && !IsUnfinished(pin_dir)) {
      return maps.status();
    }
    const bool unfinished = IsUnfinished(pin_dir);
    const std::string load = LoaderCommand("load", pin_dir);
    if (present == 0) {
      report.state = MeterState::kNotLoaded;
      // Where a load would be refused there is no point in it.
      usable = CheckContents(pin_dir);
      report.text =
          absl::IsFailedPrecondition(usable)
              ? absl::StrCat("not loaded: ", usable.message(), "\n")
              : absl::StrCat("not loaded: no meter at ", pin_dir, " (run: ",
                             load, ")\n");
    } else {
      report.state = MeterState::kDamaged;
      report.text = absl::StrCat(
          "damaged: ", pin_dir,
          unfinished ? ": a load that was to grow the tables was killed (run: "
                     : " holds the rest of a load or an unload that was killed "
                       "(run: ",
          load, kOtherOptions, unfinished ? ")\n" : "; or unload)\n");
    }
    json["damaged"] = present != 0;
    json["unfinished"] = unfinished;
    report.json =
        json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
    return report;
  }
  const nm_info& info = *(*maps)->view().info;
  const nm_stats& stats = *(*maps)->view().stats;

  // With the cgroup its links went, too.
  const bool cgroup_gone = CgroupIsGone(info.cgroup_id);
  // A link that should be there and is not.
  std::vector<std::string> lost_links;
  for (const std::string& pin : LinkPins()) {
    const std::string path = absl::StrCat(pin_dir, "/", pin);
    // Only root can look into a link.
    if (geteuid() == 0 ? IsAttached(path, info.cgroup_id)
                       : access(path.c_str(), F_OK) == 0) {
      continue;
    }
    const bool tracing =
        pin == "link_exec" || pin == "link_fork" || pin == "link_exit";
    const uint64_t feature = tracing ? NM_FEATURE_PROCESS_TRACKING
                             : pin == "link_setsockopt" ? NM_FEATURE_CONTROL
                             : pin == "link_sockops"
                                 ? NM_FEATURE_SOCKET_TABLE
                                 : 0;
    if (feature == 0 || (info.features & feature) != 0) {
      lost_links.push_back(pin);
    }
  }
  const bool retired = (*maps)->retired();
  const bool unfinished = IsUnfinished(pin_dir);
  report.state = lost_links.empty() && !retired && !unfinished && !cgroup_gone
                     ? MeterState::kLoaded
                     : MeterState::kDamaged;
  auto load = [](const uint64_t& value) {
    return __atomic_load_n(&value, __ATOMIC_RELAXED);
  };

  const int64_t processes =
      CountKeys(absl::StrCat(pin_dir, "/processes"), info.max_processes);
  const uint64_t claimed = load(stats.sockets_claimed);
  const uint64_t freed = load(stats.sockets_freed);
  const std::vector<Table> tables = {
      {"series", load(stats.series_used), info.max_series - NM_SLOT_FIRST,
       true},
      {"names", load(stats.names_used), info.max_names - NM_NAME_FIRST, true},
      {"processes", processes < 0 ? 0 : static_cast<uint64_t>(processes),
       info.max_processes, processes >= 0},
      {"sockets", claimed > freed ? claimed - freed : 0, info.max_sockets,
       true},
  };
  const std::vector<Loss> losses = {
      {"series_full", load(stats.series_full),
       "packets counted as overflow", "series", "raise max_series"},
      {"names_full", load(stats.names_full),
       "names refused, or counted as overflow", "names", "raise max_names"},
      {"names_capped", load(stats.names_capped),
       "names refused, or counted as overflow: their user has too many"},
      {"series_capped", load(stats.series_capped),
       "packets counted as overflow: their user has too many series"},
      {"processes_full", load(stats.processes_full),
       "processes named late", "processes", "raise max_processes"},
      {"storage_failed", load(stats.storage_failed),
       "packets and sockets unattributed: no memory for socket storage"},
      {"header_errors", load(stats.header_errors),
       "packets with an unreadable header"},
  };
  const std::vector<Loss> events = {
      {"sockets_outside_table", load(stats.sockets_taken),
       "sockets counted the slower way, as exactly"},
      {"unowned_sockets", load(stats.unowned_sockets),
       "sockets of the kernel, or older than the meter"},
      {"connections_named", load(stats.connections_named),
       "connections that named their destination"},
      {"connections_unnamed", load(stats.connections_unnamed),
       "connections that ended, or sent 16 KiB, without a name"},
      {"destinations_capped", load(stats.destinations_capped),
       "names refused: a service had too many of them"},
      {"registrations", load(stats.registrations), "services by setsockopt"},
      {"refused_controls", load(stats.refused_controls),
       "control calls answered EPERM"},
  };

  json["loaded"] = true;
  json["damaged"] = report.state == MeterState::kDamaged;
  json["version"] = Field(info.version);
  json["abi"] = absl::StrCat(info.abi_major, ".", info.abi_minor);
  json["build_id"] = absl::StrFormat("%016x", info.build_id);
  json["kernel"] = Field(info.kernel);
  json["cgroup"] = Field(info.cgroup);
  json["cgroup_id"] = info.cgroup_id;
  json["cpus"] = info.num_cpus;
  json["counting_since"] = Time(info.created_ns);
  json["loaded_at"] = Time(info.loaded_ns);
  std::string text = absl::StrFormat(
      "%s: libnetmeter %s, ABI %d.%d\n"
      "  pins            %s\n"
      "  cgroup          %s\n"
      "  kernel          %s, %d possible CPUs\n"
      "  counting since  %s\n"
      "  loaded at       %s\n",
      report.state == MeterState::kLoaded ? "loaded" : "damaged",
      Field(info.version), info.abi_major, info.abi_minor, pin_dir,
      Field(info.cgroup), Field(info.kernel), info.num_cpus,
      Time(info.created_ns), Time(info.loaded_ns));
  const std::string run_load = absl::StrCat(
      "(run: ", LoaderCommand("load", pin_dir), kOtherOptions, ")\n");
  if (cgroup_gone) {
    const bool again = access(Field(info.cgroup).c_str(), F_OK) == 0;
    absl::StrAppend(&text, "  GONE            the cgroup was removed",
                    again ? " and made again" : "",
                    ": nothing is counted ",
                    again ? run_load
                          : absl::StrCat("(make it again, then run: ",
                                         LoaderCommand("load", pin_dir),
                                         kOtherOptions, "; or unload)\n"));
  } else {
    for (const std::string& pin : lost_links) {
      absl::StrAppend(&text, "  MISSING         ", pin,
                      ": its program is not attached ", run_load);
    }
  }
  if (unfinished) {
    absl::StrAppend(&text,
                    "  UNFINISHED      a load that was to grow the tables was "
                    "killed ",
                    run_load);
  }
  json["cgroup_gone"] = cgroup_gone;
  json["missing_links"] = lost_links;
  json["unfinished"] = unfinished;

  text += "optional parts:\n";
  const std::vector<std::string> reasons =
      absl::StrSplit(Field(info.reasons), '\n', absl::SkipEmpty());
  for (const Feature& feature : Features()) {
    const bool active = (info.features & feature.bit) != 0;
    std::string reason;
    for (const std::string& line : reasons) {
      const std::string prefix = absl::StrCat(feature.name, ": ");
      if (line.compare(0, prefix.size(), prefix) == 0) {
        reason = line.substr(prefix.size());
      }
    }
    json["features"][feature.name] = {{"active", active}, {"reason", reason}};
    absl::StrAppendFormat(&text, "  %-16s  %-3s  %s\n", feature.name,
                          active ? "on" : "off", reason);
  }

  text += "tables:\n";
  for (const Table& table : tables) {
    if (!table.known) {
      json["tables"][table.name] = {{"used", nullptr}, {"max", table.max}};
      absl::StrAppendFormat(&text, "  %-10s  ? of %d (root only)\n",
                            table.name, table.max);
      continue;
    }
    json["tables"][table.name] = {{"used", table.used}, {"max", table.max}};
    absl::StrAppendFormat(
        &text, "  %-10s  %d of %d (%.0f%%)\n", table.name, table.used,
        table.max, 100.0 * static_cast<double>(table.used) /
                       static_cast<double>(table.max == 0 ? 1 : table.max));
  }
  text += "lost:\n";
  for (const Loss& loss : losses) {
    json["lost"][loss.name] = loss.count;
    absl::StrAppendFormat(&text, "  %-16s  %d%s%s\n", loss.name, loss.count,
                          loss.count == 0 ? "" : "  ",
                          loss.count == 0 ? "" : Meaning(loss, tables));
  }
  text += "seen:\n";
  for (const Loss& event : events) {
    json["seen"][event.name] = event.count;
    absl::StrAppendFormat(&text, "  %-22s  %d  %s\n", event.name, event.count,
                          event.meaning);
  }
  report.text = std::move(text);
  report.json =
      json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  return report;
}

}  // namespace internal
}  // namespace netmeter
