// SPDX-License-Identifier: BSD-3-Clause
#include "test/benchmark/link.h"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include "test/benchmark/measure.h"
#include "test/benchmark/namespaces.h"

namespace netmeter {
namespace internal {

constexpr char Link::kHere[];
constexpr char Link::kThere[];

Link::Link() {
  here_ = ThisNetwork();
  there_ = NewNetwork();
  EnterNetwork(here_);
  Shell("ip link set nm1 netns " + PathOf(there_));
  Shell(std::string("ip addr add ") + kHere + "/24 dev nm0");
  Shell("ip link set nm0 up");
  EnterNetwork(there_);
  Shell(std::string("ip addr add ") + kThere + "/24 dev nm1");
  Shell("ip link set nm1 up");
  EnterNetwork(here_);
}

void Link::ConnectUdp(uint16_t port) {
  udp_here_ = SocketHere(SOCK_DGRAM);
  udp_there_ = SocketThere(SOCK_DGRAM);
  const sockaddr_in here = At(kHere, port);
  const sockaddr_in there = At(kThere, port);
  Bind(udp_here_, here);
  Bind(udp_there_, there);
  Connect(udp_here_, there);
  Connect(udp_there_, here);
}

void Link::ConnectTcp(uint16_t port) {
  const UniqueFd listener = SocketThere(SOCK_STREAM);
  const sockaddr_in there = At(kThere, port);
  Bind(listener, there);
  Check(listen(listener.get(), 1), "listen");
  tcp_here_ = SocketHere(SOCK_STREAM);
  Connect(tcp_here_, there);
  tcp_there_ = UniqueFd(
      Check(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC), "accept"));
  SetOn(tcp_here_, IPPROTO_TCP, TCP_NODELAY);
  SetOn(tcp_there_, IPPROTO_TCP, TCP_NODELAY);
}

UniqueFd Link::Socket(const UniqueFd& where, int type) {
  EnterNetwork(where);
  UniqueFd fd(Check(socket(AF_INET, type | SOCK_CLOEXEC, 0), "socket"));
  EnterNetwork(here_);
  return fd;
}

}  // namespace internal
}  // namespace netmeter
