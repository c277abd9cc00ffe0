// SPDX-License-Identifier: BSD-3-Clause
// What has destinations: services, and any other program; by rules, also where
// one socket sends to many ports.

#include <errno.h>

#include <string>

#include "test/live/check.h"
#include "test/live/traffic.h"
#include "test/live/world.h"

namespace netmeter {
namespace internal {
namespace {

// The executable of the tests: what their children are, as binaries.
const std::string& Program() {
  static const auto* const name =
      new std::string(program_invocation_short_name);
  return *name;
}

class DestinationsTest : public FamilyTest {
 protected:
  void SetUp() override {
    FamilyTest::SetUp();
    World::CleanLab().Configure(LinkSetup());
  }

  static Address Server() { return Lab::Server(GetParam()); }
};
NM_FOR_BOTH_FAMILIES(DestinationsTest);

// One socket sends to ports of rules and to others, which keep their slot
// meanwhile: each datagram has its own destination, however many came before.
TEST_P(DestinationsTest, RulesOfPortsAreMatchedByEachDatagram) {
  const MeteredCgroup meter("dest-rules",
                            "destinations:\n"
                            "  - {name: nine, port: 9000, protocol: udp}\n"
                            "  - {name: eleven, port: 9002}\n"
                            "  - {name: stream, port: 9100, protocol: tcp}\n");
  for (const std::string service : {"", "chosen"}) {
    Child client(meter.cgroup(), World::CleanLab().client, [&](Child::Parent&) {
      if (!service.empty()) Register(service);
      const int fd = OpenSocket(Server().family(), SOCK_DGRAM);
      for (int round = 0; round < 5; ++round) {
        for (const int port : {8999, 9000, 9001, 9002, 9003, 9100, 9101}) {
          SendTo(fd, std::string(100, 'x'), Server(), port);
        }
      }
    });
    client.Join();
    const Kind kind = service.empty() ? Kind::kBinary : Kind::kService;
    const std::string name = service.empty() ? Program() : service;
    EXPECT_EQ(meter.TotalOf(kind, name, "nine").tx_payload, 500);
    EXPECT_EQ(meter.TotalOf(kind, name, "eleven").tx_payload, 500);
    EXPECT_EQ(meter.TotalOf(kind, name, "").tx_payload, 5 * 500);
    EXPECT_EQ(meter.TotalOf(kind, name).tx_payload, 7 * 500);
  }
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
