// SPDX-License-Identifier: BSD-3-Clause
#include "test/live/world.h"

#include <linux/if_ether.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <string>

namespace netmeter {
namespace internal {
namespace {

struct Shared {
  std::unique_ptr<Lab> clean, wired;
  std::unique_ptr<MeteredCgroup> client, server;
  std::map<std::string, std::unique_ptr<MeteredCgroup>> of_configuration;
};

Shared& TheWorld() {
  static auto* world = new Shared;
  return *world;
}

template <typename T, typename... Arguments>
T& Once(std::unique_ptr<T>* thing, const Arguments&... arguments) {
  if (*thing == nullptr) *thing = std::make_unique<T>(arguments...);
  return **thing;
}

// Its output if it failed, or nothing.
std::string TryThere(const NetNamespace& where,
                     const std::vector<std::string>& command) {
  std::string output;
  int status = 0;
  where.Run([&] { status = RunProgram(command, &output); });
  if (status == 0) return "";
  std::string line;
  for (const std::string& word : command) line += word + " ";
  return line + "(" + std::to_string(status) + "): " + output;
}

}  // namespace

bool KernelHas(int family, int type, int protocol, const std::string& module) {
  const UniqueFd probe(socket(family, type | SOCK_CLOEXEC, protocol));
  if (probe.ok()) return true;
  Measurement::NotOnThisKernel("socket of " + module + ": " +
                               std::strerror(errno));
  EXPECT_NE(access(("/mod/" + module + ".ko").c_str(), F_OK), 0)
      << "loaded, but no socket";
  return false;
}

Lab& World::CleanLab() { return Once(&TheWorld().clean, false); }
Lab& World::WiredLab() { return Once(&TheWorld().wired, true); }
MeteredCgroup& World::ClientMeter() {
  return Once(&TheWorld().client, "client");
}
MeteredCgroup& World::ServerMeter() {
  return Once(&TheWorld().server, "server");
}

MeteredCgroup& World::MeterWith(const std::string& config) {
  auto& all = TheWorld().of_configuration;
  const std::string name = "configured-" + std::to_string(all.size());
  MeteredCgroup& meter = Once(&all[config], name, config);
  meter.CountFromNow();
  return meter;
}

void World::ForgetLabs() {
  TheWorld().clean.reset();
  TheWorld().wired.reset();
}

void World::Close() {
  ForgetLabs();
  TheWorld().client.reset();
  TheWorld().server.reset();
  TheWorld().of_configuration.clear();
}

std::unique_ptr<Child> StartSink() {
  auto sink =
      std::make_unique<Child>(nullptr, lab().server, [](Child::Parent& parent) {
        Bind(OpenSocket(AF_INET6, SOCK_DGRAM), Address("::"), kSinkPort);
        parent.Send(0);
        pause();
      });
  sink->Receive<int>();
  return sink;
}

void LiveTest::SetUp() {
  alarm(5 * kTimeoutMs / 1000);
  lab().Configure(LinkSetup());
}

void LiveTest::TearDown() {
  alarm(0);
  if (HasFailure()) World::ForgetLabs();
}

Remainder SynAckSent(const Packet& packet) {
  if (KernelAtLeast(6, 12) || packet.ethertype != ETH_P_IPV6 ||
      !packet.outgoing || !packet.syn() || !packet.ack())
    return {};
  return Whole("syn-ack", packet);
}

void RunThere(const NetNamespace& where,
              const std::vector<std::string>& command) {
  const std::string error = TryThere(where, command);
  if (!error.empty()) Die(error);
}

std::string TryIp(const NetNamespace& where,
                  std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "ip");
  return TryThere(where, arguments);
}

void Ip(const NetNamespace& where, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "ip");
  RunThere(where, arguments);
}

void IpTables(const NetNamespace& where, Family family,
              std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(),
                   {family == Family::kIpv4 ? "iptables" : "ip6tables", "-w"});
  RunThere(where, arguments);
}

}  // namespace internal
}  // namespace netmeter
