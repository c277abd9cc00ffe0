// SPDX-License-Identifier: BSD-3-Clause
// Destinations, and their number: of services and of any other program; by rules, even if
// one socket sends to several ports, and by the first bytes of HTTP. Each byte of a
// connection has one.

#include <errno.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "lib/testing/check.h"
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

constexpr int kMostNames = 64;  // of a program
constexpr int kMostNamesOfService = 256;

class DestinationsTest : public FamilyTest {
 protected:
  // A server that accepts this number of connections, reads each to its end, and then
  // ends its side.
  static void Serve(Child::Parent& parent, int port, size_t count) {
    const int listener = Listen(Server(), port, 16);
    parent.Send(0);
    for (size_t i = 0; i < count; ++i) {
      const int fd = Accept(listener);
      ReceiveUntilEnd(fd);
      close(fd);
    }
  }

  // One connection to `port` for each text, which is sent in the parts between
  // the '|'. Returns when all are closed.
  static void Send(const MeteredCgroup& meter, int port,
                   const std::vector<std::string>& texts,
                   const std::string& service = "") {
    Child server(nullptr, lab().server, [&](Child::Parent& parent) {
      Serve(parent, port, texts.size());
    });
    server.Receive<int>();
    RunChild(meter.cgroup(), lab().client, [&] {
      if (!service.empty()) Register(service);
      for (const std::string& text : texts) SendParts(port, text);
    });
    server.Join();
  }

  static void SendParts(int port, const std::string& text) {
    const int fd = OpenSocket(af(), SOCK_STREAM);
    SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    Connect(fd, Server(), port);
    size_t begin = 0;
    while (begin <= text.size()) {
      const size_t end = std::min(text.find('|', begin), text.size());
      const std::string part = text.substr(begin, end - begin);
      if (!part.empty() && send(fd, part.data(), part.size(), 0) !=
                               static_cast<ssize_t>(part.size())) {
        _exit(1);
      }
      begin = end + 1;
    }
    Check(shutdown(fd, SHUT_WR), "shutdown");
    ReceiveUntilEnd(fd);
    close(fd);
  }

  // Waits until nothing is pending: a socket may close after close(2).
  static void Settle(const MeteredCgroup& meter) {
    for (int i = 0; i < 200; ++i) {
      bool pending = false;
      for (const Sample& sample : meter.Samples()) {
        pending |= sample.kind == Kind::kPending;
      }
      if (!pending) return;
      usleep(20000);
    }
    ADD_FAILURE() << "still pending";
  }

  static std::set<std::string> DestinationsOf(const MeteredCgroup& meter,
                                              Kind kind,
                                              const std::string& name) {
    std::set<std::string> destinations;
    for (const Sample& sample : meter.Samples()) {
      if (sample.kind == kind && sample.name == name) {
        destinations.insert(sample.destination);
      }
    }
    return destinations;
  }
};
NM_FOR_BOTH_FAMILIES(DestinationsTest);
class Ipv4DestinationsTest : public DestinationsTest {};
INSTANTIATE_TEST_SUITE_P(Over, Ipv4DestinationsTest,
                         testing::Values(Family::kIpv4),
                         [](const auto&) { return "IPv4"; });

std::string Get(const std::string& host) {
  return "GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n";
}

// On a host without configuration every destination of a program was empty.
TEST_P(DestinationsTest, ProgramsHaveThoseOfPlainHttp) {
  MeteredCgroup& meter = World::MeterWith("");
  const std::vector<std::string> texts = {
      Get("one.example"), Get("ONE.example:80"),
      // In two segments, and in single bytes.
      "GET / HTTP/1.1\r\nX: y\r\nHo|st: two.example\r\n\r\n",
      "G|E|T| |/| |H|T|T|P|/|1|.|1|\r|\n|h|o|s|t|:|t|w|o|.|e|x|a|m|p|l|e|\r|\n",
      "CONNECT three.example:443 HTTP/1.1\r\n\r\nanything",
      "GET http://four.example/ HTTP/1.1\r\nHost: other.example\r\n\r\n",
      Get("[2001:db8::1]:80") + std::string(100000, 'x')};
  Send(meter, 80, texts);
  Settle(meter);
  const std::set<std::string> expected = {"one.example", "two.example",
                                          "three.example", "four.example",
                                          "[2001:db8::1]"};
  EXPECT_EQ(DestinationsOf(meter, Kind::kBinary, Program()), expected);
  int64_t sent = 0;
  for (const std::string& text : texts) {
    sent += static_cast<int64_t>(text.size()) -
            std::count(text.begin(), text.end(), '|');
  }
  EXPECT_EQ(meter.TotalOf(Kind::kBinary, Program()).tx_payload, sent);
  EXPECT_EQ(meter.TotalOf(Kind::kBinary, Program(), "[2001:db8::1]").tx_payload,
            static_cast<int64_t>(texts.back().size()));
  EXPECT_EQ(meter.Total().tx_payload, sent);
}

TEST_P(DestinationsTest, OnlyTheKindsOfTheConfigurationHaveSome) {
  MeteredCgroup& meter = World::MeterWith("destinations_of: [service]\n");
  Send(meter, 80, {Get("one.example")});
  Send(meter, 80, {Get("one.example")}, "chosen");
  Settle(meter);
  EXPECT_EQ(DestinationsOf(meter, Kind::kBinary, Program()),
            std::set<std::string>{""});
  EXPECT_EQ(DestinationsOf(meter, Kind::kService, "chosen"),
            std::set<std::string>{"one.example"});
}

// A program may visit any number of hosts, and there are many programs. Over IPv6 it is
// the same.
TEST_P(Ipv4DestinationsTest, NamesOfAProgramAreBounded) {
  const MeteredCgroup meter("dest-bound");
  // An existing name uses no quota, so each service has hosts of its own: the first ones
  // get names, and all others have none.
  const auto expect = [&](Kind kind, const std::string& name, int most) {
    const bool is_service = kind == Kind::kService;
    const auto host = [&](int i) { return name + "-host" + std::to_string(i); };
    std::vector<std::string> texts;
    for (int i = 0; i < most + 6; ++i) texts.push_back(Get(host(i)));
    Send(meter, 80, texts, is_service ? name : "");
    Settle(meter);
    const auto found = DestinationsOf(meter, kind, name);
    EXPECT_EQ(found.size(), static_cast<size_t>(most + 1)) << name;
    EXPECT_EQ(found.count(""), 1u) << name;
    EXPECT_EQ(found.count(host(most - 1)), 1u) << name;
    EXPECT_EQ(found.count(host(most)), 0u) << name;
  };
  expect(Kind::kBinary, Program(), kMostNames);
  expect(Kind::kService, "service", kMostNamesOfService);
}

// A name is what this host sends on a connection that it has opened. A peer may send
// anything, first or as an answer, and have it sent back to the port of a name.
TEST_P(DestinationsTest, APeerAddsNoName) {
  const MeteredCgroup meter("dest-peer", "http_ports: [80]\n");
  const Address here = Lab::Client(GetParam());
  const auto names = [&meter] { return meter.ReadHealth().names; };
  const uint64_t size = Get("peer.example").size();
  // Ours serves, and sends what it gets: to port 80, as the peer's own is that.
  Child server(meter.cgroup(), lab().client, [&](Child::Parent& parent) {
    Register("server");
    const int listener = Listen(here, 80, 1);
    parent.Send(0);
    const int fd = Accept(listener);
    std::string text(size, '\0');
    Check(recv(fd, &text[0], size, MSG_WAITALL), "recv");
    SendText(fd, text);
    ReceiveUntilEnd(fd);
  });
  server.Receive<int>();
  const uint32_t before = names();
  Child peer(nullptr, lab().server, [&](Child::Parent&) {
    const int fd = OpenSocket(here.family(), SOCK_STREAM);
    SetOption(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    Bind(fd, Server(), 80);
    Connect(fd, here, 80);
    const std::string text = Get("peer.example");
    SendText(fd, text);
    ReceiveExactly(fd, size);
  });
  peer.Join();
  server.Join();
  Settle(meter);
  EXPECT_EQ(names(), before);
  EXPECT_EQ(DestinationsOf(meter, Kind::kService, "server"),
            std::set<std::string>{""});
  // Ours asks one who has spoken first.
  Child greeter(nullptr, lab().server, [&](Child::Parent& parent) {
    const int listener = Listen(Server(), 80, 1);
    parent.Send(0);
    const int fd = Accept(listener);
    const std::string text = Get("peer.example");
    SendText(fd, text);
    ReceiveUntilEnd(fd);
  });
  greeter.Receive<int>();
  Child client(meter.cgroup(), lab().client, [&](Child::Parent&) {
    Register("client");
    const int fd = Connected(Server(), 80);
    ReceiveExactly(fd, size);
    const std::string text = Get("own.example");
    SendText(fd, text);
  });
  client.Join();
  greeter.Join();
  Settle(meter);
  EXPECT_EQ(DestinationsOf(meter, Kind::kService, "client"),
            std::set<std::string>{"own.example"});
  EXPECT_EQ(names(), before + 2);  // `client` and `own.example`
}

// What waits for its name has its state in its own socket: however many wait, another
// one gets its name, and in the end none of their bytes is without an owner. The balance
// is of before they end: at ends in TIME_WAIT no hook sees what the peer still sends.
TEST_P(DestinationsTest, ConnectionsThatWaitKeepNoNameFromOthers) {
  const MeteredCgroup meter("dest-wait", "max_sockets: 16\n");
  constexpr int kWaiting = 400;
  const std::string begin = "GET / HTTP/1.1\r\nX: y\r\nHos";
  const int64_t sent = static_cast<int64_t>(kWaiting * begin.size());
  Child server(nullptr, lab().server, [&](Child::Parent& parent) {
    const int listener = Listen(Server(), 80, kWaiting);
    parent.Send(0);
    std::vector<int> fds;
    while (fds.size() <= kWaiting) fds.push_back(Accept(listener));
    for (; !fds.empty(); fds.pop_back()) {
      ReceiveUntilEnd(fds.back());
      close(fds.back());
    }
  });
  server.Receive<int>();
  Measurement measurement(meter, lab().ClientReference());
  Child waiting(meter.cgroup(), lab().client, [&](Child::Parent& parent) {
    Register("waiting");
    for (int i = 0; i < kWaiting; ++i) {
      const int fd = Connected(Server(), 80);
      SendText(fd, begin);
    }
    parent.Send(0);
    parent.Receive<int>();
  });
  waiting.Receive<int>();
  Child other(meter.cgroup(), lab().client, [&](Child::Parent&) {
    Register("other");
    SendParts(80, Get("named.example"));
  });
  other.Join();
  EXPECT_EQ(DestinationsOf(meter, Kind::kService, "other"),
            std::set<std::string>{"named.example"});
  EXPECT_EQ(meter.TotalOf(Kind::kPending, "waiting").tx_payload, sent);
  measurement.ExpectExact(
      sent + static_cast<int64_t>(Get("named.example").size()), 0);
  waiting.Send(0);
  waiting.Join();
  server.Join();
  // A packet that comes while its connection ends may stay pending; no payload may.
  for (int i = 0; i < 500; ++i) {
    if (meter.TotalOf(Kind::kPending, "waiting").tx_payload == 0) break;
    usleep(20000);
  }
  EXPECT_EQ(meter.TotalOf(Kind::kService, "waiting", "").tx_payload, sent);
}

// One socket sends to ports of rules and to others, which keep their slot
// meanwhile: each datagram has its own destination, however many came before.
TEST_P(DestinationsTest, RulesOfPortsAreMatchedByEachDatagram) {
  MeteredCgroup& meter = World::MeterWith(
      "destinations:\n"
      "  - {name: nine, port: 9000, protocol: udp}\n"
      "  - {name: eleven, port: 9002}\n"
      "  - {name: stream, port: 9100, protocol: tcp}\n");
  for (const std::string service : {"", "chosen"}) {
    RunChild(meter.cgroup(), lab().client, [&] {
      if (!service.empty()) Register(service);
      const int fd = OpenSocket(af(), SOCK_DGRAM);
      for (int round = 0; round < 5; ++round) {
        for (const int port : {8999, 9000, 9001, 9002, 9003, 9100, 9101}) {
          SendTo(fd, std::string(100, 'x'), Server(), port);
        }
      }
    });
    const Kind kind = service.empty() ? Kind::kBinary : Kind::kService;
    const std::string name = service.empty() ? Program() : service;
    EXPECT_EQ(meter.TotalOf(kind, name, "nine").tx_payload, 500);
    EXPECT_EQ(meter.TotalOf(kind, name, "eleven").tx_payload, 500);
    EXPECT_EQ(meter.TotalOf(kind, name, "").tx_payload, 5 * 500);
    EXPECT_EQ(meter.TotalOf(kind, name).tx_payload, 7 * 500);
  }
}

// A rule for fluentd's port took all of Magma's calls to its cloud if both were on port
// 443, as the deployment guide has it: they counted as `fluentd`.
TEST_P(DestinationsTest, RulesOfPortsYieldToNamesOfConnections) {
  const std::vector<std::string> texts = {Get("one.example"), "SSH-2.0-x\r\n",
                                          ""};
  int64_t sent = 0;
  for (const std::string& text : texts) {
    sent += static_cast<int64_t>(text.size());
  }
  // Rules, and the destinations of the three connections.
  const std::string address = v4() ? "10.0.0.0/8" : "'fd77::/16'";
  const struct {
    std::string rule;
    std::set<std::string> destinations;
  } cases[] = {
      {"{name: web, port: 80}", {"one.example", "web"}},
      {"{name: all}", {"one.example", "all"}},
      {"{name: web, port: 80, overrides_names: true}", {"web"}},
      {"{name: net, address: " + address + "}", {"net"}},
      {"{name: net, address: " + address + ", overrides_names: false}",
       {"one.example", "net"}},
  };
  for (const auto& one : cases) {
    MeteredCgroup& meter =
        World::MeterWith("destinations: [" + one.rule + "]\n");
    Send(meter, 80, texts);
    Settle(meter);
    EXPECT_EQ(DestinationsOf(meter, Kind::kBinary, Program()), one.destinations)
        << one.rule;
    EXPECT_EQ(meter.TotalOf(Kind::kBinary, Program()).tx_payload, sent)
        << one.rule;
    if (one.destinations.size() > 1) {
      EXPECT_EQ(
          meter.TotalOf(Kind::kBinary, Program(), "one.example").tx_payload,
          static_cast<int64_t>(texts[0].size()))
          << one.rule;
    }
  }
}

// Without configuration a name server is `dns`, by UDP and by TCP.
TEST_P(DestinationsTest, NameServersAreDnsByDefault) {
  MeteredCgroup& meter = World::MeterWith("");
  Send(meter, 53, {"12345"});
  RunChild(meter.cgroup(), lab().client, [&] {
    const int fd = OpenSocket(af(), SOCK_DGRAM);
    SendTo(fd, "12345", Server(), 53);
    SendTo(fd, "1234567", Server(), 54);
  });
  EXPECT_EQ(meter.TotalOf(Kind::kBinary, Program(), "dns").tx_payload, 10);
  EXPECT_EQ(meter.TotalOf(Kind::kBinary, Program(), "").tx_payload, 7);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
