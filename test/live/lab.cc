// SPDX-License-Identifier: BSD-3-Clause
#include "test/live/lab.h"

#include <bpf/bpf.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>

namespace netmeter {
namespace internal {
namespace {

constexpr int kSite = 77;

}  // namespace

Address Lab::Client(Family family) { return HostAddress(family, kSite, 1, 2); }
Address Lab::Gateway(Family family) { return HostAddress(family, kSite, 1, 1); }
Address Lab::Server(Family family, int number) {
  return HostAddress(family, kSite, 3, 2 + number);
}

Lab::Lab(bool with_wire) {
  for (NetNamespace* router : {&router_a, &router_b}) {
    router->Sysctl("ipv4/ip_forward", "1");
    router->Sysctl("ipv6/conf/all/forwarding", "1");
  }
  std::vector<Address> of_server;
  for (int number = 0; number < 4; ++number) {
    for (Family family : {Family::kIpv4, Family::kIpv6}) {
      of_server.push_back(Server(family, number));
    }
  }
  Join({&client, "c0", MacAddress(1), BothAddresses(kSite, 1, 2)},
       {&router_a, "a0", MacAddress(2), BothAddresses(kSite, 1, 1)});
  Join({&router_b, "b1", MacAddress(5), BothAddresses(kSite, 3, 1)},
       {&server, "s0", MacAddress(6), of_server});
  const LinkEnd a1 = {&router_a, "a1", MacAddress(3),
                      BothAddresses(kSite, 2, 1)};
  const LinkEnd b0 = {&router_b, "b0", MacAddress(4),
                      BothAddresses(kSite, 2, 2)};
  if (with_wire) {
    middle = std::make_unique<NetNamespace>();
    middle->Sysctl("ipv6/conf/default/disable_ipv6", "1");
    Join(a1, {middle.get(), "f0", MacAddress(14), {}});
    Join({middle.get(), "f1", MacAddress(13), {}}, b0);
    Introduce(a1, b0);
    Introduce(b0, a1);
    for (const char* link : {"f0", "f1"}) middle->SetRealPackets(link);
    wire = std::make_unique<Wire>(*middle, "f0", "f1");
  } else {
    Join(a1, b0);
  }
  for (Family family : {Family::kIpv4, Family::kIpv6}) {
    client.AddDefaultRoute(Gateway(family));
    server.AddDefaultRoute(HostAddress(family, kSite, 3, 1));
    router_a.AddRoute(HostAddress(family, kSite, 3, 0),
                      HostAddress(family, kSite, 2, 2));
    router_b.AddRoute(HostAddress(family, kSite, 1, 0),
                      HostAddress(family, kSite, 2, 1));
  }
  for (const char* link : {"a0", "a1"}) router_a.SetRealPackets(link);
  for (const char* link : {"b0", "b1"}) router_b.SetRealPackets(link);
  Apply(setup_);
}

void Lab::Configure(const LinkSetup& setup) {
  if (setup == setup_) return;
  setup_ = setup;
  Apply(setup);
}

void Lab::Apply(const LinkSetup& setup) {
  for (const auto& [end, link, offload] :
       {std::tuple(&client, "c0", setup.offload),
        std::tuple(&server, "s0", setup.server_offload)}) {
    end->SetFeatures(link, kOffloads, offload);
    if (setup.checksums) end->SetFeatures(link, {"tx-checksum"}, true);
    end->SetGsoMaxSegments(link, offload || setup.gso_packets ? 65535 : 1);
    end->SetFeatures(link, {"rx-gro"}, setup.gro);
  }
  xdp_[0] = UniqueFd();
  xdp_[1] = UniqueFd();
  for (const auto& end :
       {std::pair(&client, "c0"), std::pair(&router_a, "a0"),
        std::pair(&router_a, "a1"), std::pair(&router_b, "b0"),
        std::pair(&router_b, "b1"), std::pair(&server, "s0")})
    end.first->SetMtu(end.second, setup.mtu);
  if (middle != nullptr)
    for (const char* link : {"f0", "f1"}) middle->SetMtu(link, setup.mtu);
  if (setup.gro && !KernelAtLeast(5, 13) && HasGro(setup.mtu)) {
    xdp_[0] = client.AttachXdpPass("c0");
    xdp_[1] = server.AttachXdpPass("s0");
  }
}

Ends Lab::Between(const Cgroup* client_cgroup,
                  const Cgroup* server_cgroup) const {
  return {client_cgroup, &client, server_cgroup, &server};
}

void Totals::Add(const Sample& sample, int sign) {
  tx_bytes += sign * static_cast<int64_t>(sample.tx_bytes);
  rx_bytes += sign * static_cast<int64_t>(sample.rx_bytes);
  tx_packets += sign * static_cast<int64_t>(sample.tx_packets);
  rx_packets += sign * static_cast<int64_t>(sample.rx_packets);
  tx_payload += sign * static_cast<int64_t>(sample.tx_payload_bytes);
  rx_payload += sign * static_cast<int64_t>(sample.rx_payload_bytes);
  tx_retransmit += sign * static_cast<int64_t>(sample.tx_retransmit_bytes);
}

Totals operator-(const Totals& a, const Totals& b) {
  return {a.tx_bytes - b.tx_bytes,          a.rx_bytes - b.rx_bytes,
          a.tx_packets - b.tx_packets,      a.rx_packets - b.rx_packets,
          a.tx_payload - b.tx_payload,      a.rx_payload - b.rx_payload,
          a.tx_retransmit - b.tx_retransmit};
}

namespace {

bool IsOneSeries(const Sample& a, const Sample& b) {
  return a.kind == b.kind && a.name == b.name &&
         a.destination == b.destination && a.transport == b.transport &&
         a.path == b.path && a.uplink == b.uplink &&
         a.registered == b.registered;
}

// TCP's connections are left as they are: no test takes their difference here.
void Subtract(const Sample& before, Sample* now) {
  now->tx_bytes -= before.tx_bytes;
  now->rx_bytes -= before.rx_bytes;
  now->tx_packets -= before.tx_packets;
  now->rx_packets -= before.rx_packets;
  now->tx_payload_bytes -= before.tx_payload_bytes;
  now->rx_payload_bytes -= before.rx_payload_bytes;
  now->tx_retransmit_bytes -= before.tx_retransmit_bytes;
}

}  // namespace

std::string MeteredCgroup::loader;

MeteredCgroup::MeteredCgroup(const std::string& name, const std::string& config)
    : MeteredCgroup(std::make_shared<Cgroup>(name), name, config) {}

MeteredCgroup::MeteredCgroup(std::shared_ptr<Cgroup> cgroup,
                             const std::string& name, const std::string& config)
    : cgroup_(std::move(cgroup)) {
  std::string file_name = name;
  std::replace(file_name.begin(), file_name.end(), '/', '-');
  pin_dir_ = WorkDirectory() + "/pins-" + file_name;
  if (mkdir(WorkDirectory().c_str(), 0700) != 0 && errno != EEXIST)
    DieWithErrno(WorkDirectory());
  Load(config);
  MeterOptions options;
  options.pin_dir = pin_dir_;
  absl::StatusOr<std::unique_ptr<Meter>> meter = Meter::Open(options);
  if (!meter.ok()) {
    Die("Meter::Open: " + meter.status().ToString());
  }
  meter_ = *std::move(meter);
}

void MeteredCgroup::Load(const std::string& config) {
  config_ = config;
  const std::string file = pin_dir_ + ".yml";
  std::ofstream(file) << config;
  std::vector<std::string> command = {loader,          "load",      "--cgroup",
                                      cgroup_->path(), "--pin-dir", pin_dir_};
  if (!config.empty()) {
    command.emplace_back("--config");
    command.push_back(file);
  }
  std::string output;
  const int status = RunProgram(command, &output);
  if (status != 0) {
    Die("netmeter-loader load ended with " + std::to_string(status) + ": " +
        output);
  }
}

std::string MeteredCgroup::Evict() {
  std::string output;
  const int status = RunProgram(
      {loader, "evict", "--idle", "0", "--pin-dir", pin_dir_}, &output);
  if (status != 0) {
    Die("netmeter-loader evict ended with " + std::to_string(status) + ": " +
        output);
  }
  return output;
}

nm_stats MeteredCgroup::ReadStats() const {
  const UniqueFd map(bpf_obj_get((pin_dir_ + "/stats").c_str()));
  const uint32_t first = 0;
  nm_stats stats = {};
  EXPECT_EQ(bpf_map_lookup_elem(map.get(), &first, &stats), 0);
  return stats;
}

MeteredCgroup::~MeteredCgroup() {
  meter_.reset();
  std::string output;
  const int status =
      RunProgram({loader, "unload", "--pin-dir", pin_dir_}, &output);
  EXPECT_EQ(status, 0) << "netmeter-loader unload: " << output;
}

Health MeteredCgroup::ReadHealth() const {
  absl::StatusOr<Health> health = meter_->ReadHealth();
  EXPECT_TRUE(health.ok()) << health.status();
  return health.ok() ? *health : Health();
}

std::vector<Sample> MeteredCgroup::ReadHost() const {
  absl::StatusOr<std::vector<Sample>> samples = meter_->ReadHost();
  if (samples.ok()) return *std::move(samples);
  ADD_FAILURE() << "ReadHost: " << samples.status();
  return {};
}

std::vector<Sample> MeteredCgroup::Samples() const {
  std::vector<Sample> samples = ReadHost();
  for (const Sample& before : before_) {
    const auto now = std::find_if(
        samples.begin(), samples.end(),
        [&](const Sample& sample) { return IsOneSeries(sample, before); });
    if (now == samples.end()) continue;
    Subtract(before, &*now);
    if (now->tx_packets == 0 && now->rx_packets == 0) samples.erase(now);
  }
  return samples;
}

Totals MeteredCgroup::Total(Path path) const {
  Totals totals;
  for (const Sample& sample : Samples())
    if (sample.path == path) totals.Add(sample);
  return totals;
}

Totals MeteredCgroup::TotalOf(Kind kind, const std::string& name,
                              const char* destination) const {
  Totals totals;
  for (const Sample& sample : Samples())
    if (sample.kind == kind && sample.name == name &&
        (destination == nullptr || sample.destination == destination))
      totals.Add(sample);
  return totals;
}

Totals MeteredCgroup::TotalOf(Transport transport) const {
  Totals totals;
  for (const Sample& sample : Samples())
    if (sample.transport == transport) totals.Add(sample);
  return totals;
}

}  // namespace internal
}  // namespace netmeter
