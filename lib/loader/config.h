// SPDX-License-Identifier: BSD-3-Clause
// The loader's configuration: defaults, a YAML file, the command line. Nothing
// is needed: the defaults count everything by executable.
//
// How it works. A Config is plain values, and its initializers are the defaults. What
// a file or an option says is written over them, one source after the other, and is
// checked once at the end (CheckConfig()). settings.h takes it apart into keys again,
// to compare two of them and to print one as a file.
//
// Threads: plain values.

#ifndef NETMETER_LIB_LOADER_CONFIG_H_
#define NETMETER_LIB_LOADER_CONFIG_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/loader/destinations.h"
#include "lib/loader/name_sources.h"
#include "lib/uplinks/uplink_names.h"

namespace netmeter {
namespace internal {

// The file of a load that names none: config_files.h.
constexpr char kDefaultConfig[] = "/etc/netmeter.yml";

// The words for DestinationRule::protocol, "any" among them.
const std::map<std::string, uint8_t>& Protocols();

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
  std::vector<std::string> names_from = DefaultNameSources();
  std::vector<DestinationRule> destinations = DefaultDestinationRules();
  // The kinds of series that have destinations.
  std::vector<std::string> destinations_of = AllDestinationKinds();
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

// Ranges, lengths and counts, whatever they came from. InvalidArgument.
absl::Status CheckConfig(const Config& config);

// What is allowed and yet does nothing, a line each, as a setting that another one
// switches off. No error: a file that a program wrote may list services that are named by their
// units, too, and a meter is not to lose its configuration over it.
std::vector<std::string> WhatHasNoEffect(const Config& config);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_CONFIG_H_
