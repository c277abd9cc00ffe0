// SPDX-License-Identifier: BSD-3-Clause
// The loader's configuration: defaults, a YAML file, the command line. No setting is
// required: the defaults count everything by executable.
//
// A Config holds plain values, and its initializers are the defaults. Settings of a file
// or an option overwrite them. Each key has one row in config.cc, which defines how the
// key is read, checked, compared and printed, and its lines in --help.
//
// Threads: plain values.

#ifndef NETMETER_LIB_LOADER_CONFIG_H_
#define NETMETER_LIB_LOADER_CONFIG_H_

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "bpf/internal.h"
#include "lib/base/loader_command.h"
#include "lib/netlink/uplink_names.h"

namespace netmeter {
namespace internal {

// The file that a load reads if no --config is given.
constexpr char kDefaultConfig[] = "/etc/netmeter.yml";

// The first rule that matches the remote end names the destination.
struct DestinationRule {
  std::string name;
  uint32_t address[4] = {};  // network byte order; IPv4 as ::ffff:a.b.c.d
  uint32_t mask[4] = {};
  uint16_t port_first = 0;
  uint16_t port_last = 65535;
  uint8_t protocol = 0;  // IPPROTO_*, 0: any
  // Also applies to connections that give a name themselves. The default is true if the
  // rule has an address: an address tells more about the host than a port does.
  bool overrides_names = false;
};

struct Config {
  std::string pin_dir = kDefaultPinDir;
  std::string cgroup;              // empty: the loaded meter's, else the root
  std::string group = "netmeter";  // may read; empty: root only
  // Whether a user asked for this group. If so, a missing group is an error, and
  // otherwise a note.
  bool group_required = false;

  // A file with the kernel's types, for a kernel that shows none; empty: none.
  std::string btf;

  // Table sizes. docs/configuration.md says what an entry of each table costs.
  uint32_t max_series = 4096;
  uint32_t max_names = 4096;
  uint32_t max_processes = 16384;
  uint32_t max_sockets = 16384;  // rounded up to a power of two

  // Loopback traffic to or from these ports is counted, with path "proxy".
  std::vector<uint16_t> proxy_ports = {8443};

  // TLS connections to these ports name their destination by SNI.
  std::vector<uint16_t> sni_ports = {443, 7443, 7444, 9443, 9444};

  // Plain HTTP/1 to these ports names its destination by the host of the request. A port
  // that is also in sni_ports counts as TLS.
  std::vector<uint16_t> http_ports = {80};

  // A name on the wire is a destination if it ends in one of these. The part before the
  // suffix is the destination: "streamer-cloud.example" is streamer with
  // "-cloud.example". The port is removed first.
  std::vector<std::string> destination_suffixes = {".local"};
  // A name with none of these suffixes: its whole name, or "other" (bounds the series).
  bool fold_unknown_destinations = false;

  std::vector<std::string> services;           // executables that are services
  std::map<std::string, std::string> aliases;  // executable -> service
  std::map<std::string, std::string> units;    // pattern -> service
  // The users that may be a service, besides root: "uid:USER", "group:GROUP" or "anyone".
  std::map<std::string, std::string> register_by;
  // The sources of a process's name; the first one that applies is used.
  std::vector<std::string> names_from = {"registration", "command_line",
                                         "service_list", "executable"};
  // Queries to name servers have no other name.
  std::vector<DestinationRule> destinations = {{"dns", {}, {}, 53, 53}};
  // The kinds of series that have destinations.
  std::vector<std::string> destinations_of = {"service", "binary", "unit",
                                              "container", "user"};
  // Interfaces by uplink; empty: nothing counts by uplink.
  Uplinks uplinks;
  // Uplinks, or `other`, whose addresses are clients of this host, so that forwarded
  // traffic is counted by client.
  std::vector<std::string> forwarded_clients;
  // Whether the tools show sizes in kB by default, and not in KiB.
  bool decimal_sizes = false;

  // For people: the origin of each setting that is not the default, as "FILE: key value,
  // ...", one line each. This is not part of the configuration itself.
  std::vector<std::string> sources;
};

// Reads YAML over the values in `config`. Unknown keys are errors, so that misspelt keys
// are noticed. `check` runs after each key, and its error gets the line, too.
//   InvalidArgument  "netmeter.yml:12: max_series: ..."
absl::StatusOr<Config> ParseConfig(
    absl::string_view yaml, absl::string_view file_name, const Config& defaults,
    const std::function<absl::Status(const Config&)>& check = nullptr);

// Reads a regular file of at most 1 MiB. Never waits: a file that cannot be read at once
// is an error. NotFound, PermissionDenied, InvalidArgument, Unavailable.
absl::StatusOr<std::string> ReadConfigFile(const std::string& path);

// Whether ParseConfig() would read the same values. InvalidArgument.
absl::Status CheckConfig(const Config& config);

// Why a text is not a valid value of this key, which takes one value; "" if it is valid.
std::string WhyNotValue(const std::string& key, const std::string& text);

// Each key with its default, for --help.
std::string ConfigHelp();

// --- As text ---

// Writes the configuration as a file that ParseConfig() reads back to the same values. It
// has all keys, or only those that differ from Config(), so that the next version of the
// loader may have other defaults. The short form has no pin_dir and no cgroup.
// Config::sources become comments on top.
enum class Keys { kAll, kChanged };
std::string ConfigAsYaml(const Config& config, Keys keys);

// Reads Config::sources back from a text of ConfigAsYaml().
std::vector<std::string> SourcesOf(absl::string_view yaml);

// "FILE: max_series, services": the keys whose values differ from `before`; "" if none
// differs. kChanged leaves out pin_dir and cgroup.
std::string SourceOfKeys(absl::string_view file, const Config& before,
                         const Config& after, Keys which = Keys::kChanged);

// Settings that are allowed but have no effect, a line each: a rule behind one that
// matches all of its packets, a port that appears twice, and lists that names_from
// leaves out.
std::vector<std::string> WhatHasNoEffect(const Config& config);

// 64-bit FNV-1a, for nm_info.build_id and config_id. It tells versions apart, but gives
// no protection against deliberate collisions.
uint64_t HashOf(absl::string_view bytes);

// The hash for nm_info.config_hash. Comments, the order of keys, keys that have their
// default, pin_dir and cgroup make no difference.
uint64_t HashOfConfig(const Config& config);

// --- As the programs see it ---

// Indexed by enum nm_source: the position in the list, from 1 on; 0: not in it.
using SourceRanks = std::array<uint32_t, NM_SOURCES>;
SourceRanks RanksOf(const std::vector<std::string>& names_from);

// The entry of nm_units for a line of `units`.
void UnitEntry(const std::string& pattern, const std::string& service,
               nm_unit_key* key, nm_unit_service* value);

// The entry of nm_rules; `destination` is the id of its name.
nm_rule RuleEntry(const DestinationRule& rule, uint32_t destination);

// The ports of all rules, as in nm_config. The kernel part checks the rules only for
// packets with such ports. Without rules no port matches; with a rule without a port all
// ports do.
struct PortRange {
  uint32_t first = 0;
  uint32_t count = 0;
};
PortRange PortsOfRules(const std::vector<DestinationRule>& rules);

// A bit for each kind of series, 1 << nm_kind.
uint32_t BitsOfKinds(const std::vector<std::string>& destinations_of);

// --- register_by ---
//
// register_by applies to registering (NM_REGISTER), to giving a socket to the service
// (NM_SERVICE), and to all ways in which a process gets the service's name without
// asking: its executable, its command line, its unit. The real user and group ids of the
// process are checked, as in the initial user namespace. The kernel part does not see
// supplementary groups. Root may be any service.

// By the name of the service. Services that are open to anyone are left out.
using Registrants = std::map<std::string, nm_registrant>;

// Finds the users and groups on this host. NotFound names the missing one.
absl::StatusOr<Registrants> FindRegistrants(
    const std::map<std::string, std::string>& register_by);

// All registrants as one text, for comparison.
std::string TextOf(const Registrants& registrants);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_CONFIG_H_
