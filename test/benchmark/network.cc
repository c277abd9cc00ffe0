// SPDX-License-Identifier: BSD-3-Clause
#include "test/benchmark/network.h"
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "test/benchmark/harness.h"

namespace netmeter {
namespace internal {
void Shell(const std::string& command) {
  std::string error;
  if (!RunCommand(command, &error)) Die(error);
}

sockaddr_in At(const std::string& address, uint16_t port) {
  sockaddr_in result = {};
  result.sin_family = AF_INET;
  result.sin_port = htons(port);
  inet_pton(AF_INET, address.c_str(), &result.sin_addr);
  return result;
}

void Bind(const UniqueFd& fd, const sockaddr_in& address) {
  Check(bind(fd.get(), reinterpret_cast<const sockaddr*>(&address),
             sizeof(address)),
        "bind");
}

void Connect(const UniqueFd& fd, const sockaddr_in& address) {
  Check(connect(fd.get(), reinterpret_cast<const sockaddr*>(&address),
                sizeof(address)),
        "connect");
}

void SetOn(const UniqueFd& fd, int level, int option) {
  const int on = 1;
  Check(setsockopt(fd.get(), level, option, &on, sizeof(on)), "setsockopt");
}

TestNetwork::TestNetwork(OwnCgroup* cgroup)
    : cgroup_(cgroup),
      loopback_{"loopback", "lo", "127.0.0.1", "127.0.0.1", false},
      veth_{"veth", "nm0", "10.77.0.1", "10.77.0.2", true},
      both_ends_{"veth, both ends", "nm0", "10.77.0.1",
                 "10.77.0.2",       true,  true} {
  // Clients that come and go need many ports, and those of connections that ended a
  // second ago.
  here_.Sysctl("ipv4/ip_local_port_range", "1024 65000");
  here_.Sysctl("ipv4/tcp_tw_reuse", "1");
  Join({&here_, veth_.interface, MacAddress(1), {Address(veth_.client)}},
       {&there_, "nm1", MacAddress(2), {Address(veth_.server)}});
  here_.Enter();
  std::string error;
  if (!cgroup_->Enter(&error)) Die(error);
}

void TestNetwork::AsServer(const Place& place,
                           const std::function<void()>& work) {
  if (!place.server_elsewhere) {
    work();
    return;
  }
  if (!place.server_is_counted && !cgroup_->Leave()) {
    Die("cannot leave the cgroup");
  }
  there_.Enter();
  work();
  here_.Enter();
  std::string error;
  if (!place.server_is_counted && !cgroup_->Enter(&error)) Die(error);
}

void TestNetwork::SetOffloads(bool tso, bool gro) {
  AsServer(veth_, [&] {
    Shell(tso ? "ethtool -K nm1 tso on" : "ethtool -K nm1 tso off");
  });
  Shell(gro ? "ethtool -K nm0 gro on" : "ethtool -K nm0 gro off");
}

UniqueFd TestNetwork::Listen(const Place& place, uint16_t port) {
  UniqueFd fd;
  AsServer(place, [&] {
    fd = UniqueFd(
        Check(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket"));
    SetOn(fd, SOL_SOCKET, SO_REUSEADDR);
    Bind(fd, At(place.server, port));
    Check(listen(fd.get(), 1024), "listen");
  });
  return fd;
}

UniqueFd TestNetwork::BindUdp(const Place& place, uint16_t port,
                              uint16_t peer_port) {
  UniqueFd fd;
  AsServer(place, [&] {
    fd = UniqueFd(
        Check(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), "socket"));
    Bind(fd, At(place.server, port));
    internal::Connect(fd, At(place.client, peer_port));
  });
  return fd;
}

UniqueFd TestNetwork::Connect(const Place& place, int type, uint16_t port,
                              uint16_t own_port) {
  UniqueFd fd(Check(socket(AF_INET, type | SOCK_CLOEXEC, 0), "socket"));
  if (type == SOCK_STREAM) SetOn(fd, IPPROTO_TCP, TCP_NODELAY);
  if (own_port != 0) Bind(fd, At(place.client, own_port));
  internal::Connect(fd, At(place.server, port));
  return fd;
}

UniqueFd Accept(const UniqueFd& listener) {
  UniqueFd fd(
      Check(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC), "accept"));
  SetOn(fd, IPPROTO_TCP, TCP_NODELAY);
  return fd;
}

}  // namespace internal
}  // namespace netmeter
