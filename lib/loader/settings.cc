// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/settings.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <yaml-cpp/yaml.h>

#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "lib/core/text.h"

namespace netmeter {
namespace internal {
namespace {

constexpr char kSource[] = "# from ";

constexpr size_t kMostShown = 60;  // bytes of both values in a message

// One text for all rules: their order matters, and a message that compares them
// one by one would be longer than the file.
std::string RulesAsText(const Config& config) {
  std::string text;
  for (const DestinationRule& rule : config.destinations) {
    absl::StrAppend(&text, rule.name, ",", rule.port_first, ",", rule.port_last,
                    ",", rule.protocol, ",", rule.overrides_names);
    for (int i = 0; i < 4; i++) {
      absl::StrAppend(&text, ",", rule.address[i], "/", rule.mask[i]);
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

std::string UplinksAsText(const Config& config) {
  return absl::StrJoin(config.uplinks, "\n",
                       [](std::string* out, const auto& uplink) {
                         absl::StrAppend(out, uplink.first, "=",
                                         absl::StrJoin(uplink.second, ","));
                       });
}

// As ParseAddress() of config.cc reads it.
std::string PrefixOf(const DestinationRule& rule) {
  uint32_t length = 0;
  for (const uint32_t word : rule.mask) {
    length += static_cast<uint32_t>(__builtin_popcount(word));
  }
  in6_addr address;
  memcpy(&address, rule.address, sizeof(address));
  char text[INET6_ADDRSTRLEN] = "";
  if (length >= 96 && IN6_IS_ADDR_V4MAPPED(&address)) {
    inet_ntop(AF_INET, &rule.address[3], text, sizeof(text));
    return absl::StrCat(text, "/", length - 96);
  }
  inet_ntop(AF_INET6, &address, text, sizeof(text));
  return absl::StrCat(text, "/", length);
}

std::string ProtocolName(uint8_t protocol) {
  for (const auto& known : Protocols()) {
    if (known.second == protocol) return known.first;
  }
  return "";  // not reached: ParseConfig() knows no others
}

void EmitRule(const DestinationRule& rule, YAML::Emitter* out) {
  *out << YAML::Flow << YAML::BeginMap << YAML::Key << "name" << YAML::Value
       << YAML::DoubleQuoted << rule.name;
  if (HasAddress(rule)) {
    *out << YAML::Key << "address" << YAML::Value << YAML::DoubleQuoted
         << PrefixOf(rule);
  }
  if (rule.port_first != 0 || rule.port_last != 65535) {
    *out << YAML::Key << "port" << YAML::Value
         << (rule.port_first == rule.port_last
                 ? absl::StrCat(rule.port_first)
                 : absl::StrCat(rule.port_first, "-", rule.port_last));
  }
  if (rule.protocol != 0) {
    *out << YAML::Key << "protocol" << YAML::Value
         << ProtocolName(rule.protocol);
  }
  if (rule.overrides_names != HasAddress(rule)) {
    *out << YAML::Key << "overrides_names" << YAML::Value
         << rule.overrides_names;
  }
  *out << YAML::EndMap;
}

// Names are quoted: one may be called "null" or "- ".
void EmitNames(const std::vector<std::string>& names, YAML::Emitter* out) {
  *out << YAML::Flow << YAML::BeginSeq;
  for (const std::string& name : names) *out << YAML::DoubleQuoted << name;
  *out << YAML::EndSeq;
}

// Few in a line. A gateway of Magma has dozens: one a line, to be read and compared.
void EmitLines(const std::vector<std::string>& names, YAML::Emitter* out) {
  if (names.size() <= 4) return EmitNames(names, out);
  *out << YAML::Block << YAML::BeginSeq;
  for (const std::string& name : names) *out << YAML::DoubleQuoted << name;
  *out << YAML::EndSeq;
}

void EmitMap(const std::map<std::string, std::string>& entries,
             YAML::Emitter* out) {
  *out << YAML::BeginMap;
  for (const auto& entry : entries) {
    *out << YAML::Key << YAML::DoubleQuoted << entry.first << YAML::Value
         << YAML::DoubleQuoted << entry.second;
  }
  *out << YAML::EndMap;
}

void EmitPorts(const std::vector<uint16_t>& ports, YAML::Emitter* out) {
  *out << YAML::Flow << YAML::BeginSeq;
  for (const uint16_t port : ports) *out << port;
  *out << YAML::EndSeq;
}

void EmitValue(const Config& config, const std::string& key,
               YAML::Emitter* out) {
  if (key == "group") {
    *out << YAML::DoubleQuoted << config.group;
  } else if (key == "btf") {
    *out << YAML::DoubleQuoted << config.btf;
  } else if (key == "max_series") {
    *out << config.max_series;
  } else if (key == "max_names") {
    *out << config.max_names;
  } else if (key == "max_processes") {
    *out << config.max_processes;
  } else if (key == "max_sockets") {
    *out << config.max_sockets;
  } else if (key == "proxy_ports") {
    EmitPorts(config.proxy_ports, out);
  } else if (key == "sni_ports") {
    EmitPorts(config.sni_ports, out);
  } else if (key == "http_ports") {
    EmitPorts(config.http_ports, out);
  } else if (key == "destination_suffixes") {
    EmitNames(config.destination_suffixes, out);
  } else if (key == "unknown_destinations") {
    *out << (config.fold_unknown_destinations ? "other" : "keep");
  } else if (key == "services") {
    EmitLines(config.services, out);
  } else if (key == "aliases") {
    EmitMap(config.aliases, out);
  } else if (key == "units") {
    EmitMap(config.units, out);
  } else if (key == "register_by") {
    EmitMap(config.register_by, out);
  } else if (key == "names_from") {
    EmitNames(config.names_from, out);
  } else if (key == "destinations") {
    *out << YAML::BeginSeq;
    for (const DestinationRule& rule : config.destinations) {
      EmitRule(rule, out);
    }
    *out << YAML::EndSeq;
  } else if (key == "destinations_of") {
    EmitNames(config.destinations_of, out);
  } else if (key == "uplinks") {
    *out << YAML::BeginMap;
    for (const auto& uplink : config.uplinks) {
      *out << YAML::Key << YAML::DoubleQuoted << uplink.first << YAML::Value;
      EmitNames(uplink.second, out);
    }
    *out << YAML::EndMap;
  } else if (key == "size_units") {
    *out << (config.decimal_sizes ? "decimal" : "binary");
  }
}

bool IsShort(const std::string& key, const std::string& before,
             const std::string& after) {
  return before.size() + after.size() <= kMostShown && key != "destinations" &&
         before.find('\n') == std::string::npos &&
         after.find('\n') == std::string::npos;
}

}  // namespace

// The keys are those of the file, so that a message names what the user wrote.
SettingList SettingsOf(const Config& config) {
  return {
      {"group", config.group},
      {"btf", config.btf},
      {"max_series", absl::StrCat(config.max_series)},
      {"max_names", absl::StrCat(config.max_names)},
      {"max_processes", absl::StrCat(config.max_processes)},
      {"max_sockets", absl::StrCat(config.max_sockets)},
      {"proxy_ports", absl::StrJoin(config.proxy_ports, ",")},
      {"sni_ports", absl::StrJoin(config.sni_ports, ",")},
      {"http_ports", absl::StrJoin(config.http_ports, ",")},
      {"destination_suffixes",
       absl::StrJoin(config.destination_suffixes, "\n")},
      {"unknown_destinations",
       config.fold_unknown_destinations ? "other" : "keep"},
      {"services", absl::StrJoin(config.services, "\n")},
      {"aliases",
       absl::StrJoin(config.aliases, "\n", absl::PairFormatter("="))},
      {"units", absl::StrJoin(config.units, "\n", absl::PairFormatter("="))},
      {"register_by",
       absl::StrJoin(config.register_by, "\n", absl::PairFormatter("="))},
      {"names_from", absl::StrJoin(config.names_from, ",")},
      {"destinations", RulesAsText(config)},
      {"destinations_of", absl::StrJoin(config.destinations_of, ",")},
      {"uplinks", UplinksAsText(config)},
      {"size_units", config.decimal_sizes ? "decimal" : "binary"},
  };
}

std::string ConfigAsYaml(const Config& config, Keys keys) {
  const Config defaults;
  const SettingList usual = SettingsOf(defaults), settings = SettingsOf(config);
  std::string comments;
  for (const std::string& source : config.sources) {
    absl::StrAppend(&comments, kSource, ToTerminal(source), "\n");
  }
  YAML::Emitter out;
  out << YAML::BeginMap;
  if (keys == Keys::kAll) {
    out << YAML::Key << "pin_dir" << YAML::Value << YAML::DoubleQuoted
        << config.pin_dir;
  }
  if (keys == Keys::kAll && !config.cgroup.empty()) {
    out << YAML::Key << "cgroup" << YAML::Value << YAML::DoubleQuoted
        << config.cgroup;
  }
  for (size_t i = 0; i < settings.size(); ++i) {
    const std::string& key = settings[i].first;
    // The group of the defaults is no error where it does not exist.
    const bool is_default =
        settings[i] == usual[i] && (key != "group" || !config.group_required);
    if (is_default && (keys == Keys::kChanged || key == "group")) continue;
    out << YAML::Key << key << YAML::Value;
    EmitValue(config, key, &out);
  }
  out << YAML::EndMap;
  return absl::StrCat(comments, out.c_str(), "\n");
}

std::vector<std::string> SourcesOf(absl::string_view yaml) {
  std::vector<std::string> sources;
  for (absl::string_view line : absl::StrSplit(yaml, '\n')) {
    if (absl::ConsumePrefix(&line, kSource)) sources.emplace_back(line);
  }
  return sources;
}

std::string SourceOfKeys(absl::string_view file, const Config& before,
                         const Config& after) {
  const SettingList old = SettingsOf(before), now = SettingsOf(after);
  std::vector<std::string> keys;
  for (size_t i = 0; i < now.size(); ++i) {
    if (now[i] != old[i]) keys.push_back(now[i].first);
  }
  return keys.empty() ? ""
                      : absl::StrCat(file, ": ", absl::StrJoin(keys, ", "));
}

std::string DescribeChanges(const SettingList& before,
                            const SettingList& after) {
  const std::map<std::string, std::string> old(before.begin(), before.end());
  auto shown = [](const std::string& value) {
    return value.empty() ? std::string("none") : ToTerminal(value);
  };
  std::vector<std::string> changes;
  for (const auto& setting : after) {
    const auto was = old.find(setting.first);
    if (was == old.end() || was->second == setting.second) continue;
    changes.push_back(IsShort(setting.first, was->second, setting.second)
                          ? absl::StrCat(setting.first, " ", shown(was->second),
                                         " to ", shown(setting.second))
                          : setting.first);
  }
  return absl::StrJoin(changes, ", ");
}

uint64_t HashOf(absl::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (char c : bytes) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  }
  return hash;
}

uint64_t ConfigIdOf(const Config& config, uint64_t cgroup_id,
                    uint64_t host_bits) {
  return HashOf(absl::StrCat(
      cgroup_id, "|", host_bits, "|",
      absl::StrJoin(SettingsOf(config), "|", absl::PairFormatter("="))));
}

}  // namespace internal
}  // namespace netmeter
