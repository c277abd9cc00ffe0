// SPDX-License-Identifier: BSD-3-Clause
#include "lib/tools/list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace netmeter {
namespace internal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

Sample MakeSample(const std::string& name, uint64_t tx, uint64_t rx) {
  Sample sample;
  sample.kind = Kind::kService;
  sample.name = name;
  sample.transport = Transport::kTcp;
  sample.tx_bytes = tx;
  sample.rx_bytes = rx;
  return sample;
}

TEST(FormatTable, ContainersHaveTheirNames) {
  Sample known = MakeSample("0123456789ab", 1, 2), other = known;
  known.kind = other.kind = Kind::kContainer;
  other.name = "ba9876543210";
  Sample service = known;
  service.kind = Kind::kService;
  const std::vector<Sample> samples = {known, other, service};
  const ContainerNames names = {{"0123456789ab", "web\033"}};
  const std::string table =
      FormatTable(samples, SizeUnits::kBinary, "status", names);
  EXPECT_THAT(table, HasSubstr("container  0123456789ab (web\\x1b)  "));
  EXPECT_THAT(table, HasSubstr("container  ba9876543210            "));
  EXPECT_THAT(table, HasSubstr("service    0123456789ab            "));
  const auto json = nlohmann::json::parse(FormatJson(samples, names));
  EXPECT_EQ(json[0]["name"], "0123456789ab");
  EXPECT_EQ(json[0]["container_name"], "web\033");
  EXPECT_FALSE(json[1].contains("container_name"));
  EXPECT_FALSE(json[2].contains("container_name"));
}

TEST(SortByTraffic, PutsMostTrafficFirstAndThenGoesByName) {
  const uint64_t most = std::numeric_limits<uint64_t>::max();
  std::vector<Sample> samples = {MakeSample("c", 1, 1), MakeSample("b", 2, 0),
                                 MakeSample("d", 0, 7),
                                 MakeSample("e", most, most)};
  SortByTraffic(&samples);
  std::vector<std::string> names;
  for (const Sample& sample : samples) names.push_back(sample.name);
  EXPECT_THAT(names, ElementsAre("e", "d", "b", "c"));
}

TEST(FormatTable, IsAligned) {
  EXPECT_EQ(
      FormatTable({MakeSample("caf\xc3\xa9", 2048, 1), MakeSample("a", 3, 4)},
                  SizeUnits::kBinary, ""),
      "KIND     NAME  DESTINATION  TRANSPORT  PATH         TX   RX  TX PKTS"
      "  RX PKTS  TX PAYLOAD  RX PAYLOAD  RETRANSMIT\n"
      "service  caf\xc3\xa9  -            tcp        direct  2.0 KiB  1 B"
      "        0        0         0 B         0 B         0 B\n"
      "service  a     -            tcp        direct      3 B  4 B"
      "        0        0         0 B         0 B         0 B\n");
}

TEST(FormatTable, ShowsExactBytesIfAsked) {
  EXPECT_EQ(
      FormatTable({MakeSample("a", 20971520, 1)}, SizeUnits::kExact, ""),
      "KIND     NAME  DESTINATION  TRANSPORT  PATH          TX  RX  TX PKTS"
      "  RX PKTS  TX PAYLOAD  RX PAYLOAD  RETRANSMIT\n"
      "service  a     -            tcp        direct  20971520   1        0"
      "        0           0           0           0\n");
}

TEST(FormatTable, WithoutSeriesSaysSoBelowTheHeader) {
  const std::string table =
      FormatTable({}, SizeUnits::kBinary, "(nothing: \x1b[2J)");
  EXPECT_THAT(table, HasSubstr("KIND"));
  EXPECT_THAT(table, HasSubstr("\n(nothing: \\x1b[2J)\n"));
}

TEST(FormatTable, LetsNoNameReachTheTerminal) {
  const std::string table = FormatTable(
      {MakeSample("\x1b[2J\n\x9b\xe2\x80\xae", 1, 1)}, SizeUnits::kBinary, "");
  EXPECT_THAT(table, HasSubstr("\\x1b[2J\\x0a\\x9b\\xe2\\x80\\xae"));
  EXPECT_THAT(table, Not(HasSubstr("\x1b")));
}

TEST(FormatTable, HasAColumnOfUplinksWhereThereAreAny) {
  std::vector<Sample> samples = {MakeSample("a", 1, 1), MakeSample("b", 1, 1)};
  EXPECT_THAT(FormatTable(samples, SizeUnits::kBinary, ""),
              Not(HasSubstr("UPLINK")));
  samples[1].uplink = "satellite";
  const std::string table = FormatTable(samples, SizeUnits::kBinary, "");
  EXPECT_THAT(table, HasSubstr("PATH    UPLINK "));
  EXPECT_THAT(table, HasSubstr("direct  -         "));
  EXPECT_THAT(table, HasSubstr("direct  satellite "));
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

TEST(FormatJson, EscapesWhatIsNoUtf8) {
  const auto json = nlohmann::ordered_json::parse(
      FormatJson({MakeSample("a\xff\x1b\"", 1, 2)}));
  EXPECT_EQ(json[0]["name"], "a\\xff\x1b\"");
}

TEST(FormatJson, WithoutSeriesIsAnEmptyArray) {
  EXPECT_EQ(FormatJson({}), "[]\n");
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
