// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/config.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "lib/base/status_util.h"
#include "lib/base/text.h"
#include "lib/base/unique_fd.h"
#include "lib/base/users.h"
#include "lib/base/yaml.h"

namespace netmeter {
namespace internal {
namespace {

// yaml-cpp reads the file into a tree, and the row of each key parses the key's value. A
// bad value throws ConfigError, which ParseConfig() turns into "FILE:LINE: KEY: expected
// ..., not ...". Unknown keys are errors too, because a misspelt setting would silently
// have no effect.

constexpr size_t kMaxConfigBytes = 1 << 20;
constexpr size_t kMaxExecutables = 1024;  // services and aliases together
constexpr size_t kMaxUnits = 1024;        // max_entries of nm_units
constexpr size_t kMaxRegistrants = 1024;  // max_entries of nm_registrants
constexpr char kSource[] = "# from ";
constexpr char kService[] = ".service";

// A bad value and its position. yaml-cpp throws, but no exception leaves this file.
class ConfigError : public std::exception {
 public:
  // yaml-cpp places a blank at the next token: line 0, see AtKey().
  ConfigError(const YAML::Node& node, const std::string& text)
      : line_(node.IsNull() ? 0 : node.Mark().line + 1), text_(text) {}
  int line() const { return line_; }
  void set_line(int line) { line_ = line; }
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  int line_;
  std::string text_;
};

std::string OneLine(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return text;
}

bool HasControlCharacters(const std::string& text) {
  return OneLine(text) != text;
}

// Quoting replaces a NUL, which would end the message.
std::string Quote(const std::string& value) {
  return OneLine(value.size() <= 64
                     ? absl::StrCat("'", value, "'")
                     : absl::StrCat("'", value.substr(0, 64), "...'"));
}

// Why a text is not a valid name; "" if it is.
std::string WhyNoName(const std::string& name, size_t most = NM_NAME_BYTES) {
  if (name.empty() || name.size() > most ||
      name.find('\0') != std::string::npos) {
    return absl::StrCat(Quote(name), ": expected a name of 1 to ", most,
                        " bytes without NUL");
  }
  // YAML 1.2, 5.2. The loaded configuration is kept as YAML, too.
  return ToUtf8(name) == name ? "" : "expected a name in UTF-8";
}

// Processes are compared by the base name of the executed file.
std::string WhyNoExecutable(const std::string& name) {
  const std::string no_name = WhyNoName(name);
  if (!no_name.empty()) return no_name;
  if (name.find('/') != std::string::npos) {
    return absl::StrCat(
        Quote(name), ": expected the name of an executable, without its path");
  }
  // A pattern would never match, and the user would not notice.
  if (name.find_first_of("*?[") != std::string::npos) {
    return absl::StrCat(
        Quote(name),
        ": expected the name of an executable, not a pattern (an executable "
        "that is not listed counts under its own name)");
  }
  return HasControlCharacters(name)
             ? absl::StrCat(Quote(name),
                            ": expected a name without control characters")
             : "";
}

std::string WhyNoSuffix(const std::string& suffix) {
  // They go into nm_info.suffixes, one per line.
  const std::string no_name = WhyNoName(suffix, NM_SUFFIXES_BYTES - 1);
  if (!no_name.empty()) return no_name;
  if (suffix.find('\n') != std::string::npos) {
    return "expected names without line breaks";
  }
  if (suffix[0] != '.' && suffix[0] != '-') {
    return absl::StrCat(
        Quote(suffix),
        ": expected a suffix that begins with '.' or '-', such as .local");
  }
  return "";
}

// Runs `parse` for the value of `key`. A blank value gets the line of its key.
template <typename F>
void AtKey(const YAML::Node& key, F parse) {
  try {
    parse();
  } catch (ConfigError& error) {
    if (error.line() == 0) error.set_line(key.Mark().line + 1);
    throw;
  }
}

std::string Text(const YAML::Node& node, const std::string& key,
                 const std::string& expected = "one value") {
  if (!node.IsScalar()) {
    throw ConfigError(node, absl::StrCat(key, ": expected ", expected,
                                         node.IsSequence() ? ", not a list"
                                         : node.IsMap()    ? ", not a map"
                                                           : ", not a blank"));
  }
  return node.Scalar();
}

// Accepts digits only. Some YAML readers take a leading zero for octal and others do not.
bool Decimal(absl::string_view text, uint32_t* value) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return c >= '0' && c <= '9'; }) &&
         (text.size() == 1 || text[0] != '0') && absl::SimpleAtoi(text, value);
}

uint32_t Number(const YAML::Node& node, const char* key, uint32_t lowest,
                uint32_t highest) {
  const std::string expected =
      absl::StrCat("a number from ", lowest, " to ", highest);
  uint32_t value = 0;
  if (!Decimal(Text(node, key, expected), &value) || value < lowest ||
      value > highest) {
    throw ConfigError(node, absl::StrCat(key, ": expected ", expected, ", not ",
                                         Quote(node.Scalar())));
  }
  return value;
}

// The text of a node. Throws if `why_not` returns a reason.
template <typename WhyNot>
std::string Checked(const YAML::Node& node, const std::string& key,
                    WhyNot why_not) {
  std::string text = Text(node, key);
  const std::string reason = why_not(text);
  if (!reason.empty()) {
    throw ConfigError(node, absl::StrCat(key, ": ", reason));
  }
  return text;
}

std::string Name(const YAML::Node& node, const std::string& key) {
  return Checked(node, key,
                 [](const std::string& name) { return WhyNoName(name); });
}

void ParsePorts(const YAML::Node& node, DestinationRule* rule) {
  constexpr char kExpected[] =
      "a port from 1 to 65535, or a range such as 1000-2000";
  const std::string text = Text(node, "port", kExpected);
  std::vector<std::string> parts = absl::StrSplit(text, '-');
  uint32_t first = 0, last = 0;
  if (parts.size() > 2 || !Decimal(parts.front(), &first) ||
      !Decimal(parts.back(), &last) || first < 1 || first > last ||
      last > 65535) {
    throw ConfigError(
        node, absl::StrCat("port: ", Quote(text), ": expected ", kExpected));
  }
  rule->port_first = static_cast<uint16_t>(first);
  rule->port_last = static_cast<uint16_t>(last);
}

// Parses "10.0.0.0/8" or "fd00::/8". An IPv4 prefix becomes one of ::ffff:0:0/96, so that
// the kernel part compares all addresses in the same way: four words under a mask.
void ParseAddress(const YAML::Node& node, DestinationRule* rule) {
  constexpr char kExpected[] =
      "an IPv4 or IPv6 address, or a prefix such as 10.0.0.0/8";
  const std::string text = Text(node, "address", kExpected);
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
    throw ConfigError(
        node, absl::StrCat("address: ", Quote(text), ": expected ", kExpected));
  }
  length = longest;
  if (text.find('/') != std::string::npos &&
      (!Decimal(parts.second, &length) || length > longest)) {
    throw ConfigError(
        node, absl::StrCat("address: ", Quote(text),
                           ": expected a prefix length up to ", longest));
  }
  const uint32_t masked = base + length;
  for (uint32_t word = 0; word < 4; word++) {
    const uint32_t bits = masked >= 32 * (word + 1)
                              ? 32
                              : (masked > 32 * word ? masked - 32 * word : 0);
    rule->mask[word] = bits == 0 ? 0 : htonl(~uint32_t{0} << (32 - bits));
    rule->address[word] = v6.s6_addr32[word] & rule->mask[word];
  }
}

// The words for DestinationRule::protocol.
constexpr std::pair<const char*, uint8_t> kProtocols[] = {
    {"any", 0},
    {"tcp", IPPROTO_TCP},
    {"udp", IPPROTO_UDP},
    {"sctp", IPPROTO_SCTP},
    {"icmp", IPPROTO_ICMP},
    {"icmpv6", IPPROTO_ICMPV6},
};

void ParseProtocol(const YAML::Node& node, DestinationRule* rule) {
  constexpr char kExpected[] = "tcp, udp, sctp, icmp, icmpv6 or any";
  const std::string text = Text(node, "protocol", kExpected);
  for (const auto& known : kProtocols) {
    if (text != known.first) continue;
    rule->protocol = known.second;
    return;
  }
  throw ConfigError(
      node, absl::StrCat("protocol: ", Quote(text), ": expected ", kExpected));
}

bool TrueOrFalse(const YAML::Node& node, const char* key) {
  const std::string text = Text(node, key, "true or false");
  if (text != "true" && text != "false") {
    throw ConfigError(
        node, absl::StrCat(key, ": ", Quote(text), ": expected true or false"));
  }
  return text == "true";
}

// YAML forbids duplicate keys, but yaml-cpp does not report them.
ConfigError Twice(const YAML::Node& key, const char* where) {
  return ConfigError(key, absl::StrCat(where, ": key ", Quote(key.Scalar()),
                                       " appears twice"));
}

bool HasAddress(const DestinationRule& rule) {
  return (rule.mask[0] | rule.mask[1] | rule.mask[2] | rule.mask[3]) != 0;
}

// Whether `first` matches all packets that `later` matches.
bool Covers(const DestinationRule& first, const DestinationRule& later) {
  for (size_t word = 0; word < 4; ++word) {
    const uint32_t mask = first.mask[word];
    if ((later.mask[word] & mask) != mask ||
        (later.address[word] & mask) != first.address[word]) {
      return false;
    }
  }
  return first.port_first <= later.port_first &&
         first.port_last >= later.port_last &&
         (first.protocol == 0 || first.protocol == later.protocol);
}

constexpr char kExampleRule[] = "{name: dns, port: 53}";

DestinationRule ParseRule(const YAML::Node& node) {
  if (!node.IsMap()) {
    throw ConfigError(
        node,
        absl::StrCat("destinations: expected a rule, such as ", kExampleRule));
  }
  DestinationRule rule;
  YAML::Node port;
  std::optional<bool> overrides;
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

// If a single value stands in place of a list: the list with this value. Else `example`.
std::string ListOf(const YAML::Node& node, const std::string& example) {
  if (!node.IsScalar() || node.Scalar().empty() || node.Scalar().size() > 64) {
    return example;
  }
  return absl::StrCat("[", ShellWord(node.Scalar()), "]");
}

// A key without a value is an empty list, such as "services:" with all lines below it
// commented out.
template <typename T, typename F>
std::vector<T> List(const YAML::Node& node, const std::string& key,
                    const std::string& example, F parse) {
  std::vector<T> values;
  if (node.IsNull()) return values;
  if (!node.IsSequence()) {
    throw ConfigError(node, absl::StrCat(key, ": expected a list, such as ",
                                         ListOf(node, example)));
  }
  for (const auto& item : node) values.push_back(parse(item));
  return values;
}

void RequireMap(const YAML::Node& node, const char* key, const char* example) {
  if (node.IsMap()) return;
  throw ConfigError(node,
                    absl::StrCat(key, ": expected a map, such as ", example));
}

// Names to services.
template <typename F>
std::map<std::string, std::string> Map(const YAML::Node& node, const char* key,
                                       const char* example, F parse_key) {
  std::map<std::string, std::string> values;
  RequireMap(node, key, example);
  for (const auto& item : node) {
    const std::string name = parse_key(item.first);
    if (values.count(name) != 0) throw Twice(item.first, key);
    AtKey(item.first, [&] {
      values[name] = Name(item.second, absl::StrCat(key, ": ", name));
    });
  }
  return values;
}

Uplinks ParseUplinks(const YAML::Node& node) {
  Uplinks uplinks;
  if (node.IsNull()) return uplinks;
  RequireMap(node, "uplinks", "{satellite: [sat0]}");
  for (const auto& item : node) {
    const std::string name = Name(item.first, "uplinks");
    if (uplinks.count(name) != 0) throw Twice(item.first, "uplinks");
    const std::string key = absl::StrCat("uplinks: ", name);
    AtKey(item.first, [&] {
      uplinks[name] = List<std::string>(
          item.second, key, "[sat0]",
          [&](const YAML::Node& text) { return Text(text, key); });
    });
  }
  return uplinks;
}

// --- Checks of a whole value ---

// Reports unknown words, as "'x': expected a, b", and duplicates.
std::string WhyNoWords(const std::vector<std::string>& words,
                       const std::vector<std::string>& known) {
  std::set<std::string> seen;
  for (const std::string& word : words) {
    if (std::find(known.begin(), known.end(), word) == known.end()) {
      return absl::StrCat("'", word.substr(0, 64), "': expected ",
                          absl::StrJoin(known, ", "));
    }
    if (!seen.insert(word).second) {
      return absl::StrCat("'", word, "' appears twice");
    }
  }
  return "";
}

// In the order of enum nm_source.
constexpr const char* kSources[] = {"command_line", "service_list", "unit",
                                    "container", "user"};
static_assert(sizeof(kSources) == NM_SOURCES * sizeof(*kSources));

std::string WhyNoSources(const std::vector<std::string>& sources) {
  std::vector<std::string> known = {"registration"};
  known.insert(known.end(), std::begin(kSources), std::end(kSources));
  known.push_back("executable");
  const std::string reason = WhyNoWords(sources, known);
  if (!reason.empty()) return reason;
  // Registration comes first because there the process names itself. The executable comes
  // last because each process has one.
  if (sources.empty() || sources.front() != "registration" ||
      sources.back() != "executable") {
    return "expected registration first and executable last";
  }
  const SourceRanks ranks = RanksOf(sources);
  return ranks[NM_SOURCE_SERVICE_LIST] != 0 &&
                 ranks[NM_SOURCE_SERVICE_LIST] < ranks[NM_SOURCE_COMMAND_LINE]
             ? "expected command_line before service_list"
             : "";
}

// In the order of Config::destinations_of.
constexpr nm_kind kKinds[] = {NM_KIND_SERVICE, NM_KIND_BINARY, NM_KIND_UNIT,
                              NM_KIND_CONTAINER, NM_KIND_USER};

std::string WhyNoKinds(const std::vector<std::string>& kinds) {
  return WhyNoWords(kinds, Config().destinations_of);
}

// A pattern is a unit's name with at most one '*', right before ".service".
std::string WhyNoUnit(const std::string& pattern, const std::string& service) {
  if (pattern.size() <= strlen(kService) ||
      !absl::EndsWith(pattern, kService)) {
    return absl::StrContains(pattern, '*')
               ? "expected a pattern that ends in *.service, such as "
                 "\"magma@*.service\""
               : "expected the name of a unit, such as ssh.service";
  }
  if (pattern.size() >= NM_NAME_BYTES) {
    return absl::StrCat("expected at most ", NM_NAME_BYTES - 1, " bytes");
  }
  // systemd.unit(5) allows no other characters in a unit's name.
  const auto is_of_a_unit = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
           absl::StrContains(":-_.\\@*", c);
  };
  if (!std::all_of(pattern.begin(), pattern.end(), is_of_a_unit)) {
    return "expected letters, digits, :-_.\\@ and one *";
  }
  const size_t star = pattern.find('*');
  if (star != std::string::npos &&
      star + 1 + strlen(kService) != pattern.size()) {
    return "expected at most one *, right before .service";
  }
  if (absl::StrContains(service, '$') && service != "$1") {
    return "expected a name, or $1 alone";
  }
  return service == "$1" && star == std::string::npos
             ? "$1 stands for the *, and there is none"
             : "";
}

std::string WhyNoUnits(const std::map<std::string, std::string>& units) {
  if (units.size() > kMaxUnits) return absl::StrCat("at most ", kMaxUnits);
  for (const auto& [pattern, service] : units) {
    const std::string reason = WhyNoUnit(pattern, service);
    if (!reason.empty()) return absl::StrCat(Quote(pattern), ": ", reason);
  }
  return "";
}

// A value of register_by.
struct Registrant {
  uint32_t kind = 0;  // 0: anyone
  std::string name;   // of the user or the group, or its number
};

// Nothing if the text does not have this form.
std::optional<Registrant> ParseRegistrant(absl::string_view text) {
  Registrant parsed;
  if (text == "anyone") return parsed;
  if (absl::ConsumePrefix(&text, "uid:")) {
    parsed.kind = NM_REGISTRANT_UID;
  } else if (absl::ConsumePrefix(&text, "group:")) {
    parsed.kind = NM_REGISTRANT_GID;
  }
  const bool readable = std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isgraph(static_cast<unsigned char>(c));
  });
  if (parsed.kind == 0 || text.empty() || !readable) return std::nullopt;
  parsed.name = std::string(text);
  return parsed;
}

std::optional<uint32_t> FindId(const Registrant& parsed) {
  if (parsed.kind == NM_REGISTRANT_UID) {
    const std::optional<User> user = FindUserByName(parsed.name);
    if (user.has_value()) return user->id;
  } else {
    const std::optional<Group> group = FindGroupByName(parsed.name);
    if (group.has_value()) return group->id;
  }
  uint32_t id = 0;
  if (!Decimal(parsed.name, &id) || id == UINT32_MAX) return std::nullopt;
  return id;
}

std::string WhyNoRegistrants(const std::map<std::string, std::string>& lines) {
  if (lines.size() > kMaxRegistrants) {
    return absl::StrCat("at most ", kMaxRegistrants, " services");
  }
  for (const auto& line : lines) {
    if (ParseRegistrant(line.second).has_value()) continue;
    return absl::StrCat(line.first, ": '", line.second.substr(0, 64),
                        "': expected uid:USER, group:GROUP or anyone");
  }
  return "";
}

// The next load reads this text from YAML.
std::string WhyNotUtf8(const std::string& text) {
  return ToUtf8(text) == text ? "" : "expected UTF-8";
}

std::string WhyNoPath(const std::string& path) {
  return path.empty() || path[0] != '/'
             ? absl::StrCat("expected an absolute path, not '", path, "'")
         : HasControlCharacters(path)
             ? "expected a path without control characters"
             : "";
}

std::string WhyNoPinDir(const std::string& path) {
  const std::string reason = WhyNoPath(path);
  if (!reason.empty()) return reason;
  if (path == "/sys/fs/bpf") return "expected a directory of its own";
  // <pin_dir>.sock is a unix(7) path, which is limited to 108 bytes.
  if (path.size() > 96) {
    return absl::StrCat("expected at most 96 bytes, not ", path.size());
  }
  // Each '-' takes four bytes in the name of the lock file (LockFile()).
  constexpr size_t kNameMax = 255, kAround = sizeof(".netmeter.lock.new") - 1;
  const auto dashes =
      static_cast<size_t>(std::count(path.begin(), path.end(), '-'));
  return kAround + path.size() + 3 * dashes > kNameMax
             ? absl::StrCat(
                   "has ", dashes,
                   " times '-', so the name of its lock file is too long")
             : "";
}

// Without the key the meter counts for the whole host. An empty value hardly means that.
std::string WhyNoCgroup(const std::string& path) {
  const std::string reason = WhyNoPath(path);
  return reason.empty() && path.size() >= NM_PATH_BYTES
             ? absl::StrCat("expected fewer than ", NM_PATH_BYTES, " bytes")
             : reason;
}

std::string WhyNoBtf(const std::string& path) {
  const std::string reason = path.empty() ? "" : WhyNoPath(path);
  return reason.empty() ? WhyNotUtf8(path) : reason;
}

std::string WhyNoGroup(const std::string& name) {
  return HasControlCharacters(name)
             ? "expected a name without control characters"
             : WhyNotUtf8(name);
}

std::string WhyNoSuffixes(const std::vector<std::string>& suffixes) {
  // nm_info.suffixes holds them one per line.
  return absl::StrJoin(suffixes, "\n").size() + 1 < NM_SUFFIXES_BYTES
             ? ""
             : absl::StrCat("together at most ", NM_SUFFIXES_BYTES - 1,
                            " bytes");
}

absl::Status CheckTogether(const Config& config) {
  if (config.services.size() + config.aliases.size() <= kMaxExecutables) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("services and aliases: at most ", kMaxExecutables));
}

// --- Values as text ---

// The inverse of ParseAddress().
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
  for (const auto& known : kProtocols) {
    if (rule.protocol == 0 || rule.protocol != known.second) continue;
    *out << YAML::Key << "protocol" << YAML::Value << known.first;
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

// --- The keys ---

struct Key {
  const char* name;
  const char* help;
  // Throws ConfigError, or what yaml-cpp throws.
  std::function<void(const YAML::Node&, Config*)> parse;
  std::function<void(const Config&, YAML::Emitter*)> emit;
};

void Require(const YAML::Node& node, const char* key,
             const std::string& why_not) {
  if (why_not.empty()) return;
  throw ConfigError(node, absl::StrCat(key, ": ", why_not));
}

Key TextKey(const char* name, std::string Config::*field,
            std::string (*why_not)(const std::string&), const char* help) {
  return {name, help,
          [=](const YAML::Node& node, Config* config) {
            const std::string example = Config().*field;
            const std::string text =
                node.IsNull()
                    ? ""
                    : Text(node, name,
                           absl::StrCat("one value",
                                        example.empty() ? "" : ", such as ",
                                        example));
            Require(node, name, why_not(text));
            config->*field = text;
          },
          [=](const Config& config, YAML::Emitter* out) {
            *out << YAML::DoubleQuoted << config.*field;
          }};
}

Key NumberKey(const char* name, uint32_t Config::*field, uint32_t lowest,
              uint32_t highest, const char* help) {
  return {
      name, help,
      [=](const YAML::Node& node, Config* config) {
        config->*field = Number(node, name, lowest, highest);
      },
      [=](const Config& config, YAML::Emitter* out) { *out << config.*field; }};
}

Key PortsKey(const char* name, std::vector<uint16_t> Config::*field,
             size_t most, const char* help) {
  return {name, help,
          [=](const YAML::Node& node, Config* config) {
            const auto ports = List<uint16_t>(
                node, name, "[443]", [&](const YAML::Node& port) {
                  return static_cast<uint16_t>(Number(port, name, 1, 65535));
                });
            if (ports.size() > most) {
              throw ConfigError(node, absl::StrCat(name, ": at most ", most));
            }
            config->*field = ports;
          },
          [=](const Config& config, YAML::Emitter* out) {
            *out << YAML::Flow << YAML::BeginSeq;
            for (const uint16_t port : config.*field) *out << port;
            *out << YAML::EndSeq;
          }};
}

// `why_not` is for each element, `why_not_all` for the whole list.
Key ListKey(const char* name, std::vector<std::string> Config::*field,
            const char* example, std::string (*why_not)(const std::string&),
            std::string (*why_not_all)(const std::vector<std::string>&),
            const char* help) {
  return {
      name, help,
      [=](const YAML::Node& node, Config* config) {
        const auto values = List<std::string>(
            node, name, example, [&](const YAML::Node& value) {
              return Checked(value, name, why_not);
            });
        Require(node, name, why_not_all(values));
        config->*field = values;
      },
      // Short lists stay on one line. A gateway of Magma has dozens of entries: one per
      // line.
      [=](const Config& config, YAML::Emitter* out) {
        if ((config.*field).size() <= 5) return EmitNames(config.*field, out);
        *out << YAML::Block << YAML::BeginSeq;
        for (const std::string& value : config.*field) {
          *out << YAML::DoubleQuoted << value;
        }
        *out << YAML::EndSeq;
      }};
}

Key MapKey(
    const char* name, std::map<std::string, std::string> Config::*field,
    const char* example, std::string (*why_not)(const std::string&),
    std::string (*why_not_all)(const std::map<std::string, std::string>&),
    const char* help) {
  return {name, help,
          [=](const YAML::Node& node, Config* config) {
            const auto values =
                Map(node, name, example, [&](const YAML::Node& key) {
                  return Checked(key, name, why_not);
                });
            Require(node, name, why_not_all(values));
            config->*field = values;
          },
          [=](const Config& config, YAML::Emitter* out) {
            *out << YAML::BeginMap;
            for (const auto& entry : config.*field) {
              *out << YAML::Key << YAML::DoubleQuoted << entry.first
                   << YAML::Value << YAML::DoubleQuoted << entry.second;
            }
            *out << YAML::EndMap;
          }};
}

// A choice of two words; the second one is true.
Key ChoiceKey(const char* name, bool Config::*field, const char* no,
              const char* yes, const char* help) {
  return {name, help,
          [=](const YAML::Node& node, Config* config) {
            const std::string expected = absl::StrCat(no, " or ", yes);
            const std::string text = Text(node, name, expected);
            if (text != no && text != yes) {
              throw ConfigError(node, absl::StrCat(name, ": ", Quote(text),
                                                   ": expected ", expected));
            }
            config->*field = text == yes;
          },
          [=](const Config& config, YAML::Emitter* out) {
            *out << (config.*field ? yes : no);
          }};
}

template <typename T>
std::string NoReason(const T&) {
  return "";
}

// A list, or a word for one that many hosts want.
Key NamesFromKey() {
  Key key = ListKey("names_from", &Config::names_from,
                    "[registration, unit, executable]", NoReason, WhyNoSources,
                    "or units, containers, all (of both), programs;\n"
                    "a list may have unit, container and user between");
  key.parse = [list = key.parse](const YAML::Node& node, Config* config) {
    if (!node.IsScalar()) return list(node, config);
    const std::map<std::string, std::vector<std::string>> words = {
        {"programs", {}},
        {"units", {"unit"}},
        {"containers", {"container"}},
        {"all", {"container", "unit"}}};
    const auto found = words.find(node.Scalar());
    if (found == words.end()) {
      throw ConfigError(node,
                        absl::StrCat("names_from: '", node.Scalar(),
                                     "': expected a list, or programs, units, "
                                     "containers or all"));
    }
    config->names_from = Config().names_from;
    config->names_from.insert(config->names_from.end() - 1,
                              found->second.begin(), found->second.end());
  };
  return key;
}
std::string WhyNoKey(const std::string& name) { return WhyNoName(name); }

// The names of a user's group must exist; the default one need not.
Key GroupKey() {
  Key key = TextKey("group", &Config::group, WhyNoGroup,
                    "may read the counters; '' for root only");
  key.parse = [parse = key.parse](const YAML::Node& node, Config* config) {
    parse(node, config);
    config->group_required = !config->group.empty();
  };
  return key;
}

const std::vector<Key>& AllKeys() {
  static const auto* const keys = new std::vector<Key>{
      TextKey("pin_dir", &Config::pin_dir, WhyNoPinDir, ""),
      TextKey("cgroup", &Config::cgroup, WhyNoCgroup,
              "default: the root of cgroup v2"),
      GroupKey(),
      TextKey("btf", &Config::btf, WhyNoBtf,
              "file with the types of a kernel without them"),
      NumberKey("max_series", &Config::max_series, NM_SLOT_FIRST + 1,
                NM_MAX_SERIES_LIMIT,
                "(kind, name, destination, transport,\n"
                "path, uplink)"),
      NumberKey("max_names", &Config::max_names, NM_NAME_FIRST + 1,
                NM_MAX_SERIES_LIMIT,
                "of services, binaries, units, containers and\n"
                "destinations"),
      NumberKey("max_processes", &Config::max_processes, 1, 1 << 22, ""),
      NumberKey("max_sockets", &Config::max_sockets, 1, 1 << 22, ""),
      PortsKey("proxy_ports", &Config::proxy_ports, NM_MAX_PROXY_PORTS,
               "loopback ports to count"),
      PortsKey("sni_ports", &Config::sni_ports, NM_MAX_SNI_PORTS,
               "TLS has the name of the destination"),
      PortsKey("http_ports", &Config::http_ports, NM_MAX_HTTP_PORTS,
               "HTTP/1 has the name of the destination"),
      ListKey("destination_suffixes", &Config::destination_suffixes, "[.local]",
              WhyNoSuffix, WhyNoSuffixes, "removed from names on the wire"),
      ChoiceKey("unknown_destinations", &Config::fold_unknown_destinations,
                "keep", "other", "or other, for names without a suffix"),
      ListKey("services", &Config::services, "[sshd]", WhyNoExecutable,
              NoReason, "executables that are services"),
      MapKey("aliases", &Config::aliases, "{oai_mme: mme}", WhyNoExecutable,
             NoReason, "executable: service"),
      MapKey("units", &Config::units, "{ssh.service: ssh}", NoReason,
             WhyNoUnits, "unit: service, or \"magma@*.service\": $1"),
      MapKey("register_by", &Config::register_by, "{mme: \"uid:root\"}",
             WhyNoKey, WhyNoRegistrants,
             "service: uid:USER, group:GROUP or anyone"),
      NamesFromKey(),
      {"destinations",
       "the first match counts\n"
       "- {name: cloud, address: 10.0.0.0/8,\n"
       "   port: 443 or 1000-2000, protocol: tcp}\n"
       "a rule without address yields to a name from\n"
       "the connection, unless it has\n"
       "overrides_names: true",
       [](const YAML::Node& node, Config* config) {
         const auto rules = List<DestinationRule>(
             node, "destinations", absl::StrCat("[", kExampleRule, "]"),
             ParseRule);
         if (rules.size() > NM_MAX_RULES) {
           throw ConfigError(node, absl::StrCat("destinations: at most ",
                                                NM_MAX_RULES, " rules"));
         }
         config->destinations = rules;
       },
       [](const Config& config, YAML::Emitter* out) {
         *out << YAML::BeginSeq;
         for (const DestinationRule& rule : config.destinations) {
           EmitRule(rule, out);
         }
         *out << YAML::EndSeq;
       }},
      ListKey("destinations_of", &Config::destinations_of, "[service]",
              NoReason, WhyNoKinds, ""),
      {"uplinks", "uplink: [interface, \"wwan*\"]",
       [](const YAML::Node& node, Config* config) {
         const Uplinks uplinks = ParseUplinks(node);
         const absl::Status checked = CheckUplinks(uplinks);
         if (!checked.ok()) {
           throw ConfigError(node, std::string(checked.message()));
         }
         config->uplinks = uplinks;
       },
       [](const Config& config, YAML::Emitter* out) {
         *out << YAML::BeginMap;
         for (const auto& uplink : config.uplinks) {
           *out << YAML::Key << YAML::DoubleQuoted << uplink.first
                << YAML::Value;
           EmitNames(uplink.second, out);
         }
         *out << YAML::EndMap;
       }},
      ListKey("forwarded_clients", &Config::forwarded_clients, "[lan]",
              NoReason, NoReason, "uplinks, or other: by their addresses"),
      ChoiceKey("size_units", &Config::decimal_sizes, "binary", "decimal",
                "or decimal: tools show kB, not KiB"),
  };
  return *keys;
}

// pin_dir and cgroup say which meter it is, not how it counts.
bool IsSetting(const Key& key) {
  return strcmp(key.name, "pin_dir") != 0 && strcmp(key.name, "cgroup") != 0;
}

void ParseItem(const YAML::Node& key_node, const YAML::Node& value,
               Config* config) {
  const std::string name = key_node.Scalar();
  std::vector<std::string> names;
  for (const Key& key : AllKeys()) {
    if (name == key.name) return key.parse(value, config);
    names.push_back(key.name);
  }
  if (name == "budgets" || name == "reset_day") {
    throw ConfigError(key_node,
                      absl::StrCat(name,
                                   ": budgets have a file of their own, "
                                   "/etc/netmeter-budgets.yml (see: netmeter "
                                   "budget --help)"));
  }
  throw ConfigError(key_node, absl::StrCat("unknown key ", Quote(name),
                                           DidYouMean(name, names)));
}

// The value on one line, unless it is a long list.
std::string ValueAsText(const Config& config, const Key& key) {
  YAML::Emitter out;
  out.SetSeqFormat(YAML::Flow);
  out.SetMapFormat(YAML::Flow);
  key.emit(config, &out);
  return out.c_str();
}

}  // namespace

absl::StatusOr<Config> ParseConfig(
    absl::string_view yaml, absl::string_view file_name, const Config& defaults,
    const std::function<absl::Status(const Config&)>& check) {
  Config config = defaults;
  try {
    const YAML::Node root = LoadYaml(std::string(yaml));
    const int second = LineOfSecondDocument(std::string(yaml));
    if (second != 0) {
      return absl::InvalidArgumentError(OneLine(absl::StrCat(
          file_name, ":", second,
          ": a second document: expected one of key: value lines")));
    }
    if (root.IsNull()) return config;
    constexpr char kExpected[] =
        "expected key: value lines, such as max_series: 4096";
    if (!root.IsMap()) throw ConfigError(root, kExpected);
    std::set<std::string> seen;
    for (const auto& item : root) {
      if (!item.first.IsScalar()) {
        throw ConfigError(item.first.IsNull() ? item.second : item.first,
                          kExpected);
      }
      if (!seen.insert(item.first.Scalar()).second) {
        throw ConfigError(item.first, absl::StrCat("key '", item.first.Scalar(),
                                                   "' appears twice"));
      }
      // Check after each item, so that the message names the line at fault.
      AtKey(item.first, [&] {
        ParseItem(item.first, item.second, &config);
        absl::Status status = CheckTogether(config);
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
    const YamlFault fault = DescribeFault(yaml, error);
    return absl::InvalidArgumentError(
        OneLine(absl::StrCat(file_name, ":", fault.line, ": ", fault.text)));
  }
  return config;
}

absl::StatusOr<std::string> ReadConfigFile(const std::string& path) {
  // A file that cannot be read at once is no configuration (/proc/kmsg is a regular
  // file, too).
  const UniqueFd fd(
      open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  struct stat about;
  if (!fd.ok() || fstat(fd.get(), &about) != 0) {
    return ErrnoStatus(errno, absl::StrCat("read ", path));
  }
  if (!S_ISREG(about.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(
        path,
        S_ISDIR(about.st_mode) ? ": is a directory" : ": is no regular file",
        ", expected a YAML file"));
  }
  std::string text;
  char buffer[8192];
  while (text.size() <= kMaxConfigBytes) {
    const ssize_t count = read(fd.get(), buffer, sizeof(buffer));
    if (count == 0) return text;
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ErrnoStatus(errno, absl::StrCat("read ", path));
    text.append(buffer, static_cast<size_t>(count));
  }
  return absl::InvalidArgumentError(absl::StrCat(path, ": larger than 1 MiB"));
}

absl::Status CheckConfig(const Config& config) {
  Config read;
  for (const Key& key : AllKeys()) {
    if (config.cgroup.empty() && strcmp(key.name, "cgroup") == 0) continue;
    try {
      key.parse(YAML::Load(ValueAsText(config, key)), &read);
    } catch (const std::exception& error) {
      return absl::InvalidArgumentError(OneLine(error.what()));
    }
  }
  // The YAML text above has replaced bytes that are not UTF-8, so check these here.
  if (!WhyNotUtf8(config.group).empty() || !WhyNotUtf8(config.btf).empty()) {
    return absl::InvalidArgumentError("group and btf: expected UTF-8");
  }
  return CheckTogether(config);
}

std::string WhyNotValue(const std::string& key, const std::string& text) {
  Config config;
  try {
    ParseItem(YAML::Node(key), YAML::Node(text), &config);
  } catch (const ConfigError& error) {
    return std::string(absl::StripPrefix(error.what(), key + ": "));
  }
  return "";
}

std::string ConfigHelp() {
  constexpr size_t kColumn = 28;
  const Config defaults;
  std::string help;
  for (const Key& key : AllKeys()) {
    const std::string value =
        absl::StrReplaceAll(ValueAsText(defaults, key), {{"\"", ""}});
    std::string line =
        absl::StrCat("  ", key.name, ": ", value.empty() ? "''" : value);
    if (*key.help == '\0') {
      absl::StrAppend(&help, line, "\n");
      continue;
    }
    for (const absl::string_view text : absl::StrSplit(key.help, '\n')) {
      if (line.size() + 2 > kColumn) {
        absl::StrAppend(&help, line, "\n");
        line.clear();
      }
      line.resize(kColumn, ' ');
      absl::StrAppend(&help, line, text, "\n");
      line.clear();
    }
  }
  return help;
}

std::string ConfigAsYaml(const Config& config, Keys keys) {
  const Config defaults;
  std::string comments;
  for (const std::string& source : config.sources) {
    absl::StrAppend(&comments, kSource, ToTerminal(source), "\n");
  }
  YAML::Emitter out;
  out << YAML::BeginMap;
  for (const Key& key : AllKeys()) {
    const bool is_group = strcmp(key.name, "group") == 0;
    // The default group may be missing without an error.
    const bool is_default =
        ValueAsText(config, key) == ValueAsText(defaults, key) &&
        !(is_group && config.group_required);
    const bool left_out =
        keys == Keys::kChanged ? is_default || !IsSetting(key)
        : is_group             ? is_default
                   : config.cgroup.empty() && strcmp(key.name, "cgroup") == 0;
    if (left_out) continue;
    out << YAML::Key << key.name << YAML::Value;
    key.emit(config, &out);
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
                         const Config& after, Keys which) {
  std::vector<std::string> keys;
  for (const Key& key : AllKeys()) {
    if ((which == Keys::kAll || IsSetting(key)) &&
        ValueAsText(before, key) != ValueAsText(after, key)) {
      keys.push_back(key.name);
    }
  }
  return keys.empty() ? ""
                      : absl::StrCat(file, ": ", absl::StrJoin(keys, ", "));
}

std::vector<std::string> WhatHasNoEffect(const Config& config) {
  std::vector<std::string> notes;
  const SourceRanks ranks = RanksOf(config.names_from);
  const bool is_listed =
      ranks[NM_SOURCE_SERVICE_LIST] != 0 || ranks[NM_SOURCE_COMMAND_LINE] != 0;
  if (!is_listed && !(config.services.empty() && config.aliases.empty())) {
    notes.push_back(
        "services and aliases have no effect: names_from has neither "
        "service_list nor command_line");
  }
  const std::pair<const char*, const std::vector<uint16_t>*> lists[] = {
      {"proxy_ports", &config.proxy_ports},
      {"sni_ports", &config.sni_ports},
      {"http_ports", &config.http_ports}};
  for (const auto& list : lists) {
    std::set<uint16_t> seen;
    for (const uint16_t port : *list.second) {
      if (seen.insert(port).second) continue;
      notes.push_back(absl::StrCat(list.first, ": ", port, " appears twice"));
    }
  }
  const auto& rules = config.destinations;
  for (auto rule = rules.begin(); rule != rules.end(); ++rule) {
    const auto first = std::find_if(
        rules.begin(), rule,
        [&](const DestinationRule& other) { return Covers(other, *rule); });
    if (first == rule) continue;
    notes.push_back(
        absl::StrCat("destinations: rule ", rule - rules.begin() + 1, " (",
                     ToTerminal(rule->name), ") has no effect: rule ",
                     first - rules.begin() + 1, " (", ToTerminal(first->name),
                     ") comes first and matches everything that it matches"));
  }
  return notes;
}

uint64_t HashOf(absl::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (char c : bytes) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  }
  return hash;
}

uint64_t HashOfConfig(const Config& config) {
  Config settings = config;
  settings.sources.clear();
  return HashOf(ConfigAsYaml(settings, Keys::kChanged));
}

SourceRanks RanksOf(const std::vector<std::string>& sources) {
  SourceRanks ranks = {};
  for (size_t i = 0; i < sources.size(); ++i) {
    for (size_t source = 0; source < NM_SOURCES; ++source) {
      if (sources[i] == kSources[source]) {
        ranks[source] = static_cast<uint32_t>(i + 1);
      }
    }
  }
  return ranks;
}

void UnitEntry(const std::string& pattern, const std::string& service,
               nm_unit_key* key, nm_unit_service* value) {
  const std::string prefix = pattern.substr(0, pattern.find('*'));
  const bool any = prefix.size() < pattern.size();
  *key = {};
  *value = {};
  memcpy(key->unit, prefix.data(), prefix.size());
  // Without a '*' the key includes the NUL after the name.
  key->bits = static_cast<uint32_t>(8 * (prefix.size() + (any ? 0 : 1)));
  if (any) value->rest_from = static_cast<uint32_t>(prefix.size());
  if (service == "$1") {
    value->rest = 1;
  } else {
    memcpy(value->name, service.data(),
           std::min(service.size(), sizeof(value->name)));
  }
}

nm_rule RuleEntry(const DestinationRule& rule, uint32_t destination) {
  nm_rule value = {};
  memcpy(value.address, rule.address, sizeof(value.address));
  memcpy(value.mask, rule.mask, sizeof(value.mask));
  value.port_first = rule.port_first;
  value.port_last = rule.port_last;
  value.protocol = rule.protocol;
  value.yields = !rule.overrides_names;
  value.destination = static_cast<uint16_t>(destination);
  return value;
}

PortRange PortsOfRules(const std::vector<DestinationRule>& rules) {
  uint32_t first = UINT32_MAX, last = 0;
  for (const DestinationRule& rule : rules) {
    first = std::min<uint32_t>(first, rule.port_first);
    last = std::max<uint32_t>(last, rule.port_last);
  }
  PortRange range;
  if (first > last) return range;
  range.first = first;
  range.count = last - first + 1;
  return range;
}

uint32_t BitsOfKinds(const std::vector<std::string>& kinds) {
  const std::vector<std::string> all = Config().destinations_of;
  uint32_t bits = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    if (std::find(kinds.begin(), kinds.end(), all[i]) != kinds.end()) {
      bits |= 1u << kKinds[i];
    }
  }
  return bits;
}

absl::StatusOr<Registrants> FindRegistrants(
    const std::map<std::string, std::string>& lines) {
  const std::string wrong = WhyNoRegistrants(lines);
  if (!wrong.empty())
    return absl::InvalidArgumentError("register_by: " + wrong);
  Registrants registrants;
  for (const auto& line : lines) {
    const std::optional<Registrant> parsed = ParseRegistrant(line.second);
    if (!parsed.has_value() || parsed->kind == 0) continue;
    const std::optional<uint32_t> id = FindId(*parsed);
    if (!id.has_value()) {
      return absl::NotFoundError(
          absl::StrCat("register_by: ", line.first, ": no ",
                       parsed->kind == NM_REGISTRANT_UID ? "user " : "group ",
                       parsed->name));
    }
    registrants[line.first] = {parsed->kind, *id};
  }
  return registrants;
}

std::string TextOf(const Registrants& registrants) {
  std::string text;
  for (const auto& one : registrants) {
    absl::StrAppend(&text, one.first, "=", one.second.kind, ":", one.second.id,
                    "\n");
  }
  return text;
}

}  // namespace internal
}  // namespace netmeter
