// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/config.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <yaml-cpp/yaml.h>

#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/unique_fd.h"
#include "lib/loader/lock_file.h"

namespace netmeter {
namespace internal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

absl::StatusOr<Config> Parse(const std::string& yaml) {
  return ParseConfig(yaml, "netmeter.yml", Config());
}

std::string Error(const std::string& yaml) {
  absl::StatusOr<Config> config = Parse(yaml);
  if (config.ok()) return "accepted";
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
  const std::string message(config.status().message());
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  return message;
}

TEST(ConfigTest, AnEmptyFileIsTheDefaults) {
  for (const char* yaml : {"", "\n", "# nothing\n", "---\n"}) {
    absl::StatusOr<Config> config = Parse(yaml);
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(config->pin_dir, "/run/netmeter");
    EXPECT_EQ(config->max_series, 4096u);
    EXPECT_THAT(config->proxy_ports, ElementsAre(8443));
  }
}

TEST(ConfigTest, EveryKeyIsRead) {
  absl::StatusOr<Config> config = Parse(R"(
pin_dir: /run/test
cgroup: /sys/fs/cgroup/test
group: metrics
btf: /boot/vmlinux.btf
max_series: 100
max_names: 200
max_processes: 300
max_sockets: 400
proxy_ports: [8443, 9443]
sni_ports: [443]
http_ports: [80, 3128]
destination_suffixes: [-cloud.example]
unknown_destinations: other
services: [mme, sessiond]
aliases: {oai_mme: mme}
units: {nginx.service: web}
register_by: {mme: "uid:root", sessiond: "group:998", state: anyone}
names_from: [registration, unit, executable]
destinations_of: [service, unit]
uplinks: {satellite: [sat0, "wwan*"], lan: [eth1]}
forwarded_clients: [lan, other]
size_units: decimal
destinations:
  - {name: cloud, address: 10.0.0.0/8, port: 443, protocol: tcp}
  - {name: rest}
)");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->sni_ports, ElementsAre(443));
  EXPECT_THAT(config->destination_suffixes, ElementsAre("-cloud.example"));
  EXPECT_TRUE(config->fold_unknown_destinations);
  EXPECT_TRUE(config->decimal_sizes);
  EXPECT_EQ(config->units.at("nginx.service"), "web");
  EXPECT_EQ(config->register_by.at("mme"), "uid:root");
  EXPECT_EQ(config->register_by.at("sessiond"), "group:998");
  EXPECT_EQ(config->register_by.at("state"), "anyone");
  EXPECT_THAT(config->names_from,
              ElementsAre("registration", "unit", "executable"));
  EXPECT_EQ(config->pin_dir, "/run/test");
  EXPECT_EQ(config->cgroup, "/sys/fs/cgroup/test");
  EXPECT_EQ(config->group, "metrics");
  EXPECT_EQ(config->btf, "/boot/vmlinux.btf");
  EXPECT_EQ(config->max_series, 100u);
  EXPECT_EQ(config->max_names, 200u);
  EXPECT_EQ(config->max_processes, 300u);
  EXPECT_EQ(config->max_sockets, 400u);
  EXPECT_THAT(config->proxy_ports, ElementsAre(8443, 9443));
  EXPECT_THAT(config->http_ports, ElementsAre(80, 3128));
  EXPECT_THAT(config->destinations_of, ElementsAre("service", "unit"));
  EXPECT_THAT(config->uplinks.at("satellite"), ElementsAre("sat0", "wwan*"));
  EXPECT_THAT(config->uplinks.at("lan"), ElementsAre("eth1"));
  EXPECT_THAT(config->forwarded_clients, ElementsAre("lan", "other"));
  EXPECT_THAT(config->services, ElementsAre("mme", "sessiond"));
  EXPECT_EQ(config->aliases.at("oai_mme"), "mme");
  ASSERT_EQ(config->destinations.size(), 2u);
  const DestinationRule& cloud = config->destinations[0];
  EXPECT_EQ(cloud.name, "cloud");
  EXPECT_EQ(cloud.port_first, 443);
  EXPECT_EQ(cloud.port_last, 443);
  EXPECT_EQ(cloud.protocol, IPPROTO_TCP);
  EXPECT_TRUE(cloud.overrides_names);
  EXPECT_FALSE(config->destinations[1].overrides_names);
  EXPECT_THAT(cloud.address,
              ElementsAre(0u, 0u, htonl(0xffff), htonl(0x0a000000)));
  EXPECT_THAT(cloud.mask, ElementsAre(~0u, ~0u, ~0u, htonl(0xff000000)));
  const DestinationRule& rest = config->destinations[1];
  EXPECT_EQ(rest.port_first, 0);
  EXPECT_EQ(rest.port_last, 65535);
  EXPECT_THAT(rest.mask, ElementsAre(0u, 0u, 0u, 0u));
}

TEST(ConfigTest, PrefixesOfEveryLengthMask) {
  std::map<int, std::string> prefixes = {
      {1, "8000::/1"},
      {31, "ffff:fffe::/31"},
      {32, "ffff:ffff::/32"},
      {33, "ffff:ffff:8000::/33"},
      {64, "ffff:ffff:ffff:ffff::/64"},
      {127, "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe/127"},
      {128, "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"}};
  for (int length : {1, 31, 32, 33, 64, 127, 128}) {
    absl::StatusOr<Config> config = Parse(absl::StrCat(
        "destinations: [{name: x, address: '", prefixes[length], "'}]"));
    ASSERT_TRUE(config.ok()) << config.status();
    int bits = 0;
    for (int i = 0; i < 4; i++) {
      bits += __builtin_popcount(config->destinations[0].mask[i]);
      EXPECT_EQ(config->destinations[0].address[i],
                config->destinations[0].mask[i]);
    }
    EXPECT_EQ(bits, length);
  }
}

TEST(ConfigTest, ErrorsNameFileLineAndKey) {
  EXPECT_EQ(Error("max_series: many"),
            "netmeter.yml:1: max_series: expected a number from 22 to 65535, "
            "not 'many'");
  EXPECT_EQ(Error("\n\nmax_serie: 1"),
            "netmeter.yml:3: unknown key 'max_serie' (did you mean "
            "max_series?)");
  EXPECT_THAT(Error("max_series: 5"), HasSubstr("from 22 to 65535"));
  EXPECT_THAT(Error("max_series: -1"), HasSubstr("from 22 to 65535"));
  EXPECT_THAT(Error("max_series: 99999999999"), HasSubstr("65535"));
  EXPECT_THAT(Error("max_series: [1]"), HasSubstr("65535, not a list"));
  EXPECT_THAT(Error("max_names: 3"), HasSubstr("max_names"));
  EXPECT_THAT(Error("max_names: 1\nmax_names: 2"), StartsWith("netmeter.yml:"));
}

// A newcomer's first words for three keys: two were unknown without a hint, and a group
// that the host does not have was an error without its line.
TEST(ConfigTest, AKeyThatIsNearlyRightIsToldTheRightPlaceOrWord) {
  EXPECT_EQ(Error("destinations:\n  - {name: x, port: 1, proto: tcp}"),
            "netmeter.yml:2: destinations: unknown key 'proto' (did you mean "
            "protocol?)");
  EXPECT_EQ(Error("group: root\nbudgets: {lte: 1 GB}"),
            "netmeter.yml:2: budgets: budgets have a file of their own, "
            "/etc/netmeter-budgets.yml (see: netmeter budget --help)");
  EXPECT_THAT(Error("reset_day: 15"),
              HasSubstr("reset_day: budgets have a file of their own"));
  const auto refused = ParseConfig(
      "services: [mme]\ngroup: nosuch\n", "netmeter.yml", Config(),
      [](const Config& config) {
        return config.group == "nosuch" ? absl::NotFoundError("group: no")
                                        : absl::OkStatus();
      });
  EXPECT_EQ(refused.status().message(), "netmeter.yml:2: group: no");
}

// A newcomer's: "protocol: expected tcp, ..." did not say what was there.
TEST(ConfigTest, ErrorsQuoteTheValueAndListTheChoices) {
  EXPECT_EQ(Error("a: 1"), "netmeter.yml:1: unknown key 'a'");
  EXPECT_EQ(Error("destinations:\n  - {name: x, protocol: ip}"),
            "netmeter.yml:2: protocol: 'ip': expected tcp, udp, sctp, icmp, "
            "icmpv6 or any");
  EXPECT_EQ(Error("destinations: [{name: x, overrides_names: 1}]"),
            "netmeter.yml:1: overrides_names: '1': expected true or false");
  EXPECT_EQ(Error("destinations: [{name: x, port: 70000}]"),
            "netmeter.yml:1: port: '70000': expected a port from 1 to 65535, "
            "or a range such as 1000-2000");
  EXPECT_EQ(Error("size_units: GB"),
            "netmeter.yml:1: size_units: 'GB': expected binary or decimal");
  EXPECT_EQ(Error("unknown_destinations: drop"),
            "netmeter.yml:1: unknown_destinations: 'drop': expected keep or "
            "other");
  EXPECT_EQ(Error("\nnames_from: [registration, units, executable]"),
            "netmeter.yml:2: names_from: 'units': expected registration, "
            "command_line, service_list, unit, container, user, executable");
  EXPECT_EQ(Error("names_from: unit"),
            "netmeter.yml:1: names_from: 'unit': expected a list, or programs, "
            "units, containers or all");
  EXPECT_EQ(Error("http_ports: [80, http]"),
            "netmeter.yml:1: http_ports: expected a number from 1 to 65535, "
            "not 'http'");
  EXPECT_THAT(
      Error("http_ports: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, "
            "16, 17]"),
      HasSubstr("http_ports: at most 16"));
  EXPECT_EQ(Error("\nregister_by: {mme: root}"),
            "netmeter.yml:2: register_by: mme: 'root': expected uid:USER, "
            "group:GROUP or anyone");
  EXPECT_EQ(Error("uplinks: [sat0]"),
            "netmeter.yml:1: uplinks: expected a map, such as {satellite: "
            "[sat0]}");
  EXPECT_EQ(Error("\nuplinks: {lan: [\"eth?\"]}"),
            "netmeter.yml:2: uplinks: lan: 'eth?': expected the name of an "
            "interface, or what it begins with and *, such as \"wwan*\"");
  EXPECT_EQ(Error("\ndestinations_of: [service, process]"),
            "netmeter.yml:2: destinations_of: 'process': expected service, "
            "binary, unit, container, user");
  EXPECT_EQ(
      Error("units: {ssh: x}"),
      "netmeter.yml:1: units: 'ssh': expected the name of a unit, such as "
      "ssh.service");
  EXPECT_EQ(Error("units: [a]"),
            "netmeter.yml:1: units: expected a map, such as {ssh.service: "
            "ssh}");
  EXPECT_EQ(Error("units: {a.service: x, a.service: y}"),
            "netmeter.yml:1: units: key 'a.service' appears twice");
  EXPECT_EQ(Error("destinations: [{name: x, adress: 10.0.0.1}]"),
            "netmeter.yml:1: destinations: unknown key 'adress' (did you mean "
            "address?)");
  EXPECT_EQ(Error("max_names:"),
            "netmeter.yml:1: max_names: expected a number from 4 to 65535, not "
            "a blank");
  EXPECT_LT(Error("max_names: " + std::string(100000, 'x')).size(), 200u);
}

// Each of these was accepted, and meant nothing or something else.
TEST(ConfigTest, WhatCannotBeMeantIsRefused) {
  EXPECT_EQ(Error("services:\n  - /usr/bin/mme"),
            "netmeter.yml:2: services: '/usr/bin/mme': expected the name of an "
            "executable, without its path");
  EXPECT_THAT(Error("aliases: {/usr/bin/oai_mme: mme}"),
              HasSubstr("netmeter.yml:1: aliases: '/usr/bin/oai_mme'"));
  EXPECT_EQ(Error("\ndestination_suffixes: [local]"),
            "netmeter.yml:2: destination_suffixes: 'local': expected a suffix "
            "that begins with '.' or '-', such as .local");
  for (const char* protocol : {"icmp", "icmpv6"}) {
    for (const char* rule :
         {"{name: x, port: 53, protocol: ", "{name: x, protocol: "}) {
      const bool bad = absl::StrContains(rule, "port: 53");
      EXPECT_EQ(Error(absl::StrCat("destinations:\n- ", rule, protocol, "}")),
                bad ? "netmeter.yml:2: port: ICMP has no ports" : "accepted");
    }
  }
  // An empty one would be the whole host.
  EXPECT_EQ(Error("group: x\ncgroup: ''"),
            "netmeter.yml:2: cgroup: expected an absolute path, not ''");
  EXPECT_EQ(Error("group: x\nbtf: here"),
            "netmeter.yml:2: btf: expected an absolute path, not 'here'");
  EXPECT_EQ(Error("group: x\ncgroup: here"),
            "netmeter.yml:2: cgroup: expected an absolute path, not 'here'");
  EXPECT_THAT(Error("cgroup: \"/a\\nb\""), HasSubstr("netmeter.yml:1: cgroup"));
  EXPECT_THAT(Error("\n\npin_dir: here"), HasSubstr("netmeter.yml:3: pin_dir"));
  EXPECT_THAT(Error("\n\nproxy_ports: [1,2,3,4,5,6,7,8,9]"),
              HasSubstr("netmeter.yml:3: proxy_ports"));
}

// The fuzzer's: what follows the first document, yaml-cpp never got past, and
// reading all documents took all memory.
TEST(ConfigTest, WhatTheParserDoesNotGetPastEnds) {
  EXPECT_NE(Error(",ax_erNUL\\iess\242\236\226\232x_series: {a: b}a: b\331\012"
                  "pin_dirsa:\355: {b}\012"),
            "accepted");
}

// A newcomer's: the first document, the last key, any port and all of 10/8.
TEST(ConfigTest, WhatIsAmbiguousIsRefused) {
  EXPECT_EQ(Error("max_series: 100\n---\nmax_series: 200\n"),
            "netmeter.yml:2: a second document: expected one of key: value "
            "lines");
  EXPECT_THAT(Error("max_series: 100\n---\n"), HasSubstr("second document"));
  EXPECT_EQ(Error("---\nmax_series: 100\n...\n"), "accepted");
  EXPECT_EQ(Error("aliases:\n  a: b\n  a: c\n"),
            "netmeter.yml:3: aliases: key 'a' appears twice");
  EXPECT_EQ(Error("destinations:\n- name: a\n  name: b\n"),
            "netmeter.yml:3: destinations: key 'name' appears twice");
  for (const char* port : {"0", "0-80"}) {
    EXPECT_THAT(
        Error(absl::StrCat("destinations: [{name: x, port: ", port, "}]")),
        HasSubstr("expected a port from 1 to 65535"));
  }
}

// 010000 was 10,000, which YAML 1.1 reads as 4,096.
TEST(ConfigTest, NumbersAreDigitsWithoutLeadingZeros) {
  for (const char* number : {"010000", "00", "+100", "0x100", "1e3", "1_000"}) {
    EXPECT_EQ(Error(absl::StrCat("max_series: ", number)),
              absl::StrCat("netmeter.yml:1: max_series: expected a number from "
                           "22 to 65535, not '",
                           number, "'"));
    EXPECT_THAT(Error(absl::StrCat("proxy_ports: [", number, "]")),
                HasSubstr("proxy_ports: expected a number"));
  }
  for (const char* port : {"080", "80-090", "+80", "\" 80\""}) {
    EXPECT_THAT(
        Error(absl::StrCat("destinations: [{name: x, port: ", port, "}]")),
        HasSubstr("expected a port from 1 to 65535"));
  }
  EXPECT_THAT(Error("destinations: [{name: x, address: 10.0.0.0/08}]"),
              HasSubstr("expected a prefix length up to 32"));
}

// A command line may have bytes that no file can.
TEST(ConfigTest, WhatNoFileCanHoldIsRefused) {
  Config config;
  EXPECT_TRUE(CheckConfig(config).ok());
  config.group = "\xff";
  EXPECT_EQ(CheckConfig(config).message(), "group and btf: expected UTF-8");
  config = Config();
  config.btf = "/\xff";
  EXPECT_EQ(CheckConfig(config).message(), "group and btf: expected UTF-8");
  config = Config();
  config.services = {"a/b"};
  EXPECT_EQ(CheckConfig(config).message(),
            "services: 'a/b': expected the name of an executable, without its "
            "path");
  EXPECT_EQ(WhyNotValue("max_series", "5"),
            "expected a number from 22 to 65535, not '5'");
  EXPECT_EQ(WhyNotValue("max_series", "100"), "");
}

TEST(ConfigHelp, HasEachKeyWithItsDefault) {
  const std::string help = ConfigHelp();
  EXPECT_THAT(help, HasSubstr("\n  max_series: 4096          (kind, name, "));
  EXPECT_THAT(help, HasSubstr("\n  btf: ''  "));
  EXPECT_THAT(help,
              HasSubstr("\n  destinations: [{name: dns, port: 53}]\n           "
                        "                 the first match counts\n"));
  const YAML::Node all = YAML::Load(ConfigAsYaml(Config(), Keys::kAll));
  for (const auto& key : all) {
    EXPECT_THAT("\n" + help, HasSubstr("\n  " + key.first.Scalar() + ": "));
  }
}

// The line was that of the next key.
TEST(ConfigTest, ABlankValueIsInTheLineOfItsKey) {
  EXPECT_EQ(Error("max_series:\n\n\ngroup: x\n"),
            "netmeter.yml:1: max_series: expected a number from 22 to 65535, "
            "not a blank");
  EXPECT_THAT(Error("aliases:\n  a:\n\n  b: c\n"),
              StartsWith("netmeter.yml:2: aliases: "));
  EXPECT_THAT(Error("destinations:\n- name: a\n  port:\n\n  protocol: tcp\n"),
              StartsWith("netmeter.yml:3: port: "));
  EXPECT_THAT(Error("\naliases:\n\ngroup: x\n"),
              StartsWith("netmeter.yml:2: aliases: "));
}

TEST(ConfigTest, GarbageIsAnError) {
  for (const std::string& yaml :
       {std::string("just words"),
        std::string("[1, 2]"),
        std::string("a: ["),
        std::string("a:\n\tb: 1"),
        std::string("{}: 1"),
        std::string("? [a]\n: b"),
        std::string("&a [*a"),
        std::string("\xff\xfe\x00\x01", 4),
        std::string("services: mme"),
        std::string("services: [[a]]"),
        std::string("aliases: [a]"),
        std::string("aliases: {a: [b]}"),
        std::string("proxy_ports: [0]"),
        std::string("proxy_ports: [65536]"),
        std::string("proxy_ports: [1,2,3,4,5,6,7,8,9]"),
        std::string("destinations: [x]"),
        std::string("destinations: [{address: 10.0.0.0/8}]"),
        std::string("destinations: [{name: x, address: 10.0.0.0/33}]"),
        std::string("destinations: [{name: x, address: ten}]"),
        std::string("destinations: [{name: x, port: 70000}]"),
        std::string("destinations: [{name: x, port: 20-10}]"),
        std::string("destinations: [{name: x, port: 1-2-3}]"),
        std::string("destinations: [{name: x, protocol: ip}]"),
        std::string("destinations: [{name: x, colour: red}]"),
        std::string("pin_dir: relative"),
        std::string("cgroup: relative"),
        "services: [" + std::string(65, 'a') + "]",
        std::string("services: ['']"),
        std::string("services: [\"a\\0b\"]")}) {
    EXPECT_NE(Error(yaml), "accepted") << yaml;
  }
}

// Found by fuzz_config: a key with a line break made an error of two lines.
TEST(ConfigTest, ErrorsAreOneLineWhateverTheKey) {
  EXPECT_EQ(Error("\"un\\nknown\": 1"),
            "netmeter.yml:1: unknown key 'un?known'");
}

TEST(ConfigTest, NamesMayHave64Bytes) {
  EXPECT_TRUE(Parse("services: [" + std::string(64, 'a') + "]").ok());
}

TEST(ConfigTest, TooManyRulesAreAnError) {
  std::string yaml = "destinations:\n";
  for (int i = 0; i < 65; i++) absl::StrAppend(&yaml, "  - {name: r", i, "}\n");
  EXPECT_THAT(Error(yaml), HasSubstr("at most 64"));
}

TEST(ConfigTest, ADeeplyNestedFileDoesNotCrash) {
  EXPECT_NE(Error("services: " + std::string(400, '[')), "accepted");
}

TEST(ConfigTest, AMissingFileIsNotFound) {
  EXPECT_EQ(ReadConfigFile("/nonexistent/netmeter.yml").status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadConfigFile("/proc").status().code(),
            absl::StatusCode::kInvalidArgument);
}

// /proc/kmsg is a regular file of 0 bytes, and reading it waited for ever; a
// FIFO waited for a writer.
TEST(ConfigTest, AFileThatCannotBeReadAtOnceIsAnError) {
  char dir[] = "/tmp/netmeter-config-XXXXXX";
  ASSERT_NE(mkdtemp(dir), nullptr);
  const std::string path = std::string(dir) + "/file";
  auto error = [&](const std::string& name) {
    return std::string(ReadConfigFile(name).status().message());
  };
  EXPECT_EQ(error(dir),
            std::string(dir) + ": is a directory, expected a YAML file");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(error(path), path + ": is no regular file, expected a YAML file");
  unlink(path.c_str());
  // Whatever it says, it says it at once; root may have read the log before.
  EXPECT_NE(error("/proc/kmsg"), "");
  std::ofstream(path) << std::string((1 << 20) - 1, '#') << "\n";
  EXPECT_EQ(error(path), "");
  std::ofstream(path, std::ios::app) << "#";
  EXPECT_EQ(error(path), path + ": larger than 1 MiB");
  // No end, and no size.
  EXPECT_EQ(error("/dev/zero"),
            "/dev/zero: is no regular file, expected a YAML file");
  unlink(path.c_str());
  rmdir(dir);
}

// A list with a pattern in it was taken, and matched nothing.
TEST(ConfigTest, WordsThatCanNeverMatchAreErrors) {
  EXPECT_EQ(
      Error("services: [\"*\"]"),
      "netmeter.yml:1: services: '*': expected the name of an executable, not "
      "a pattern (an executable that is not listed counts under its own name)");
  EXPECT_THAT(Error("services:\n  - sshd\n  - mme*"),
              HasSubstr("netmeter.yml:3: services: 'mme*': expected the name"));
  EXPECT_THAT(Error("aliases: {\"a?\": b}"), HasSubstr("not a pattern"));
}

// Most of these were messages of yaml-cpp, about flows and anchors, some in a line behind
// the end of the file; the others did not say what to write.
TEST(ConfigTest, AMistypedFileIsToldWhatToWrite) {
  const std::string lines =
      "expected key: value lines, indented as their neighbours, and quotes "
      "around a value with a colon";
  const std::pair<const char*, std::string> cases[] = {
      {"uplinks: {satellite: sat0}",
       "1: uplinks: satellite: expected a list, such as [sat0]"},
      {"uplinks:\n  satellite: \"wwan*\"\n",
       "2: uplinks: satellite: expected a list, such as ['wwan*']"},
      {"uplinks: {satellite: {sat0: 1}}",
       "1: uplinks: satellite: expected a list, such as [sat0]"},
      {"uplinks: {satellite: []}",
       "1: uplinks: satellite: expected a list, such as [sat0]"},
      {"uplinks: {satellite: [[sat0]]}",
       "1: uplinks: satellite: expected one value, not a list"},
      {"uplinks:\n  satellite: [wwan*\n\n",
       "2: uplinks: '[' without ']': expected a list, such as [a, b]"},
      {"\nuplinks: {satellite: [wwan*}\n",
       "2: uplinks: '[' without ']': expected a list, such as [a, b]"},
      {"group: x # [\nuplinks: {satellite: [sat0]\nmax_names: 400\n",
       "2: uplinks: '{' without '}': expected a map, such as {a: b}"},
      {"services: [a]]", "1: services: ']' without '['"},
      {"group: x\n}", "2: group: '}' without '{'"},
      {"services:\n  - \"a\n  - b\ngroup: x\n",
       "2: services: a quote without its end: \""},
      {"services: [it's, 'b', c\n",
       "1: services: '[' without ']': expected a list, such as [a, b]"},
      {"uplinks: {satellite: [*wan]}",
       "1: uplinks: expected \"*wan\" in quotes, because YAML gives a leading "
       "'*' a meaning of its own"},
      {"services:\n- a\n- *\n",
       "3: services: expected \"*\" in quotes, because YAML gives a leading "
       "'*' "
       "a meaning of its own"},
      {"units: {*.service: $1}",
       "1: units: expected \"*.service\" in quotes, because YAML gives a "
       "leading '*' a meaning of its own"},
      {"group: @staff",
       "1: group: expected \"@staff\" in quotes, because YAML gives a leading "
       "'@' a meaning of its own"},
      {"group: a: b", "1: group: " + lines},
      {"services: [a]\n- b\n", "2: services: " + lines},
      {"destinations:\n  - name: x\n   port: 3\n", "3: destinations: " + lines},
      {"services:[a]",
       "1: expected key: value lines, such as max_series: 4096"},
      {"units: {\"magma@*\": x}",
       "1: units: 'magma@*': expected a pattern that ends in *.service, such "
       "as "
       "\"magma@*.service\""},
      {"proxy_ports: 8443", "1: proxy_ports: expected a list, such as [8443]"},
      {"proxy_ports: {a: b}", "1: proxy_ports: expected a list, such as [443]"},
      {"aliases: [a]", "1: aliases: expected a map, such as {oai_mme: mme}"},
      {"register_by: {mme: {a: b}}",
       "1: register_by: mme: expected one value, not a map"},
      {"destinations: {name: x}",
       "1: destinations: expected a list, such as [{name: dns, port: 53}]"},
      {"destinations: [x]",
       "1: destinations: expected a rule, such as {name: dns, port: 53}"},
      {"destinations: [{name: x, address: ten}]",
       "1: address: 'ten': expected an IPv4 or IPv6 address, or a prefix such "
       "as 10.0.0.0/8"},
      {"size_units: [decimal]",
       "1: size_units: expected binary or decimal, not a list"},
      {"pin_dir: [a]",
       "1: pin_dir: expected one value, such as /run/netmeter, not a list"},
  };
  for (const auto& one : cases) {
    EXPECT_EQ(Error(one.first), "netmeter.yml:" + one.second) << one.first;
  }
}

// The bug: a quote after a '-', a ':' or a ',' of a plain text was "a quote without its
// end".
TEST(ConfigTest, AQuoteWithinAPlainTextIsALetter) {
  for (const char* const yaml :
       {"aliases: {a-'b: c}", "aliases:\n  a-'b: c\n", "aliases:\n  a: b:'c\n",
        "aliases:\n  a: b,'c\n", "services:\n- Bob-'s\n- a - 'b\n",
        "services: [a:'b, c-\"d, e - 'f]", "aliases:\n  -'a: b\n"}) {
    EXPECT_TRUE(Parse(yaml).ok()) << yaml << ": " << Error(yaml);
  }
  // Here it begins a text.
  for (const char* const yaml :
       {"services: ['a", "services: [a,'b", "services: [a, 'b", "group: 'a",
        "services:\n- 'a", "services:\n-  - 'a", "aliases: {'a",
        "aliases: {\"a\":'b", "aliases:\n  'a", "--- 'a"}) {
    EXPECT_THAT(Error(yaml), HasSubstr("a quote without its end: '")) << yaml;
  }
  EXPECT_TRUE(Parse("aliases: {\"a\":\"b\"}\n").ok());
  // Within single quotes, two of them are one.
  EXPECT_TRUE(Parse("services: ['x'',', b]").ok());
}

TEST(ConfigTest, WhatHasNoEffectIsSaid) {
  const auto notes = [](const std::string& yaml) {
    const auto config = Parse(yaml);
    EXPECT_TRUE(config.ok()) << config.status();
    return WhatHasNoEffect(config.ok() ? *config : Config());
  };
  EXPECT_THAT(notes("services: [mme]\naliases: {a: b}\nhttp_ports: [80, 81]\n"
                    "destinations: [{name: a, port: 53, protocol: udp},\n"
                    "  {name: b, port: 53}, {name: c, address: 10.0.0.0/8},\n"
                    "  {name: d, address: 11.0.0.0/8}, {name: e}]"),
              ElementsAre());
  EXPECT_THAT(
      notes("services: [mme]\nnames_from: [registration, unit, executable]"),
      ElementsAre("services and aliases have no effect: names_from has neither "
                  "service_list nor command_line"));
  EXPECT_THAT(notes("sni_ports: [443, 444, 443]"),
              ElementsAre("sni_ports: 443 appears twice"));
  EXPECT_THAT(
      notes("destinations: [{name: a, address: 10.0.0.0/8, port: 1-99},\n"
            "  {name: b, address: 10.1.2.3, port: 80, protocol: tcp},\n"
            "  {name: c, address: 10.1.2.3, port: 80-100}]"),
      ElementsAre("destinations: rule 2 (b) has no effect: rule 1 (a) comes "
                  "first and matches everything that it matches"));
}

// yaml-cpp said "illegal map value".
TEST(ConfigTest, ATabThatIndentsIsCalledOne) {
  const std::string tab = ": a tab indents this line: YAML takes blanks only";
  EXPECT_EQ(Error("services:\n\t- a\n"), "netmeter.yml:2" + tab);
  EXPECT_EQ(Error("\tgroup: x\n"), "netmeter.yml:1" + tab);
  EXPECT_EQ(Error("aliases:\n  a: b\n\tc: d\n"), "netmeter.yml:3" + tab);
  // Elsewhere it is white space.
  EXPECT_TRUE(ParseConfig("max_series:\t100\n", "f", Config()).ok());
}

Config EverythingSet() {
  Config config;
  config.group = "staff";
  config.group_required = true;
  config.btf = "/a: b";
  config.max_series = 100;
  config.max_names = 200;
  config.max_processes = 300;
  config.max_sockets = 400;
  config.proxy_ports = {1, 65535};
  config.sni_ports = {};
  config.http_ports = {8080};
  config.destination_suffixes = {".a", "-b.c: d"};
  config.fold_unknown_destinations = true;
  config.decimal_sizes = true;
  // YAML reads these as something else unless they are quoted.
  config.services = {"null",
                     "~",
                     "true",
                     "1",
                     "- a",
                     "a: b",
                     "#",
                     "'",
                     "\"",
                     "\\",
                     "gr\xc3\xbc\xc3\x9f",
                     "\xe2\x80\xa8"};
  config.aliases = {
      {"a", "b"}, {"null", "~"}, {"c", "a\nb\tc"}, {"d", "\x01\x7f"}};
  config.units = {{"a@*.service", "$1"}, {"null.service", "~"}};
  config.register_by = {{"null", "uid:root"}, {"a: b", "group:#"}};
  config.names_from = {"registration", "container", "unit", "executable"};
  const std::vector<std::string> rules = {
      "{name: a}",
      "{name: \"null\", address: 128.0.0.0/1}",
      "{name: b, address: 10.1.2.3, port: 443}",
      "{name: c, address: 10.0.0.0/9, port: 1-65535, protocol: tcp}",
      "{name: d, address: \"fd00::/8\", protocol: udp}",
      "{name: e, address: \"8000::/1\", port: 5-6, protocol: sctp}",
      "{name: f, address: \"::1\", protocol: icmpv6}",
      "{name: g, protocol: icmp}",
      "{name: h, port: 443, overrides_names: true}",
      "{name: i, address: 10.0.0.0/8, overrides_names: false}"};
  std::string yaml = "destinations:\n";
  for (const std::string& rule : rules) yaml += "  - " + rule + "\n";
  const absl::StatusOr<Config> parsed = ParseConfig(yaml, "rules", Config());
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  if (parsed.ok()) config.destinations = parsed->destinations;
  config.destinations_of = {"container", "service"};
  config.uplinks = {{"null", {"sat0", "wwan*"}}, {"lan", {"*"}}};
  config.forwarded_clients = {"null"};
  return config;
}

TEST(ConfigAsYaml, IsReadAsTheSame) {
  for (const Config& config : {Config(), EverythingSet()}) {
    for (const Keys keys : {Keys::kAll, Keys::kChanged}) {
      const std::string yaml = ConfigAsYaml(config, keys);
      const absl::StatusOr<Config> read = ParseConfig(yaml, "y", Config());
      ASSERT_TRUE(read.ok()) << read.status() << "\n" << yaml;
      EXPECT_EQ(ConfigAsYaml(*read, keys), yaml);
      EXPECT_EQ(read->group_required, config.group_required) << yaml;
    }
  }
}

TEST(ConfigAsYaml, HasManyServicesOneALine) {
  Config config;
  config.services = {"a", "b", "c", "d", "e", "null"};
  EXPECT_EQ(ConfigAsYaml(config, Keys::kChanged),
            "services:\n"
            "  - \"a\"\n"
            "  - \"b\"\n"
            "  - \"c\"\n"
            "  - \"d\"\n"
            "  - \"e\"\n"
            "  - \"null\"\n");
}

TEST(ConfigAsYaml, HasWhatWasChangedOrAll) {
  Config config;
  EXPECT_EQ(ConfigAsYaml(config, Keys::kChanged), "{}\n");
  config.cgroup = "/c";
  config.services = {"mme"};
  EXPECT_EQ(ConfigAsYaml(config, Keys::kChanged), "services: [\"mme\"]\n");
  EXPECT_EQ(ConfigAsYaml(config, Keys::kAll),
            "pin_dir: \"/run/netmeter\"\n"
            "cgroup: \"/c\"\n"
            "btf: \"\"\n"
            "max_series: 4096\n"
            "max_names: 4096\n"
            "max_processes: 16384\n"
            "max_sockets: 16384\n"
            "proxy_ports: [8443]\n"
            "sni_ports: [443, 7443, 7444, 9443, 9444]\n"
            "http_ports: [80]\n"
            "destination_suffixes: [\".local\"]\n"
            "unknown_destinations: keep\n"
            "services: [\"mme\"]\n"
            "aliases:\n"
            "  {}\n"
            "units:\n"
            "  {}\n"
            "register_by:\n"
            "  {}\n"
            "names_from: [\"registration\", \"command_line\", "
            "\"service_list\", \"executable\"]\n"
            "destinations:\n"
            "  - {name: \"dns\", port: 53}\n"
            "destinations_of: [\"service\", \"binary\", \"unit\", "
            "\"container\", \"user\"]\n"
            "uplinks:\n"
            "  {}\n"
            "forwarded_clients: []\n"
            "size_units: binary\n");
}

// A configured group must exist. The default group need not.
TEST(ConfigAsYaml, TellsWhetherAGroupIsRequired) {
  Config config;
  config.group_required = true;
  EXPECT_EQ(ConfigAsYaml(config, Keys::kChanged), "group: \"netmeter\"\n");
  config.group = "";
  config.group_required = false;
  EXPECT_EQ(ConfigAsYaml(config, Keys::kChanged), "group: \"\"\n");
}

DestinationRule Rule(uint16_t first, uint16_t last, uint8_t protocol) {
  DestinationRule rule;
  rule.name = "r";
  rule.port_first = first;
  rule.port_last = last;
  rule.protocol = protocol;
  return rule;
}

// Whether the kernel part looks at the rules for a packet, as rules_may_match() of
// bpf/destination.bpf.h.
bool Looks(const std::vector<DestinationRule>& rules, uint32_t port) {
  const PortRange range = PortsOfRules(rules);
  return port - range.first < range.count;
}

TEST(PortsOfRules, AreThoseOfTheRules) {
  EXPECT_FALSE(Looks({}, 0));
  EXPECT_FALSE(Looks({}, 53));

  const std::vector<DestinationRule> dns = {Rule(53, 53, 0)};
  EXPECT_FALSE(Looks(dns, 52));
  EXPECT_TRUE(Looks(dns, 53));
  EXPECT_FALSE(Looks(dns, 54));
  EXPECT_FALSE(Looks(dns, 0));

  const std::vector<DestinationRule> two = {Rule(53, 53, IPPROTO_UDP),
                                            Rule(1000, 2000, IPPROTO_SCTP)};
  for (uint32_t port : {53, 100, 2000}) EXPECT_TRUE(Looks(two, port)) << port;
  for (uint32_t port : {0, 52, 2001}) EXPECT_FALSE(Looks(two, port)) << port;

  const std::vector<DestinationRule> any = {Rule(0, 65535, 0)};
  for (uint32_t port : {0, 65535}) EXPECT_TRUE(Looks(any, port)) << port;
}

TEST(DestinationKinds, AreBits) {
  EXPECT_EQ(BitsOfKinds({}), 0u);
  EXPECT_EQ(BitsOfKinds({"unit", "service"}),
            1u << NM_KIND_UNIT | 1u << NM_KIND_SERVICE);
  EXPECT_EQ(BitsOfKinds(Config().destinations_of),
            1u << NM_KIND_SERVICE | 1u << NM_KIND_BINARY | 1u << NM_KIND_UNIT |
                1u << NM_KIND_CONTAINER | 1u << NM_KIND_USER);
}

TEST(RegistrantsTest, UsersAndGroupsAreFoundByNameAndNumber) {
  const absl::StatusOr<Registrants> found =
      FindRegistrants({{"a", "uid:root"},
                       {"b", "uid:1234"},
                       {"c", "group:root"},
                       {"d", "group:4294967294"},
                       {"e", "anyone"}});
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(TextOf(*found), "a=1:0\nb=1:1234\nc=2:0\nd=2:4294967294\n");
}

TEST(RegistrantsTest, WhatIsMissingIsNamed) {
  EXPECT_EQ(FindRegistrants({{"mme", "uid:no-such-user"}}).status().message(),
            "register_by: mme: no user no-such-user");
  EXPECT_EQ(
      FindRegistrants({{"mme", "group:no-such-group"}}).status().message(),
      "register_by: mme: no group no-such-group");
  EXPECT_EQ(FindRegistrants({{"mme", "uid:4294967295"}}).status().message(),
            "register_by: mme: no user 4294967295");
}

TEST(RegistrantsTest, OtherFormsAreRefused) {
  for (const char* const text :
       {"uid", "uid:", "group:", "user:root", "uid:a b", "everyone", "0"}) {
    Config config;
    config.register_by = {{"mme", text}};
    EXPECT_EQ(CheckConfig(config).message(),
              std::string("register_by: mme: '") + text +
                  "': expected uid:USER, group:GROUP or anyone");
  }
}

TEST(NameSourcesTest, OrdersThatCannotBeMeantAreErrors) {
  const auto error = [](const std::vector<std::string>& sources) {
    Config config;
    config.names_from = sources;
    return std::string(CheckConfig(config).message());
  };
  EXPECT_EQ(error({"registration", "command_line", "service_list", "unit",
                   "container", "executable"}),
            "");
  EXPECT_EQ(error({"registration", "executable"}), "");
  EXPECT_EQ(error({}),
            "names_from: expected registration first and executable last");
  EXPECT_EQ(error({"executable", "registration"}),
            "names_from: expected registration first and executable last");
  EXPECT_EQ(error({"registration", "units", "executable"}),
            "names_from: 'units': expected registration, command_line, "
            "service_list, unit, container, user, executable");
  EXPECT_EQ(error({"registration", "unit", "unit", "executable"}),
            "names_from: 'unit' appears twice");
  EXPECT_EQ(
      error({"registration", "service_list", "command_line", "executable"}),
      "names_from: expected command_line before service_list");
}

TEST(NameSourcesTest, AWordStandsForAList) {
  const auto sources = [](const std::string& word) {
    const auto config = ParseConfig("names_from: " + word, "f", Config());
    EXPECT_TRUE(config.ok()) << config.status();
    return config->names_from;
  };
  EXPECT_EQ(sources("programs"), Config().names_from);
  EXPECT_THAT(sources("units"),
              ElementsAre("registration", "command_line", "service_list",
                          "unit", "executable"));
  EXPECT_THAT(sources("containers"),
              ElementsAre("registration", "command_line", "service_list",
                          "container", "executable"));
  EXPECT_THAT(sources("all"),
              ElementsAre("registration", "command_line", "service_list",
                          "container", "unit", "executable"));
}

TEST(NameSourcesTest, RanksAreThePlacesInTheList) {
  EXPECT_EQ(RanksOf(Config().names_from), (SourceRanks{2, 3, 0, 0, 0}));
  EXPECT_EQ(RanksOf({"registration", "container", "unit", "executable"}),
            (SourceRanks{0, 0, 3, 2}));
}

TEST(NameSourcesTest, PatternsThatCannotMatchAreErrors) {
  const auto error = [](const std::string& pattern,
                        const std::string& service) {
    Config config;
    config.units = {{pattern, service}};
    return std::string(CheckConfig(config).message());
  };
  EXPECT_EQ(error("magma@*.service", "$1"), "");
  EXPECT_EQ(error("*.service", "all"), "");
  EXPECT_EQ(error("ssh", "x"),
            "units: 'ssh': expected the name of a unit, such as ssh.service");
  EXPECT_EQ(error(std::string(60, 'a') + ".service", "x"),
            "units: '" + std::string(60, 'a') +
                ".ser...': expected at most 63 bytes");
  // These could match no unit.
  for (const char* name :
       {"web-[0-9].service", "web?.service", " web.service", "a/b.service"}) {
    EXPECT_EQ(error(name, "x"), "units: '" + std::string(name) +
                                    "': expected letters, digits, :-_.\\@ and "
                                    "one *");
  }
  EXPECT_EQ(error("a\n.service", "x").find('\n'), std::string::npos);
  EXPECT_EQ(error("a*b.service", "x"),
            "units: 'a*b.service': expected at most one *, right before "
            ".service");
  EXPECT_EQ(error("a.service", "$1"),
            "units: 'a.service': $1 stands for the *, and there is none");
  EXPECT_EQ(error("a*.service", "x-$1"),
            "units: 'a*.service': expected a name, or $1 alone");
}

// --- The lock file ---

// Half a configuration was loaded after /run had been full.
TEST(LoaderStateTest, ALineWithoutAnEndSaysNothing) {
  const std::string path = testing::TempDir() + "/state";
  UniqueFd file;
  LoaderState state;
  state.config = "services: [one, two]\nmax_series: 40960\n";
  state.cgroup = "/sys/fs/cgroup/a b\nc";
  ASSERT_TRUE(WriteState(path, state, &file).ok());
  EXPECT_EQ(ReadState(file.get(), path)->config, state.config);
  EXPECT_EQ(ReadState(file.get(), path)->cgroup, state.cgroup);
  const off_t size = lseek(file.get(), 0, SEEK_END);
  for (off_t end = size - 1; end >= 0; --end) {
    ASSERT_EQ(ftruncate(file.get(), end), 0);
    const LoaderState found = *ReadState(file.get(), path);
    EXPECT_EQ(found.config, "") << end;
    EXPECT_THAT(found.cgroup, testing::AnyOf("", state.cgroup)) << end;
  }
}

// It was written in place: a load that could not went on, the next one started from the
// defaults, and register_by was gone.
TEST(LoaderStateTest, WhatCannotBeWrittenLeavesTheOldStateAndItsLock) {
  const std::string path = testing::TempDir() + "/state-and-lock";
  LoaderState state;
  state.config = "max_series: 100\n";
  UniqueFd lock;
  ASSERT_TRUE(WriteState(path, state, &lock).ok());
  const auto is_locked = [&path] {
    const UniqueFd other(open(path.c_str(), O_RDWR | O_CLOEXEC));
    return flock(other.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  };
  EXPECT_TRUE(is_locked());
  state.config = std::string(100000, 'x');
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit most = {4096, 4096};
    setrlimit(RLIMIT_FSIZE, &most);
    _exit(WriteState(path, state, &lock).message() ==
                  "write " + path + ": File too large"
              ? 0
              : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  UniqueFd there(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(ReadState(there.get(), path)->config, "max_series: 100\n");
  EXPECT_TRUE(is_locked());
  EXPECT_NE(access((path + ".new").c_str(), F_OK), 0);

  // An error was taken for the end, and what the file says was overwritten.
  const UniqueFd unreadable(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  EXPECT_EQ(ReadState(unreadable.get(), path).status().message(),
            "read " + path + ": Bad file descriptor");

  state.config = std::string(3 << 20, 'x');
  ASSERT_TRUE(WriteState(path, state, &lock).ok());
  there = UniqueFd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(ReadState(there.get(), path)->config, state.config);
  EXPECT_TRUE(is_locked());
}

// /run/nm/a and /run/nm-a had one lock, and one configuration.
TEST(LockFileTest, NoTwoPathsShareOne) {
  EXPECT_EQ(LockFile("/sys/fs/bpf/netmeter"),
            "/run/.netmeter-sys-fs-bpf-netmeter.lock");
  EXPECT_NE(LockFile("/run/nm/a"), LockFile("/run/nm-a"));
  EXPECT_EQ(LockFile("/run/nm-a"), "/run/.netmeter-run-nm\\x2da.lock");
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
