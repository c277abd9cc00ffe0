// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/netmeter/list/list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace netmeter {
namespace internal {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

class ContainerNamesTest : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(state_); }
  void TearDown() override { std::filesystem::remove_all(state_); }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = state_ + "/" + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  static std::string Id(char digit) { return std::string(64, digit); }
  void WriteDocker(char digit, const std::string& text) {
    Write("docker/containers/" + Id(digit) + "/config.v2.json", text);
  }

  const std::string state_ = ::testing::TempDir() + "/state";
};

TEST_F(ContainerNamesTest, WithoutARuntimeThereAreNone) {
  EXPECT_THAT(ReadContainerNames(state_), IsEmpty());
  EXPECT_THAT(ReadContainerNames(state_ + "/none"), IsEmpty());
}

TEST_F(ContainerNamesTest, DockersAreRead) {
  WriteDocker('a', R"({"ID":"x","Config":{"Image":"nginx"},"Name":"/web"})");
  WriteDocker('b', R"({"Name":"plain"})");
  EXPECT_THAT(
      ReadContainerNames(state_),
      ElementsAre(Pair("aaaaaaaaaaaa", "web"), Pair("bbbbbbbbbbbb", "plain")));
}

TEST_F(ContainerNamesTest, PodmansAreRead) {
  // As Podman 4.3 writes them.
  Write(
      "containers/storage/overlay-containers/containers.json",
      R"([{"id":")" + Id('c') +
          R"(","names":["db","other"],"image":"7614ae9453d1","layer":"f1",)"
          R"("metadata":"{\"name\":\"db\"}","created":"2026-01-01T00:00:00Z"},)"
          R"({"id":")" +
          Id('d') + R"("}])");
  EXPECT_THAT(ReadContainerNames(state_),
              ElementsAre(Pair("cccccccccccc", "db")));
}

TEST_F(ContainerNamesTest, WhatMakesNoSenseHasNoName) {
  WriteDocker('1', "");
  WriteDocker('2', "{\"Name\":");
  WriteDocker('3', R"({"Name":7})");
  WriteDocker('4', R"(["/web"])");
  WriteDocker('5', R"({"Name":""})");
  WriteDocker('6', std::string(100000, '['));
  Write("docker/containers/short/config.v2.json", R"({"Name":"/web"})");
  Write("docker/containers/" + Id('7'), "no directory");
  std::filesystem::create_directories(state_ + "/docker/containers/" + Id('8') +
                                      "/config.v2.json");
  std::filesystem::create_directories(state_ + "/docker/containers/" + Id('9'));
  ASSERT_EQ(
      mkfifo((state_ + "/docker/containers/" + Id('9') + "/config.v2.json")
                 .c_str(),
             0600),
      0);
  Write("containers/storage/overlay-containers/containers.json",
        R"([7,{"id":7,"names":["x"]},{"id":"short","names":["x"]},)"
        R"({"id":")" +
            Id('a') + R"(","names":"x"},{"id":")" + Id('b') +
            R"(","names":[7]}])");
  Write("containers/storage/vfs-containers/containers.json", "{}");
  EXPECT_THAT(ReadContainerNames(state_), IsEmpty());
}

}  // namespace

namespace {

using ::testing::ElementsAre;

Sample MakeSample(const std::string& name, uint64_t tx, uint64_t rx) {
  Sample sample;
  sample.kind = Kind::kService;
  sample.name = name;
  sample.transport = Transport::kTcp;
  sample.tx_bytes = tx;
  sample.rx_bytes = rx;
  return sample;
}

TEST(FormatJson, HasExactlyTheDocumentedKeys) {
  const auto json = nlohmann::ordered_json::parse(
      FormatJson({MakeSample("mme", std::numeric_limits<uint64_t>::max(), 2)}));
  ASSERT_EQ(json.size(), 1u);
  std::vector<std::string> keys;
  for (const auto& item : json[0].items()) keys.push_back(item.key());
  EXPECT_THAT(keys,
              ElementsAre("kind", "name", "destination", "transport", "path",
                          "uplink", "registered", "tx_bytes", "rx_bytes",
                          "tx_packets", "rx_packets", "tx_payload_bytes",
                          "rx_payload_bytes", "tx_retransmit_bytes", "tcp"));
  EXPECT_EQ(json[0]["kind"], "service");
  EXPECT_EQ(json[0]["tx_bytes"].get<uint64_t>(),
            std::numeric_limits<uint64_t>::max());
}

TEST(ShownName, AMachineOfSystemdHasItsNameWithoutEscapes) {
  Sample sample = MakeSample("web\\x2d1\\x", 1, 2);
  sample.kind = Kind::kContainer;
  EXPECT_EQ(ShownName(sample, {}), "web\\x2d1\\x (web-1\\x)");
  EXPECT_EQ(nlohmann::json::parse(FormatJson({sample}))[0]["container_name"],
            "web-1\\x");
  sample.kind = Kind::kUnit;
  EXPECT_EQ(ShownName(sample, {}), "web\\x2d1\\x");
}

// Root and the group had different sums over an uplink, and no field said so.
TEST(FormatJson, ARowOfAnUplinkSaysWhatItsSumLacks) {
  std::vector<Sample> samples(2, MakeSample("mme", 1, 2));
  samples[0].uplink = "satellite";
  auto json = nlohmann::json::parse(FormatJson(samples, {}, true));
  EXPECT_EQ(json[0]["sum_lacks"], "forwarded");
  EXPECT_FALSE(json[1].contains("sum_lacks"));
  json = nlohmann::json::parse(FormatJson(samples));
  EXPECT_FALSE(json[0].contains("sum_lacks"));
}

TEST(FormatCsv, HasTheFieldsOfJsonInOneLineForEachSample) {
  std::vector<Sample> samples = {MakeSample("=a,b", 1, 2),
                                 MakeSample("0", 3, 4)};
  samples[0].uplink = "satellite";
  samples[1].kind = Kind::kUser;
  samples[1].tcp.known = true;
  samples[1].tcp.opened = 5;
  EXPECT_EQ(
      FormatCsv(samples, {}, true),
      "kind,name,destination,transport,path,uplink,registered,tx_bytes,"
      "rx_bytes,tx_packets,rx_packets,tx_payload_bytes,rx_payload_bytes,"
      "tx_retransmit_bytes,opened,accepted,closed,failed,rtt_us,resets_sent,"
      "resets_received,timeouts,retransmitted_segments,container_name,"
      "user_name,sum_lacks,client_name\n"
      "service,\"'=a,b\",,tcp,direct,satellite,false,1,2,0,0,0,0,0,,,,,,,,,,,,"
      "forwarded,\n"
      "user,0,,tcp,direct,,false,3,4,0,0,0,0,0,5,0,0,0,0,0,0,0,0,,root,,\n");
}

TEST(FormatJson, HasConnectionsWhereTheyAreKnown) {
  Sample sample = MakeSample("mme", 1, 2);
  EXPECT_TRUE(nlohmann::json::parse(FormatJson({sample}))[0]["tcp"].is_null());
  sample.registered = true;
  sample.tcp.known = true;
  sample.tcp.opened = 5;
  sample.tcp.rtt_buckets[9] = 7;
  const auto json = nlohmann::json::parse(FormatJson({sample}))[0];
  EXPECT_EQ(json["registered"], true);
  EXPECT_EQ(json["tcp"]["opened"], 5);
  EXPECT_EQ(json["tcp"]["rtt_buckets"].size(), 10u);
  EXPECT_EQ(json["tcp"]["rtt_buckets"][9], 7);
}

}  // namespace

}  // namespace internal
}  // namespace netmeter
