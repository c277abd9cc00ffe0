// SPDX-License-Identifier: BSD-3-Clause
// Two network namespaces, joined by a veth pair, and connected sockets at both
// ends: real packets between the two run the programs of a cgroup.
//
// Threads: one thread makes the link and the sockets; any may use the sockets.

#ifndef NETMETER_TEST_BENCHMARK_LINK_H_
#define NETMETER_TEST_BENCHMARK_LINK_H_

#include <cstdint>
#include <string>

#include "lib/base/unique_fd.h"

namespace netmeter {
namespace internal {

class Link {
 public:
  static constexpr char kHere[] = "10.77.0.1";
  static constexpr char kThere[] = "10.77.0.2";

  // The process is in a network namespace of its own, with nm0 and nm1.
  Link();

  UniqueFd SocketHere(int type) { return Socket(here_, type); }
  UniqueFd SocketThere(int type) { return Socket(there_, type); }

  // Connected sockets at both ends.
  void ConnectUdp(uint16_t port);
  void ConnectTcp(uint16_t port);

  const UniqueFd& udp_here() const { return udp_here_; }
  const UniqueFd& udp_there() const { return udp_there_; }
  const UniqueFd& tcp_here() const { return tcp_here_; }
  const UniqueFd& tcp_there() const { return tcp_there_; }

 private:
  UniqueFd Socket(const UniqueFd& where, int type);

  UniqueFd here_, there_;
  UniqueFd udp_here_, udp_there_, tcp_here_, tcp_there_;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_TEST_BENCHMARK_LINK_H_
