// SPDX-License-Identifier: BSD-3-Clause
// What forwarded packets cost on a gateway that runs netmeter: they belong to
// no socket of the gateway, so no program of netmeter runs for them.
//
// Three network namespaces in a row: a sender, a router, a receiver. First the benchmark
// counts runs, with the meter on a cgroup that all sockets of the three belong to: each
// packet must run one program at its sender and one at its receiver. One more run would
// mean that the router had one, too. Then it measures the rate with both ends outside of
// the cgroup, as other hosts are, beside meters that watch the router's interfaces: both
// if they would count forwarded traffic, otherwise one. All packets are of one flow, and
// then of 1,000 in turn. Last it measures what packets of the router's own socket pay,
// which is in the cgroup: traffic control sees them, too.
#include <netinet/in.h>
#include <sys/socket.h>

#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "test/benchmark/harness.h"
#include "test/benchmark/network.h"
#include "test/benchmark/observer.h"
#include "test/program/programs.h"

namespace netmeter {
namespace internal {
namespace {

struct Settings {
  int rounds;
  int packets;
};

constexpr int kBatch = 16;
constexpr size_t kMessage = 64;
constexpr uint16_t kPort = 4000;
constexpr int kFlows = 1000;

// Sender (nm0), router (nm1 and nm2), receiver (nm3).
class Row {
 public:
  // Moves the calling thread to the sender.
  Row() {
    router_.Sysctl("ipv4/ip_forward", "1");
    router_.Sysctl("ipv6/conf/all/forwarding", "1");
    Join({&sender_, "nm0", MacAddress(1), BothAddresses(78, 1, 1)},
         {&router_, "nm1", MacAddress(2), BothAddresses(78, 1, 2)});
    Join({&router_, "nm2", MacAddress(3), BothAddresses(78, 2, 2)},
         {&receiver_, "nm3", MacAddress(4), BothAddresses(78, 2, 1)});
    for (Family family : {Family::kIpv4, Family::kIpv6}) {
      sender_.AddDefaultRoute(HostAddress(family, 78, 1, 2));
      receiver_.AddDefaultRoute(HostAddress(family, 78, 2, 2));
    }
    sender_.Enter();
  }

  // A socket of the router that sends to the sender's host, in the cgroup.
  void OpenLocal(OwnCgroup* cgroup) {
    receive_ = UniqueFd(
        Check(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), "socket"));
    Bind(receive_, At("10.78.1.1", kPort));
    router_.Enter();
    std::string error;
    if (!cgroup->Enter(&error)) Die(error);
    send_.clear();
    send_.emplace_back(
        Check(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), "socket"));
    Connect(send_.back(), At("10.78.1.1", kPort));
    if (!cgroup->Leave()) Die("cannot leave the cgroup");
    sender_.Enter();
    Send(kBatch);
  }

  // Connected sockets of the sender, each a flow, and the receiver's.
  void Open(Family family, int flows = 1) {
    const sockaddr_storage address =
        HostAddress(family, 78, 2, 1).WithPort(kPort);
    receiver_.Enter();
    receive_ = UniqueFd(Check(
        socket(address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0), "socket"));
    const socklen_t size = Address::Length(address);
    const auto* raw = reinterpret_cast<const sockaddr*>(&address);
    Check(bind(receive_.get(), raw, size), "bind");
    sender_.Enter();
    send_.clear();
    for (int i = 0; i < flows; ++i) {
      send_.emplace_back(Check(
          socket(address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0), "socket"));
      Check(connect(send_.back().get(), raw, size), "connect");
    }
    Send(kBatch);  // neighbours find each other
  }

  // In batches that fit every queue: nothing is lost. Each packet is the next flow's.
  void Send(int packets) const {
    char message[kMessage] = {};
    size_t next = 0;
    for (int sent = 0; sent < packets; sent += kBatch) {
      for (int i = 0; i < kBatch; ++i) {
        if (send(send_[next].get(), message, kMessage, 0) != kMessage) {
          DieWithErrno("send");
        }
        if (++next == send_.size()) next = 0;
      }
      for (int i = 0; i < kBatch; ++i) {
        if (recv(receive_.get(), message, kMessage, 0) != kMessage) {
          DieWithErrno("receive");
        }
      }
    }
  }

  void EnterRouter() const { router_.Enter(); }
  void EnterSender() const { sender_.Enter(); }

  // What the router says that it forwarded.
  uint64_t Forwarded(Family family) const {
    router_.Enter();
    const uint64_t result =
        family == Family::kIpv4 ? ForwardedIpv4() : ForwardedIpv6();
    sender_.Enter();
    return result;
  }

 private:
  // The line of values follows the line of names.
  static uint64_t ForwardedIpv4() {
    std::ifstream file("/proc/thread-self/net/snmp");
    std::string names, values;
    while (std::getline(file, names) && std::getline(file, values)) {
      std::istringstream name(names), value(values);
      std::string one, number;
      while (name >> one && value >> number) {
        if (one == "ForwDatagrams") return std::stoull(number);
      }
    }
    Die("no ForwDatagrams");
  }

  static uint64_t ForwardedIpv6() {
    std::ifstream file("/proc/thread-self/net/snmp6");
    std::string name;
    uint64_t value = 0;
    while (file >> name >> value) {
      if (name == "Ip6OutForwDatagrams") return value;
    }
    Die("no Ip6OutForwDatagrams");
  }

  NetNamespace sender_, router_, receiver_;
  std::vector<UniqueFd> send_;
  UniqueFd receive_;
};

// Everybody in the cgroup of the meter.
void CountRuns(const Settings& settings, Row* row, Run* run) {
  std::string error;
  const auto programs = Programs::Load(DefaultOptions(), &error);
  if (programs == nullptr || !run->cgroup()->Enter(&error) ||
      !programs->AttachSocketHooks(run->cgroup()->fd(), &error) ||
      !programs->AttachPacketHooks(run->cgroup()->fd(), &error)) {
    Die(error);
  }
  const UniqueFd stats = EnableRunTime();
  for (Family family : {Family::kIpv4, Family::kIpv6}) {
    row->Open(family);
    const uint64_t runs = PacketRuns(*programs).runs;
    const uint64_t forwarded = row->Forwarded(family);
    const int packets = settings.packets / kBatch * kBatch;
    row->Send(packets);
    const std::string name = family == Family::kIpv4 ? "IPv4" : "IPv6";
    const uint64_t done = row->Forwarded(family) - forwarded;
    const auto extra = static_cast<int64_t>(PacketRuns(*programs).runs - runs) -
                       2 * static_cast<int64_t>(packets);
    if (done < static_cast<uint64_t>(packets)) Die("not all was forwarded");
    run->results()->Fact(name + ": packets forwarded", done);
    run->results()->Fact(name + ": runs at the two ends", 2 * packets);
    run->results()->Fact(name + ": runs for forwarded packets", extra);
  }
  programs->Detach();
  if (!run->cgroup()->Leave()) Die("cannot leave the cgroup");
}

void MeasureRates(const Settings& settings, const std::string& test_case,
                  const std::vector<Observer*>& observers, Row* row, Run* run,
                  const std::function<void()>& open) {
  const Place place = {"router", "nm1", "", "", true};
  std::vector<bool> missing(observers.size());
  ForEachRound(settings.rounds, static_cast<int>(observers.size()), [&](int i) {
    const auto index = static_cast<size_t>(i);
    Observer* observer = observers[index];
    if (missing[index]) return;
    row->EnterRouter();
    const std::string why = observer->Start(run->cgroup()->fd(), place);
    row->EnterSender();
    if (!why.empty()) {
      observer->Stop();
      missing[index] = true;
      run->results()->Skip("", observer->name(), why);
      return;
    }
    open();
    row->Send(settings.packets / 20);
    const double start = NowNs();
    const double cpu = OwnCpuNs() + observer->CpuNs();
    row->Send(settings.packets);
    const double spent = OwnCpuNs() + observer->CpuNs() - cpu;
    const double rate = settings.packets / (NowNs() - start) * 1e9;
    row->EnterRouter();
    observer->Stop();
    row->EnterSender();
    run->results()->Add(test_case, observer->name(), "packets/s", Better::kMore,
                        rate);
    run->results()->Add(test_case, observer->name(), "CPU ns per packet",
                        Better::kLess, spent / settings.packets);
  });
}

void Measure(const Settings& settings, Run* run) {
  Row row;
  CountRuns(settings, &row, run);
  const auto owned = MakeObservers(run, {"nm1", "nm2"});
  std::vector<Observer*> observers, tables;
  for (const auto& observer : owned) {
    observers.push_back(observer.get());
    // Those with an element for each flow, beside others that have fewer.
    for (const char* name :
         {"off", "netmeter, uplinks", "netmeter, clients",
          "netmeter, forwarded flows", "netobserv", "netobserv, its own"}) {
      if (observer->name() == name) tables.push_back(observer.get());
    }
  }
  row.Open(Family::kIpv4);
  MeasureRates(settings, "forwarded/udp", observers, &row, run, [] {});
  row.Open(Family::kIpv4, kFlows);
  MeasureRates(settings, "forwarded/udp, 1,000 flows", tables, &row, run,
               [] {});
  // A socket that is older than a meter costs more: it has no room in the table.
  MeasureRates(settings, "local/udp", observers, &row, run,
               [&] { row.OpenLocal(run->cgroup()); });
}

}  // namespace
}  // namespace internal
}  // namespace netmeter

int main(int argc, char** argv) {
  using namespace netmeter::internal;
  return RunBenchmark("forwarding", argc, argv, [](Run* run) {
    Measure({run->Of(15, 1), run->Of(50000, 2000)}, run);
  });
}
