// SPDX-License-Identifier: BSD-3-Clause
// Traffic of eleven kinds through a gateway, in both directions, with NAT and without:
// for each uplink, the forwarded row is what the interface counted less the gateway's own
// traffic, and what the records of forwarded flows add up to, to the byte. Each
// connection has one record.

#include <linux/tcp.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "bpf/first_bytes_testing.h"
#include "lib/apps/connections/flow.h"
#include "lib/apps/connections/follower.h"
#include "test/live/gateway.h"
#include "test/live/world.h"

namespace netmeter {
namespace internal {
namespace {

constexpr char kConfig[] =
    "uplinks:\n"
    "  satellite: [sat0]\n"
    "  mobile: [lte0]\n"
    "  lan: [lan0]\n"
    "forwarded_clients: [lan]\n";
// The first of two networks of the LAN's hosts, and of servers. The first network uses
// the satellite and the second one the mobile uplink.
constexpr int kHosts = 11, kServers = 201;
// Each kind has this number for each uplink and direction: 11 x 2 x 2 x 12 are 528.
constexpr int kConnections = 12;
constexpr int kExperimental = 253;  // a protocol (RFC 3692)

enum Port {
  kUpload = 5001,
  kDownload,
  kPlain,
  kHalfClosed,
  kRefused,
  kAborted,
  kSilent,
  kAsked,
  kOneWay,
  kTls = 443,
  kHttp = 80,
};

// The two ends of a connection. `to` is what the client asks for, which NAT may turn into
// the server's address.
struct Pair {
  const NetNamespace *client_network, *server_network;
  Address client, to, server;
  int number;
  bool whole;     // the client's link takes GSO packets
  bool fragment;  // nothing puts fragments together on the way
};

int OpenIn(const NetNamespace& network, const Address& address, int type,
           int protocol = 0) {
  int fd = -1;
  network.Run([&] { fd = OpenSocket(address.family(), type, protocol); });
  return fd;
}

struct Tcp {
  int client, server;
};

// Small windows, so that no queue of a link overflows.
void Narrow(int fd) {
  SetOption(fd, SOL_SOCKET, SO_RCVBUF, 64 << 10);
  SetOption(fd, SOL_SOCKET, SO_SNDBUF, 64 << 10);
}

int OpenClient(const Pair& pair, int type, int protocol = 0) {
  const int fd = OpenIn(*pair.client_network, pair.client, type, protocol);
  Narrow(fd);
  Bind(fd, pair.client);
  return fd;
}

int OpenServer(const Pair& pair, int type, int port, int protocol = 0) {
  const int fd = OpenIn(*pair.server_network, pair.server, type, protocol);
  Narrow(fd);
  SetOption(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  Bind(fd, pair.server, port);
  return fd;
}

Tcp Open(const Pair& pair, int port) {
  const UniqueFd listener(OpenServer(pair, SOCK_STREAM, port));
  Check(listen(listener.get(), 1), "listen");
  const int client = OpenClient(pair, SOCK_STREAM);
  Connect(client, pair.to, port);
  return {client, Accept(listener.get())};
}

void Transfer(int from, int to, uint64_t bytes) {
  std::thread sender([&] { SendAll(from, bytes); });
  ReceiveExactly(to, bytes);
  sender.join();
}

// The client is the first to close.
void Close(const Tcp& tcp) {
  Check(shutdown(tcp.client, SHUT_WR), "shutdown");
  ReceiveUntilEnd(tcp.server);
  close(tcp.server);
  ReceiveUntilEnd(tcp.client);
  close(tcp.client);
}

void Upload(const Pair& pair) {
  const Tcp tcp = Open(pair, kUpload);
  Transfer(tcp.client, tcp.server, 200001);
  Close(tcp);
}

void Download(const Pair& pair) {
  const Tcp tcp = Open(pair, kDownload);
  Transfer(tcp.server, tcp.client, 300007);
  Close(tcp);
}

int PortToAsk(const Pair& pair) {
  return std::array{kTls, kHttp, kPlain}[pair.number % 3];
}

void Ask(const Pair& pair) {
  const std::string hello = Record(Hello(Sni("tls.example")));
  const std::string get = "GET / HTTP/1.1\r\nHost: http.example\r\n\r\n";
  const int port = PortToAsk(pair);
  const std::string request = port == kTls    ? hello
                              : port == kHttp ? get
                                              : "hello";
  const Tcp tcp = Open(pair, port);
  SendText(tcp.client, request);
  ReceiveExactly(tcp.server, request.size());
  SendAll(tcp.server, 3000);
  ReceiveExactly(tcp.client, 3000);
  Close(tcp);
}

void CloseHalf(const Pair& pair) {
  const Tcp tcp = Open(pair, kHalfClosed);
  SendAll(tcp.client, 1000);
  Check(shutdown(tcp.client, SHUT_WR), "shutdown");
  ReceiveUntilEnd(tcp.server);
  Transfer(tcp.server, tcp.client, 20000);
  Close(tcp);
}

void AskNobody(const Pair& pair) {
  const UniqueFd client(OpenClient(pair, SOCK_STREAM));
  BeRefused(client.get(), pair.to, kRefused);
}

void AbortOneEnd(const Pair& pair) {
  const Tcp tcp = Open(pair, kAborted);
  SendAll(tcp.client, 100);
  ReceiveExactly(tcp.server, 100);
  Abort(pair.number % 2 == 0 ? tcp.client : tcp.server);
  close(pair.number % 2 == 0 ? tcp.server : tcp.client);
}

// A firewall at the server drops the SYN.
void GetNoAnswer(const Pair& pair) {
  const UniqueFd client(OpenClient(pair, SOCK_STREAM | SOCK_NONBLOCK));
  sockaddr_storage to = pair.to.WithPort(kSilent);
  if (connect(client.get(), reinterpret_cast<sockaddr*>(&to),
              Address::Length(to)) != -1 ||
      errno != EINPROGRESS) {
    DieWithErrno("connect");
  }
}

void Answer(int server, size_t bytes) {
  char data[4000];
  sockaddr_storage from = {};
  socklen_t length = sizeof(from);
  WaitReadable(server);
  Check(recvfrom(server, data, sizeof(data), 0,
                 reinterpret_cast<sockaddr*>(&from), &length),
        "recvfrom");
  Check(sendto(server, data, bytes, 0, reinterpret_cast<sockaddr*>(&from),
               length),
        "sendto");
}

void Receive(int fd) {
  char data[70000];
  WaitReadable(fd);
  Check(recv(fd, data, sizeof(data), 0), "recv");
}

void AskByDatagrams(const Pair& pair) {
  const UniqueFd server(OpenServer(pair, SOCK_DGRAM, kAsked));
  const UniqueFd client(OpenClient(pair, SOCK_DGRAM));
  Connect(client.get(), pair.to, kAsked);
  for (int i = 0; i < 3; ++i) {
    SendAll(client.get(), 60);
    Answer(server.get(), 1000);
    Receive(client.get());
  }
}

void SendOneWay(const Pair& pair) {
  const UniqueFd server(OpenServer(pair, SOCK_DGRAM, kOneWay));
  const UniqueFd client(OpenClient(pair, SOCK_DGRAM));
  Connect(client.get(), pair.to, kOneWay);
  for (int i = 0; i < 10; ++i) {
    SendAll(client.get(), 1200);
    Receive(server.get());
  }
  if (pair.fragment) {
    SendText(client.get(), std::string(5000, 'x'));
    Receive(server.get());
  }
  if (!pair.whole) return;
  SetOption(client.get(), IPPROTO_UDP, UDP_SEGMENT, 1100);
  SendText(client.get(), std::string(10500, 'x'));
  for (int i = 0; i < 10; ++i) Receive(server.get());
}

void Echo(const Pair& pair) {
  const UniqueFd client(OpenClient(
      pair, SOCK_DGRAM,
      pair.to.family() == AF_INET ? int{IPPROTO_ICMP} : int{IPPROTO_ICMPV6}));
  Connect(client.get(), pair.to, 0);
  for (int i = 0; i < 3; ++i) Ping(client.get(), 100, i);
}

void SpeakAnother(const Pair& pair) {
  const UniqueFd server(OpenServer(pair, SOCK_RAW, 0, kExperimental));
  const UniqueFd client(OpenClient(pair, SOCK_RAW, kExperimental));
  Connect(client.get(), pair.to, 0);
  // Packets of all other pairs come to a raw socket before bind(2).
  SendAll(client.get(), 300);
  Answer(server.get(), 500);
  Receive(client.get());
}

struct Kind {
  void (*run)(const Pair& pair);
  std::string protocol;
  int port;  // of the server
  std::string end;
  std::string closed_by;  // client, server or ""
};

// ICMP has another name for each family.
const Kind kKinds[] = {
    {Upload, "tcp", kUpload, "fin", "client"},
    {Download, "tcp", kDownload, "fin", "client"},
    {Ask, "tcp", kPlain, "fin", "client"},
    {CloseHalf, "tcp", kHalfClosed, "fin", "client"},
    {AskNobody, "tcp", kRefused, "rst", "server"},
    {AbortOneEnd, "tcp", kAborted, "rst", "client"},
    {GetNoAnswer, "tcp", kSilent, "open", ""},
    {AskByDatagrams, "udp", kAsked, "open", ""},
    {SendOneWay, "udp", kOneWay, "open", ""},
    {Echo, "icmp", 0, "open", ""},
    {SpeakAnother, "253", 0, "open", ""},
};

// A gateway lab with networks behind both ends.
struct Networks : GatewayLab {
  explicit Networks(bool nat) {
    const auto route = [](const NetNamespace& where, const Address& network,
                          const Address& via) {
      Ip(where, {"route", "add",
                 network.text() + (network.family() == AF_INET ? "/24" : "/64"),
                 "via", via.text()});
    };
    for (Family family : {Family::kIpv4, Family::kIpv6}) {
      for (const int uplink : {0, 1}) {
        for (int host = 1; host <= 2 * kConnections; ++host) {
          const int all = family == Family::kIpv4 ? 32 : 128;
          lan.AddAddress("lo", At(family, kHosts + uplink, host), all);
          internet.AddAddress("lo", At(family, kServers + uplink, host), all);
        }
        route(gateway, At(family, kHosts + uplink, 0), At(family, 3, 2));
        route(gateway, At(family, kServers + uplink, 0),
              At(family, 1 + uplink, 2));
        if (nat) {
          Translate(family, uplink);
        } else {
          route(internet, At(family, kHosts + uplink, 0),
                At(family, 1 + uplink, 1));
        }
      }
      for (const NetNamespace* end : {&lan, &internet}) {
        IpTables(*end, family,
                 {"-A", "INPUT", "-p", "tcp", "--dport",
                  std::to_string(kSilent), "-j", "DROP"});
      }
    }
  }

  // What leaves has the gateway's address. What comes for this address goes to the
  // first host.
  void Translate(Family family, int uplink) {
    const std::string link = uplink == 0 ? "sat0" : "lte0";
    IpTables(
        gateway, family,
        {"-t", "nat", "-A", "POSTROUTING", "-o", link, "-j", "MASQUERADE"});
    IpTables(gateway, family,
             {"-t", "nat", "-A", "PREROUTING", "-i", link, "-d",
              At(family, 1 + uplink, 1).text(), "-j", "DNAT",
              "--to-destination", At(family, kHosts + uplink, 1).text()});
  }

  // The way from the first network of hosts to the first one of servers, and back.
  void Move(Family family, Way out, Way back) {
    const std::string size = family == Family::kIpv4 ? "/24" : "/64";
    Ip(gateway, {"route", "replace", At(family, kServers, 0).text() + size,
                 "via", At(family, NetworkOf(out), 2).text()});
    Ip(internet, {"route", "replace", At(family, kHosts, 0).text() + size,
                  "via", At(family, NetworkOf(back), 1).text()});
  }

  // GSO packets come from the LAN, and GRO makes them of what comes from the internet.
  // The uplinks send real packets.
  void Merge(bool on) {
    lan.SetFeatures("l0", kOffloads, on);
    gateway.SetFeatures("lan0", kOffloads, on);
    for (const char* link : {"sat0", "lte0"}) {
      gateway.SetFeatures(link, {"rx-gro"}, on);
    }
  }
};

// A follower of forwarded flows, from the constructor on.
class Records {
 public:
  Records(const std::string& pin_dir, const NetNamespace& where,
          uint32_t max_flows = 16384)
      : where_(where) {
    FollowOptions options;
    options.pin_dir = pin_dir;
    options.forwarded = true;
    options.max_flows = max_flows;
    options.idle = std::chrono::hours(1);
    where.Run([&] {
      auto started = Follower::Start(options);
      if (!started.ok()) Die(started.status().ToString());
      follower_ = *std::move(started);
    });
    names_ = std::make_unique<FlowNames>(follower_->maps());
    reader_ = std::thread([this] {
      where_.Enter();
      while (!ends_) Must(follower_->Poll(20, Body()));
      Must(follower_->Stop(Body()));
      const auto rests = follower_->Unrecorded();
      Must(rests.status());
      for (const FlowUnrecorded& rest : *rests) {
        rests_.push_back(names_->RowOf(rest.key, rest.value));
      }
    });
  }
  ~Records() {
    if (reader_.joinable()) Stop();
  }

  // Now there is a record of each flow.
  void Stop() {
    ends_ = true;
    reader_.join();
  }

  // What they and the remainders add up to, by uplink and service. Rows of sockets are
  // not in it.
  std::map<std::string, Totals> Sums() const {
    std::map<std::string, Totals> sums;
    const auto add = [&](const FlowRow& row) {
      if (!row.is_forwarded()) return;
      Totals* sum = &sums[row.series.uplink + " " + row.series.name];
      sum->tx_bytes += static_cast<int64_t>(row.counts.tx_bytes);
      sum->rx_bytes += static_cast<int64_t>(row.counts.rx_bytes);
      sum->tx_packets += static_cast<int64_t>(row.counts.tx_packets);
      sum->rx_packets += static_cast<int64_t>(row.counts.rx_packets);
    };
    for (const FlowRow& row : rows_) add(row);
    for (const FlowRow& row : rests_) add(row);
    return sums;
  }

  std::vector<nlohmann::json> Forwarded() const {
    std::vector<nlohmann::json> flows;
    for (const FlowRow& row : rows_) {
      if (!row.is_forwarded()) continue;
      std::string text;
      AppendJson(row, Origin(), &text);
      flows.push_back(nlohmann::json::parse(text));
    }
    return flows;
  }

  nm_flow_stats Stats() const { return follower_->Stats(); }

 private:
  static void Must(const absl::Status& status) {
    if (!status.ok()) Die(status.ToString());
  }
  Follower::Body Body() {
    return [this](const nm_flow_record& record) {
      rows_.push_back(names_->RowOf(record, follower_->WireNameOf(record)));
    };
  }

  std::unique_ptr<Follower> follower_;
  std::unique_ptr<FlowNames> names_;
  const NetNamespace& where_;
  std::vector<FlowRow> rows_, rests_;
  std::thread reader_;
  std::atomic<bool> ends_{false};
};

// Family, NAT, and whether there are GSO and GRO packets.
using Case = std::tuple<Family, bool, bool>;

class ForwardedTest : public LiveTest {
 protected:
  static void TearDownTestSuite() {
    for (const bool nat : {false, true}) {
      meters_[nat].reset();
      networks_[nat].reset();
    }
  }

  // An emulated guest verifies the programs of a follower for minutes, if the machine has
  // other work.
  void SetUp() override {
    LiveTest::SetUp();
    alarm(20 * kTimeoutMs / 1000);
  }

  static void Use(const Case& setup) {
    std::tie(family_, nat_, merged_) = setup;
    if (networks_[nat_] == nullptr) {
      networks_[nat_] = std::make_unique<Networks>(nat_);
      // The uplinks are those of the namespace that the loader runs in.
      networks_[nat_]->gateway.Run([] {
        const std::string name = nat_ ? "translated" : "routed";
        meters_[nat_] = std::make_unique<MeteredCgroup>(name, kConfig);
      });
    }
    networks().Merge(merged_);
    meter().CountFromNow();
  }

  static bool Measured() { return KernelAtLeast(6, 4); }
  static Networks& networks() { return *networks_[nat_]; }
  static MeteredCgroup& meter() { return *meters_[nat_]; }

  // From the LAN to a server, or from there to the LAN.
  Pair PairOf(bool from_lan, int uplink, int number) const {
    // Protocols without ports have one connection between two addresses.
    const int host = 1 + number + (from_lan ? 0 : kConnections);
    Pair pair;
    pair.client_network = from_lan ? &networks().lan : &networks().internet;
    pair.server_network = from_lan ? &networks().internet : &networks().lan;
    pair.client = At(family_, (from_lan ? kHosts : kServers) + uplink, host);
    pair.to = pair.server =
        At(family_, (from_lan ? kServers : kHosts) + uplink, host);
    if (nat_ && !from_lan) {
      pair.to = At(family_, 1 + uplink, 1);
      pair.server = At(family_, kHosts + uplink, 1);
    }
    pair.number = number;
    pair.whole = merged_ && from_lan;
    pair.fragment = !nat_;
    return pair;
  }

  // All kinds at the same time.
  void ForwardAll() const {
    std::vector<std::thread> threads;
    for (const Kind& kind : kKinds) {
      threads.emplace_back([this, &kind] {
        for (int number = 0; number < kConnections; ++number) {
          for (const bool from_lan : {true, false}) {
            for (const int uplink : {0, 1}) {
              kind.run(PairOf(from_lan, uplink, number));
            }
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  // The gateway's own traffic: no TIME_WAIT socket answers without a name.
  void SpeakLocally() const {
    for (const int uplink : {0, 1}) {
      const Address to = At(family_, kServers + uplink, 1);
      const UniqueFd server(OpenIn(networks().internet, to, SOCK_DGRAM));
      const int port = Bind(server.get(), to);
      RunChild(meter().cgroup(), networks().gateway, [&] {
        const int fd = Connected(to, port, SOCK_DGRAM);
        for (int i = 0; i < 5; ++i) SendAll(fd, 1000);
      });
    }
  }

  // The number of records with these fields.
  using Fields = std::map<std::string, int>;

  static void AddTo(Fields* fields, const std::vector<std::string>& values) {
    std::string line;
    for (const std::string& value : values) line += value + " ";
    (*fields)[line]++;
  }

  void AddExpected(const Kind& kind, bool from_lan, int uplink, int number,
                   Fields* fields) const {
    const Pair pair = PairOf(from_lan, uplink, number);
    const std::string opener = from_lan ? "local" : "remote",
                      other = from_lan ? "remote" : "local";
    std::string closed_by = kind.closed_by == "client"   ? opener
                            : kind.closed_by == "server" ? other
                                                         : "";
    int port = kind.port;
    std::string destination;
    if (kind.run == AbortOneEnd && number % 2 == 1) closed_by = other;
    if (kind.run == Ask) {
      port = PortToAsk(pair);
      // A name that a peer asks for is that of a host in the LAN.
      if (from_lan && port == kTls) destination = "tls.example";
      if (from_lan && port == kHttp) destination = "http.example";
    }
    // Bytes that the client sent and received, if all packets are known.
    const bool v4 = family_ == Family::kIpv4;
    const int64_t header = v4 ? 20 : 40;
    int64_t sent = 0, received = 0;
    if (kind.run == AskByDatagrams) {
      sent = 3 * (header + 8 + 60);
      received = 3 * (header + 8 + 1000);
    } else if (kind.run == Echo) {
      sent = received = 3 * (header + 8 + 100);
    } else if (kind.run == SpeakAnother) {
      sent = header + 300;
      received = header + 500;
    }
    const auto add = [&](const std::string& protocol) {
      if (!from_lan) std::swap(sent, received);
      AddTo(fields, {protocol, (from_lan ? pair.client : pair.server).text(),
                     (from_lan ? pair.server : pair.client).text(),
                     std::to_string(port), uplink == 0 ? "satellite" : "mobile",
                     uplink == 0 ? "sat0" : "lte0", "lan0", destination, opener,
                     kind.end, closed_by, std::to_string(sent),
                     std::to_string(received)});
    };
    add(kind.protocol + (kind.run == Echo && !v4 ? "v6" : ""));
    if (kind.run != SendOneWay || !pair.fragment) return;
    // The fragments of a datagram that have no ports are a flow of their own.
    port = 0;
    sent = v4 ? 2 * (20 + 1480) + 20 + 568 : 4 * (40 + 8) + 8 + 5000;
    received = 0;
    add(v4 ? "udp" : "44");
  }

  Fields Expected() const {
    Fields fields;
    for (const Kind& kind : kKinds) {
      for (int number = 0; number < kConnections; ++number) {
        for (const bool from_lan : {true, false}) {
          for (const int uplink : {0, 1}) {
            AddExpected(kind, from_lan, uplink, number, &fields);
          }
        }
      }
    }
    return fields;
  }

  static Fields FieldsOf(const std::vector<nlohmann::json>& flows) {
    Fields fields;
    for (const nlohmann::json& flow : flows) {
      const auto text = [&](const std::string& field) {
        return flow.value(field, std::string());
      };
      const std::string protocol = text("protocol");
      // The client's own port is any.
      const bool ports = protocol == "tcp" || protocol == "udp";
      const int port = ports ? flow[text("opened_by") == "local" ? "remote_port"
                                                                 : "local_port"]
                                   .get<int>()
                             : 0;
      const bool known = protocol != "tcp" && port != kOneWay;
      AddTo(&fields,
            {protocol, text("local_address"), text("remote_address"),
             std::to_string(port), text("uplink"), text("interface_name"),
             text("service"), text("destination"), text("opened_by"),
             text("end"), text("closed_by"),
             std::to_string(known ? flow["tx_bytes"].get<int64_t>() : 0),
             std::to_string(known ? flow["rx_bytes"].get<int64_t>() : 0)});
    }
    return fields;
  }

  static std::map<std::string, Uplink> ReadUplinks(
      MeteredCgroup& meter = ForwardedTest::meter()) {
    std::map<std::string, Uplink> uplinks;
    networks().gateway.Run([&] {
      const auto read = meter.meter().ReadUplinks();
      ASSERT_TRUE(read.ok()) << read.status();
      for (const Uplink& uplink : *read) uplinks[uplink.name] = uplink;
    });
    return uplinks;
  }

  static Totals Forwarded(const Uplink& uplink) {
    Totals totals;
    for (const ForwardedTraffic& part : uplink.forwarded) {
      totals.tx_bytes += static_cast<int64_t>(part.tx_bytes);
      totals.rx_bytes += static_cast<int64_t>(part.rx_bytes);
      totals.tx_packets += static_cast<int64_t>(part.tx_packets);
      totals.rx_packets += static_cast<int64_t>(part.rx_packets);
    }
    return totals;
  }

  static Totals Local(const std::string& uplink) {
    Totals totals;
    for (const Sample& sample : meter().Samples()) {
      if (sample.path == Path::kDirect && sample.uplink == uplink) {
        totals.Add(sample);
      }
    }
    return totals;
  }

  static Family family_;
  static bool nat_, merged_;

 private:
  static std::unique_ptr<Networks> networks_[2];
  static std::unique_ptr<MeteredCgroup> meters_[2];
};
Family ForwardedTest::family_;
bool ForwardedTest::nat_, ForwardedTest::merged_;
std::unique_ptr<Networks> ForwardedTest::networks_[2];
std::unique_ptr<MeteredCgroup> ForwardedTest::meters_[2];

class ForwardedFlowsTest : public ForwardedTest,
                           public testing::WithParamInterface<Case> {};

std::string CaseName(const testing::TestParamInfo<Case>& info) {
  const auto& [family, nat, merged] = info.param;
  return FamilyName(family) + (nat ? "_Nat" : "_Routed") +
         (merged ? "_Gro" : "_NoGro");
}
INSTANTIATE_TEST_SUITE_P(Over, ForwardedFlowsTest,
                         testing::Combine(testing::Values(Family::kIpv4,
                                                          Family::kIpv6),
                                          testing::Bool(), testing::Bool()),
                         CaseName);

TEST_P(ForwardedFlowsTest, AddUpToTheRowAndToTheInterface) {
  if (!Measured()) return;
  Use(GetParam());
  Records records(meter().pin_dir(), networks().gateway);
  auto before = ReadUplinks();
  const Links links(networks().gateway);
  ForwardAll();
  SpeakLocally();
  AwaitQuiet(networks().gateway);
  auto after = ReadUplinks();
  records.Stop();
  EXPECT_EQ(records.Stats().lost, 0u);
  EXPECT_EQ(records.Stats().full, 0u);
  Fields differ = Expected();
  for (const auto& [line, number] : FieldsOf(records.Forwarded())) {
    differ[line] -= number;
  }
  for (const auto& [line, missing] : differ) {
    EXPECT_EQ(missing, 0) << line;
  }
  auto sums = records.Sums();
  Totals all;
  for (const auto& [link, uplink] :
       {std::pair<std::string, std::string>{"sat0", "satellite"},
        {"lte0", "mobile"}}) {
    const Totals row = Forwarded(after[uplink]) - Forwarded(before[uplink]);
    const Totals local = Local(uplink);
    EXPECT_GT(local.tx_payload, 4999);
    ExpectEqual(sums[uplink + " lan0"], row, uplink + " records");
    // A veth that merges packets counts them without their layer-2 header.
    ExpectEqual(row, links.Of(link, merged_ ? 0 : kEthernet) - local, uplink);
    all.tx_bytes += row.tx_bytes;
    all.rx_bytes += row.rx_bytes;
    all.tx_packets += row.tx_packets;
    all.rx_packets += row.rx_packets;
  }
  EXPECT_GT(all.tx_bytes, 4 * kConnections * 200001);
  std::swap(all.tx_bytes, all.rx_bytes);
  std::swap(all.tx_packets, all.rx_packets);
  ExpectEqual(Forwarded(after["lan"]) - Forwarded(before["lan"]), all, "lan");
  const Totals lan = links.Of("lan0");
  if (merged_) {
    EXPECT_LT(lan.tx_packets, all.tx_packets) << "no GRO packet";
    EXPECT_LT(lan.rx_packets, all.rx_packets) << "no GSO packet";
  } else {
    ExpectEqual(lan, all, "lan0");
  }
}

TEST_F(ForwardedTest, AConnectionThatMovesHasARecordForEachUplink) {
  if (!Measured()) return;
  for (const Family family : {Family::kIpv4, Family::kIpv6}) {
    Use({family, false, false});
    Records records(meter().pin_dir(), networks().gateway);
    const Links links(networks().gateway);
    const Tcp tcp = Open(PairOf(true, 0, 0), kPlain);
    for (const auto& [out, back] :
         {std::make_pair(Way::kSatellite, Way::kSatellite),
          {Way::kMobile, Way::kSatellite},
          {Way::kMobile, Way::kMobile},
          {Way::kSatellite, Way::kMobile}}) {
      networks().Move(family, out, back);
      Transfer(tcp.client, tcp.server, 10007);
      Transfer(tcp.server, tcp.client, 20011);
      AwaitQuiet(networks().gateway);
    }
    networks().Move(family, Way::kSatellite, Way::kSatellite);
    Close(tcp);
    AwaitQuiet(networks().gateway);
    records.Stop();
    auto sums = records.Sums();
    ExpectEqual(sums["satellite lan0"], links.Of("sat0"), "satellite");
    ExpectEqual(sums["mobile lan0"], links.Of("lte0"), "mobile");
    std::map<std::string, std::string> ends;
    for (nlohmann::json& flow : records.Forwarded()) {
      const bool moved = flow["uplink"] == "mobile";
      EXPECT_EQ(flow["remote_port"], kPlain);
      EXPECT_EQ(flow["partial"], moved ? 1 : 0);
      EXPECT_EQ(flow["opened_by"], moved ? nlohmann::json() : "local");
      EXPECT_GT(flow["tx_bytes"], 2 * 10007);
      EXPECT_GT(flow["rx_bytes"], 2 * 20011);
      ends[flow["uplink"]] += flow["end"];
    }
    const std::map<std::string, std::string> expected = {{"satellite", "fin"},
                                                         {"mobile", "open"}};
    EXPECT_EQ(ends, expected);
  }
}

TEST_F(ForwardedTest, WhatHasNoRoomIsInTheSum) {
  if (!Measured()) return;
  Use({Family::kIpv4, true, true});
  Records records(meter().pin_dir(), networks().gateway, 64);
  auto before = ReadUplinks();
  ForwardAll();
  AwaitQuiet(networks().gateway);
  auto after = ReadUplinks();
  records.Stop();
  EXPECT_GT(records.Stats().full, 0u);
  auto sums = records.Sums();
  for (const std::string uplink : {"satellite", "mobile"}) {
    ExpectEqual(sums[uplink + " lan0"],
                Forwarded(after[uplink]) - Forwarded(before[uplink]), uplink);
  }
}

TEST_F(ForwardedTest, AConnectionOnThePortsOfAFormerOneHasItsOwnRecord) {
  if (!Measured()) return;
  Use({Family::kIpv4, false, false});
  Records records(meter().pin_dir(), networks().gateway);
  const Links links(networks().gateway);
  const Pair pair = PairOf(true, 0, 0);
  const UniqueFd listener(OpenServer(pair, SOCK_STREAM, kPlain));
  Check(listen(listener.get(), 1), "listen");
  for (int i = 0; i < 3; ++i) {
    const UniqueFd client(
        OpenIn(*pair.client_network, pair.client, SOCK_STREAM));
    Bind(client.get(), pair.client, 40000);
    Connect(client.get(), pair.to, kPlain);
    const UniqueFd server(Accept(listener.get()));
    SendAll(server.get(), 100);
    ReceiveExactly(client.get(), 100);
    const linger at_once = {1, 0};
    Check(setsockopt(client.get(), SOL_SOCKET, SO_LINGER, &at_once,
                     sizeof(at_once)),
          "SO_LINGER");
  }
  AwaitQuiet(networks().gateway);
  records.Stop();
  auto sums = records.Sums();
  ExpectEqual(sums["satellite lan0"], links.Of("sat0"), "satellite");
  const std::vector<nlohmann::json> flows = records.Forwarded();
  EXPECT_EQ(flows.size(), 3u);
  for (const nlohmann::json& flow : flows) {
    EXPECT_EQ(flow["local_port"], 40000);
    EXPECT_EQ(flow["end"], "rst");
    EXPECT_EQ(flow["closed_by"], "local");
    EXPECT_EQ(flow["partial"], 0);
  }
}

// Both hosts lost power. The bug: the next connection on the same ports was added to the
// record of this one, under its name.
TEST_F(ForwardedTest, AConnectionThatNobodyClosedEndsWithTheNextOne) {
  if (!Measured()) return;
  Use({Family::kIpv4, false, false});
  Records records(meter().pin_dir(), networks().gateway);
  const Links links(networks().gateway);
  const Pair pair = PairOf(true, 0, 0);
  const UniqueFd listener(OpenServer(pair, SOCK_STREAM, kHttp));
  Check(listen(listener.get(), 1), "listen");
  for (const std::string name : {"one.example", "two.example"}) {
    const UniqueFd client(
        OpenIn(*pair.client_network, pair.client, SOCK_STREAM));
    Bind(client.get(), pair.client, 40001);
    Connect(client.get(), pair.to, kHttp);
    const UniqueFd server(Accept(listener.get()));
    const std::string get = "GET / HTTP/1.1\r\nHost: " + name + "\r\n\r\n";
    SendText(client.get(), get);
    ReceiveExactly(server.get(), get.size());
    AwaitQuiet(networks().gateway);
    // Sockets that are closed in this state send nothing.
    for (const int fd : {client.get(), server.get()}) {
      SetOption(fd, IPPROTO_TCP, TCP_REPAIR, 1);
    }
  }
  records.Stop();
  auto sums = records.Sums();
  ExpectEqual(sums["satellite lan0"], links.Of("sat0"), "satellite");
  std::map<std::string, std::string> ends;
  for (nlohmann::json& flow : records.Forwarded()) {
    EXPECT_EQ(flow["partial"], 0) << flow;
    ends[flow["destination"]] = flow["end"];
  }
  const std::map<std::string, std::string> expected = {
      {"one.example", "closed"}, {"two.example", "open"}};
  EXPECT_EQ(ends, expected);
}

TEST_F(ForwardedTest, WithoutClientsTheEndThatSendsFirstIsTheClient) {
  if (!Measured()) return;
  Use({Family::kIpv6, false, true});
  std::unique_ptr<MeteredCgroup> meter;
  networks().gateway.Run([&] {
    meter = std::make_unique<MeteredCgroup>(
        "no-clients",
        "uplinks: {satellite: [sat0], mobile: [lte0], lan: [lan0]}\n");
  });
  Records records(meter->pin_dir(), networks().gateway);
  auto before = ReadUplinks(*meter);
  ForwardAll();
  AwaitQuiet(networks().gateway);
  auto after = ReadUplinks(*meter);
  records.Stop();
  for (const nlohmann::json& flow : records.Forwarded()) {
    EXPECT_EQ(flow["opened_by"], "local") << flow;
  }
  auto sums = records.Sums();
  for (const auto& [link, uplink] :
       {std::pair<std::string, std::string>{"sat0", "satellite"},
        {"lte0", "mobile"}}) {
    // A connection that an end behind the uplink has begun is on the LAN's side.
    Totals sum = sums[uplink + " lan0"];
    const Totals other = sums["lan " + link];
    EXPECT_GT(sum.tx_bytes, 12 * 200001);
    EXPECT_GT(other.tx_bytes, 12 * 200001);
    sum.tx_bytes += other.rx_bytes;
    sum.rx_bytes += other.tx_bytes;
    sum.tx_packets += other.rx_packets;
    sum.rx_packets += other.tx_packets;
    ExpectEqual(sum, Forwarded(after[uplink]) - Forwarded(before[uplink]),
                uplink);
  }
}

// The bug: a retransmission after the end made it `rst`, by the RST that answers it.
TEST_F(ForwardedTest, AResetAfterTheEndEndsNothing) {
  if (!Measured()) return;
  Use({Family::kIpv6, false, false});
  Records records(meter().pin_dir(), networks().gateway);
  const Pair pair = PairOf(true, 0, 0);
  const Tcp tcp = Open(pair, kPlain);
  const int port = PortOf(tcp.client);
  Close(tcp);
  const UniqueFd raw(
      OpenIn(*pair.client_network, pair.client, SOCK_RAW, IPPROTO_TCP));
  Bind(raw.get(), pair.client);
  Connect(raw.get(), pair.to, 0);
  SetOption(raw.get(), IPPROTO_IPV6, IPV6_CHECKSUM, 16);
  // Ports, numbers, and a header of 20 bytes with the flags ACK and FIN.
  SendText(raw.get(), Number(port, 2) + Number(kPlain, 2) + Number(1, 4) +
                          Number(1, 4) + "\x50\x11" + Number(0, 6));
  AwaitQuiet(networks().gateway);
  records.Stop();
  const std::vector<nlohmann::json> flows = records.Forwarded();
  ASSERT_EQ(flows.size(), 1u);
  EXPECT_EQ(flows[0]["end"], "fin");
  EXPECT_EQ(flows[0]["closed_by"], "local");
  EXPECT_EQ(flows[0]["rx_tcp_flags"].get<int>() & 4, 4);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
