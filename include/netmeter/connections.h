// SPDX-License-Identifier: BSD-3-Clause
// The state of a service's own TCP connections: round trips, losses, what limits them;
// and the records of connections that have ended. Neither needs root or a loaded meter,
// because the kernel shows each process its own sockets.
//
//   auto connections = netmeter::ReadOwnConnections();
//   if (!connections.ok()) return connections.status();
//   for (const netmeter::Connection& c : *connections)
//     std::cout << c.remote_address << " rtt " << c.rtt_us << " us, retransmitted "
//               << c.retransmitted_segments << "\n";
//
// Only root sees the sockets of other processes, with their services and destinations:
// `netmeter sockets`. docs/connections.md says which kernel has which data.
//
// May change before 2.0.
//
// Threads: the functions may be called from any thread, a FlowDecoder from one thread
// at a time. Like the rest of the library this never throws, aborts, prints, forks or
// starts a thread. Every function returns ResourceExhausted if memory runs out.

#ifndef NETMETER_CONNECTIONS_H_
#define NETMETER_CONNECTIONS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "netmeter/sample.h"

namespace netmeter {
NETMETER_NAMESPACE_BEGIN

// A TCP socket of this process. For a listening socket, only the members up to
// `remote_port` are meaningful. Totals count from the socket's creation.
struct Connection {
  int fd = -1;          // the lowest, if the socket has several descriptors
  uint64_t cookie = 0;  // SO_COOKIE: unique among all sockets since boot
  bool mptcp = false;   // if true, all below is about the first subflow
  std::string state;    // the kernel's name, such as "ESTABLISHED"
  std::string local_address;  // "192.0.2.1" (never mapped), "2001:db8::1"
  uint16_t local_port = 0;
  std::string remote_address;  // empty: not connected
  uint16_t remote_port = 0;
  std::string congestion;  // the congestion control, such as "cubic"

  // Round trips, in microseconds. 0: none measured.
  uint32_t rtt_us = 0;  // smoothed (RFC 6298)
  uint32_t rtt_variation_us = 0;
  uint32_t min_rtt_us = 0;
  uint32_t retransmission_timeout_us = 0;

  // Bytes of payload.
  uint64_t sent_bytes = 0;           // including retransmitted bytes
  uint64_t retransmitted_bytes = 0;  // of sent_bytes
  uint64_t acknowledged_bytes = 0;
  uint64_t received_bytes = 0;
  uint32_t unsent_bytes = 0;  // written by the service, not sent yet; a level

  // Segments.
  uint32_t sent_segments = 0;
  uint32_t received_segments = 0;
  uint32_t retransmitted_segments = 0;
  uint32_t out_of_order_segments = 0;    // received before an earlier one
  uint32_t duplicate_segments = 0;       // needlessly retransmitted (DSACK)
  uint32_t unacknowledged_segments = 0;  // in flight; a level
  uint32_t lost_segments = 0;            // of these, presumed lost; a level

  // Time-outs in a row without an answer from the peer. A level: above 0, the peer does
  // not answer at the moment. The kernel gives up after net.ipv4.tcp_retries2 of them.
  uint32_t timeouts_in_a_row = 0;

  // From Linux 6.7 on. Before it, timeouts_known is false and the others are 0.
  bool timeouts_known = false;
  uint32_t timeouts = 0;         // retransmission time-outs
  uint32_t timeout_time_ms = 0;  // the total time spent in them

  // Bytes a second.
  uint64_t delivery_rate = 0;  // the last measurement
  // The last measurement was limited by what the service had to send.
  bool delivery_limited_by_application = false;
  uint64_t pacing_rate = 0;  // 2^64 - 1: no limit

  // The time with data to send, and the parts of it in which the peer's window or this
  // socket's buffer limited sending, in microseconds. In the rest the network did.
  uint64_t busy_us = 0;
  uint64_t limited_by_receiver_us = 0;
  uint64_t limited_by_buffer_us = 0;

  uint32_t congestion_window_segments = 0;
  uint32_t segment_bytes = 0;      // payload of the largest segment to send
  uint32_t path_mtu = 0;           // bytes
  uint32_t send_window_bytes = 0;  // the peer's; 0: it can take no more
  uint32_t since_sent_ms = 0;      // since the last payload
  uint32_t since_received_ms = 0;

  // struct tcp_info of linux/tcp.h as this kernel wrote it, for values that have no
  // member here. It may be shorter or longer than that of your headers.
  std::string tcp_info;
};

// Returns one socket by its descriptor, even if another process opened the socket.
// Costs eight system calls. Waits briefly if another thread's call holds the socket's
// lock.
//   InvalidArgument   fd is not an open TCP socket
//   Unimplemented     fd is an MPTCP socket, and the kernel is older than 5.16
absl::StatusOr<Connection> ReadConnection(int fd);

// Returns all TCP sockets that this process has open, including listening ones, in the
// order of their descriptors. It does not look at other processes' sockets, so its cost
// does not grow with the host: one system call for each descriptor, and nine for each
// TCP socket. It leaves out sockets that another thread closes meanwhile, and sockets
// for which ReadConnection() returns Unimplemented.
//   NotFound          no /proc is mounted
absl::StatusOr<std::vector<Connection>> ReadOwnConnections();

// A connection that has ended, or with --active one that goes on, as reported by
// `netmeter flows`. docs/connections.md explains each field. A field that the record does
// not have is 0 or empty. If it is kind, transport or path, KindName() and the like say
// "unknown". So they do for a word of a newer netmeter.
struct FlowRecord {
  std::string record;     // "flow"; or "remainder" or "lost": not a connection
  uint64_t start_ns = 0;  // since 1970
  uint64_t end_ns = 0;
  uint64_t duration_ns = 0;
  uint64_t handshake_ns = 0;
  std::string protocol;
  std::string family;
  std::string local_address;
  uint16_t local_port = 0;
  std::string remote_address;
  uint16_t remote_port = 0;
  uint64_t interface_index = 0;
  std::string interface_name;
  uint64_t network = 0;  // inode of the namespace
  uint64_t cookie = 0;   // that of Connection
  Kind kind = static_cast<Kind>(-1);
  std::string service;
  std::string destination;
  Transport transport = static_cast<Transport>(-1);
  Path path = static_cast<Path>(-1);
  std::string uplink;
  uint64_t owner_pid = 0;
  std::string process;
  std::string opened_by;  // "local", "remote"
  std::string end;        // "fin", "rst", "timeout", and so on
  std::string closed_by;  // "local", "remote"
  std::string error;      // such as "ETIMEDOUT"
  bool partial = false;
  uint64_t part = 0;
  uint64_t tx_tcp_flags = 0;  // of all packets, as in TCP's header: 1 is FIN
  uint64_t rx_tcp_flags = 0;
  uint64_t tx_bytes = 0;
  uint64_t rx_bytes = 0;
  uint64_t tx_packets = 0;
  uint64_t rx_packets = 0;
  uint64_t tx_payload_bytes = 0;
  uint64_t rx_payload_bytes = 0;
  uint64_t tx_retransmit_bytes = 0;
  uint64_t rx_retransmit_bytes = 0;
  uint64_t tx_retransmits = 0;  // segments
  uint64_t rtt_us = 0;
  uint64_t min_rtt_us = 0;
  std::string reason;    // of a "remainder"
  uint64_t records = 0;  // 1, or how many are lost or in the rest
  std::string host;      // gethostname(2)
  std::map<std::string, std::string> labels;  // of --label
  // Only of a forwarded flow, whose local end is the client. Its kind is "unknown".
  uint64_t client_interface = 0;
  std::string client_interface_name;
  std::string client_uplink;
  std::string client_mac;   // "02:00:00:00:00:01"
  std::string client_peer;  // public key of WireGuard
  std::string client_name;  // of --client-names
};

// Decodes the output of `netmeter flows --follow --protobuf`. That command needs root
// because it loads programs. A service without root gets the output through a pipe that
// root makes (docs/connections.md has the unit). The decoder makes no system call, so
// the service reads the pipe in its own event loop:
//
//   netmeter::FlowDecoder decoder;
//   netmeter::FlowRecord record;
//   while ((size = read(pipe, buffer, sizeof(buffer))) > 0) {
//     if (!decoder.Append({buffer, size}).ok()) break;
//     while (decoder.Next(&record).value_or(false)) Handle(record);
//   }
class FlowDecoder {
 public:
  // Adds bytes of the stream, which may end within a record. Keeps the bytes that Next()
  // has not returned yet, and up to 64 KiB more. On ResourceExhausted none of `bytes` is
  // added.
  absl::Status Append(absl::string_view bytes);

  // Returns true and the next record in *record. Returns false, with *record unchanged,
  // if the record is not complete yet. Fields of a newer netmeter are ignored.
  //   DataLoss          the bytes are not such a stream; all later calls return it, too
  absl::StatusOr<bool> Next(FlowRecord* record);

 private:
  std::string bytes_;
  size_t taken_ = 0;  // of bytes_, by records
};

NETMETER_NAMESPACE_END
}  // namespace netmeter

#include "netmeter/connections_inline.h"

#endif  // NETMETER_CONNECTIONS_H_
