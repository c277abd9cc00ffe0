// SPDX-License-Identifier: BSD-3-Clause
#include "test/live/traffic.h"

#include <linux/sockios.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <vector>

namespace netmeter {
namespace internal {
namespace {

// Small enough that no queue between the ends, of 1000 packets, overflows.
constexpr int kWindowBytes = 128 << 10;

sockaddr* Generic(sockaddr_storage* storage) {
  return reinterpret_cast<sockaddr*>(storage);
}

// Receives this number of bytes from each socket, in any order, because accept(2) need
// not return them in the order of connect(2).
uint64_t ReceiveFromEach(const std::vector<int>& sockets, uint64_t bytes) {
  std::vector<uint64_t> left(sockets.size(), bytes);
  std::vector<char> buffer(1 << 16);
  for (uint64_t total = bytes * sockets.size(); total > 0;) {
    std::vector<pollfd> ready;
    for (size_t i = 0; i < sockets.size(); ++i)
      ready.push_back({left[i] > 0 ? sockets[i] : -1, POLLIN, 0});
    if (poll(ready.data(), ready.size(), kTimeoutMs) <= 0)
      DieWithErrno("nothing to receive");
    for (size_t i = 0; i < sockets.size(); ++i) {
      if (ready[i].revents == 0) continue;
      const ssize_t size =
          Check(recv(sockets[i], buffer.data(),
                     std::min<uint64_t>(left[i], buffer.size()), 0),
                "recv");
      if (size == 0) {
        errno = EPIPE;
        DieWithErrno("the connection ended early");
      }
      left[i] -= size;
      total -= size;
    }
  }
  return bytes * sockets.size();
}

// Waits until everything is acknowledged, and then some.
void Settle(const std::vector<int>& sockets, int milliseconds) {
  if (milliseconds < 0) return;
  for (int fd : sockets) {
    for (int left = 1, i = 0; left > 0 && i < kTimeoutMs; ++i) {
      Check(ioctl(fd, SIOCOUTQ, &left), "SIOCOUTQ");
      if (left > 0) usleep(1000);
    }
  }
  usleep(1000 * milliseconds);
}

void TcpServer(const TcpPlan& plan, Child::Parent& parent) {
  if (plan.one_cpu) RunOnOneCpu();
  const Address& address =
      plan.listen.family() != AF_UNSPEC ? plan.listen : plan.server;
  const int listener =
      OpenSocket(address.family(), SOCK_STREAM, plan.server_protocol);
  SetOption(listener, SOL_SOCKET, SO_RCVBUF, kWindowBytes);
  SetOption(listener, SOL_SOCKET, SO_SNDBUF, kWindowBytes);
  if (plan.prepare) plan.prepare(listener);
  SetOption(listener, SOL_SOCKET, SO_REUSEADDR, 1);
  const int port = Bind(listener, address, plan.port);
  Check(listen(listener, 128), "listen");
  parent.Send(port);
  std::vector<int> sockets;
  for (int i = 0; i < plan.connections; ++i) {
    sockets.push_back(Accept(listener));
  }
  TcpReport report;
  report.received = ReceiveFromEach(sockets, plan.upload);
  for (int fd : sockets) {
    SendAll(fd, plan.download);
    report.sent += plan.download;
  }
  Settle(sockets, plan.settle_ms);
  if (plan.first_to_close == FirstToClose::kServer)
    for (int fd : sockets) Check(shutdown(fd, SHUT_WR), "shutdown");
  for (int fd : sockets) {
    report.received += ReceiveUntilEnd(fd);
    // Long after the client's socket became a TIME_WAIT one.
    if (plan.first_to_close == FirstToClose::kClientAtOnce) usleep(200000);
    ReadTcpInfo(fd, &report);
    close(fd);
  }
  parent.Send(report);
}

void TcpClient(const TcpPlan& plan, int port, Child::Parent& parent) {
  if (plan.one_cpu) RunOnOneCpu();
  if (plan.begin_client) plan.begin_client();
  std::vector<int> sockets;
  for (int i = 0; i < plan.connections; ++i) {
    const int fd = plan.open_client
                       ? plan.open_client()
                       : OpenSocket(plan.server.family(), SOCK_STREAM,
                                    plan.client_protocol);
    SetOption(fd, SOL_SOCKET, SO_RCVBUF, kWindowBytes);
    SetOption(fd, SOL_SOCKET, SO_SNDBUF, kWindowBytes);
    if (plan.prepare) plan.prepare(fd);
    Connect(fd, plan.server, port);
    sockets.push_back(fd);
  }
  // A first packet that races with the end of the handshake passes the
  // server's hook twice (tcp_v4_rcv(), "goto lookup").
  if (plan.settle_ms > 0) usleep(1000 * plan.settle_ms);
  TcpReport report;
  for (int fd : sockets) {
    if (plan.send)
      plan.send(fd, plan.upload);
    else
      SendAll(fd, plan.upload);
    report.sent += plan.upload;
  }
  report.received = ReceiveFromEach(sockets, plan.download);
  if (plan.first_to_close == FirstToClose::kServer)
    for (int fd : sockets) report.received += ReceiveUntilEnd(fd);
  // Our acknowledgement of the FIN is there before our FIN.
  Settle(sockets, plan.settle_ms);
  for (int fd : sockets) {
    ReadTcpInfo(fd, &report);
    close(fd);
  }
  parent.Send(report);
}

void UdpReceive(int fd, const UdpPlan& plan, uint64_t bytes, UdpReport* report,
                sockaddr_storage* from) {
  std::vector<char> buffer(1 << 17);
  // Raw IPv4 sockets receive the IP header, too.
  const uint64_t header =
      plan.protocol != 17 && plan.server.family() == AF_INET ? 20 : 0;
  while (report->bytes_received < bytes) {
    WaitReadable(fd);
    socklen_t length = sizeof(*from);
    report->bytes_received += Check(recvfrom(fd, buffer.data(), buffer.size(),
                                             0, Generic(from), &length),
                                    "recvfrom") -
                              header;
    ++report->receive_calls;
  }
}

void UdpSend(int fd, int count, int size, int segments,
             const std::function<void(const std::string&)>& send_one) {
  if (segments > 1) SetOption(fd, IPPROTO_UDP, UDP_SEGMENT, size);
  for (int left = count; left > 0; left -= segments)
    send_one(std::string(size_t{1} * size * std::min(left, segments), 'x'));
}

int UdpOpen(const UdpPlan& plan) {
  const int fd =
      plan.protocol == 17
          ? OpenSocket(plan.server.family(), SOCK_DGRAM)
          : OpenSocket(plan.server.family(), SOCK_RAW, plan.protocol);
  SetOption(fd, SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20);
  SetOption(fd, SOL_SOCKET, SO_SNDBUFFORCE, 16 << 20);
  if (plan.gro) SetOption(fd, IPPROTO_UDP, UDP_GRO, 1);
  return fd;
}

void UdpServer(const UdpPlan& plan, Child::Parent& parent) {
  const int fd = UdpOpen(plan);
  parent.Send(Bind(fd, plan.server));
  UdpReport report;
  sockaddr_storage from = {};
  UdpReceive(fd, plan, uint64_t{1} * plan.upload_count * plan.upload_size,
             &report, &from);
  UdpSend(fd, plan.download_count, plan.download_size, plan.segments,
          [&](const std::string& data) {
            Check(sendto(fd, data.data(), data.size(), 0, Generic(&from),
                         Address::Length(from)),
                  "sendto");
          });
  parent.Send(report);
}

void UdpClient(const UdpPlan& plan, int port, Child::Parent& parent) {
  const int fd = UdpOpen(plan);
  if (plan.prepare) plan.prepare(fd);
  sockaddr_storage to = plan.server.WithPort(plan.protocol == 17 ? port : 0);
  if (plan.connected) Connect(fd, plan.server, plan.protocol == 17 ? port : 0);
  UdpSend(fd, plan.upload_count, plan.upload_size, plan.segments,
          [&](const std::string& data) {
            if (plan.send)
              plan.send(fd, data, to);
            else if (plan.connected)
              Check(send(fd, data.data(), data.size(), 0), "send");
            else
              Check(sendto(fd, data.data(), data.size(), 0, Generic(&to),
                           Address::Length(to)),
                    "sendto");
          });
  UdpReport report;
  sockaddr_storage from;
  const uint64_t bytes = uint64_t{1} * plan.download_count * plan.download_size;
  UdpReceive(fd, plan, bytes, &report, &from);
  parent.Send(report);
}

}  // namespace

void RunOnOneCpu() {
  cpu_set_t set, first;
  Check(sched_getaffinity(0, sizeof(set), &set), "sched_getaffinity");
  CPU_ZERO(&first);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&first) == 0; ++cpu)
    if (CPU_ISSET(cpu, &set)) CPU_SET(cpu, &first);
  Check(sched_setaffinity(0, sizeof(first), &first), "sched_setaffinity");
}

TcpResult RunTcp(const Ends& ends, const TcpPlan& plan) {
  Child server(ends.server_cgroup, *ends.server,
               [&](Child::Parent& parent) { TcpServer(plan, parent); });
  const int port = server.Receive<int>();
  Child client(ends.client_cgroup, *ends.client,
               [&](Child::Parent& parent) { TcpClient(plan, port, parent); });
  TcpResult result;
  result.client = client.Receive<TcpReport>();
  result.server = server.Receive<TcpReport>();
  client.Join();
  server.Join();
  return result;
}

UdpResult RunUdp(const Ends& ends, const UdpPlan& plan) {
  Child server(ends.server_cgroup, *ends.server,
               [&](Child::Parent& parent) { UdpServer(plan, parent); });
  const int port = server.Receive<int>();
  Child client(ends.client_cgroup, *ends.client,
               [&](Child::Parent& parent) { UdpClient(plan, port, parent); });
  UdpResult result;
  result.client = client.Receive<UdpReport>();
  result.server = server.Receive<UdpReport>();
  client.Join();
  server.Join();
  return result;
}

void ReadTcpInfo(int fd, TcpReport* report) {
  tcp_info info = {};
  socklen_t size = sizeof(info);
  Check(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size), "TCP_INFO");
  report->tcp_bytes_sent += info.tcpi_bytes_sent;
  report->tcp_bytes_retrans += info.tcpi_bytes_retrans;
  report->tcp_bytes_acked += info.tcpi_bytes_acked;
  report->tcp_bytes_received += info.tcpi_bytes_received;
}

}  // namespace internal
}  // namespace netmeter
