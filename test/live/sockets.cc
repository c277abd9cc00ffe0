// SPDX-License-Identifier: BSD-3-Clause
#include "test/live/sockets.h"

#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "lib/testing/check.h"
#include "netmeter/abi.h"

namespace netmeter {
namespace internal {
namespace {

sockaddr* Generic(sockaddr_storage* storage) {
  return reinterpret_cast<sockaddr*>(storage);
}

}  // namespace

int OpenSocket(int family, int type, int protocol) {
  return Check(socket(family, type | SOCK_CLOEXEC, protocol), "socket");
}

void SetOption(int fd, int level, int name, int value) {
  Check(setsockopt(fd, level, name, &value, sizeof(value)),
        "socket option " + std::to_string(name));
}

void SetOption(int fd, int level, int name, const std::string& value) {
  Check(setsockopt(fd, level, name, value.data(), value.size()),
        "socket option " + std::to_string(name));
}

int Bind(int fd, const Address& address, int port) {
  sockaddr_storage storage = address.WithPort(port);
  Check(bind(fd, Generic(&storage), Address::Length(storage)), "bind");
  return PortOf(fd);
}

int PortOf(int fd) {
  sockaddr_storage storage = {};
  socklen_t length = sizeof(storage);
  Check(getsockname(fd, Generic(&storage), &length), "getsockname");
  return __builtin_bswap16(
      reinterpret_cast<const sockaddr_in&>(storage).sin_port);
}

void JoinGroup(int fd, const Address& group, const std::string& link) {
  group_req request = {};
  request.gr_interface = if_nametoindex(link.c_str());
  request.gr_group = group.WithPort(0);
  Check(setsockopt(
            fd, group.family() == AF_INET ? int{IPPROTO_IP} : int{IPPROTO_IPV6},
            MCAST_JOIN_GROUP, &request, sizeof(request)),
        "MCAST_JOIN_GROUP");
}

void SendToGroupsBy(int fd, int family, const std::string& link) {
  ip_mreqn by = {};
  by.imr_ifindex = static_cast<int>(if_nametoindex(link.c_str()));
  if (family == AF_INET) {
    Check(setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &by, sizeof(by)),
          "IP_MULTICAST_IF");
  } else {
    SetOption(fd, IPPROTO_IPV6, IPV6_MULTICAST_IF, by.imr_ifindex);
  }
}

void Connect(int fd, const Address& address, int port) {
  sockaddr_storage storage = address.WithPort(port);
  Check(connect(fd, Generic(&storage), Address::Length(storage)), "connect");
}

int Connected(const Address& to, int port, int type) {
  const int fd = OpenSocket(to.family(), type);
  Connect(fd, to, port);
  return fd;
}

int Listen(const Address& address, int port, int backlog) {
  const int listener = OpenSocket(address.family(), SOCK_STREAM);
  SetOption(listener, SOL_SOCKET, SO_REUSEADDR, 1);
  Bind(listener, address, port);
  Check(listen(listener, backlog), "listen");
  return listener;
}

void Abort(int fd) {
  const linger at_once = {1, 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  close(fd);
}

int Control(int fd, int name, const std::string& value) {
  return setsockopt(fd, NM_SOL, name, value.data(), value.size()) == 0 ? 0
                                                                       : errno;
}

void Register(const std::string& service) {
  const int fd = OpenSocket(AF_INET, SOCK_DGRAM);
  errno = Control(fd, NM_REGISTER, service);
  if (errno != 0) DieWithErrno("NM_REGISTER");
  close(fd);
}

void WaitReadable(int fd) {
  if (!WaitFor(fd, POLLIN)) DieWithErrno("nothing to receive");
}

int Accept(int listener) {
  WaitReadable(listener);
  return Check(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC), "accept");
}

void SendAll(int fd, uint64_t bytes) {
  const std::vector<char> buffer(1 << 16, 'x');
  while (bytes > 0) {
    const ssize_t sent =
        send(fd, buffer.data(), std::min<uint64_t>(bytes, buffer.size()),
             MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0)
      bytes -= sent;
    else if (errno != EAGAIN || !WaitFor(fd, POLLOUT))
      DieWithErrno("send");
  }
}

void BeRefused(int fd, const Address& address, int port) {
  sockaddr_storage storage = address.WithPort(port);
  if (connect(fd, Generic(&storage), Address::Length(storage)) == 0 ||
      errno != ECONNREFUSED) {
    DieWithErrno("connect");
  }
}

int OpenPing(const Address& to) {
  const bool v4 = to.family() == AF_INET;
  const int fd = OpenSocket(to.family(), SOCK_DGRAM,
                            v4 ? int{IPPROTO_ICMP} : int{IPPROTO_ICMPV6});
  Connect(fd, to, 0);
  return fd;
}

void Ping(int fd, size_t bytes, int sequence) {
  int family = 0;
  socklen_t length = sizeof(family);
  Check(getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &length), "SO_DOMAIN");
  std::string request(8 + bytes, '\0');
  request[0] = static_cast<char>(family == AF_INET ? 8 : 128);
  request[7] = static_cast<char>(sequence);
  SendText(fd, request);
  WaitReadable(fd);
  char reply[512];
  Check(recv(fd, reply, sizeof(reply), 0), "recv");
}

void SendText(int fd, const std::string& text) {
  Check(send(fd, text.data(), text.size(), 0), "send");
}

void SendTo(int fd, const std::string& data, const Address& to, int port) {
  sockaddr_storage storage = to.WithPort(port);
  Check(sendto(fd, data.data(), data.size(), 0, Generic(&storage),
               Address::Length(storage)),
        "sendto");
}

uint64_t ReceiveExactly(int fd, uint64_t bytes) {
  std::vector<char> buffer(1 << 16);
  uint64_t received = 0;
  while (received < bytes) {
    WaitReadable(fd);
    const ssize_t size =
        Check(recv(fd, buffer.data(),
                   std::min<uint64_t>(bytes - received, buffer.size()), 0),
              "recv");
    if (size == 0) {
      errno = EPIPE;
      DieWithErrno("the connection ended early");
    }
    received += size;
  }
  return received;
}

uint64_t ReceiveUntilEnd(int fd) {
  std::vector<char> buffer(1 << 16);
  uint64_t received = 0;
  for (;;) {
    WaitReadable(fd);
    const ssize_t size =
        Check(recv(fd, buffer.data(), buffer.size(), 0), "recv");
    if (size == 0) return received;
    received += size;
  }
}

}  // namespace internal
}  // namespace netmeter
