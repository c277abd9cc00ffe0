// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/netmeter/cost/meter_cost.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/pins.h"
#include "lib/loader/loader_fixture.h"
#include "netmeter/abi.h"
#include "nlohmann/json.hpp"

namespace netmeter {
namespace internal {
namespace {

using ::testing::HasSubstr;

TEST_F(LoaderRootTest, CostIsThatOfOurProgramsAndMaps) {
  EXPECT_TRUE(absl::IsNotFound(ReadMeterCost(config_.pin_dir).status()));
  EXPECT_TRUE(absl::IsNotFound(
      MeasureCost(config_.pin_dir, 1, CostFormat::kText, SizeUnits::kBinary)
          .status()));
  MustLoad();
  std::atomic<bool> stop{false};
  std::thread traffic([&] {
    while (!stop) {
      SendFromCgroup(1);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
  const absl::StatusOr<std::string> text =
      MeasureCost(config_.pin_dir, 1, CostFormat::kJson, SizeUnits::kBinary);
  stop = true;
  traffic.join();
  ASSERT_TRUE(text.ok()) << text.status();
  const auto json = nlohmann::json::parse(*text);
  EXPECT_GE(json["seconds"], 1.0);
  std::map<std::string, uint64_t> runs, bytes;
  for (const auto& program : json["programs"]) {
    runs[program["name"]] = program["runs"];
    if (program["runs"] != 0) {
      EXPECT_GT(program["run_ns"], 0) << program["name"];
      EXPECT_GT(program["ns_per_run"], 0) << program["name"];
    }
  }
  EXPECT_EQ(runs.size(), LinkPins().size());
  EXPECT_GT(runs["nm_egress"], 0u);
  EXPECT_GT(runs["nm_sock_create"], 0u);
  for (const auto& map : json["maps"]) bytes[map["name"]] = map["bytes"];
  const uint64_t cells = uint64_t{config_.max_series} *
                         static_cast<uint64_t>(libbpf_num_possible_cpus());
  EXPECT_GE(bytes["nm_counters"], cells * sizeof(nm_cell));
  EXPECT_GE(bytes["nm_tcp"], config_.max_series * sizeof(nm_tcp));
  EXPECT_GE(bytes["nm_sockets"], config_.max_sockets * 64);
}

// The map of clients belongs to a program that runs by a tail call only, and was missing.
TEST_F(LoaderRootTest, CostHasTheMapsOfProgramsRunByTailCalls) {
  config_.uplinks = {{"satellite", {"sat*"}}};
  config_.forwarded_clients = {"other"};
  MustLoad();
  const absl::StatusOr<MeterCost> cost = ReadMeterCost(config_.pin_dir);
  ASSERT_TRUE(cost.ok()) << cost.status();
  std::set<std::string> names;
  for (const MapCost& map : cost->maps) names.insert(map.name);
  for (const std::string name : {"nm_forwarders", "nm_clients", "nm_known"}) {
    EXPECT_EQ(names.count(name), 1u) << name;
  }
}

// Root was told to run it as root. Only a refusal is explained by a missing capability.
TEST_F(LoaderRootTest, CostNamesTheCapabilityThatIsMissing) {
  MustLoad();
  const struct {
    std::function<absl::Status()> call;
    std::string capability;
  } calls[] = {
      {[&] { return ReadMeterCost(config_.pin_dir).status(); }, "CAP_BPF"},
      {[] { return MeasureRunTimes().status(); }, "CAP_SYS_ADMIN"},
  };
  for (const auto& [call, capability] : calls) {
    for (const int error : {EPERM, ENOMEM}) {
      const std::string end = error == ENOMEM
                                  ? "Cannot allocate memory"
                                  : absl::StrCat("(needs ", capability, ")");
      EXPECT_EQ(InChild([&, &call = call] {
                  if (!RefuseCall(SYS_bpf, error)) return 2;
                  return absl::EndsWith(call().message(), end) ? 0 : 1;
                }),
                0)
          << end;
    }
  }
}

// An upgrade that was killed leaves two maps of one name, `binaries` for example. Two
// lines of one series made Prometheus refuse all of the file.
TEST(CostMetrics, HasOneLineForEachName) {
  MeterCost cost;
  cost.programs = {{"nm_exec", 1, 1500000000, 3}};
  cost.maps = {{"nm_binaries", 100}, {"nm_binaries", 50}, {"nm_tcp", 7}};
  const std::string text = CostMetrics(cost);
  EXPECT_THAT(text, HasSubstr("map_bytes{map=\"nm_binaries\"} 150\n"
                              "netmeter_bpf_map_bytes{map=\"nm_tcp\"} 7\n"));
  EXPECT_THAT(text, HasSubstr("run_seconds_total{program=\"nm_exec\"} 1.5"));
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
