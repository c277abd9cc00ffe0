// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/config.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/types/optional.h"
#include "bpf/internal.h"
#include "lib/core/status_util.h"
#include "lib/core/text.h"
#include "lib/core/unique_fd.h"
#include "lib/loader/config_text.h"
#include "lib/loader/registrants.h"

namespace netmeter {
namespace internal {
namespace {

// A file is read into a tree of yaml-cpp, and each value of the tree is parsed
// by a function that knows what it may be. What does not fit is a ConfigError,
// which ParseConfig() turns into "FILE:LINE: KEY: what was expected, not what
// is there". A key that is unknown is an error, too: a setting that is misspelt
// would have no effect, and nobody would know.

constexpr size_t kMaxConfigBytes = 1 << 20;

// A value that does not fit, with its place. yaml-cpp throws; nothing of it
// leaves this file.
class ConfigError : public std::exception {
 public:
  // yaml-cpp places a blank where the next token is: line 0, see AtKey().
  ConfigError(const YAML::Node& node, const std::string& text)
      : line_(node.IsNull() ? 0 : node.Mark().line + 1), text_(text) {}
  int line() const { return line_; }
  void set_line(int line) { line_ = line; }
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  int line_;
  std::string text_;
};

// Runs `parse` for the value of `key`, whose line is that of a blank value.
template <typename F>
void AtKey(const YAML::Node& key, F parse) {
  try {
    parse();
  } catch (ConfigError& error) {
    if (error.line() == 0) error.set_line(key.Mark().line + 1);
    throw;
  }
}

std::string Text(const YAML::Node& node, const char* key) {
  if (!node.IsScalar()) {
    throw ConfigError(node, absl::StrCat(key, ": expected one value, not a ",
                                         node.IsSequence() ? "list"
                                         : node.IsMap()    ? "map"
                                                           : "blank"));
  }
  return node.Scalar();
}

// Digits and nothing else. A leading zero is octal for some readers of YAML and not
// for others.
bool Decimal(absl::string_view text, uint32_t* value) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return c >= '0' && c <= '9'; }) &&
         (text.size() == 1 || text[0] != '0') && absl::SimpleAtoi(text, value);
}

uint32_t Number(const YAML::Node& node, const char* key, uint32_t lowest,
                uint32_t highest) {
  uint32_t value = 0;
  if (!Decimal(Text(node, key), &value) || value < lowest || value > highest) {
    throw ConfigError(
        node, absl::StrCat(key, ": expected a number from ", lowest, " to ",
                           highest, ", not ", Quote(node.Scalar())));
  }
  return value;
}

// The text of a node, unless `why_not` has a reason against it.
template <typename WhyNot>
std::string Checked(const YAML::Node& node, const char* key, WhyNot why_not) {
  std::string text = Text(node, key);
  const std::string reason = why_not(text);
  if (!reason.empty()) {
    throw ConfigError(node, absl::StrCat(key, ": ", reason));
  }
  return text;
}

std::string Name(const YAML::Node& node, const char* key) {
  return Checked(node, key,
                 [](const std::string& name) { return WhyNoName(name); });
}

std::string Executable(const YAML::Node& node, const char* key) {
  return Checked(node, key, WhyNoExecutable);
}

std::string Suffix(const YAML::Node& node) {
  return Checked(node, "destination_suffixes", WhyNoSuffix);
}

void ParsePorts(const YAML::Node& node, DestinationRule* rule) {
  const std::string text = Text(node, "port");
  std::vector<std::string> parts = absl::StrSplit(text, '-');
  uint32_t first = 0, last = 0;
  if (parts.size() > 2 || !Decimal(parts.front(), &first) ||
      !Decimal(parts.back(), &last) || first < 1 || first > last ||
      last > 65535) {
    throw ConfigError(
        node, absl::StrCat("port: ", Quote(text),
                           ": expected a port from 1 to 65535, or a range "
                           "such as 1000-2000"));
  }
  rule->port_first = static_cast<uint16_t>(first);
  rule->port_last = static_cast<uint16_t>(last);
}

// "10.0.0.0/8" or "fd00::/8". An IPv4 prefix becomes one of ::ffff:0:0/96, so
// that the kernel part compares all addresses in one way: four words under a
// mask.
void ParseAddress(const YAML::Node& node, DestinationRule* rule) {
  const std::string text = Text(node, "address");
  std::pair<std::string, std::string> parts =
      absl::StrSplit(text, absl::MaxSplits('/', 1));
  in6_addr v6 = {};
  in_addr v4 = {};
  uint32_t longest = 128, length = 0, base = 0;
  if (inet_pton(AF_INET, parts.first.c_str(), &v4) == 1) {
    v6.s6_addr32[2] = htonl(0xffff);
    v6.s6_addr32[3] = v4.s_addr;
    longest = 32;
    base = 96;
  } else if (inet_pton(AF_INET6, parts.first.c_str(), &v6) != 1) {
    throw ConfigError(node, absl::StrCat("address: ", Quote(text),
                                         " is no IPv4 or IPv6 prefix"));
  }
  length = longest;
  if (text.find('/') != std::string::npos &&
      (!Decimal(parts.second, &length) || length > longest)) {
    throw ConfigError(
        node, absl::StrCat("address: ", Quote(text),
                           ": expected a prefix length up to ", longest));
  }
  const uint32_t masked = base + length;
  bool host_bits = false;
  for (uint32_t word = 0; word < 4; word++) {
    const uint32_t bits = masked >= 32 * (word + 1)
                              ? 32
                              : (masked > 32 * word ? masked - 32 * word : 0);
    rule->mask[word] = bits == 0 ? 0 : htonl(~uint32_t{0} << (32 - bits));
    rule->address[word] = v6.s6_addr32[word] & rule->mask[word];
    host_bits |= rule->address[word] != v6.s6_addr32[word];
  }
  if (host_bits) {  // one host was meant, or all of the network: who knows
    char network[INET6_ADDRSTRLEN] = "";
    inet_ntop(base == 0 ? AF_INET6 : AF_INET,
              base == 0 ? &rule->address[0] : &rule->address[3], network,
              sizeof(network));
    throw ConfigError(
        node,
        absl::StrCat("address: ", Quote(text), ": expected ", network, "/",
                     length, ", or ", parts.first, " for this host alone"));
  }
  if (length == 0) {
    throw ConfigError(node, absl::StrCat("address: ", Quote(text),
                                         ": leave address out: then a rule "
                                         "matches all addresses"));
  }
  // Packets over IPv4 have such addresses for the kernel part.
  const in6_addr mapped = {{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}}};
  bool has_ipv4 = masked < 96;
  for (uint32_t word = 0; word < 4; word++) {
    has_ipv4 &=
        (mapped.s6_addr32[word] & rule->mask[word]) == rule->address[word];
  }
  if (has_ipv4) {
    throw ConfigError(node, absl::StrCat("address: ", Quote(text),
                                         ": has ::ffff:0:0/96 in it, as which "
                                         "IPv4 is matched: expected a longer "
                                         "prefix"));
  }
}

void ParseProtocol(const YAML::Node& node, DestinationRule* rule) {
  const std::string text = Text(node, "protocol");
  const auto known = Protocols().find(text);
  if (known == Protocols().end()) {
    throw ConfigError(
        node, absl::StrCat("protocol: ", Quote(text),
                           ": expected tcp, udp, sctp, icmp, icmpv6 or any"));
  }
  rule->protocol = known->second;
}

bool TrueOrFalse(const YAML::Node& node, const char* key) {
  const std::string text = Text(node, key);
  if (text != "true" && text != "false") {
    throw ConfigError(
        node, absl::StrCat(key, ": ", Quote(text), ": expected true or false"));
  }
  return text == "true";
}

// YAML forbids it, yaml-cpp does not see it.
ConfigError Twice(const YAML::Node& key, const char* where) {
  return ConfigError(key, absl::StrCat(where, ": key ", Quote(key.Scalar()),
                                       " is there twice"));
}

DestinationRule ParseRule(const YAML::Node& node) {
  if (!node.IsMap()) {
    throw ConfigError(node,
                      "destinations: expected a list of name, address, "
                      "port and protocol");
  }
  DestinationRule rule;
  YAML::Node port;
  absl::optional<bool> overrides;
  std::set<std::string> seen;
  for (const auto& item : node) {
    const std::string key = item.first.Scalar();
    if (!seen.insert(key).second) throw Twice(item.first, "destinations");
    AtKey(item.first, [&] {
      if (key == "name") {
        rule.name = Name(item.second, "name");
      } else if (key == "address") {
        ParseAddress(item.second, &rule);
      } else if (key == "port") {
        ParsePorts(item.second, &rule);
        port.reset(item.second);
      } else if (key == "protocol") {
        ParseProtocol(item.second, &rule);
      } else if (key == "overrides_names") {
        overrides = TrueOrFalse(item.second, "overrides_names");
      } else {
        throw ConfigError(
            item.first,
            absl::StrCat("destinations: unknown key ", Quote(key),
                         DidYouMean(key, {"name", "address", "port", "protocol",
                                          "overrides_names"})));
      }
    });
  }
  if (port.IsDefined() && !port.IsNull() &&
      (rule.protocol == IPPROTO_ICMP || rule.protocol == IPPROTO_ICMPV6)) {
    throw ConfigError(port, "port: ICMP has no ports");
  }
  if (rule.name.empty()) {
    throw ConfigError(node, "destinations: a rule needs a name");
  }
  rule.overrides_names = overrides.value_or(HasAddress(rule));
  return rule;
}

// A key without a value is an empty list: "services:" with all lines below it
// commented out.
template <typename T, typename F>
std::vector<T> List(const YAML::Node& node, const char* key, F parse) {
  std::vector<T> values;
  if (node.IsNull()) return values;
  if (!node.IsSequence()) {
    throw ConfigError(node, absl::StrCat(key, ": expected a list"));
  }
  for (const auto& item : node) values.push_back(parse(item));
  return values;
}

// Names to services.
template <typename F>
std::map<std::string, std::string> Map(const YAML::Node& node, const char* key,
                                       const char* expected, F parse_key) {
  std::map<std::string, std::string> values;
  if (!node.IsMap()) {
    throw ConfigError(node, absl::StrCat(key, ": expected ", expected));
  }
  for (const auto& item : node) {
    const std::string name = parse_key(item.first);
    if (values.count(name) != 0) throw Twice(item.first, key);
    AtKey(item.first, [&] { values[name] = Name(item.second, key); });
  }
  return values;
}

std::vector<std::string> Texts(const YAML::Node& node, const char* key) {
  return List<std::string>(
      node, key, [key](const YAML::Node& text) { return Text(text, key); });
}

std::vector<uint16_t> Ports(const YAML::Node& node, const char* key) {
  return List<uint16_t>(node, key, [key](const YAML::Node& port) {
    return static_cast<uint16_t>(Number(port, key, 1, 65535));
  });
}

Uplinks ParseUplinks(const YAML::Node& node) {
  Uplinks uplinks;
  if (node.IsNull()) return uplinks;
  if (!node.IsMap()) {
    throw ConfigError(node, "uplinks: expected uplink: [interface, ...]");
  }
  for (const auto& item : node) {
    const std::string name = Name(item.first, "uplinks");
    if (uplinks.count(name) != 0) throw Twice(item.first, "uplinks");
    AtKey(item.first, [&] { uplinks[name] = Texts(item.second, "uplinks"); });
  }
  return uplinks;
}

// The keys that say what processes are named by. False: it is none of them.
bool ParseNaming(const std::string& key, const YAML::Node& value,
                 Config* config) {
  if (key == "services") {
    config->services = List<std::string>(
        value, "services",
        [](const YAML::Node& node) { return Executable(node, "services"); });
  } else if (key == "aliases") {
    config->aliases =
        Map(value, "aliases", "executable: service",
            [](const YAML::Node& k) { return Executable(k, "aliases"); });
  } else if (key == "units") {
    config->units = Map(value, "units", "unit: service",
                        [](const YAML::Node& k) { return Text(k, "units"); });
  } else if (key == "register_by") {
    config->register_by =
        Map(value, "register_by", "service: uid:USER, group:GROUP or anyone",
            [](const YAML::Node& k) { return Name(k, "register_by"); });
  } else if (key == "names_from") {
    config->names_from = Texts(value, "names_from");
    const absl::Status status = CheckNameSources(config->names_from);
    if (!status.ok()) throw ConfigError(value, std::string(status.message()));
  } else {
    return false;
  }
  return true;
}

void ParseItem(const YAML::Node& key_node, const YAML::Node& value,
               Config* config) {
  const std::string key = key_node.Scalar();
  if (key == "cgroup") {
    config->cgroup = Text(value, "cgroup");
    // Left out it is the whole host, which an empty one hardly means.
    if (config->cgroup.empty()) {
      throw ConfigError(value, "cgroup: expected an absolute path, not ''");
    }
  } else if (key == "pin_dir") {
    config->pin_dir = Text(value, "pin_dir");
  } else if (key == "group") {
    config->group = value.IsNull() ? "" : Text(value, "group");
    config->group_required = !config->group.empty();
  } else if (key == "btf") {
    config->btf = value.IsNull() ? "" : Text(value, "btf");
  } else if (key == "max_series") {
    config->max_series =
        Number(value, "max_series", NM_SLOT_FIRST + 1, NM_MAX_SERIES_LIMIT);
  } else if (key == "max_names") {
    config->max_names =
        Number(value, "max_names", NM_NAME_FIRST + 1, NM_MAX_SERIES_LIMIT);
  } else if (key == "max_processes") {
    config->max_processes = Number(value, "max_processes", 1, 1 << 22);
  } else if (key == "max_sockets") {
    config->max_sockets = Number(value, "max_sockets", 1, 1 << 22);
  } else if (key == "proxy_ports") {
    config->proxy_ports = Ports(value, "proxy_ports");
  } else if (key == "sni_ports") {
    config->sni_ports = Ports(value, "sni_ports");
  } else if (key == "http_ports") {
    config->http_ports = Ports(value, "http_ports");
  } else if (key == "destination_suffixes") {
    config->destination_suffixes =
        List<std::string>(value, "destination_suffixes", Suffix);
  } else if (key == "unknown_destinations") {
    const std::string text = Text(value, "unknown_destinations");
    if (text != "keep" && text != "other") {
      throw ConfigError(value,
                        absl::StrCat("unknown_destinations: ", Quote(text),
                                     ": expected keep or other"));
    }
    config->fold_unknown_destinations = text == "other";
  } else if (key == "destinations") {
    config->destinations =
        List<DestinationRule>(value, "destinations", ParseRule);
  } else if (key == "destinations_of") {
    config->destinations_of = Texts(value, "destinations_of");
    const absl::Status status = CheckDestinationKinds(config->destinations_of);
    if (!status.ok()) throw ConfigError(value, std::string(status.message()));
  } else if (key == "uplinks") {
    config->uplinks = ParseUplinks(value);
  } else if (key == "size_units") {
    const std::string text = Text(value, "size_units");
    if (text != "binary" && text != "decimal") {
      throw ConfigError(value, absl::StrCat("size_units: ", Quote(text),
                                            ": expected binary or decimal"));
    }
    config->decimal_sizes = text == "decimal";
  } else if (!ParseNaming(key, value, config)) {
    for (const char* of_budgets : {"budgets", "reset_day"}) {
      if (key != of_budgets) continue;
      throw ConfigError(key_node,
                        absl::StrCat(key,
                                     ": budgets have a file of their own, "
                                     "/etc/netmeter-budgets.yml (see: netmeter "
                                     "budget --help)"));
    }
    throw ConfigError(key_node,
                      absl::StrCat("unknown key ", Quote(key),
                                   DidYouMean(key, {"pin_dir",
                                                    "cgroup",
                                                    "group",
                                                    "btf",
                                                    "max_series",
                                                    "max_names",
                                                    "max_processes",
                                                    "max_sockets",
                                                    "proxy_ports",
                                                    "sni_ports",
                                                    "http_ports",
                                                    "destination_suffixes",
                                                    "unknown_destinations",
                                                    "services",
                                                    "aliases",
                                                    "units",
                                                    "register_by",
                                                    "names_from",
                                                    "destinations",
                                                    "destinations_of",
                                                    "uplinks",
                                                    "size_units"})));
  }
}

bool HasControlCharacters(const std::string& text) {
  return std::any_of(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  });
}

absl::Status CheckPath(const char* key, const std::string& path) {
  if (path.empty() || path[0] != '/') {
    return absl::InvalidArgumentError(
        absl::StrCat(key, ": expected an absolute path, not '", path, "'"));
  }
  if (HasControlCharacters(path)) {
    return absl::InvalidArgumentError(
        absl::StrCat(key, ": expected a path without control characters"));
  }
  return absl::OkStatus();
}

}  // namespace

const std::map<std::string, uint8_t>& Protocols() {
  static const auto* const protocols = new std::map<std::string, uint8_t>{
      {"any", 0},
      {"tcp", IPPROTO_TCP},
      {"udp", IPPROTO_UDP},
      {"sctp", IPPROTO_SCTP},
      {"icmp", IPPROTO_ICMP},
      {"icmpv6", IPPROTO_ICMPV6},
  };
  return *protocols;
}

absl::StatusOr<Config> ParseConfig(
    absl::string_view yaml, absl::string_view file_name, const Config& defaults,
    const std::function<absl::Status(const Config&)>& check) {
  Config config = defaults;
  // yaml-cpp takes it for UTF-16, and half of a character for an empty file.
  if (absl::StartsWith(yaml, "\xff\xfe") ||
      absl::StartsWith(yaml, "\xfe\xff")) {
    return absl::InvalidArgumentError(
        OneLine(absl::StrCat(file_name, ":1: this is UTF-16: expected UTF-8")));
  }
  try {
    const YAML::Node root = YAML::Load(std::string(yaml));
    const int second = LineOfSecondDocument(std::string(yaml));
    if (second != 0) {
      return absl::InvalidArgumentError(OneLine(absl::StrCat(
          file_name, ":", second,
          ": a second document: expected one of key: value lines")));
    }
    if (root.IsNull()) return config;
    if (!root.IsMap()) throw ConfigError(root, "expected key: value lines");
    std::set<std::string> seen;
    for (const auto& item : root) {
      if (!item.first.IsScalar()) {
        throw ConfigError(item.first, "expected key: value lines");
      }
      if (!seen.insert(item.first.Scalar()).second) {
        throw ConfigError(item.first, absl::StrCat("key '", item.first.Scalar(),
                                                   "' is there twice"));
      }
      // After each item, so that the message names the line that did it.
      AtKey(item.first, [&] {
        ParseItem(item.first, item.second, &config);
        absl::Status status = CheckConfig(config);
        if (status.ok() && check) status = check(config);
        if (!status.ok()) {
          throw ConfigError(item.second, std::string(status.message()));
        }
      });
    }
  } catch (const ConfigError& error) {
    const std::string line =
        error.line() == 0 ? "" : absl::StrCat(error.line(), ":");
    return absl::InvalidArgumentError(
        OneLine(absl::StrCat(file_name, ":", line, " ", error.what())));
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(OneLine(absl::StrCat(
        file_name, ":", error.mark.line + 1, ": ", WhyNoYaml(yaml, error))));
  }
  absl::Status status = CheckConfig(config);
  if (!status.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(file_name, ": ", status.message()));
  }
  return config;
}

absl::StatusOr<std::string> ReadConfigFile(const std::string& path) {
  // Nothing is opened that does more than be read; and what cannot be read at
  // once (/proc/kmsg is a regular file, too) is no configuration.
  struct stat about;
  if (stat(path.c_str(), &about) != 0) {
    return ErrnoStatus(errno, absl::StrCat("read ", path));
  }
  if (S_ISREG(about.st_mode)) {
    UniqueFd fd(
        open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    if (!fd.ok()) return ErrnoStatus(errno, absl::StrCat("read ", path));
    std::string text;
    char buffer[8192];
    while (text.size() <= kMaxConfigBytes) {
      const ssize_t count = read(fd.get(), buffer, sizeof(buffer));
      if (count == 0) return text;
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return ErrnoStatus(errno, absl::StrCat("read ", path));
      text.append(buffer, static_cast<size_t>(count));
    }
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": more than 1 MiB is no configuration"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      path,
      S_ISDIR(about.st_mode) ? ": is a directory" : ": is no regular file",
      ", expected a YAML file"));
}

static absl::Status CheckPinDir(const std::string& path) {
  NETMETER_RETURN_IF_ERROR(CheckPath("pin_dir", path));
  // <pin_dir>.sock is a path of unix(7), which has 108 bytes.
  if (path.size() > 96) {
    return absl::InvalidArgumentError(
        absl::StrCat("pin_dir: expected at most 96 bytes, not ", path.size()));
  }
  // In the name of the lock file a '-' takes four bytes (LockFile()).
  constexpr size_t kNameMax = 255, kAround = sizeof(".netmeter.lock.new") - 1;
  const auto dashes =
      static_cast<size_t>(std::count(path.begin(), path.end(), '-'));
  if (kAround + path.size() + 3 * dashes > kNameMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("pin_dir: has ", dashes,
                     " times '-', and the name of its lock file would be "
                     "longer than a name may be"));
  }
  return absl::OkStatus();
}

absl::Status CheckConfig(const Config& config) {
  auto bad = [](const std::string& text) {
    return absl::InvalidArgumentError(text);
  };
  NETMETER_RETURN_IF_ERROR(CheckPinDir(config.pin_dir));
  if (!config.cgroup.empty()) {
    NETMETER_RETURN_IF_ERROR(CheckPath("cgroup", config.cgroup));
  }
  if (!config.btf.empty()) {
    NETMETER_RETURN_IF_ERROR(CheckPath("btf", config.btf));
  }
  // The next load reads it from YAML.
  if (ToUtf8(config.btf) != config.btf) return bad("btf: expected UTF-8");
  if (HasControlCharacters(config.group)) {
    return bad("group: expected a name without control characters");
  }
  if (ToUtf8(config.group) != config.group) {
    return bad("group: expected UTF-8");
  }
  if (config.cgroup.size() >= NM_PATH_BYTES) {
    return bad(
        absl::StrCat("cgroup: expected fewer than ", NM_PATH_BYTES, " bytes"));
  }
  if (config.max_series <= NM_SLOT_FIRST ||
      config.max_series > NM_MAX_SERIES_LIMIT) {
    return bad(absl::StrCat("max_series: expected ", NM_SLOT_FIRST + 1, " to ",
                            NM_MAX_SERIES_LIMIT, ", not ", config.max_series));
  }
  if (config.max_names <= NM_NAME_FIRST ||
      config.max_names > NM_MAX_SERIES_LIMIT) {
    return bad(absl::StrCat("max_names: expected ", NM_NAME_FIRST + 1, " to ",
                            NM_MAX_SERIES_LIMIT, ", not ", config.max_names));
  }
  if (config.max_processes < 1 || config.max_processes > 1 << 22) {
    return bad("max_processes: expected 1 to 4194304");
  }
  if (config.max_sockets < 1 || config.max_sockets > 1 << 22) {
    return bad("max_sockets: expected 1 to 4194304");
  }
  if (config.proxy_ports.size() > NM_MAX_PROXY_PORTS) {
    return bad(absl::StrCat("proxy_ports: at most ", NM_MAX_PROXY_PORTS));
  }
  if (config.sni_ports.size() > NM_MAX_SNI_PORTS) {
    return bad(absl::StrCat("sni_ports: at most ", NM_MAX_SNI_PORTS));
  }
  if (config.http_ports.size() > NM_MAX_HTTP_PORTS) {
    return bad(absl::StrCat("http_ports: at most ", NM_MAX_HTTP_PORTS));
  }
  size_t suffixes = 0;
  for (const std::string& suffix : config.destination_suffixes) {
    suffixes += suffix.size() + 1;
    const std::string reason = WhyNoSuffix(suffix);
    if (!reason.empty()) {
      return bad(absl::StrCat("destination_suffixes: ", reason));
    }
  }
  if (suffixes >= NM_SUFFIXES_BYTES) {
    return bad(absl::StrCat("destination_suffixes: together at most ",
                            NM_SUFFIXES_BYTES - 1, " bytes"));
  }
  if (config.destinations.size() > NM_MAX_RULES) {
    return bad(absl::StrCat("destinations: at most ", NM_MAX_RULES, " rules"));
  }
  if (config.services.size() + config.aliases.size() > kMaxExecutables) {
    return bad(absl::StrCat("services and aliases: at most ", kMaxExecutables));
  }
  NETMETER_RETURN_IF_ERROR(CheckUnits(config.units));
  NETMETER_RETURN_IF_ERROR(CheckRegisterBy(config.register_by));
  return CheckUplinks(config.uplinks);
}

std::vector<std::string> WhatHasNoEffect(const Config& config) {
  std::vector<std::string> notes;
  const SourceRanks ranks = RanksOf(config.names_from);
  if (ranks[NM_SOURCE_SERVICE_LIST] == 0 &&
      ranks[NM_SOURCE_COMMAND_LINE] == 0) {
    constexpr char kWhy[] =
        " has no effect: names_from has neither service_list nor command_line";
    if (!config.services.empty()) {
      notes.push_back(absl::StrCat("services", kWhy));
    }
    if (!config.aliases.empty()) notes.push_back(absl::StrCat("aliases", kWhy));
  }
  const std::pair<const char*, const std::vector<uint16_t>*> lists[] = {
      {"proxy_ports", &config.proxy_ports},
      {"sni_ports", &config.sni_ports},
      {"http_ports", &config.http_ports}};
  for (const auto& list : lists) {
    std::set<uint16_t> seen;
    for (const uint16_t port : *list.second) {
      if (seen.insert(port).second) continue;
      notes.push_back(absl::StrCat(list.first, ": ", port, " is there twice"));
    }
  }
  const auto& rules = config.destinations;
  for (auto rule = rules.begin(); rule != rules.end(); ++rule) {
    const auto before = std::find_if(
        rules.begin(), rule,
        [&](const DestinationRule& other) { return Covers(other, *rule); });
    if (before == rule) continue;
    notes.push_back(
        absl::StrCat("destinations: rule ", rule - rules.begin() + 1, " (",
                     ToTerminal(rule->name), ") has no effect: rule ",
                     before - rules.begin() + 1, " (", ToTerminal(before->name),
                     ") is before it and matches all that it matches"));
  }
  return notes;
}

}  // namespace internal
}  // namespace netmeter
