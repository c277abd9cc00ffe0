// SPDX-License-Identifier: BSD-3-Clause
// The path of a benchmark's packets: loopback, or a veth pair with the host under test at
// one end and another host at the other.
//
// On loopback both ends of a connection are on the host under test, thus in the
// cgroup. Over veth the server stands in for the rest of the network: its
// sockets are in another network namespace and in no cgroup that is looked at.
// With "both ends" that namespace is a container of the host: the server's sockets
// are in the cgroup, too.
//
//   TestNetwork network(cgroup);
//   UniqueFd listener = network.Listen(network.veth(), 4001);
//   UniqueFd client = network.Connect(network.veth(), SOCK_STREAM, 4001);
//
// Threads: one at a time. The constructor moves its own to the network of the host under
// test, and only servers that are not counted move the whole process.

#ifndef NETMETER_TEST_BENCHMARK_NETWORK_H_
#define NETMETER_TEST_BENCHMARK_NETWORK_H_

#include <netinet/in.h>
#include <cstdint>
#include <functional>
#include <string>

#include "lib/base/unique_fd.h"
#include "lib/testing/net_namespace.h"
#include "test/program/sandbox.h"

namespace netmeter {
namespace internal {

// Runs a command line; ends the process if it fails.
void Shell(const std::string& command);

// An address of IPv4.
sockaddr_in At(const std::string& address, uint16_t port);

void Bind(const UniqueFd& fd, const sockaddr_in& address);
void Connect(const UniqueFd& fd, const sockaddr_in& address);
void SetOn(const UniqueFd& fd, int level, int option);

struct Place {
  std::string name;
  std::string interface;  // that of the host under test
  std::string client, server;
  bool server_elsewhere;           // in another network namespace
  bool server_is_counted = false;  // in the cgroup all the same
};

class TestNetwork {
 public:
  // Enters a new network and the cgroup, and stays in both except for sockets of the
  // other side.
  explicit TestNetwork(OwnCgroup* cgroup);

  const Place& loopback() const { return loopback_; }
  const Place& veth() const { return veth_; }
  const Place& both_ends() const { return both_ends_; }

  // Moves the calling thread to the network of the host under test.
  void Enter() const { here_.Enter(); }

  // What a download over the link is: TSO hands on whole the packets of the server, and
  // GRO joins packets before they reach the client's stack.
  void SetOffloads(bool tso, bool gro);

  // Sockets of the server.
  UniqueFd Listen(const Place& place, uint16_t port);
  UniqueFd BindUdp(const Place& place, uint16_t port, uint16_t peer_port);
  // A connected socket of the client; `port` is the server's.
  UniqueFd Connect(const Place& place, int type, uint16_t port,
                   uint16_t own_port = 0);

  // Runs it on the server's side: in its network, and outside of the cgroup unless the
  // server is counted.
  void AsServer(const Place& place, const std::function<void()>& work);

 private:
  OwnCgroup* const cgroup_;
  const Place loopback_, veth_, both_ends_;
  NetNamespace here_, there_;
};

// accept(2), without delays by Nagle's algorithm.
UniqueFd Accept(const UniqueFd& listener);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_TEST_BENCHMARK_NETWORK_H_
