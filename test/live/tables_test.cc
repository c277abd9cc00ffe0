// SPDX-License-Identifier: BSD-3-Clause
// Tables that are too small lose names, never bytes.

#include <bpf/bpf.h>
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/unique_fd.h"
#include "lib/testing/misattributed.h"
#include "netmeter/abi.h"
#include "test/live/actor.h"
#include "test/live/world.h"

namespace netmeter {
namespace internal {
namespace {

// Loading takes seconds in an emulated guest, so the tests share a meter.
class TablesTest : public FamilyTest {
 protected:
  static void SetUpTestSuite() {
    small_ = new MeteredCgroup("small", "max_sockets: 4\n");
  }
  static void TearDownTestSuite() {
    delete small_;
    small_ = nullptr;
  }

  static MeteredCgroup* small_;
};
MeteredCgroup* TablesTest::small_ = nullptr;
NM_FOR_BOTH_FAMILIES(TablesTest);

TEST_P(TablesTest, CollisionsInTheSocketTableStayExact) {
  MeteredCgroup& meter = *small_;
  TcpPlan plan(Server(), 30001, 20003);
  plan.connections = 30;
  Measurement measurement(meter, lab().ClientReference());
  for (int round = 0; round < 2; ++round)  // entries are used again
    RunTcp(lab().Between(meter.cgroup(), nullptr), plan);
  UdpPlan datagrams(Server(), {100, 100});
  RunUdp(lab().Between(meter.cgroup(), nullptr), datagrams);
  measurement.Finish();
  measurement.ExpectBalance();
  const int64_t tcp = 60 * plan.upload;
  measurement.ExpectPayload(tcp + 100 * 100, 60 * plan.download, tcp);
}

// NM_SERVICE and NM_TAG reach an owner in the socket table, and one in socket storage.
TEST_P(TablesTest, NamesMayChangeInTheMiddleOfATransfer) {
  MeteredCgroup& meter = *small_;
  for (const bool full : {false, true}) {
    const std::string suffix = FamilyName(GetParam()) + (full ? "-full" : "");
    const std::string one = "one" + suffix, two = "two" + suffix;
    const std::string here = "here" + suffix, there = "there" + suffix;
    Child server(nullptr, lab().server, [](Child::Parent& parent) {
      const int listener = Listen(Server(), 8711, 1);
      parent.Send(0);
      const int fd = Accept(listener);
      ReceiveUntilEnd(fd);
      SendAll(fd, 500);
    });
    server.Receive<int>();
    Measurement measurement(meter, lab().ClientReference());
    RunChild(meter.cgroup(), lab().client, [&] {
      for (int i = 0; full && i < 16; ++i) OpenSocket(af(), SOCK_STREAM);
      const int fd = OpenSocket(af(), SOCK_STREAM);
      const auto call = [fd](int name, const std::string& value) {
        errno = Control(fd, name, value);
        if (errno != 0) DieWithErrno("setsockopt");
      };
      call(NM_SERVICE, one);
      call(NM_TAG, here);
      Connect(fd, Server(), 8711);
      SendAll(fd, 1000);
      call(NM_TAG, there);
      SendAll(fd, 2000);
      call(NM_SERVICE, two);
      SendAll(fd, 4000);
      shutdown(fd, SHUT_WR);
      ReceiveUntilEnd(fd);
    });
    server.Join();
    measurement.ExpectExact(7000, 500);
    const auto sent = [&meter](const std::string& name,
                               const std::string& destination) {
      return meter.TotalOf(Kind::kService, name, destination.c_str())
          .tx_payload;
    };
    EXPECT_EQ(sent(one, here), 1000);
    EXPECT_EQ(sent(one, there), 2000);
    EXPECT_EQ(sent(two, there), 4000);
  }
}

// Sends one datagram of 100 bytes from a service of its own name, by number.
void SendAs(const MeteredCgroup& meter, const std::string& service) {
  Lab& lab = World::CleanLab();
  RunChild(meter.cgroup(), lab.client, [&] {
    const Address server = Lab::Server(Family::kIpv4);
    errno = Control(OpenSocket(AF_INET, SOCK_DGRAM), NM_REGISTER, service);
    // A full table of names refuses; the traffic counts anyhow.
    if (errno != 0 && errno != EPERM) DieWithErrno("NM_REGISTER");
    SendTo(OpenSocket(server.family(), SOCK_DGRAM), std::string(100, 'x'),
           server, 9000);
  });
}

// The server takes datagrams, and forgets them.
class SinkTest : public LiveTest {
 protected:
  void SetUp() override {
    LiveTest::SetUp();
    sink_ = StartSink();
  }
  void TearDown() override {
    sink_.reset();
    LiveTest::TearDown();
  }

  std::unique_ptr<Child> sink_;
};

TEST_F(SinkTest, FullTableOfSeriesOverflowsAndLosesNothing) {
  MeteredCgroup meter("series",
                      "max_series: " + std::to_string(NM_SLOT_FIRST + 3));
  Measurement measurement(meter, lab().ClientReference());
  for (int i = 0; i < 8; ++i) SendAs(meter, "nm-service-" + std::to_string(i));
  measurement.ExpectExact(8 * 100, 0);
  int64_t overflow = 0, named = 0;
  for (const Sample& sample : meter.Samples())
    (sample.kind == Kind::kOverflow ? overflow : named) += sample.tx_packets;
  EXPECT_EQ(named, 3);
  EXPECT_EQ(overflow, 5);
  const Health health = meter.ReadHealth();
  EXPECT_EQ(Misattributed(health, "packets", "series_full"), 5u);
}

// A socket that found no room stayed in overflow for all its life, also when the
// table had grown: every one that sent its first packet while it grew.
TEST_F(SinkTest, SocketsLeaveOverflowWhenTheTableHasGrown) {
  MeteredCgroup meter("leave",
                      "max_series: " + std::to_string(NM_SLOT_FIRST + 1));
  SendAs(meter, "nm-first");  // takes the one slot
  Child server(nullptr, lab().server, [](Child::Parent& parent) {
    const Address any = Lab::Server(Family::kIpv4);
    Listen(any, 8710, 1);
    parent.Send(0);
    WaitReadable(parent.fd());
  });
  server.Receive<int>();
  Measurement measurement(meter, lab().ClientReference());
  std::vector<std::unique_ptr<Child>> clients;
  for (const bool tcp : {false, true}) {
    clients.push_back(std::make_unique<Child>(
        meter.cgroup(), lab().client, [tcp](Child::Parent& parent) {
          const Address to = Lab::Server(Family::kIpv4);
          const int fd =
              OpenSocket(to.family(), tcp ? SOCK_STREAM : SOCK_DGRAM);
          Connect(fd, to, tcp ? 8710 : 9000);
          for (int round = 0; round < 2; ++round) {
            for (int i = 0; i < 3; ++i) SendAll(fd, 100);
            parent.Send(0);
            parent.Receive<int>();
          }
        }));
    clients.back()->Receive<int>();
  }
  const auto expect_sent = [&meter](Kind kind, const std::string& name) {
    for (const Transport transport : {Transport::kUdp, Transport::kTcp}) {
      uint64_t sent = 0;
      for (const Sample& sample : meter.Samples()) {
        if (sample.kind == kind && sample.name == name &&
            sample.transport == transport) {
          sent += sample.tx_payload_bytes;
        }
      }
      EXPECT_EQ(sent, 300u) << name << static_cast<int>(transport);
    }
  };
  expect_sent(Kind::kOverflow, "overflow");
  meter.Load("max_series: 64");
  for (const auto& client : clients) {
    client->Send(0);
    client->Receive<int>();
  }
  measurement.Finish();
  expect_sent(Kind::kOverflow, "overflow");
  expect_sent(Kind::kBinary, "live_test");
  measurement.ExpectBalance();
  measurement.ExpectPayload(2 * 600, 0, 600);
  for (const auto& client : clients) {
    client->Send(0);
    client->Join();
  }
  server.Send(0);
  server.Join();
}

// The number of new names that a user got by this number of registrations and tags, and
// the error of the last one.
std::pair<int, int> AddNames(const MeteredCgroup& meter, uid_t user,
                             int count) {
  Child child(meter.cgroup(), lab().client, [=](Child::Parent& parent) {
    const int fd = OpenSocket(AF_INET, SOCK_DGRAM);
    if (user != 0 && setuid(user) != 0) _exit(1);
    const std::string prefix = "user" + std::to_string(user) + "-";
    int done = 0, error = 0;
    for (int i = 0; i < count; ++i) {
      error = Control(fd, i % 2 == 0 ? NM_REGISTER : NM_TAG,
                      prefix + std::to_string(i));
      if (error == 0) ++done;
    }
    // What there is already costs nothing.
    if (done > 0 && Control(fd, NM_REGISTER, prefix + "0") != 0) _exit(1);
    parent.Send(done);
    parent.Send(error);
  });
  const int done = child.Receive<int>();
  const int error = child.Receive<int>();
  child.Join();
  return std::make_pair(done, error);
}

// Names are handed out once and for all: no user may take them from the others.
TEST_F(SinkTest, OneUserMayNotTakeAllNames) {
  MeteredCgroup meter("capped", "max_names: 256");  // 32 a user
  EXPECT_EQ(AddNames(meter, 4711, 100), std::make_pair(32, EPERM));
  EXPECT_EQ(AddNames(meter, 4712, 20), std::make_pair(20, 0));
  EXPECT_EQ(AddNames(meter, 0, 100), std::make_pair(100, 0));
  const Health health = meter.ReadHealth();
  EXPECT_EQ(Misattributed(health, "names", "over_quota"), 68u);
  EXPECT_EQ(Misattributed(health, "names", "full"), 0u);
  // Nor by programs that it executes: they count, but as overflow.
  Measurement measurement(meter, lab().ClientReference());
  const auto execute = [&meter](const std::string& name,
                                std::vector<std::string> script) {
    const std::string path = CopyOfActor(name);
    script.emplace_back("udp=10.77.3.2/9000/1/100");
    RunChild(meter.cgroup(), lab().client, [&] { ExecActor(path, script); });
  };
  execute("nm-of-user", {"user=4711"});
  execute("nm-of-root", {});
  measurement.Finish();
  measurement.ExpectBalance();
  EXPECT_EQ(meter.TotalOf(Kind::kBinary, "nm-of-user").tx_payload, 0);
  EXPECT_EQ(meter.TotalOf(Kind::kOverflow, "overflow").tx_payload, 100);
  EXPECT_EQ(meter.TotalOf(Kind::kBinary, "nm-of-root").tx_payload, 100);
}

// Nor may many users together take the eighth that is left to root.
TEST_F(SinkTest, UsersMayNotTakeAllNames) {
  MeteredCgroup meter("capped-names", "max_names: 256");
  const auto names = [&meter] {
    const Health health = meter.ReadHealth();
    EXPECT_EQ(Misattributed(health, "names", "full"), 0u);
    return health.names;
  };
  for (uid_t user = 4711; user < 4717; ++user) {
    EXPECT_EQ(AddNames(meter, user, 40).first, 32) << user;
  }
  const uint32_t all_users = 256 - NM_NAME_FIRST - 32;
  EXPECT_LT(names(), all_users);
  // The next gets what is left of theirs, and who comes then gets nothing.
  EXPECT_EQ(AddNames(meter, 4717, 40).second, EPERM);
  EXPECT_EQ(names(), all_users);
  EXPECT_EQ(AddNames(meter, 4718, 40), std::make_pair(0, EPERM));
  EXPECT_EQ(names(), all_users);
  EXPECT_EQ(AddNames(meter, 0, 32), std::make_pair(32, 0));
  EXPECT_EQ(names(), all_users + 32);
}

// What is idle gives its room back, while another service goes on.
TEST_F(SinkTest, IdleNamesAndSeriesAreUsedAgain) {
  MeteredCgroup meter("evict",
                      "max_series: " + std::to_string(NM_SLOT_FIRST + 5) +
                          "\nmax_names: " + std::to_string(NM_NAME_FIRST + 5) +
                          "\ndestinations: []");
  Measurement measurement(meter, lab().ClientReference());
  Child other(meter.cgroup(), lab().client, [](Child::Parent& parent) {
    const Address to = Lab::Server(Family::kIpv4);
    Register("nm-other");
    const int fd = OpenSocket(to.family(), SOCK_DGRAM);
    for (;;) {
      SendTo(fd, std::string(100, 'x'), to, 9000);
      parent.Send(0);
      if (parent.Receive<int>() != 0) break;
    }
  });
  constexpr int kRounds = 4;  // more than there is room for
  for (int round = 0; round < kRounds; ++round) {
    other.Receive<int>();
    SendAs(meter, "nm-service-" + std::to_string(3 * round));
    SendAs(meter, "nm-service-" + std::to_string(3 * round + 1));
    SendAs(meter, "nm-service-" + std::to_string(3 * round + 2));
    // On a busy machine the kernel frees a socket some time after its process has
    // ended; until then its name is in use.
    for (int tries = 0; tries < 100; ++tries) {
      std::string output;
      ASSERT_EQ(RunProgram({MeteredCgroup::loader, "evict", "--idle", "0",
                            "--pin-dir", meter.pin_dir()},
                           &output),
                0)
          << output;
      const Health health = meter.ReadHealth();
      if (health.evicted_series >= (round + 1) * 3u) break;
      usleep(50000);
    }
    EXPECT_EQ(meter.TotalOf(Kind::kEvicted, "service").tx_payload,
              (round + 1) * 300);
    EXPECT_EQ(meter.TotalOf(Kind::kService, "nm-other").tx_payload,
              (round + 1) * 100);
    other.Send(round + 1 == kRounds ? 1 : 0);
  }
  other.Join();
  measurement.ExpectExact(kRounds * 400, 0);
  const Health health = meter.ReadHealth();
  EXPECT_EQ(health.evicted_series, kRounds * 3u);
  EXPECT_GE(health.evicted_names, kRounds * 3u);
  EXPECT_EQ(Misattributed(health, "packets", "series_full"), 0u);
  EXPECT_EQ(Misattributed(health, "names", "full"), 0u);
}

// Nor series: one socket with a few names of services and destinations made as many
// as there are pairs. Nor may many users together take what is left to root. Half of
// them have sockets that root made: those had no limit.
TEST_F(SinkTest, UsersMayNotTakeAllSeries) {
  MeteredCgroup meter("capped-series", "max_series: 256\nmax_names: 1024");
  const auto make_series = [&meter](uid_t user, int services, int tags) {
    RunChild(meter.cgroup(), lab().client, [=] {
      const int roots = OpenSocket(AF_INET, SOCK_DGRAM);
      if (user != 0 && setuid(user) != 0) _exit(1);
      const int fd = user % 2 == 0 ? OpenSocket(AF_INET, SOCK_DGRAM) : roots;
      for (int i = 0; i < services; ++i) {
        const std::string service =
            "u" + std::to_string(user) + "s" + std::to_string(i);
        if (Control(fd, NM_SERVICE, service) != 0) _exit(2);
        for (int j = 0; j < tags; ++j) {
          if (Control(fd, NM_TAG, "d" + std::to_string(j)) != 0) _exit(3);
          SendTo(fd, std::string(100, 'x'), Lab::Server(Family::kIpv4), 9000);
        }
      }
    });
  };
  const auto series = [&meter] {
    const Health health = meter.ReadHealth();
    return health.series;
  };
  Measurement measurement(meter, lab().ClientReference());
  make_series(4711, 8, 8);
  EXPECT_EQ(series(), 32u);
  for (uid_t user = 4712; user < 4720; ++user) make_series(user, 8, 8);
  const uint32_t all_users = 256 - NM_SLOT_FIRST - 32;
  EXPECT_EQ(series(), all_users);
  make_series(0, 2, 10);
  EXPECT_EQ(series(), all_users + 20);
  measurement.ExpectExact((9 * 64 + 20) * 100, 0);
  const Health health = meter.ReadHealth();
  EXPECT_EQ(Misattributed(health, "packets", "series_over_quota"),
            9u * 64 - all_users);
  EXPECT_EQ(Misattributed(health, "packets", "series_full"), 0u);
}

// A meter sees the cgroups below its own, too, those with a meter included. What another
// one counts of the same packets is nothing to it.
TEST_F(SinkTest, TwoMetersOnOneCgroupAreBothExact) {
  const auto cgroup = std::make_shared<Cgroup>("twice");
  MeteredCgroup one(cgroup, "twice-one"), other(cgroup, "twice-other");
  MeteredCgroup below("twice/below");
  for (Family family : {Family::kIpv4, Family::kIpv6}) {
    TcpPlan plan(Lab::Server(family), 300001, 200003);
    Measurement of_one(one, lab().ClientReference());
    Measurement of_other(other, lab().ClientReference());
    Measurement of_below(below, lab().ClientReference());
    RunTcp(lab().Between(below.cgroup(), nullptr), plan);
    for (Measurement* measurement : {&of_one, &of_other, &of_below}) {
      measurement->ExpectExact(plan.upload, plan.download);
    }
    // And what is beside the inner one is the outer ones' alone.
    Measurement beside_one(one, lab().ClientReference());
    Measurement beside_other(other, lab().ClientReference());
    below.CountFromNow();
    RunTcp(lab().Between(cgroup.get(), nullptr), plan);
    for (Measurement* measurement : {&beside_one, &beside_other}) {
      measurement->ExpectExact(plan.upload, plan.download);
    }
    EXPECT_EQ(below.Samples().size(), 0u);
  }
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
