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

void LiveTest::SetUp() { alarm(5 * kTimeoutMs / 1000); }

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

std::string TryIp(const NetNamespace& where,
                  const std::vector<std::string>& arguments) {
  std::vector<std::string> command = {"ip"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  std::string output;
  int status = 0;
  where.Run([&] { status = RunProgram(command, &output); });
  if (status == 0) return "";
  std::string line;
  for (const std::string& word : command) line += word + " ";
  return line + "(" + std::to_string(status) + "): " + output;
}

void Ip(const NetNamespace& where, const std::vector<std::string>& arguments) {
  const std::string error = TryIp(where, arguments);
  if (error.empty()) return;
  Die(error);
}

}  // namespace internal
}  // namespace netmeter
