// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/status_text.h"

#include <bpf/libbpf.h>
#include <string.h>
#include <time.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lib/core/clock.h"
#include "lib/core/shared_maps.h"
#include "lib/core/text.h"
#include "lib/loader/kernel_object.h"
#include "nlohmann/json.hpp"

namespace netmeter {
namespace internal {
namespace {

using Json = nlohmann::ordered_json;

// A time of info in UTC, as RFC 3339 writes it: times of hosts in several zones are
// compared.
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

// What was lost stays counted; what to do is said while there is need to.
std::string MeaningOf(const LossStatus& loss, const MeterStatus& status) {
  // A growth that was cut short may have taken the room from the tables.
  if (status.unfinished) return loss.meaning;
  for (const TableStatus& table : status.tables) {
    if (loss.table == nullptr || strcmp(table.name, loss.table) != 0) continue;
    if (!table.known) return loss.meaning;
    return absl::StrCat(
        loss.meaning, ": ",
        table.used >= table.limit ? loss.advice : "earlier, now there is room");
  }
  return loss.meaning;
}

// What repairs a meter of which something is left. A load keeps its configuration and
// cgroup. An unload forgets them, so that they are written down before; where they are
// not known nothing is unloaded before somebody has done that.
std::string RepairOf(const MeterStatus& status) {
  const std::string load = LoaderCommand("load", status.pin_dir),
                    unload = LoaderCommand("unload", status.pin_dir);
  if (status.config_is_lost) {
    // This file may say neither where nor for which cgroup.
    const bool known = !status.cgroup.empty();
    return absl::StrCat(
        status.lost_maps.empty() || status.closed
            ? std::string()
            : absl::StrCat("test -s FILE && ", unload, " && "),
        load, " --config FILE --cgroup ",
        known ? ShellWord(status.cgroup) : "CGROUP",
        "; with a configuration that you write, as the one that was loaded ",
        known ? "is not known" : "and its cgroup are not known");
  }
  if (status.lost_maps.empty() || status.closed) return load;
  return absl::StrCat(LoaderCommand("status --config", status.pin_dir),
                      " > FILE && ", unload,
                      " && netmeter-loader load --config FILE");
}

// Without an info there is little to be said.
std::string TextWithoutInfo(const MeterStatus& status) {
  const std::string load = LoaderCommand("load", status.pin_dir);
  if (status.loader_at_work) {
    const bool damaged = status.state == MeterState::kDamaged;
    return absl::StrCat(damaged ? "damaged: " : "not loaded: ", status.pin_dir,
                        damaged ? " holds a part of a meter, which may be what"
                                : " has no meter, or none yet:",
                        " a netmeter-loader ",
                        damaged ? "does just now" : "is at work",
                        " (look again)\n");
  }
  if (status.state == MeterState::kNotLoaded) {
    return absl::IsFailedPrecondition(status.load_refusal)
               ? absl::StrCat("not loaded: ", status.load_refusal.message(),
                              "\n")
               : absl::StrCat("not loaded: no meter at ", status.pin_dir,
                              " (run: ", load, ")\n");
  }
  const std::string repair = RepairOf(status);
  if (status.missing_maps == std::vector<std::string>{"info"}) {
    return absl::StrCat(
        "damaged: ", status.pin_dir,
        ": a meter without its info, as a load or an unload that was killed "
        "may leave it (run: ",
        repair, "; counters start again; or ",
        LoaderCommand("unload", status.pin_dir), ")\n");
  }
  if (!status.missing_maps.empty()) {
    return absl::StrCat(
        "damaged: ", status.pin_dir,
        ": of its maps are missing: ", absl::StrJoin(status.missing_maps, ", "),
        " (run: ", repair, ")\n");
  }
  return absl::StrCat("damaged: ", status.pin_dir,
                      ": a load that was to change it was killed or failed "
                      "(run: ",
                      repair, ")\n");
}

// What takes a meter away sets `closed`: an unload, and a first load that fails. Whatever
// is missing it has removed, and a load makes it anew.
std::string ClosedLine(const MeterStatus& status, const std::string& repair) {
  const std::string line = "  CLOSED          ";
  if (status.loader_at_work) {
    return absl::StrCat(line, "a netmeter-loader is at work (look again)\n");
  }
  return absl::StrCat(line, "an unload, or a first load, ",
                      status.loader_unknown
                          ? "is at work, or was killed (look again; then run: "
                          : "was killed, or failed (run: ",
                      LoaderCommand("unload", status.pin_dir), "; or ", repair,
                      ": counters start again)\n");
}

// A line for each thing that is wrong, with the command that repairs it, and one for what
// the caller cannot see.
std::string DamageOf(const MeterStatus& status) {
  const std::string repair = RepairOf(status);
  const std::string run = status.loader_at_work
                              ? "(look again: a netmeter-loader is at work)\n"
                              : absl::StrCat("(run: ", repair, ")\n");
  std::string text;
  if (!status.sees_pins) {
    absl::StrAppend(
        &text, "  UNSEEN          the pins: whether a program or ",
        "a map is missing is not known (run on the host as root)\n");
  }
  if (status.closed) {
    return text + ClosedLine(status, repair);
  }
  if (status.cgroup_gone) {
    absl::StrAppend(
        &text, "  GONE            the cgroup was removed",
        status.cgroup_was_remade ? " and made again" : "",
        ": nothing is counted ",
        status.cgroup_was_remade || status.loader_at_work
            ? run
            : absl::StrCat("(make it again, then run: ", repair, "; or ",
                           LoaderCommand("unload", status.pin_dir), ")\n"));
  } else {
    for (const std::string& pin : status.missing_links) {
      absl::StrAppend(&text, "  MISSING         ", pin,
                      ": its program is not attached ", run);
    }
  }
  for (const std::string& pin : status.missing_maps) {
    const bool lost =
        std::find(status.lost_maps.begin(), status.lost_maps.end(), pin) !=
        status.lost_maps.end();
    absl::StrAppend(&text, "  MISSING         ", pin, ": a map that ",
                    lost ? "no load makes again " : "each load makes anew ",
                    run);
  }
  if (status.unfinished) {
    absl::StrAppend(&text, "  UNFINISHED      a load that ",
                    status.loader_at_work
                        ? "changes it is at work"
                        : "was to change it was killed or failed",
                    "; until it is finished, what is new may count as "
                    "overflow ",
                    run);
  }
  return text;
}

// Without the reserved series and names, which no user can fill or free.
std::string TableAsText(const TableStatus& table) {
  if (!table.known) {
    return absl::StrFormat("  %-10s  ? of %d (root only)\n", table.name,
                           table.limit);
  }
  return absl::StrFormat(
      "  %-10s  %d of %d (%.0f%%)\n", table.name, table.used, table.limit,
      100.0 * static_cast<double>(table.used) /
          static_cast<double>(table.limit == 0 ? 1 : table.limit));
}

}  // namespace

std::string StatusAsText(const MeterStatus& status) {
  if (!status.has_info) return TextWithoutInfo(status);
  const nm_info& info = status.info;
  std::string text = absl::StrFormat(
      "%s: libnetmeter %s, ABI %d.%d\n"
      "  pins            %s\n"
      "  cgroup          %s\n"
      "  kernel          %s, %d possible CPUs\n"
      "  counting since  %s\n"
      "  loaded at       %s\n"
      "  adds            received %s, sent %s\n",
      status.state == MeterState::kLoaded ? "loaded" : "damaged",
      TextOf(info.version), info.abi_major, info.abi_minor, status.pin_dir,
      TextOf(info.cgroup), TextOf(info.kernel), libbpf_num_possible_cpus(),
      TimeOf(info.created_ns), TimeOf(info.loaded_ns), status.adds_received,
      status.adds_sent);
  text += DamageOf(status);
  text += "optional parts:\n";
  for (const FeatureStatus& feature : status.features) {
    absl::StrAppendFormat(&text, "  %-16s  %-3s  %s\n", feature.name,
                          feature.active ? "on" : "off", feature.reason);
  }
  text += "tables:\n";
  for (const TableStatus& table : status.tables) text += TableAsText(table);
  text += "lost:\n";
  for (const LossStatus& loss : status.lost) {
    absl::StrAppendFormat(&text, "  %-9s  %-14s  %d%s%s\n", loss.unit,
                          loss.reason, loss.count, loss.count == 0 ? "" : "  ",
                          loss.count == 0 ? "" : MeaningOf(loss, status));
  }
  text += "seen:\n";
  for (const EventStatus& event : status.seen) {
    absl::StrAppendFormat(&text, "  %-22s  %d  %s\n", event.name, event.count,
                          event.meaning);
  }
  return text;
}

// Keys are only added, as programs read this. A number that could not be read
// is null, and never 0. Bytes of a name that are no UTF-8 are replaced: JSON
// has none.
std::string StatusAsJson(const MeterStatus& status) {
  Json json;
  json["loaded"] = status.has_info;
  json["pin_dir"] = status.pin_dir;
  json["damaged"] = status.state == MeterState::kDamaged;
  json["loader_at_work"] = status.loader_at_work;
  json["missing_links"] = status.missing_links;
  json["missing_maps"] = status.missing_maps;
  json["unfinished"] = status.unfinished;
  json["closed"] = status.closed;
  if (status.has_info) {
    const nm_info& info = status.info;
    json["version"] = TextOf(info.version);
    json["abi"] = absl::StrCat(info.abi_major, ".", info.abi_minor);
    json["build_id"] = absl::StrFormat("%016x", info.build_id);
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
    for (const LossStatus& loss : status.lost) {
      json["lost"][loss.unit][loss.reason] = loss.count;
    }
    for (const EventStatus& event : status.seen) {
      json["seen"][event.name] = event.count;
    }
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace internal
}  // namespace netmeter
