// SPDX-License-Identifier: BSD-3-Clause
// Loss, duplication and reordering on the way: the payload columns stay exact,
// and the retransmission column is what went over the link beyond them.

#include <string>
#include <tuple>

#include "test/live/world.h"

namespace netmeter {
namespace internal {
namespace {

enum class Trouble { kLoss, kAll };

Impairment ImpairmentOf(Trouble trouble) {
  Impairment impairment;
  if (trouble == Trouble::kLoss) impairment.drop_every = 23;
  if (trouble == Trouble::kAll) {
    impairment.drop_every = 41;
    impairment.duplicate_every = 29;
    impairment.delay_every = 31;
  }
  return impairment;
}

class ImpairmentTest
    : public LiveTest,
      public testing::WithParamInterface<std::tuple<Family, Trouble>> {
 protected:
  void TearDown() override {
    World::WiredLab().wire->Impair(Impairment(), Impairment());
    LiveTest::TearDown();
  }

  void Run(uint64_t upload, uint64_t download) {
    const auto [family, trouble] = GetParam();
    Lab& lab = World::WiredLab();
    MeteredCgroup& client = World::ClientMeter();
    MeteredCgroup& server = World::ServerMeter();
    TcpPlan plan(Lab::Server(family), upload, download);
    plan.settle_ms = 80;
    lab.wire->Impair(ImpairmentOf(trouble), ImpairmentOf(trouble));
    Measurement at_client(client, lab.ClientReference());
    Measurement at_server(server, lab.ServerReference());
    const TcpResult result =
        RunTcp(lab.Between(client.cgroup(), server.cgroup()), plan);
    EXPECT_GT(lab.wire->impaired(), 0u) << "nothing went wrong on the wire";
    at_client.ExpectExact(upload, download);
    at_server.ExpectExact(download, upload, SynAckSent);
    const Totals& from_client = at_client.seen();
    const Totals& from_server = at_server.seen();
    EXPECT_EQ(from_client.tx_retransmit,
              static_cast<int64_t>(result.client.tcp_bytes_retrans));
    EXPECT_EQ(from_server.tx_retransmit,
              static_cast<int64_t>(result.server.tcp_bytes_retrans));
    EXPECT_EQ(from_client.tx_payload + from_client.tx_retransmit,
              static_cast<int64_t>(result.client.tcp_bytes_sent));
    EXPECT_EQ(from_server.tx_payload + from_server.tx_retransmit,
              static_cast<int64_t>(result.server.tcp_bytes_sent));
    if (trouble == Trouble::kLoss) {
      EXPECT_GT(from_client.tx_retransmit + from_server.tx_retransmit, 0);
    }
  }
};

std::string ImpairmentName(
    const testing::TestParamInfo<std::tuple<Family, Trouble>>& info) {
  const char* kNames[] = {"Loss", "AllAtOnce"};
  return FamilyName(std::get<0>(info.param)) + "_" +
         kNames[static_cast<int>(std::get<1>(info.param))];
}

INSTANTIATE_TEST_SUITE_P(
    Over, ImpairmentTest,
    testing::Combine(testing::Values(Family::kIpv4, Family::kIpv6),
                     testing::Values(Trouble::kLoss, Trouble::kAll)),
    ImpairmentName);

TEST_P(ImpairmentTest, PayloadAndRetransmissionsStayExact) {
  Run(600001, 600001);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
