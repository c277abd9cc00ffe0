// SPDX-License-Identifier: BSD-3-Clause
// Traffic with an exactly known payload, between two child processes. These
// functions run in the children. One that fails ends its child.

#ifndef NETMETER_TEST_LIVE_TRAFFIC_H_
#define NETMETER_TEST_LIVE_TRAFFIC_H_

#include <cstdint>
#include <functional>
#include <string>

#include "lib/testing/net_namespace.h"
#include "test/live/child.h"
#include "test/live/sockets.h"

namespace netmeter {
namespace internal {

// What each end of a TCP connection saw; the tcp_* fields are TCP_INFO's,
// after the last byte and before close().
struct TcpReport {
  uint64_t sent = 0;
  uint64_t received = 0;
  uint64_t tcp_bytes_sent = 0;  // retransmissions included
  uint64_t tcp_bytes_retrans = 0;
  uint64_t tcp_bytes_acked = 0;     // SYN included at the connecting end
  uint64_t tcp_bytes_received = 0;  // FIN included
};

enum class FirstToClose {
  kServer,  // waits for the client's FIN before close(): no TIME_WAIT traffic
  kClientAtOnce,  // the peer's FIN comes much later, to a TIME_WAIT socket
};

struct TcpPlan {
  TcpPlan() = default;
  TcpPlan(const Address& to, uint64_t upload_bytes, uint64_t download_bytes)
      : server(to), upload(upload_bytes), download(download_bytes) {}

  Address server;
  Address listen;  // if not set: server
  int port = 0;    // 0: any
  uint64_t upload = 0;
  uint64_t download = 0;
  int connections = 1;  // all open at the same time
  FirstToClose first_to_close = FirstToClose::kServer;
  // How long the server is silent before it sends the first FIN: a duplicate
  // that is still under way would find no socket, and so no hook. Negative:
  // the FIN follows the data at once.
  int settle_ms = 20;
  // Both ends on one CPU: packets of one connection then never overtake each
  // other on the way, which in an emulated guest they do. Tests of large
  // transfers set it to false.
  bool one_cpu = true;
  std::function<void(int socket)> prepare;  // of both ends, before connect()
  std::function<void()> begin_client;       // before its first socket
  std::function<int()> open_client;         // instead of socket(2)
  // Sends this number of the client's bytes. Without it the client calls send(2).
  std::function<void(int socket, uint64_t bytes)> send;
  int client_protocol = 0;  // of socket(2): IPPROTO_MPTCP, say
  int server_protocol = 0;
};

// The namespaces of the two ends.
struct Ends {
  const Cgroup* client_cgroup = nullptr;
  const NetNamespace* client = nullptr;
  const Cgroup* server_cgroup = nullptr;
  const NetNamespace* server = nullptr;
};

struct TcpResult {
  TcpReport client;  // sums over all connections
  TcpReport server;
};

// Connects, sends the upload, receives the download, closes; returns when
// both ends have ended.
TcpResult RunTcp(const Ends& ends, const TcpPlan& plan);

struct Datagrams {
  int count, size;
};

struct UdpPlan {
  UdpPlan() = default;
  UdpPlan(const Address& to, Datagrams up, Datagrams down = {0, 0})
      : server(to),
        upload_count(up.count),
        upload_size(up.size),
        download_count(down.count),
        download_size(down.size) {}

  Address server;
  int upload_count = 0;  // datagrams
  int upload_size = 0;
  int download_count = 0;
  int download_size = 0;
  int segments = 1;  // datagrams a send (UDP_SEGMENT)
  bool gro = false;  // receive several at once (UDP_GRO)
  bool connected = true;
  int protocol = 17;                        // of SOCK_RAW if not 17
  std::function<void(int socket)> prepare;  // the client's
  // Sends one datagram of the client. Without it the client calls send(2).
  std::function<void(int socket, const std::string& datagram,
                     const sockaddr_storage& to)>
      send;
};

struct UdpReport {
  uint64_t bytes_received = 0;
  uint64_t receive_calls = 0;  // fewer than datagrams: UDP_GRO worked
};

struct UdpResult {
  UdpReport client;
  UdpReport server;
};

UdpResult RunUdp(const Ends& ends, const UdpPlan& plan);

// Moves the calling process to the first CPU.
void RunOnOneCpu();

void ReadTcpInfo(int fd, TcpReport* report);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_TEST_LIVE_TRAFFIC_H_
