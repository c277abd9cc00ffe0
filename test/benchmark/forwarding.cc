// SPDX-License-Identifier: BSD-3-Clause
// What forwarded packets cost on a gateway that runs netmeter: they belong to
// no socket of the gateway, so no program of netmeter runs for them.
//
// Three network namespaces in a row: a sender, a router, a receiver. First the benchmark
// counts runs, with the meter on a cgroup that all sockets of the three belong to: each
// packet must run one program at its sender and one at its receiver. One more run would
// mean that the router had one, too. Then it measures the rate with both ends outside of
// the cgroup, as other hosts are, beside meters that watch the router's interfaces: both
// if they would count forwarded traffic, otherwise one. Last it measures what packets of
// the router's own socket pay, which is in the cgroup: traffic control sees them, too.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>
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

// Sender (nm0), router (nm1 and nm2), receiver (nm3).
class Row {
 public:
  // The process is in a network namespace with nm0 and nm1.
  Row() : sender_(ThisNetwork()) {
    receiver_ = NewNetwork();
    router_ = NewNetwork();
    EnterNetwork(sender_);
    Shell("ip link set nm1 netns " + PathOf(router_));
    Configure("nm0", "1.1");
    Shell("ip route add default via 10.78.1.2");
    Shell("ip -6 route add default via fd78:1::2");
    EnterNetwork(router_);
    Shell("sysctl -q -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1");
    Shell("ip link add nm2 type veth peer name nm3");
    Shell("ip link set nm3 netns " + PathOf(receiver_));
    Configure("nm1", "1.2");
    Configure("nm2", "2.2");
    EnterNetwork(receiver_);
    Configure("nm3", "2.1");
    Shell("ip route add default via 10.78.2.2");
    Shell("ip -6 route add default via fd78:2::2");
    EnterNetwork(sender_);
  }

  // A socket of the router that sends to the sender's host, in the cgroup.
  void OpenLocal(OwnCgroup* cgroup) {
    receive_ = UniqueFd(
        Check(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), "socket"));
    Bind(receive_, At("10.78.1.1", kPort));
    EnterNetwork(router_);
    std::string error;
    if (!cgroup->Enter(&error)) Die(error);
    send_ = UniqueFd(
        Check(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), "socket"));
    Connect(send_, At("10.78.1.1", kPort));
    if (!cgroup->Leave()) Die("cannot leave the cgroup");
    EnterNetwork(sender_);
    Send(kBatch);
  }

  // Connected sockets of both ends.
  void Open(int family) {
    EnterNetwork(receiver_);
    receive_ =
        UniqueFd(Check(socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0), "socket"));
    const sockaddr_storage address = Address(family);
    const socklen_t size =
        family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    const auto* raw = reinterpret_cast<const sockaddr*>(&address);
    Check(bind(receive_.get(), raw, size), "bind");
    EnterNetwork(sender_);
    send_ =
        UniqueFd(Check(socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0), "socket"));
    Check(connect(send_.get(), raw, size), "connect");
    Send(kBatch);  // neighbours find each other
  }

  // In batches that fit every queue: nothing is lost.
  void Send(int packets) const {
    char message[kMessage] = {};
    for (int sent = 0; sent < packets; sent += kBatch) {
      for (int i = 0; i < kBatch; ++i) {
        if (send(send_.get(), message, kMessage, 0) != kMessage) {
          DieWithErrno("send");
        }
      }
      for (int i = 0; i < kBatch; ++i) {
        if (recv(receive_.get(), message, kMessage, 0) != kMessage) {
          DieWithErrno("receive");
        }
      }
    }
  }

  void EnterRouter() const { EnterNetwork(router_); }
  void EnterSender() const { EnterNetwork(sender_); }

  // What the router says that it forwarded.
  uint64_t Forwarded(int family) const {
    EnterNetwork(router_);
    const uint64_t result =
        family == AF_INET ? ForwardedIpv4() : ForwardedIpv6();
    EnterNetwork(sender_);
    return result;
  }

 private:
  // "1.2": 10.78.1.2 and fd78:1::2
  static void Configure(const std::string& interface, const std::string& host) {
    Shell("ip addr add 10.78." + host + "/24 dev " + interface);
    Shell("ip addr add fd78:" + host.substr(0, 1) + "::" + host.substr(2) +
          "/64 dev " + interface + " nodad");
    Shell("ip link set " + interface + " up");
  }

  static sockaddr_storage Address(int family) {
    sockaddr_storage result = {};
    if (family == AF_INET) {
      const sockaddr_in address = At("10.78.2.1", kPort);
      std::memcpy(&result, &address, sizeof(address));
    } else {
      sockaddr_in6 address = {};
      address.sin6_family = AF_INET6;
      address.sin6_port = htons(kPort);
      inet_pton(AF_INET6, "fd78:2::1", &address.sin6_addr);
      std::memcpy(&result, &address, sizeof(address));
    }
    return result;
  }

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

  const UniqueFd sender_;
  UniqueFd receiver_, router_;
  UniqueFd send_, receive_;
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
  for (int family : {AF_INET, AF_INET6}) {
    row->Open(family);
    const uint64_t runs = PacketRuns(*programs);
    const uint64_t forwarded = row->Forwarded(family);
    const int packets = settings.packets / kBatch * kBatch;
    row->Send(packets);
    const std::string name = family == AF_INET ? "IPv4" : "IPv6";
    const uint64_t done = row->Forwarded(family) - forwarded;
    const auto extra = static_cast<int64_t>(PacketRuns(*programs) - runs) -
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
                  const std::vector<std::unique_ptr<Observer>>& observers,
                  Row* row, Run* run, const std::function<void()>& open) {
  const Place place = {"router", "nm1", "", "", true};
  std::vector<bool> missing(observers.size());
  ForEachRound(settings.rounds, static_cast<int>(observers.size()), [&](int i) {
    const auto index = static_cast<size_t>(i);
    Observer* observer = observers[index].get();
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
  std::string error;
  if (!EnterOwnNetwork(&error)) Die(error);
  Row row;
  CountRuns(settings, &row, run);
  const auto observers = MakeObservers(run, {"nm1", "nm2"});
  row.Open(AF_INET);
  MeasureRates(settings, "forwarded/udp", observers, &row, run, [] {});
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
