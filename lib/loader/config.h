// SPDX-License-Identifier: BSD-3-Clause
// The loader's configuration: defaults, a YAML file, the command line. Nothing
// is needed: the defaults count everything by executable.
//
// A Config is plain values, and its initializers are the defaults. What a file or an
// option says is written over them. Each key has one row in config.cc: from that follow
// how it is read, checked, compared and printed, and its lines in --help.
//
// Threads: plain values.

#ifndef NETMETER_LIB_LOADER_CONFIG_H_
#define NETMETER_LIB_LOADER_CONFIG_H_

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "bpf/internal.h"
#include "lib/netlink/uplink_names.h"

namespace netmeter {
namespace internal {

// The file of a load that names none.
constexpr char kDefaultConfig[] = "/etc/netmeter.yml";

// The first rule that matches the remote end names the destination.
struct DestinationRule {
  std::string name;
  uint32_t address[4] = {};  // network byte order; IPv4 as ::ffff:a.b.c.d
  uint32_t mask[4] = {};
  uint16_t port_first = 0;
  uint16_t port_last = 65535;
  uint8_t protocol = 0;  // IPPROTO_*, 0: any
  // Also of a connection that gives a name itself. By default where there is an
  // address: who says which host it is knows better than a port.
  bool overrides_names = false;
};

struct Config {
  std::string pin_dir = "/run/netmeter";
  std::string cgroup;  // empty: that of the loaded meter, else the root
  std::string group = "netmeter";  // may read; empty: root only
  // Whether somebody asked for that group: one that does not exist is then an
  // error, and otherwise a note.
  bool group_required = false;

  // The kernel's types, for a kernel that does not show its own; empty: none.
  std::string btf;

  // Table sizes. docs/configuration.md says what an entry of each table costs.
  uint32_t max_series = 4096;
  uint32_t max_names = 4096;
  uint32_t max_processes = 16384;
  uint32_t max_sockets = 16384;  // rounded up to a power of two

  // Loopback traffic to or from these is counted, as path "proxy".
  std::vector<uint16_t> proxy_ports = {8443};

  // TLS connections to these ports name their destination by SNI.
  std::vector<uint16_t> sni_ports = {443, 7443, 7444, 9443, 9444};

  // Plain HTTP/1 to these names its destination by the host of the request. A
  // port that is in sni_ports, too, is TLS's.
  std::vector<uint16_t> http_ports = {80};

  // A name on the wire is a destination by what stands in front of one of
  // these: "streamer-cloud.example" is streamer with "-cloud.example". The
  // port is taken off before.
  std::vector<std::string> destination_suffixes = {".local"};
  // What has none of them: its whole name, or "other" (bounds the series).
  bool fold_unknown_destinations = false;

  std::vector<std::string> services;           // executables that are services
  std::map<std::string, std::string> aliases;  // executable -> service
  std::map<std::string, std::string> units;    // pattern -> service
  // Who may be a service, beside root: "uid:USER", "group:GROUP" or "anyone".
  std::map<std::string, std::string> register_by;
  // What a process is named by, the first that applies.
  std::vector<std::string> names_from = {"registration", "command_line",
                                         "service_list", "executable"};
  // What a host asks its name servers has no other name.
  std::vector<DestinationRule> destinations = {{"dns", {}, {}, 53, 53}};
  // The kinds of series that have destinations.
  std::vector<std::string> destinations_of = {"service", "binary", "unit",
                                              "container"};
  // Interfaces by uplink; empty: nothing counts by uplink.
  Uplinks uplinks;
  // How the tools show sizes, unless they are told otherwise: kB, or KiB.
  bool decimal_sizes = false;

  // For people: where what is not the default came from, "FILE: key value, ...".
  // Of one line each, and no part of what the configuration says.
  std::vector<std::string> sources;
};

// Reads YAML over the values in `config`. Unknown keys are errors, so that a
// misspelt one does not go unnoticed. `check` is run after each key, and its error, too,
// gets the line.
//   InvalidArgument  "netmeter.yml:12: max_series: ..."
absl::StatusOr<Config> ParseConfig(
    absl::string_view yaml, absl::string_view file_name, const Config& defaults,
    const std::function<absl::Status(const Config&)>& check = nullptr);

// The text of a regular file of at most 1 MiB. Never waits: what cannot be read
// at once is an error. NotFound, PermissionDenied, InvalidArgument,
// Unavailable.
absl::StatusOr<std::string> ReadConfigFile(const std::string& path);

// Whether ParseConfig() would read the same values. InvalidArgument.
absl::Status CheckConfig(const Config& config);

// Why a text is no value of this key, which has one value; "" if it is one.
std::string WhyNotValue(const std::string& key, const std::string& text);

// What is allowed and yet does nothing, a line each, as a setting that another one
// switches off. No error: a file that a program wrote may list services that are named
// by their units, too, and a meter is not to lose its configuration over it.
std::vector<std::string> WhatHasNoEffect(const Config& config);

// Each key with its default, for --help.
std::string ConfigHelp();

// --- As text ---

// Key and value of all that a configuration says, but for pin_dir and cgroup.
using SettingList = std::vector<std::pair<std::string, std::string>>;
SettingList SettingsOf(const Config& config);

// The configuration as a file for ParseConfig(), which reads the same from it:
// all keys, or only those that are not as in Config(), so that the next version
// of the loader may have other defaults; these without pin_dir and cgroup.
// Config::sources are comments on top.
enum class Keys { kAll, kChanged };
std::string ConfigAsYaml(const Config& config, Keys keys);

// Config::sources of a text that ConfigAsYaml() made.
std::vector<std::string> SourcesOf(absl::string_view yaml);

// "FILE: max_series, services": the keys whose values differ from those in
// `before`; "" if none does.
std::string SourceOfKeys(absl::string_view file, const Config& before,
                         const Config& after);

// "max_series 4096 to 8192, services": what is different, with the values if
// they are short. Settings that `before` lacks are left out: an older loader
// wrote it.
std::string DescribeChanges(const SettingList& before,
                            const SettingList& after);

// 64-bit FNV-1a, for nm_info.build_id and config_id: it tells versions apart,
// and is no protection against anybody who wants two to be the same.
uint64_t HashOf(absl::string_view bytes);

// Of the configuration and of what the host makes of it. Equal ids mean that a
// load of the same programs would change nothing.
uint64_t ConfigIdOf(const Config& config, uint64_t cgroup_id,
                    uint64_t host_bits);

// --- As the programs have it ---

// By enum nm_source: the place in the list, from 1 on; 0: not in it.
using SourceRanks = std::array<uint32_t, NM_SOURCES>;
SourceRanks RanksOf(const std::vector<std::string>& names_from);

// The entry of nm_units for a line of `units`.
void UnitEntry(const std::string& pattern, const std::string& service,
               nm_unit_key* key, nm_unit_service* value);

// The entry of nm_rules; `destination` is the id of its name.
nm_rule RuleEntry(const DestinationRule& rule, uint32_t destination);

// The ports of all rules that may match a packet that is not TCP's, as in
// nm_config. The kernel part looks at the rules for packets with such ports
// only. No rule: none. A rule without a port: all.
struct PortRange {
  uint32_t first = 0;
  uint32_t count = 0;
};
PortRange PortsBeyondTcp(const std::vector<DestinationRule>& rules);

// A bit for each kind of series, 1 << nm_kind.
uint32_t BitsOfKinds(const std::vector<std::string>& destinations_of);

// --- register_by ---
//
// It holds for registering (NM_REGISTER), for giving a socket to the service
// (NM_SERVICE), and for every way in which a process gets the service's name
// without asking: its executable, its command line, its unit. The real user and
// group ids of the process count, those of the initial user namespace; of its
// supplementary groups the kernel part knows nothing. Root may be any service.

// By the name of the service; those of anyone are left out.
using Registrants = std::map<std::string, nm_registrant>;

// Finds the users and groups of this host. NotFound, and which one.
absl::StatusOr<Registrants> FindRegistrants(
    const std::map<std::string, std::string>& register_by);

// One text for all, to compare two of them.
std::string TextOf(const Registrants& registrants);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_CONFIG_H_
