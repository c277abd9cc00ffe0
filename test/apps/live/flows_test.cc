// SPDX-License-Identifier: BSD-3-Clause
// The records of `netmeter flows`, on this kernel: of all kinds of connections, at
// both ends, they sum up to what the meters counted. flows_root_test.py has more of
// them, and the program.

#include <bpf/libbpf.h>
#include <linux/bpf.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lib/apps/connections/flow.h"
#include "lib/apps/connections/follower.h"
#include "test/live/egress_hook.h"
#include "test/live/world.h"

namespace netmeter {
namespace internal {
namespace {

constexpr int kPort = 8760;
constexpr int kClosedPort = 8761;

using Key = std::tuple<Kind, std::string, std::string, Transport, Path>;
using Counts = std::array<int64_t, 7>;
using Sums = std::map<Key, Counts>;

Key KeyOf(const Sample& s) {
  return Key(s.kind, s.name, s.destination, s.transport, s.path);
}

void AddTo(const Counts& counts, int sign, Counts* sum) {
  for (size_t i = 0; i < counts.size(); ++i) (*sum)[i] += sign * counts[i];
}

// A meter with a follower, from the constructor on.
class Followed {
 public:
  explicit Followed(MeteredCgroup& meter) : meter_(meter) {
    const UnlimitedLockedMemory unlimited;
    FollowOptions options;
    options.pin_dir = meter.pin_dir();
    options.max_flows = 4096;
    options.buffer_bytes = 1 << 20;
    auto started = Follower::Start(options);
    EXPECT_TRUE(started.ok()) << started.status();
    if (!started.ok()) return;
    follower_ = std::move(*started);
    names_ = std::make_unique<FlowNames>(follower_->maps());
    Count(-1);
  }

  bool ok() const { return follower_ != nullptr; }

  // Reads until there is this number of flows.
  void WaitFor(size_t flows) {
    for (int i = 0; i < 200 && rows_.size() < flows; ++i) {
      const absl::Status status = follower_->Poll(50, Body());
      ASSERT_TRUE(status.ok()) << status;
    }
  }

  // The records, the last ones included, are what the meter counted.
  void ExpectBalance() {
    const absl::Status status = follower_->Stop(Body());
    ASSERT_TRUE(status.ok()) << status;
    Count(1);
    Sums sums;
    for (const FlowRow& row : rows_) Sum(row, &sums);
    auto rests = follower_->Unrecorded();
    ASSERT_TRUE(rests.ok()) << rests.status();
    for (const FlowUnrecorded& rest : *rests) {
      Sum(names_->RowOf(rest.key, rest.value), &sums);
    }
    EXPECT_EQ(follower_->Stats().lost, 0);
    EXPECT_EQ(follower_->Stats().full, 0);
    EXPECT_EQ(follower_->Stats().unrecorded_full, 0);
    for (auto it = counted_.begin(); it != counted_.end();) {
      it = it->second == Counts() ? counted_.erase(it) : std::next(it);
    }
    EXPECT_EQ(sums, counted_);
    EXPECT_FALSE(sums.empty());
  }

  // As `netmeter flows` does several times a second.
  void KnowUnrecorded() {
    const auto rests = follower_->Unrecorded();
    ASSERT_TRUE(rests.ok()) << rests.status();
    for (const FlowUnrecorded& rest : *rests) names_->Know(rest.key);
  }

  // The packets that were sent outside of flows, by the name of the series.
  std::map<std::string, uint64_t> SentWithoutFlow() {
    std::map<std::string, uint64_t> sent;
    const absl::Status status = follower_->Stop(Body());
    EXPECT_TRUE(status.ok()) << status;
    auto rests = follower_->Unrecorded();
    EXPECT_TRUE(rests.ok()) << rests.status();
    if (!rests.ok()) return sent;
    for (const FlowUnrecorded& rest : *rests) {
      const FlowRow row = names_->RowOf(rest.key, rest.value);
      if (row.counts.tx_packets == 0) continue;
      sent[row.series.name] += row.counts.tx_packets;
    }
    return sent;
  }

  // "fin local": how many.
  std::map<std::string, int> Ends() const {
    std::map<std::string, int> ends;
    for (const FlowRow& row : rows_) {
      const std::string by = ClosedBy(row.record);
      ends[EndName(row.record) + (by.empty() ? "" : " " + by)]++;
    }
    return ends;
  }

  const std::vector<FlowRow>& rows() const { return rows_; }

 private:
  Follower::Body Body() {
    return [this](const nm_flow_record& record) {
      rows_.push_back(names_->RowOf(record));
    };
  }

  static void Sum(const FlowRow& row, Sums* sums) {
    const nm_flow_counts& c = row.counts;
    const auto number = [](uint64_t value) {
      return static_cast<int64_t>(value);
    };
    AddTo({number(c.tx_bytes), number(c.rx_bytes), number(c.tx_packets),
           number(c.rx_packets), number(c.tx_payload_bytes),
           number(c.rx_payload_bytes), number(c.tx_retransmit_bytes)},
          1, &(*sums)[KeyOf(row.series)]);
  }

  void Count(int sign) {
    std::vector<Sample> samples;
    const absl::Status status = meter_.meter().ReadHost(&samples);
    EXPECT_TRUE(status.ok()) << status;
    for (const Sample& s : samples) {
      Totals one;
      one.Add(s);
      AddTo({one.tx_bytes, one.rx_bytes, one.tx_packets, one.rx_packets,
             one.tx_payload, one.rx_payload, one.tx_retransmit},
            sign, &counted_[KeyOf(s)]);
    }
  }

  MeteredCgroup& meter_;
  std::unique_ptr<Follower> follower_;
  std::unique_ptr<FlowNames> names_;
  std::vector<FlowRow> rows_;
  Sums counted_;
};

class FlowsTest : public FamilyTest {};
NM_FOR_BOTH_FAMILIES(FlowsTest);

// A connection that its own end aborts, and one to a port without a listener.
void AbortAndBeRefused(const Cgroup* cgroup, const NetNamespace& client,
                       const Cgroup* server_cgroup, const NetNamespace& server,
                       const Address& address) {
  Child listener(server_cgroup, server, [&](Child::Parent& parent) {
    const int fd = Listen(address, kPort, 8);
    parent.Send(0);
    const int accepted = Accept(fd);
    parent.Receive<int>();
    close(accepted);
  });
  listener.Receive<int>();
  RunChild(cgroup, client, [&] {
    const int fd = Connected(address, kPort);
    SendAll(fd, 100);
    Abort(fd);
    const int refused = OpenSocket(address.family(), SOCK_STREAM);
    BeRefused(refused, address, kClosedPort);
    close(refused);
  });
  listener.Send(0);
  listener.Join();
}

// The bug: a socket that connected again continued the record of its former connection,
// if that had ended in silence, and its sequence numbers: up to 2 GiB of payload that was
// never sent. (CLOSING ends so, and TCP_REPAIR, by which CRIU(8) takes a connection
// away.)
TEST_P(FlowsTest, ASocketThatConnectsAgainHasTwoRecords) {
  Followed flows(World::ClientMeter());
  ASSERT_TRUE(flows.ok());
  const Address address = Server();
  Child server(nullptr, lab().server, [&](Child::Parent& parent) {
    const int listener = Listen(address, kPort, 4);
    parent.Send(0);
    int accepted[2];
    for (int& fd : accepted) {
      fd = Accept(listener);
      ReceiveExactly(fd, 1000);
      SendAll(fd, 3000);
    }
    parent.Receive<int>();
    for (const int fd : accepted) close(fd);
  });
  server.Receive<int>();
  Child client = AtClient([&](Child::Parent& parent) {
    const int fd = OpenSocket(address.family(), SOCK_STREAM);
    for (const bool last : {false, true}) {
      Connect(fd, address, kPort);
      SendAll(fd, 1000);
      ReceiveExactly(fd, 3000);
      if (last) break;
      SetOption(fd, IPPROTO_TCP, TCP_REPAIR, 1);
      sockaddr nobody = {};
      nobody.sa_family = AF_UNSPEC;
      Check(connect(fd, &nobody, sizeof(nobody)), "disconnect");
      SetOption(fd, IPPROTO_TCP, TCP_REPAIR, 0);
    }
    parent.Send(0);
    parent.Receive<int>();
    close(fd);
  });
  client.Receive<int>();
  client.Send(0);
  client.Join();
  server.Send(0);
  server.Join();
  flows.WaitFor(2);
  flows.ExpectBalance();
  int records = 0;
  for (const auto& end : flows.Ends()) records += end.second;
  EXPECT_EQ(records, 2);
}

nlohmann::json Json(const FlowRow& row) {
  std::string text;
  AppendJson(row, Origin(), &text);
  return nlohmann::json::parse(text);
}

TEST_P(FlowsTest, AnSctpAssociationIsAFlowAtBothEnds) {
  const int family = af();
  if (!KernelHas(family, SOCK_STREAM, IPPROTO_SCTP, "sctp")) return;
  constexpr uint64_t kUpload = 1000, kDownload = 50000;
  Followed client(World::ClientMeter());
  Followed server(World::ServerMeter());
  ASSERT_TRUE(client.ok() && server.ok());
  Child listener = AtServer([&](Child::Parent& parent) {
    const int fd = OpenSocket(family, SOCK_STREAM, IPPROTO_SCTP);
    Bind(fd, Server(), kPort);
    Check(listen(fd, 1), "listen");
    parent.Send(0);
    const int accepted = Accept(fd);
    ReceiveExactly(accepted, kUpload);
    SendAll(accepted, kDownload);
    parent.Receive<int>();
  });
  listener.Receive<int>();
  RunAtClient([&] {
    const int fd = OpenSocket(family, SOCK_STREAM, IPPROTO_SCTP);
    Bind(fd, Lab::Client(GetParam()));
    Connect(fd, Server(), kPort);
    SendAll(fd, kUpload);
    ReceiveExactly(fd, kDownload);
  });
  listener.Send(0);
  listener.Join();
  client.WaitFor(1);
  client.ExpectBalance();
  server.ExpectBalance();
  ASSERT_EQ(client.rows().size(), 1U);
  const nlohmann::json flow = Json(client.rows()[0]);
  EXPECT_EQ(flow["protocol"], "sctp");
  EXPECT_EQ(flow["transport"], "sctp");
  EXPECT_EQ(flow["remote_port"], kPort);
  EXPECT_EQ(flow["opened_by"], "local");
  EXPECT_EQ(flow["end"], "closed");
  EXPECT_GE(flow["tx_payload_bytes"], kUpload);
  EXPECT_GE(flow["rx_payload_bytes"], kDownload);
  uint64_t sent = 0;
  for (const FlowRow& row : server.rows()) {
    EXPECT_EQ(Json(row)["protocol"], "sctp");
    EXPECT_EQ(Json(row)["local_port"], kPort);
    sent += row.counts.tx_payload_bytes;
  }
  EXPECT_GE(sent, kDownload);
}

TEST_P(FlowsTest, SumUpToTheSeriesAtBothEnds) {
  Followed client(World::ClientMeter());
  Followed server(World::ServerMeter());
  ASSERT_TRUE(client.ok() && server.ok());
  const Ends ends = lab().Between(World::ClientMeter().cgroup(),
                                  World::ServerMeter().cgroup());
  TcpPlan tcp(Server(), 200000, 50000);
  tcp.connections = 30;
  RunTcp(ends, tcp);
  tcp.connections = 5;
  tcp.first_to_close = FirstToClose::kClientAtOnce;
  RunTcp(ends, tcp);
  UdpPlan udp(Server(), {20, 300}, {10, 200});
  RunUdp(ends, udp);
  AbortAndBeRefused(ends.client_cgroup, *ends.client, ends.server_cgroup,
                    *ends.server, Server());
  client.WaitFor(38);
  server.WaitFor(37);
  client.ExpectBalance();
  server.ExpectBalance();
  const std::map<std::string, int> at_client = {{"fin remote", 30},
                                                {"fin local", 5},
                                                {"rst local", 1},
                                                {"rst remote", 1},
                                                {"closed local", 1}};
  EXPECT_EQ(client.Ends(), at_client);
  const std::map<std::string, int> at_server = {{"fin local", 30},
                                                {"fin remote", 5},
                                                {"rst remote", 1},
                                                {"closed local", 1}};
  EXPECT_EQ(server.Ends(), at_server);
}

// Keeps a CPU busy between the meter's program for sent packets and the follower's, and
// counts the packets for which it interrupted itself.
class BusyHook {
 public:
  explicit BusyHook(const Cgroup& cgroup) {
    map_ = MapOfTwoNumbers(BPF_MAP_TYPE_PERCPU_ARRAY);  // running, nested
    const bpf_insn program[] = {
        {BPF_ST | BPF_MEM | BPF_W, 10, 0, -4, 0},
        {BPF_ALU64 | BPF_MOV | BPF_X, 2, 10, 0, 0},
        {BPF_ALU64 | BPF_ADD | BPF_K, 2, 0, 0, -4},
        {BPF_LD | BPF_DW | BPF_IMM, 1, BPF_PSEUDO_MAP_FD, 0, map_.get()},
        {0, 0, 0, 0, 0},
        {BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_map_lookup_elem},
        {BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 12, 0},
        {BPF_ALU64 | BPF_MOV | BPF_X, 6, 0, 0, 0},
        {BPF_LDX | BPF_MEM | BPF_DW, 7, 6, 0, 0},
        {BPF_JMP | BPF_JEQ | BPF_K, 7, 0, 3, 0},
        {BPF_LDX | BPF_MEM | BPF_DW, 1, 6, 8, 0},
        {BPF_ALU64 | BPF_ADD | BPF_K, 1, 0, 0, 1},
        {BPF_STX | BPF_MEM | BPF_DW, 6, 1, 8, 0},
        {BPF_ALU64 | BPF_MOV | BPF_K, 8, 0, 0, 500},
        {BPF_ST | BPF_MEM | BPF_DW, 6, 0, 0, 1},
        {BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_ktime_get_ns},
        {BPF_ALU64 | BPF_ADD | BPF_K, 8, 0, 0, -1},
        {BPF_JMP | BPF_JNE | BPF_K, 8, 0, -3, 0},
        {BPF_STX | BPF_MEM | BPF_DW, 6, 7, 0, 0},
        {BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, 1},
        {BPF_JMP | BPF_EXIT, 0, 0, 0, 0},
    };
    link_ =
        AttachToEgress(cgroup, program, sizeof(program) / sizeof(program[0]));
  }

  uint64_t nested() const {
    const uint32_t key = 0;
    std::vector<uint64_t> values(
        2 * static_cast<size_t>(libbpf_num_possible_cpus()));
    bpf_attr attributes = {};
    attributes.map_fd = static_cast<uint32_t>(map_.get());
    attributes.key = reinterpret_cast<uintptr_t>(&key);
    attributes.value = reinterpret_cast<uintptr_t>(values.data());
    Check(syscall(SYS_bpf, BPF_MAP_LOOKUP_ELEM, &attributes, 72), "read it");
    uint64_t sum = 0;
    for (size_t i = 1; i < values.size(); i += 2) sum += values[i];
    return sum;
  }

 private:
  UniqueFd map_;
  UniqueFd link_;
};

// A softirq that sends between the meter's program and the follower's takes nothing from
// the packet that it interrupted.
TEST_P(FlowsTest, ASoftirqBetweenTheProgramsTakesNoDecision) {
  const BusyHook busy(*World::ClientMeter().cgroup());
  Followed first(World::ClientMeter());
  Followed second(World::ClientMeter());
  ASSERT_TRUE(first.ok() && second.ok());
  const Address address = Server();
  Child server(nullptr, lab().server, [&](Child::Parent& parent) {
    const int listener = Listen(address, kPort, 1);
    const int datagrams = OpenSocket(address.family(), SOCK_DGRAM);
    Bind(datagrams, address, kPort);
    parent.Send(0);
    ReceiveUntilEnd(Accept(listener));
    parent.Receive<int>();
  });
  server.Receive<int>();
  RunAtClient([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    Check(sched_setaffinity(0, sizeof(one), &one), "stay on one CPU");
    // Its timer sends: the kernel paces what is in the socket's buffer.
    const int paced = Connected(address, kPort);
    SetOption(paced, SOL_SOCKET, SO_SNDBUFFORCE, 4 << 20);
    SetOption(paced, SOL_SOCKET, SO_MAX_PACING_RATE, 4 << 20);
    const int fd = Connected(address, kPort, SOCK_DGRAM);
    // An emulated guest may have no softirq there for seconds.
    for (int round = 0; round < 10 && busy.nested() == 0; ++round) {
      SendAll(paced, 2 << 20);
      int left = 1;
      while (left > 0) {
        SendAll(fd, 100);
        Check(ioctl(paced, SIOCOUTQ, &left), "ask what is left");
      }
    }
    close(fd);
    close(paced);
  });
  server.Send(0);
  server.Join();
  EXPECT_GT(busy.nested(), 0);
  for (Followed* flows : {&first, &second}) {
    flows->WaitFor(2);
    flows->ExpectBalance();
  }
}

class EvictedFlowsTest : public LiveTest {};

// The bug: the name of a remainder was looked up at the end. By then the slot was another
// series'.
TEST_F(EvictedFlowsTest, ARemainderIsOfTheSeriesThatCountedIt) {
  MeteredCgroup meter("flows-gone", "destinations: []\n");
  Followed flows(meter);
  ASSERT_TRUE(flows.ok());
  const sockaddr_storage to = Lab::Server(Family::kIpv4).WithPort(0);
  std::map<std::string, uint64_t> sent;
  for (int i = 0; i < 4; ++i) {
    const std::string service = "evicted" + std::to_string(i);
    RunChild(meter.cgroup(), lab().client, [&] {
      Register(service);
      const int fd = OpenSocket(AF_INET, SOCK_RAW, IPPROTO_TCP);
      char reset[20] = {0, 7, 0, 7};  // of no connection
      reset[12] = 0x50;
      reset[13] = 4;
      for (int n = 0; n < 10 + i; ++n) {
        if (sendto(fd, reset, sizeof(reset), 0,
                   reinterpret_cast<const sockaddr*>(&to),
                   sizeof(sockaddr_in)) != sizeof(reset)) {
          DieWithErrno("send a RST");
        }
      }
    });
    sent[service] = 10 + i;
    flows.KnowUnrecorded();
    meter.Evict();
  }
  EXPECT_EQ(flows.SentWithoutFlow(), sent);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
