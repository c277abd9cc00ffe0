// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/magma_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "lib/loader/settings.h"

namespace netmeter {
namespace internal {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

class MagmaConfigTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char dir[] = "/tmp/netmeter-magma-XXXXXX";
    ASSERT_NE(mkdtemp(dir), nullptr);
    dir_ = dir;
    overrides_ = dir_ + "/overrides";
    ASSERT_EQ(mkdir(overrides_.c_str(), 0755), 0);
  }
  void TearDown() override {
    for (const std::string& dir : {overrides_, dir_}) {
      for (const char* name : {"service_registry.yml", "control_proxy.yml"}) {
        unlink((dir + "/" + name).c_str());
      }
      rmdir(dir.c_str());
    }
  }
  void Write(const std::string& path, const std::string& text) {
    std::ofstream(path) << text;
  }
  absl::StatusOr<Config> Import() {
    return ImportMagmaConfig(dir_, overrides_, Config());
  }
  std::string Error() {
    absl::StatusOr<Config> config = Import();
    return config.ok() ? "accepted" : std::string(config.status().message());
  }
  std::string dir_, overrides_;
};

TEST_F(MagmaConfigTest, ReadsWhatMagmaShips) {
  Write(dir_ + "/service_registry.yml",
        "services:\n"
        "  magmad: {ip_address: 127.0.0.1, port: 50052}\n"
        "  envoy_controller: {ip_address: 127.0.0.1, port: 50081}\n");
  Write(dir_ + "/control_proxy.yml",
        "nghttpx_log_level: INFO\nlocal_port: 8444\n"
        "cloud_address: controller.magma.test\ncloud_port: 7443\n"
        "bootstrap_address: bootstrapper-controller.magma.test\n"
        "bootstrap_port: 7444\nfluentd_address: fluentd.magma.test\n"
        "fluentd_port: 24224\nproxy_cloud_connections: True\n");
  absl::StatusOr<Config> config = Import();
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->services,
              ElementsAre("magmad", "envoy_controller", "mme", "sctpd"));
  EXPECT_EQ(config->aliases.at("oai_mme"), "mme");
  EXPECT_EQ(config->aliases.at("agw_of"), "mme");
  EXPECT_THAT(config->proxy_ports, ElementsAre(8444));
  // td-agent-bit had no destination: nobody looked for its SNI on its port.
  EXPECT_THAT(config->sni_ports, IsSupersetOf({7443, 24224}));
  EXPECT_THAT(config->destination_suffixes,
              ElementsAre("-controller.magma.test", ".local"));
  EXPECT_EQ(config->aliases.at("gateway_health"), "health");
  // The default, and none by fluentd_port: what was sent to bootstrapper and
  // streamer was fluentd's where that port was 443.
  ASSERT_EQ(config->destinations.size(), 1u);
  EXPECT_EQ(config->destinations[0].name, "dns");
  EXPECT_THAT(
      config->sources,
      ElementsAre(
          dir_ + "/service_registry.yml: services magmad, envoy_controller",
          "libnetmeter, of Magma's programs: services mme, sctpd; aliases "
          "oai_mme=mme, agw_of=mme, gateway_health=health",
          dir_ +
              "/control_proxy.yml: proxy_ports 8444; sni_ports 7443; sni_ports "
              "7444; sni_ports 24224; destination_suffixes "
              "-controller.magma.test"));
}

// The ports of Magma's deployment guide.
TEST_F(MagmaConfigTest, OnePortMayBeThatOfAllServices) {
  Write(dir_ + "/control_proxy.yml", "local_port: 8443\n");
  Write(overrides_ + "/control_proxy.yml",
        "cloud_address: controller.example.org\ncloud_port: 443\n"
        "bootstrap_address: bootstrapper-controller.example.org\n"
        "bootstrap_port: 443\nfluentd_address: fluentd.example.org\n"
        "fluentd_port: 443\n");
  absl::StatusOr<Config> config = Import();
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->destinations.size(), 1u);
  EXPECT_EQ(config->sni_ports, Config().sni_ports);
  EXPECT_THAT(config->sources,
              Contains(overrides_ + "/control_proxy.yml: sni_ports 443; "
                                    "destination_suffixes "
                                    "-controller.example.org"));
}

TEST_F(MagmaConfigTest, AnOverrideReplacesWholeKeys) {
  Write(dir_ + "/service_registry.yml", "services: {a: {}, b: {}}\n");
  Write(overrides_ + "/service_registry.yml", "services: {c: {}}\n");
  Write(dir_ + "/control_proxy.yml", "local_port: 1\ncloud_address: x\n");
  Write(overrides_ + "/control_proxy.yml", "cloud_address: y\n");
  absl::StatusOr<Config> config = Import();
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->services, ElementsAre("c", "mme", "sctpd"));
  EXPECT_THAT(config->proxy_ports, ElementsAre(1));
  EXPECT_THAT(config->destination_suffixes, ElementsAre("-y", ".local"));
}

TEST_F(MagmaConfigTest, MissingAndBrokenFilesAreClearErrors) {
  EXPECT_THAT(Error(), HasSubstr("holds neither"));
  Write(dir_ + "/control_proxy.yml", "\nlocal_port: many\n");
  EXPECT_EQ(Error(),
            dir_ + "/control_proxy.yml:2: local_port: 'many' is no port");
  Write(dir_ + "/control_proxy.yml", "local_port: [1]\n");
  EXPECT_THAT(Error(), HasSubstr("expected one value"));
  Write(dir_ + "/control_proxy.yml", "a: [\n");
  EXPECT_THAT(Error(), HasSubstr("control_proxy.yml:"));
  Write(dir_ + "/control_proxy.yml", "- a\n");
  EXPECT_THAT(Error(), HasSubstr("expected a map"));
  Write(dir_ + "/control_proxy.yml", "local_port: 8443\n");
  EXPECT_EQ(Error(), "accepted");
  Write(dir_ + "/service_registry.yml", "services: [a]\n");
  EXPECT_EQ(Error(),
            dir_ + "/service_registry.yml:1: services: expected a map");
  Write(dir_ + "/service_registry.yml",
        "services:\n  a: {}\n  " + std::string(65, 'a') + ": {}\n");
  EXPECT_THAT(Error(), HasSubstr("/service_registry.yml:3: services: 'aaa"));
}

// A load with both files counted the ports of Magma's only.
TEST_F(MagmaConfigTest, ItsProxyIsAddedToPortsOfYourOwn) {
  Write(dir_ + "/control_proxy.yml", "local_port: 9000\n");
  const auto ports = [&](const std::string& own) {
    const auto base = ParseConfig(own, "own.yml", Config());
    EXPECT_TRUE(base.ok()) << base.status();
    return ImportMagmaConfig(dir_, overrides_, *base)->proxy_ports;
  };
  EXPECT_THAT(ports(""), ElementsAre(9000));
  EXPECT_THAT(ports("proxy_ports: [3128]"), ElementsAre(3128, 9000));
  EXPECT_THAT(ports("proxy_ports: [8443]"), ElementsAre(8443, 9000));
  EXPECT_THAT(ports("proxy_ports: [9000]"), ElementsAre(9000));
}

// The services that a merge key or a link to nothing stood for were missing, and
// nothing told.
TEST_F(MagmaConfigTest, NothingIsLeftOutInSilence) {
  const std::string registry = dir_ + "/service_registry.yml";
  Write(dir_ + "/control_proxy.yml", "local_port: 9000\n");
  EXPECT_THAT(Import()->sources, Contains(registry + ": does not exist"));
  ASSERT_EQ(symlink("nowhere.yml", registry.c_str()), 0);
  EXPECT_EQ(Error(),
            registry + ": is a symbolic link to a file that is missing");
  unlink(registry.c_str());
  Write(registry, "a: &a {mme: {}}\nservices:\n  <<: *a\n  state: {}\n");
  EXPECT_EQ(Error(), registry + ":3: a merge key (<<): write its keys out");
  Write(registry, "a: &a {services: {}}\n<<: *a\n");
  EXPECT_EQ(Error(), registry + ":2: a merge key (<<): write its keys out");
  Write(registry, "services:\n\tmme: {}\n");
  EXPECT_EQ(Error(),
            registry + ":2: a tab indents this line: YAML takes blanks only");
}

// A file without anything, as a full disk leaves it, took all names away in silence.
TEST_F(MagmaConfigTest, FilesThatWereCutShortAreErrors) {
  const std::string registry = dir_ + "/service_registry.yml";
  for (const char* text : {"", "services:\n", "# nothing\n"}) {
    Write(registry, text);
    EXPECT_EQ(Error(), registry + ": has no services");
  }
  Write(registry, "services: {state: {}}\n");
  Write(dir_ + "/control_proxy.yml", "");
  EXPECT_EQ(Error(), dir_ + "/control_proxy.yml: is empty");
}

// The file that the value is from: it was "control_proxy.yml: ..." for both.
TEST_F(MagmaConfigTest, AnErrorNamesTheOverride) {
  Write(dir_ + "/control_proxy.yml", "local_port: 8443\n");
  Write(overrides_ + "/control_proxy.yml", "\n\nlocal_port: 0\n");
  EXPECT_EQ(Error(),
            overrides_ + "/control_proxy.yml:3: local_port: '0' is no port");
}

// What was loaded is kept, and the next load reads it: it refused then what had been
// taken here. YAML that Magma's own reader refuses was read in part.
TEST_F(MagmaConfigTest, WhatNetmeterYmlCouldNotHoldIsAClearError) {
  const std::string registry = dir_ + "/service_registry.yml";
  const std::string proxy = dir_ + "/control_proxy.yml";
  Write(registry, "services:\n  ok: {}\n  'b*': {}\n");
  EXPECT_THAT(Error(),
              HasSubstr(":3: services: 'b*': expected the name of an"));
  Write(registry, "services:\n  \"a\\nb\\0\": {}\n");
  EXPECT_THAT(Error(), HasSubstr(":2: services: 'a?b?': a name has 1 to 64"));
  Write(registry, "services:\n  \"a\\nb\": {}\n");
  EXPECT_THAT(Error(), HasSubstr("'a?b': a name without control characters"));
  Write(registry, "services:\n  ? [a, b]\n  : {}\n");
  EXPECT_THAT(Error(), HasSubstr(": services: expected names"));
  Write(registry, "[a]: 1\n");
  EXPECT_EQ(Error(), registry + ":1: expected key: value lines");
  Write(registry, "services: {}\n---\nservices: {a: {}}\n");
  EXPECT_EQ(Error(), registry + ":2: a second document: expected one map");
  // The last one, as PyYAML has it.
  Write(registry, "services: {a: {}}\nservices: {b: {}}\n");
  EXPECT_THAT(Import()->services, ElementsAre("b", "mme", "sctpd"));
  // It does not change what refers to the one before.
  Write(proxy, "local_port: &a 9000\ncloud_port: *a\nlocal_port: 9001\n");
  EXPECT_THAT(Import()->proxy_ports, ElementsAre(9001));
  EXPECT_THAT(Import()->sni_ports, Contains(9000));
  Write(proxy, "\ncloud_address: controller.test:443\n");
  EXPECT_EQ(Error(), proxy +
                         ":2: cloud_address: 'controller.test:443': "
                         "expected a host, without a port");
  Write(proxy, "cloud_address: " + std::string(191, 'a') + "\n");
  EXPECT_THAT(Error(), HasSubstr(":1: cloud_address: '-aaa"));
}

TEST_F(MagmaConfigTest, ALongDomainIsASuffix) {
  const std::string domain = "controller." + std::string(120, 'd') + ".test";
  Write(dir_ + "/control_proxy.yml", "cloud_address: " + domain + ".\n");
  absl::StatusOr<Config> config = Import();
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->destination_suffixes,
              ElementsAre("-" + domain, ".local"));
  EXPECT_TRUE(
      ParseConfig(ConfigAsYaml(*config, Keys::kAll), "kept", Config()).ok());
}

// Took 28 s.
TEST_F(MagmaConfigTest, TooManyServicesAreRefusedAtOnce) {
  std::string text = "services:\n";
  for (int i = 0; i < 10000; i++) text += "  s" + std::to_string(i) + ": {}\n";
  Write(dir_ + "/service_registry.yml", text);
  EXPECT_THAT(Error(), HasSubstr(":1026: services: at most 1024"));
}

// Each key was looked for among all before it: these took 2 to 13 s, and the MiB that a
// file may have took minutes of a load. They take 0.1 s of this thread's own time.
TEST_F(MagmaConfigTest, KeysThatNobodyAsksForCostNoTime) {
  std::string text = "local_port: 9000\n";
  for (int i = 0; i < 12000; i++) text += "k" + std::to_string(i) + ": 1\n";
  Write(dir_ + "/control_proxy.yml", text);
  const auto seconds = [] {
    timespec time = {};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
  };
  const double before = seconds();
  const absl::StatusOr<Config> config = Import();
  EXPECT_LT(seconds() - before, 1);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->proxy_ports, ElementsAre(9000));
}

// As netmeter.yml: no waiting, no reading without end.
TEST_F(MagmaConfigTest, AFileThatIsNoneIsAClearError) {
  const std::string path = dir_ + "/control_proxy.yml";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(Error(), path + ": is no regular file, expected a YAML file");
  unlink(path.c_str());
  ASSERT_EQ(symlink("/proc/kmsg", path.c_str()), 0);
  EXPECT_NE(Error(), "accepted");
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
