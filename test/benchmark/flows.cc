// SPDX-License-Identifier: BSD-3-Clause
// A million open flows through a router, and a follower of forwarded flows: what a flow
// costs in memory and a packet in time, what a table with fewer entries leaves out, and
// whether the sum of all records is what the row counted.
//
// The flows are UDP: each from an address and port of its own to one server, which
// answers. A raw socket makes their packets, because no process may have so many sockets.
// Both ends drop what they receive. Packets go in an order without neighbours.
//
// The memory is the machine's: what is available less, and what the slab allocator has
// more. So it has what others allocate meanwhile.
#include <linux/bpf.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lib/apps/connections/flow.h"
#include "lib/apps/connections/follower.h"
#include "netmeter/meter.h"
#include "test/benchmark/harness.h"
#include "test/benchmark/network.h"

namespace netmeter {
namespace internal {
namespace {

constexpr char kLoader[] = "lib/netmeter_loader/netmeter-loader";
constexpr int kPortsPerAddress = 50000;
constexpr uint16_t kFirstPort = 10000;
constexpr char kServer[] = "10.78.200.1";
constexpr uint16_t kServerPort = 9;
constexpr int kBatch = 64;  // fits every queue: nothing is lost

struct Settings {
  int flows;
  std::vector<uint32_t> limits;  // of --max-flows
};

// What was freed before is available a little later.
double SettledMemory(const std::string& field) {
  double last = Memory(field);
  for (int i = 0; i < 15; ++i) {
    usleep(200000);
    const double now = Memory(field);
    if (now > last * 0.999 && now < last * 1.001) return now;
    last = now;
  }
  return last;
}

// What the kernel says that the maps of this process use.
double MapBytes() {
  std::map<int, double> bytes;  // by the id of the map
  for (int fd = 0; fd < 1024; ++fd) {
    std::ifstream file("/proc/self/fdinfo/" + std::to_string(fd));
    double locked = 0;
    int id = 0;
    for (std::string line; std::getline(file, line);) {
      std::sscanf(line.c_str(), "memlock: %lf", &locked);
      std::sscanf(line.c_str(), "map_id: %d", &id);
    }
    if (id != 0) bytes[id] = locked;
  }
  double sum = 0;
  for (const auto& map : bytes) sum += map.second;
  return sum;
}

struct Datagram {
  iphdr ip;
  udphdr udp;
  char payload[72];
};

// Client (nm0), router (nm1 and nm2), server (nm3).
class Row {
 public:
  explicit Row(int flows) : flows_(static_cast<uint32_t>(flows)) {
    router_.Sysctl("ipv4/ip_forward", "1");
    // The kernel tells its multicast groups (MLD) when a link is new: bytes of the
    // interface that are in no flow.
    for (const NetNamespace* all : {&client_, &router_, &server_}) {
      all->Sysctl("ipv6/conf/default/disable_ipv6", "1");
    }
    const auto at = [](int network, int host) {
      return std::vector<Address>{
          HostAddress(Family::kIpv4, 78, network, host)};
    };
    Join({&client_, "nm0", MacAddress(1), at(1, 1)},
         {&router_, "nm1", MacAddress(2), at(1, 2)});
    Join({&router_, "nm2", MacAddress(3), at(2, 2)},
         {&server_, "nm3", MacAddress(4), at(2, 1)});
    client_.AddDefaultRoute(HostAddress(Family::kIpv4, 78, 1, 2));
    server_.AddDefaultRoute(HostAddress(Family::kIpv4, 78, 2, 2));
    router_.AddRoute(Address("10.79.0.0"), Address("10.78.1.1"), 16);
    router_.AddRoute(Address("10.78.200.0"), Address("10.78.2.1"), 24);
    for (const NetNamespace* end : {&client_, &server_}) {
      end->Run([&] {
        (end == &client_ ? up_ : down_) = UniqueFd(Check(
            socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW), "socket"));
      });
    }
  }

  const NetNamespace& router() const { return router_; }
  LinkCounters Uplink() const { return router_.Counters("nm2"); }

  // A packet of each flow. Returns the CPU time of one in ns: the kernel forwards it in
  // the sender's time.
  double Send(bool up) const {
    uint32_t step = flows_ / 1000 * 618 + 1, at = 0;
    while (Gcd(step, flows_) != 1) ++step;
    const double start = NowNs(CLOCK_THREAD_CPUTIME_ID);
    for (uint32_t sent = 0; sent < flows_;) {
      Datagram datagrams[kBatch];
      sockaddr_in to[kBatch];
      iovec parts[kBatch];
      mmsghdr messages[kBatch] = {};
      unsigned count = 0;
      for (; count < kBatch && sent < flows_; ++count, ++sent) {
        Make(at, up, &datagrams[count], &to[count]);
        parts[count] = {&datagrams[count], sizeof(Datagram)};
        messages[count].msg_hdr.msg_name = &to[count];
        messages[count].msg_hdr.msg_namelen = sizeof(sockaddr_in);
        messages[count].msg_hdr.msg_iov = &parts[count];
        messages[count].msg_hdr.msg_iovlen = 1;
        at = (at + step) % flows_;
      }
      const UniqueFd& from = up ? up_ : down_;
      if (Check(sendmmsg(from.get(), messages, count, 0), "send") !=
          static_cast<int>(count)) {
        Die("sent less than all");
      }
    }
    return (NowNs(CLOCK_THREAD_CPUTIME_ID) - start) / flows_;
  }

 private:
  static uint32_t Gcd(uint32_t a, uint32_t b) {
    return b == 0 ? a : Gcd(b, a % b);
  }

  static void Make(uint32_t number, bool up, Datagram* datagram,
                   sockaddr_in* to) {
    const sockaddr_in server = At(kServer, kServerPort);
    sockaddr_in client = server;
    client.sin_addr.s_addr =
        htonl(0x0a4f0001 + ((number / kPortsPerAddress) << 8));
    client.sin_port =
        htons(static_cast<uint16_t>(kFirstPort + number % kPortsPerAddress));
    const sockaddr_in& from = up ? client : server;
    *to = up ? server : client;
    *datagram = {};
    datagram->ip.version = 4;
    datagram->ip.ihl = 5;
    datagram->ip.ttl = 64;
    datagram->ip.protocol = IPPROTO_UDP;
    datagram->ip.saddr = from.sin_addr.s_addr;
    datagram->ip.daddr = to->sin_addr.s_addr;
    datagram->udp.source = from.sin_port;
    datagram->udp.dest = to->sin_port;
    datagram->udp.len = htons(sizeof(Datagram) - sizeof(iphdr));
    to->sin_port = 0;
  }

  const uint32_t flows_;
  NetNamespace client_, router_, server_;
  UniqueFd up_, down_;
};

struct Sum {
  uint64_t records = 0;
  uint64_t bytes = 0, packets = 0;

  void Add(const nm_flow_counts& counts) {
    records++;
    bytes += counts.tx_bytes + counts.rx_bytes;
    packets += counts.tx_packets + counts.rx_packets;
  }
};

// The row of the uplink, both directions.
Sum ReadRow(Meter* meter, const NetNamespace& router) {
  Sum sum;
  router.Run([&] {
    const auto uplinks = meter->ReadUplinks();
    if (!uplinks.ok()) Die(uplinks.status().ToString());
    for (const Uplink& uplink : *uplinks) {
      if (uplink.name != "wan") continue;
      for (const ForwardedTraffic& part : uplink.forwarded) {
        sum.bytes += part.tx_bytes + part.rx_bytes;
        sum.packets += part.tx_packets + part.rx_packets;
      }
    }
  });
  return sum;
}

// Reads in a thread of its own, as `netmeter flows` does in a process.
class Reader {
 public:
  Reader(const std::string& pin_dir, const NetNamespace& router,
         uint32_t limit) {
    FollowOptions options;
    options.pin_dir = pin_dir;
    options.forwarded = true;
    options.max_flows = limit;
    options.idle = std::chrono::minutes(60);
    router.Run([&] {
      auto started = Follower::Start(options);
      if (!started.ok()) Die(started.status().ToString());
      follower_ = *std::move(started);
    });
    names_ = std::make_unique<FlowNames>(follower_->maps());
    thread_ = std::thread([this, &router] {
      router.Enter();
      while (!ends_) Must(follower_->Poll(50, Body()));
      const double start = NowNs();
      Must(follower_->Stop(Body()));
      end_seconds_ = (NowNs() - start) / 1e9;
      ReadRemainders();
    });
  }
  ~Reader() {
    if (thread_.joinable()) Stop();
  }

  double CpuNs() {
    clockid_t clock;
    if (pthread_getcpuclockid(thread_.native_handle(), &clock) != 0) {
      Die("no clock of a thread");
    }
    return NowNs(clock);
  }

  void Stop() {
    ends_ = true;
    thread_.join();
  }

  // After Stop().
  const Sum& records() const { return records_; }
  double end_seconds() const { return end_seconds_; }
  nm_flow_stats Stats() const { return follower_->Stats(); }
  // By reason.
  const std::map<std::string, Sum>& remainders() const { return remainders_; }

 private:
  static void Must(const absl::Status& status) {
    if (!status.ok()) Die(status.ToString());
  }
  Follower::Body Body() {
    return [this](const nm_flow_record& record) {
      records_.Add(record.state.counts);
    };
  }
  void ReadRemainders() {
    const auto rests = follower_->Unrecorded();
    if (!rests.ok()) Die(rests.status().ToString());
    for (const FlowUnrecorded& rest : *rests) {
      const FlowRow row = names_->RowOf(rest.key, rest.value);
      if (!row.is_forwarded()) continue;
      remainders_[UnrecordedReasonName(row.reason)].Add(row.counts);
    }
  }

  std::unique_ptr<Follower> follower_;
  std::unique_ptr<FlowNames> names_;
  std::thread thread_;
  std::atomic<bool> ends_{false};
  Sum records_;
  std::map<std::string, Sum> remainders_;
  double end_seconds_ = 0;
};

constexpr int kPasses = 3;

void MeasureLimit(const Settings& settings, uint32_t limit, const Row& row,
                  const std::string& pin_dir, Meter* meter, Results* results) {
  const std::string name = std::to_string(settings.flows) +
                           " flows, --max-flows " + std::to_string(limit);
  for (int pass = 0; pass < kPasses; ++pass) {
    results->Add(name, "no follower", "CPU ns per packet", Better::kLess,
                 row.Send(pass % 2 == 0));
  }
  const double available = SettledMemory("MemAvailable");
  const double slab = SettledMemory("Slab"), maps = MapBytes();
  const Sum row_before = ReadRow(meter, row.router());
  const LinkCounters link_before = row.Uplink();
  Reader reader(pin_dir, row.router(), limit);
  results->Fact(name + ": bytes of memory, no flow",
                available - SettledMemory("MemAvailable"));
  // The first packet of each flow makes it.
  results->Add(name, "netmeter flows", "CPU ns of a flow's first packet",
               Better::kLess, row.Send(true));
  for (int pass = 0; pass < kPasses; ++pass) {
    results->Add(name, "netmeter flows", "CPU ns per packet", Better::kLess,
                 row.Send(pass % 2 == 1));
  }
  const double cpu = reader.CpuNs(), now = NowNs();
  results->Fact(name + ": bytes of memory",
                available - SettledMemory("MemAvailable"));
  results->Fact(name + ": bytes of the slab", SettledMemory("Slab") - slab);
  results->Fact(name + ": bytes of maps", MapBytes() - maps);
  results->Add(name, "netmeter flows", "% of a CPU of the idle reader",
               Better::kLess, 100 * (reader.CpuNs() - cpu) / (NowNs() - now));
  reader.Stop();
  results->Add(name, "netmeter flows", "seconds to its end", Better::kLess,
               reader.end_seconds());
  Sum all = reader.records();
  results->Fact(name + ": records", all.records);
  for (const auto& [reason, sum] : reader.remainders()) {
    results->Fact(name + ": packets in no record, " + reason, sum.packets);
    all.bytes += sum.bytes;
    all.packets += sum.packets;
  }
  results->Fact(name + ": lost records", reader.Stats().lost);
  const Sum row_after = ReadRow(meter, row.router());
  const LinkCounters link = row.Uplink();
  const uint64_t packets = link.tx_packets + link.rx_packets -
                           link_before.tx_packets - link_before.rx_packets;
  const uint64_t bytes = link.tx_bytes + link.rx_bytes - link_before.tx_bytes -
                         link_before.rx_bytes - 14 * packets;
  results->Fact(name + ": packets forwarded", packets);
  const auto missing = [&](const std::string& what, uint64_t counted,
                           uint64_t sum) {
    results->Fact(name + ": " + what + " missing",
                  static_cast<int64_t>(counted - sum));
  };
  missing("bytes of the row in the records", row_after.bytes - row_before.bytes,
          all.bytes);
  missing("packets of the row in the records",
          row_after.packets - row_before.packets, all.packets);
  missing("bytes of the interface in the records", bytes, all.bytes);
}

void Measure(const Settings& settings, Run* run) {
  const Row row(settings.flows);
  const std::string pin_dir = run->directory() + "/pins";
  const std::string config = run->directory() + "/netmeter.yml";
  run->MountDirectory();
  std::ofstream(config)
      << "uplinks: {wan: [nm2], lan: [nm1]}\nforwarded_clients: [lan]\n";
  const std::string cgroup = run->CgroupPath();
  row.router().Run([&] {
    Shell(std::string(kLoader) + " load --quiet --group '' --cgroup " + cgroup +
          " --pin-dir " + pin_dir + " --config " + config);
  });
  MeterOptions options;
  options.pin_dir = pin_dir;
  auto meter = Meter::Open(options);
  if (!meter.ok()) Die(meter.status().ToString());
  for (const uint32_t limit : settings.limits) {
    MeasureLimit(settings, limit, row, pin_dir, meter->get(), run->results());
  }
  meter->reset();
  Shell(std::string(kLoader) + " unload --quiet --pin-dir " + pin_dir);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter

int main(int argc, char** argv) {
  using namespace netmeter::internal;
  return RunBenchmark("flows", argc, argv, [](Run* run) {
    const auto limit = [&](int full, int smoke) {
      return static_cast<uint32_t>(run->Of(full, smoke));
    };
    Measure(
        {run->Of(1000000, 2000), {limit(1 << 20, 4096), limit(1 << 18, 512)}},
        run);
  });
}
