// SPDX-License-Identifier: BSD-3-Clause
#include "test/live/soak_traffic.h"

#include <sys/mman.h>
#include <sys/socket.h>

#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "netmeter/abi.h"
#include "test/live/actor.h"
#include "test/live/traffic.h"

namespace netmeter {
namespace internal {

const char kSoakWitness[] = "soak-witness";
const char kSoakWitnessDestination[] = "witness.soak.example";
const char kSoakServices[] = "soak-service-";
const char kSoakPrograms[] = "soak-program-";

namespace {

constexpr int kSinkPort = 9000;
// To its server the client's end closes first. It is in TIME_WAIT when the peer's FIN
// comes, which no hook sees, nor the answer.
constexpr int kTimeWaitPort = 7777;

constexpr int kWitnessPort = 81;  // of HTTP; only the witness uses it

constexpr int kPrograms = 8;
// A worker, or a piece of its work, that takes longer hangs.
constexpr unsigned kMostSeconds = 120;

struct Place {
  Lab* lab;
  const Cgroup* cgroup;
  std::vector<std::string> programs;  // what to execute
  SoakCounts* counts;                 // shared by all workers
};

// Names of this worker and of others.
void Add(int64_t* count, int64_t more) {
  __atomic_fetch_add(count, more, __ATOMIC_ACQ_REL);
}

Family FamilyOf(uint32_t turn) {
  return turn % 2 == 0 ? Family::kIpv4 : Family::kIpv6;
}

// --- Kinds of traffic --------------------------------------------------------

TcpReport Tcp(const Place& place, const TcpPlan& plan) {
  return RunTcp(place.lab->Between(place.cgroup, nullptr), plan).client;
}

TcpPlan PlanOf(uint32_t turn) {
  TcpPlan plan;
  plan.server = Lab::Server(FamilyOf(turn), static_cast<int>(turn / 2 % 4));
  plan.upload = 1 + turn * 7919 % 60000;
  plan.download = turn * 104729 % 90000;
  return plan;
}

void Connections(const Place& place, uint32_t turn) {
  TcpPlan plan = PlanOf(turn);
  plan.connections = 1 + static_cast<int>(turn % 7);
  Tcp(place, plan);
}

void ManyConnections(const Place& place, uint32_t turn) {
  TcpPlan plan = PlanOf(turn);
  plan.connections = 40;
  plan.upload %= 5000;
  plan.download %= 5000;
  Tcp(place, plan);
}

void ClientClosesFirst(const Place& place, uint32_t turn) {
  TcpPlan plan = PlanOf(turn);
  plan.first_to_close = FirstToClose::kClientAtOnce;
  plan.port = kTimeWaitPort;
  Tcp(place, plan);
}

void AddNewcomer(const Place& place, const TcpReport& report) {
  Add(&place.counts->newcomers_tx, report.sent);
  Add(&place.counts->newcomers_rx, report.received);
}

// Full tables refuse, and so does a growth for some milliseconds.
bool TryToRegister(const std::string& name) {
  const UniqueFd fd(OpenSocket(AF_INET, SOCK_DGRAM));
  const int error = Control(fd.get(), NM_REGISTER, name);
  if (error != 0 && error != EPERM) _exit(1);
  return error == 0;
}

// Whether the client had this name: as of `registered`, which one worker counts.
bool TcpAs(const Place& place, const std::string& name, int tries, TcpPlan plan,
           int64_t* registered, TcpReport* report) {
  SoakCounts* const counts = place.counts;
  plan.begin_client = [&] {
    while (!TryToRegister(name)) {
      Add(&counts->refused, 1);
      if (--tries <= 0) return;
      usleep(10000);
    }
    Add(registered, 1);
  };
  const int64_t before = __atomic_load_n(registered, __ATOMIC_ACQUIRE);
  *report = Tcp(place, plan);
  return __atomic_load_n(registered, __ATOMIC_ACQUIRE) != before;
}

void Registered(const Place& place, uint32_t turn) {
  TcpPlan plan = PlanOf(turn);
  plan.upload %= 3000;
  plan.download %= 3000;
  TcpReport report;
  if (TcpAs(place, kSoakServices + std::to_string(turn % 400), 1, plan,
            &place.counts->registered, &report)) {
    Add(&place.counts->services_tx, report.sent);
    Add(&place.counts->services_rx, report.received);
  }
  AddNewcomer(place, report);
}

// Its first bytes name this host.
void NameHost(TcpPlan* plan, int port, const std::string& host) {
  plan->port = port;
  plan->upload += 200;
  plan->send = [host](int fd, uint64_t bytes) {
    const std::string request = "GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n";
    Check(send(fd, request.data(), request.size(), 0), "send");
    SendAll(fd, bytes - request.size());
  };
}

// Sends in turn with a destination and without one. The name exists, so only a load with
// larger tables refuses it, for longer if the machine is slow.
void Witness(const Place& place, uint32_t turn) {
  TcpPlan plan = PlanOf(turn / 2);
  plan.upload %= 20000;
  plan.download %= 20000;
  const bool named = turn % 2 == 1;
  if (named) NameHost(&plan, kWitnessPort, kSoakWitnessDestination);
  SoakCounts* const counts = place.counts;
  TcpReport report;
  if (!TcpAs(place, kSoakWitness, 500, plan, &counts->witnessed, &report)) {
    return;
  }
  Add(named ? &counts->witness_named_tx : &counts->witness_tx, report.sent);
  Add(named ? &counts->witness_named_rx : &counts->witness_rx, report.received);
}

void Named(const Place& place, uint32_t turn) {
  TcpPlan plan = PlanOf(turn);
  NameHost(&plan, 80, "h" + std::to_string(turn % 300) + ".soak.example");
  AddNewcomer(place, Tcp(place, plan));
}

void Datagrams(const Place& place, uint32_t turn) {
  UdpPlan plan;
  plan.server = Lab::Server(FamilyOf(turn));
  plan.connected = turn / 2 % 2 == 0;
  plan.upload_count = 60;
  plan.upload_size = 1 + static_cast<int>(turn * 31 % 1200);
  plan.download_count = 60;
  plan.download_size = 1 + static_cast<int>(turn * 17 % 1200);
  if (turn / 4 % 2 == 1) {
    plan.segments = 20;
    plan.gro = true;
  }
  RunUdp(place.lab->Between(place.cgroup, nullptr), plan);
}

// Processes of a program each, which live for some milliseconds.
void ShortProcesses(const Place& place, uint32_t turn) {
  const int number = static_cast<int>(turn % kPrograms);
  const std::string& path = place.programs[number];
  for (int i = 0; i < 5; ++i) {
    Child child(place.cgroup, place.lab->client, [&](Child::Parent&) {
      ExecActor(path, {"udp=10.77.3.2/9000/3/100"});
    });
    child.Join();
    Add(&place.counts->newcomers_tx, 3 * 100);
    if (number == kSoakServiceProgram) Add(&place.counts->program_tx, 3 * 100);
  }
}

// The client's port, and that of its peer.
struct Ports {
  uint16_t here, there;
};
Ports PortsOf(const Packet& packet) {
  return packet.outgoing ? Ports{packet.source_port, packet.destination_port}
                         : Ports{packet.destination_port, packet.source_port};
}

// A connection to kTimeWaitPort. The client closes first, and at once: with the
// acknowledgement of its FIN the socket becomes a TIME_WAIT one, which no hook knows.
struct ClosedFirst {
  bool fin_sent = false;
  uint32_t fin_end = 0;
  bool gone = false;
  bool answers = false;  // the peer's FIN, which came with that acknowledgement
};
// By family and the client's port.
using Closed = std::map<std::pair<uint16_t, uint16_t>, ClosedFirst>;

Remainder OfTimeWait(const Packet& packet, Closed* closed) {
  const bool received = !packet.outgoing;
  if (!packet.tcp() || PortsOf(packet).there != kTimeWaitPort) return {};
  ClosedFirst& connection = (*closed)[{packet.ethertype, PortsOf(packet).here}];
  if (packet.syn()) {
    if (!received) connection = ClosedFirst();
    return {};
  }
  if (received) {
    if (connection.gone) return Whole("time-wait", packet);
    if (connection.fin_sent && packet.tcp_acknowledged == connection.fin_end) {
      connection.gone = true;
      connection.answers = packet.fin();
    }
    return {};
  }
  if (packet.fin()) {
    connection.fin_sent = true;
    connection.fin_end = packet.tcp_sequence + packet.payload + 1;
  }
  // What the socket sent last crosses the acknowledgement. What took its place sends
  // nothing but acknowledgements, with a time and no SACK: 32 bytes.
  if (!connection.gone || packet.fin() ||
      packet.bytes != packet.ip_header + 32) {
    return {};
  }
  if (connection.answers) {
    connection.answers = false;
    return {};
  }
  return Whole("time-wait", packet);
}

using Run = void (*)(const Place&, uint32_t turn);
struct Kind {
  const char* name;
  Run run;
  bool always;  // of the four, too
};
constexpr Kind kKinds[] = {
    {"connections", Connections, true},
    {"many-connections", ManyConnections, true},
    {"datagrams", Datagrams, true},
    {"registered", Registered, true},
    {"witness", Witness, true},
    {"time-wait", ClientClosesFirst, false},
    {"named", Named, false},
    {"short-processes", ShortProcesses, false},
};

}  // namespace

Classify SoakRemainders() {
  const auto closed = std::make_shared<Closed>();
  return [closed](const Packet& packet) {
    return OfTimeWait(packet, closed.get());
  };
}

// Written by the test, read by the workers.
struct SoakTraffic::Shared {
  int stop;
  SoakCounts counts;  // written by them
};

SoakCounts operator-(const SoakCounts& a, const SoakCounts& b) {
  SoakCounts d;
  d.registered = a.registered - b.registered;
  d.witnessed = a.witnessed - b.witnessed;
  d.refused = a.refused - b.refused;
  d.services_tx = a.services_tx - b.services_tx;
  d.services_rx = a.services_rx - b.services_rx;
  d.witness_tx = a.witness_tx - b.witness_tx;
  d.witness_rx = a.witness_rx - b.witness_rx;
  d.witness_named_tx = a.witness_named_tx - b.witness_named_tx;
  d.witness_named_rx = a.witness_named_rx - b.witness_named_rx;
  d.program_tx = a.program_tx - b.program_tx;
  d.newcomers_tx = a.newcomers_tx - b.newcomers_tx;
  d.newcomers_rx = a.newcomers_rx - b.newcomers_rx;
  return d;
}

SoakTraffic::SoakTraffic(Lab& lab, const Cgroup* cgroup, bool few)
    : shared_(static_cast<Shared*>(mmap(nullptr, sizeof(Shared),
                                        PROT_READ | PROT_WRITE,
                                        MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
  if (shared_ == MAP_FAILED) DieWithErrno("mmap");
  sink_ =
      std::make_unique<Child>(nullptr, lab.server, [](Child::Parent& parent) {
        const int fd = OpenSocket(AF_INET, SOCK_DGRAM);
        parent.Send(Bind(fd, Lab::Server(Family::kIpv4), kSinkPort));
        alarm(0);
        pause();
      });
  sink_->Receive<int>();
  Place place = {&lab, cgroup, {}, &shared_->counts};
  for (int i = 0; i < kPrograms; ++i) {
    place.programs.push_back(CopyOfActor(kSoakPrograms + std::to_string(i)));
  }
  witness_ =
      std::make_unique<Child>(cgroup, lab.client, [](Child::Parent& parent) {
        TryToRegister(kSoakWitness);
        parent.Send(0);
        alarm(0);
        pause();
      });
  witness_->Receive<int>();
  for (uint32_t turn = 0; turn < 4; ++turn) Witness(place, turn);
  for (const Kind& kind : kKinds) {
    if (few && !kind.always) continue;
    workers_.push_back({kind.name, nullptr});
    workers_.back().child = std::make_unique<Child>(
        nullptr, lab.router_a, [=](Child::Parent& parent) {
          uint32_t turn = 0;
          // Between two rounds the test prints and checks, which takes longer than a
          // message if the machine is slow.
          const auto next = [&parent] {
            alarm(0);
            while (!WaitFor(parent.fd(), POLLIN)) continue;
            return parent.Receive<int>() != 0;
          };
          while (next()) {
            uint64_t pieces = 0;
            do {
              alarm(kMostSeconds);
              kind.run(place, turn++);
              ++pieces;
            } while (__atomic_load_n(&shared_->stop, __ATOMIC_ACQUIRE) == 0);
            // What a Child expects of its own children.
            if (testing::Test::HasFailure()) _exit(1);
            parent.Send(pieces);
          }
        });
  }
}

SoakTraffic::~SoakTraffic() {
  for (Worker& worker : workers_) worker.child->Send(0);
  for (Worker& worker : workers_) worker.child->Join();
  sink_.reset();
  witness_.reset();
  munmap(shared_, sizeof(Shared));
}

void SoakTraffic::Start() {
  __atomic_store_n(&shared_->stop, 0, __ATOMIC_RELEASE);
  for (Worker& worker : workers_) worker.child->Send(1);
}

void SoakTraffic::Stop() {
  __atomic_store_n(&shared_->stop, 1, __ATOMIC_RELEASE);
  for (Worker& worker : workers_) {
    worker.pieces += worker.child->Receive<uint64_t>();
  }
}

std::vector<std::pair<std::string, uint64_t>> SoakTraffic::Pieces() const {
  std::vector<std::pair<std::string, uint64_t>> pieces;
  for (const Worker& worker : workers_) {
    pieces.emplace_back(worker.kind, worker.pieces);
  }
  return pieces;
}

SoakCounts SoakTraffic::Counts() const { return shared_->counts; }

}  // namespace internal
}  // namespace netmeter
