// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/settings.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace netmeter {
namespace internal {
namespace {

TEST(DescribeChanges, SaysOldAndNewOfWhatIsShort) {
  Config before, after;
  after.max_series = before.max_series + 1;
  after.services = {"a", "b"};
  after.group = "";
  EXPECT_EQ(DescribeChanges(SettingsOf(before), SettingsOf(after)),
            "group netmeter to none, max_series 4096 to 4097, services");
}

TEST(DescribeChanges, LeavesOutWhatAnOlderLoaderDidNotWrite) {
  Config config;
  SettingList before = SettingsOf(config);
  before.erase(before.begin());
  config.group = "other";
  EXPECT_EQ(DescribeChanges(before, SettingsOf(config)), "");
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
  // What YAML reads as something else, where it is not quoted.
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
  return config;
}

TEST(ConfigAsYaml, IsReadAsTheSame) {
  for (const Config& config : {Config(), EverythingSet()}) {
    for (const Keys keys : {Keys::kAll, Keys::kChanged}) {
      const std::string yaml = ConfigAsYaml(config, keys);
      const absl::StatusOr<Config> read = ParseConfig(yaml, "y", Config());
      ASSERT_TRUE(read.ok()) << read.status() << "\n" << yaml;
      EXPECT_EQ(SettingsOf(*read), SettingsOf(config)) << yaml;
      EXPECT_EQ(read->group_required, config.group_required) << yaml;
    }
  }
}

TEST(ConfigAsYaml, HasManyServicesOneALine) {
  Config config;
  config.services = {"a", "b", "c", "d", "null"};
  EXPECT_EQ(ConfigAsYaml(config, Keys::kChanged),
            "services:\n"
            "  - \"a\"\n"
            "  - \"b\"\n"
            "  - \"c\"\n"
            "  - \"d\"\n"
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
            "\"container\"]\n"
            "uplinks:\n"
            "  {}\n"
            "size_units: binary\n");
}

// A group that is asked for must exist: that of the defaults is not, unless
// somebody names it.
TEST(ConfigAsYaml, TellsWhetherAGroupIsRequired) {
  Config config;
  config.group_required = true;
  EXPECT_EQ(ConfigAsYaml(config, Keys::kChanged), "group: \"netmeter\"\n");
  config.group = "";
  config.group_required = false;
  EXPECT_EQ(ConfigAsYaml(config, Keys::kChanged), "group: \"\"\n");
}

TEST(ConfigId, IsAnotherOneForEverySetting) {
  Config config;
  const uint64_t id = ConfigIdOf(config, 1, 2);
  EXPECT_EQ(ConfigIdOf(config, 1, 2), id);
  EXPECT_NE(ConfigIdOf(config, 2, 2), id);
  EXPECT_NE(ConfigIdOf(config, 1, 3), id);
  config.sni_ports.push_back(1);
  EXPECT_NE(ConfigIdOf(config, 1, 2), id);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
