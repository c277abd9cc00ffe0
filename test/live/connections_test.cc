// SPDX-License-Identifier: BSD-3-Clause
// TCP connections, and how long their round trips take: against TCP_INFO.

#include <linux/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "netmeter/abi.h"
#include "test/live/world.h"

namespace netmeter {
namespace internal {
namespace {

constexpr int kServerPort = 8700;

void Add(const TcpConnections& from, int sign, TcpConnections* to) {
  const auto add = [sign](uint64_t value, uint64_t* sum) {
    *sum += static_cast<uint64_t>(sign) * value;
  };
  add(from.opened, &to->opened);
  add(from.accepted, &to->accepted);
  add(from.closed, &to->closed);
  add(from.failed, &to->failed);
  add(from.rtt_us, &to->rtt_us);
  for (size_t i = 0; i < from.rtt_buckets.size(); ++i) {
    add(from.rtt_buckets[i], &to->rtt_buckets[i]);
  }
}

TcpConnections Sum(const MeteredCgroup& meter,
                   const char* destination = nullptr) {
  TcpConnections sum;
  for (const Sample& sample : meter.Samples()) {
    if (sample.transport != Transport::kTcp) {
      EXPECT_FALSE(sample.tcp.known);
      continue;
    }
    EXPECT_EQ(sample.tcp.known, sample.kind != Kind::kPending);
    if (destination == nullptr || sample.destination == destination) {
      Add(sample.tcp, 1, &sum);
    }
  }
  return sum;
}

uint64_t Count(const TcpConnections& tcp) {
  return std::accumulate(tcp.rtt_buckets.begin(), tcp.rtt_buckets.end(),
                         uint64_t{0});
}

// What was counted since the constructor.
class Since {
 public:
  explicit Since(const MeteredCgroup& meter)
      : meter_(meter), before_(Sum(meter)) {}

  TcpConnections Now() const {
    TcpConnections now = Sum(meter_);
    Add(before_, -1, &now);
    return now;
  }
  // Waits until `closed` connections have ended: a socket may close after
  // close(2).
  TcpConnections AfterClosed(uint64_t closed) const {
    TcpConnections now = Now();
    for (int i = 0; i < 500 && now.closed < closed; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      now = Now();
    }
    return now;
  }

 private:
  const MeteredCgroup& meter_;
  const TcpConnections before_;
};

uint32_t SmoothedRttUs(int fd) {
  tcp_info info = {};
  socklen_t size = sizeof(info);
  getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size);
  return info.tcpi_rtt;
}

// close(2) that sends a RST.
void Abort(int fd) {
  const linger at_once = {1, 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  close(fd);
}

class ConnectionsTest : public FamilyTest {
 protected:
  void SetUp() override {
    FamilyTest::SetUp();
    World::CleanLab().Configure(LinkSetup());
  }
};
NM_FOR_BOTH_FAMILIES(ConnectionsTest);

TEST_P(ConnectionsTest, AreOpenedAcceptedAndClosed) {
  Lab& lab = World::CleanLab();
  const Since client(World::ClientMeter()), server(World::ServerMeter());
  TcpPlan plan;
  plan.server = Lab::Server(GetParam());
  plan.connections = 7;
  plan.upload = 30001;
  plan.download = 20003;
  RunTcp(lab.Between(World::ClientMeter().cgroup(),
                     World::ServerMeter().cgroup()),
         plan);
  const TcpConnections ours = client.AfterClosed(7);
  EXPECT_EQ(ours.opened, 7u);
  EXPECT_EQ(ours.accepted, 0u);
  EXPECT_EQ(ours.closed, 7u);
  EXPECT_EQ(ours.failed, 0u);
  // At the end, and at least once while data was acknowledged.
  EXPECT_GE(Count(ours), 14u);
  EXPECT_GT(ours.rtt_us, 0u);
  const TcpConnections theirs = server.AfterClosed(7);
  EXPECT_EQ(theirs.opened, 0u);
  EXPECT_EQ(theirs.accepted, 7u);
  EXPECT_EQ(theirs.closed, 7u);
  EXPECT_EQ(theirs.failed, 0u);
  EXPECT_GE(Count(theirs), 14u);
}

// The handshake's round trip is the only one of a connection that is aborted
// at once, so that the sum is TCP_INFO's to the microsecond.
TEST_P(ConnectionsTest, RoundTripsAreThoseOfTcpInfo) {
  constexpr int kConnections = 20;
  Lab& lab = World::CleanLab();
  Child server(World::ServerMeter().cgroup(), lab.server,
               [](Child::Parent& parent) {
                 const Address any = Lab::Server(GetParam());
                 const int listener = OpenSocket(any.family(), SOCK_STREAM);
                 Bind(listener, any, kServerPort);
                 listen(listener, kConnections);
                 parent.Send(0);
                 for (int i = 0; i < kConnections; ++i) Accept(listener);
                 parent.Send(0);
                 parent.Receive<int>();
               });
  server.Receive<int>();
  const Since meter(World::ClientMeter());
  Child client(World::ClientMeter().cgroup(), lab.client,
               [](Child::Parent& parent) {
                 uint64_t sum = 0;
                 for (int i = 0; i < kConnections; ++i) {
                   const Address to = Lab::Server(GetParam());
                   const int fd = OpenSocket(to.family(), SOCK_STREAM);
                   Connect(fd, to, kServerPort);
                   sum += SmoothedRttUs(fd);
                   Abort(fd);
                 }
                 parent.Send(sum);
               });
  const uint64_t truth = client.Receive<uint64_t>();
  client.Join();
  server.Receive<int>();
  server.Send(0);
  server.Join();
  const TcpConnections seen = meter.AfterClosed(kConnections);
  EXPECT_EQ(seen.opened, uint64_t{kConnections});
  EXPECT_EQ(seen.closed, uint64_t{kConnections});
  EXPECT_EQ(Count(seen), uint64_t{kConnections});
  EXPECT_EQ(seen.rtt_us, truth);
}

TEST_P(ConnectionsTest, RefusedOnesHaveFailed) {
  Lab& lab = World::CleanLab();
  const Since meter(World::ClientMeter());
  Child client(World::ClientMeter().cgroup(), lab.client,
               [](Child::Parent&) {
                 const Address to = Lab::Server(GetParam());
                 const int fd = OpenSocket(to.family(), SOCK_STREAM);
                 const sockaddr_storage where = to.WithPort(kServerPort + 1);
                 for (int i = 0; i < 3; ++i) {  // the same socket again
                   if (connect(fd, reinterpret_cast<const sockaddr*>(&where),
                               Address::Length(where)) == 0) {
                     _exit(1);
                   }
                 }
               });
  client.Join();
  const TcpConnections seen = meter.Now();
  EXPECT_EQ(seen.opened, 0u);
  EXPECT_EQ(seen.closed, 0u);
  EXPECT_EQ(seen.failed, 3u);
  EXPECT_EQ(Count(seen), 0u);
}

// A connection that may still name its destination belongs to no series yet:
// it is counted once, under its name, when it has one, or at its end.
TEST_P(ConnectionsTest, AreCountedOnceUnderTheirDestination) {
  Lab& lab = World::CleanLab();
  const std::string tag = "late-tag" + FamilyName(GetParam());
  Child server(World::ServerMeter().cgroup(), lab.server,
               [](Child::Parent& parent) {
                 const Address any = Lab::Server(GetParam());
                 const int listener = OpenSocket(any.family(), SOCK_STREAM);
                 Bind(listener, any, 443);
                 listen(listener, 4);
                 parent.Send(0);
                 const int first = Accept(listener), second = Accept(listener);
                 ReceiveExactly(first, 1);
                 close(first);
                 close(second);
                 parent.Receive<int>();
               });
  server.Receive<int>();
  const Since meter(World::ClientMeter());
  Child client(
      World::ClientMeter().cgroup(), lab.client, [&tag](Child::Parent& parent) {
        const Address to = Lab::Server(GetParam());
        if (Control(OpenSocket(AF_INET, SOCK_DGRAM), NM_REGISTER,
                    "connections") != 0) {
          _exit(1);
        }
        const int tagged = OpenSocket(to.family(), SOCK_STREAM);
        Connect(tagged, to, 443);
        const int nameless = OpenSocket(to.family(), SOCK_STREAM);
        Connect(nameless, to, 443);
        parent.Send(0);
        parent.Receive<int>();
        if (Control(tagged, NM_TAG, tag) != 0) _exit(1);
        SendAll(tagged, 1);
        ReceiveUntilEnd(tagged);
        ReceiveUntilEnd(nameless);
        close(tagged);
        close(nameless);
      });
  client.Receive<int>();
  EXPECT_EQ(meter.Now().opened, 0u);  // held, as their bytes are
  client.Send(0);
  client.Join();
  server.Send(0);
  server.Join();
  const TcpConnections seen = meter.AfterClosed(2);
  EXPECT_EQ(seen.opened, 2u);
  EXPECT_EQ(seen.closed, 2u);
  const TcpConnections named = Sum(World::ClientMeter(), tag.c_str());
  EXPECT_EQ(named.opened, 1u);
  EXPECT_EQ(named.closed, 1u);
  EXPECT_GE(Count(named), 1u);
}

TEST_P(ConnectionsTest, OutliveAnUpgradeToLargerTables) {
  Lab& lab = World::CleanLab();
  MeteredCgroup meter("growing" + FamilyName(GetParam()));
  TcpPlan plan;
  plan.server = Lab::Server(GetParam());
  plan.connections = 3;
  plan.upload = 1;
  RunTcp(lab.Between(meter.cgroup(), nullptr), plan);
  const TcpConnections before = Sum(meter);
  EXPECT_EQ(before.opened, 3u);
  meter.Load("max_series: 5000\n");
  const TcpConnections after = Sum(meter);
  EXPECT_EQ(after.opened, before.opened);
  EXPECT_EQ(after.closed, before.closed);
  EXPECT_EQ(after.rtt_us, before.rtt_us);
  EXPECT_EQ(after.rtt_buckets, before.rtt_buckets);
  RunTcp(lab.Between(meter.cgroup(), nullptr), plan);
  EXPECT_EQ(Sum(meter).opened, 6u);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
