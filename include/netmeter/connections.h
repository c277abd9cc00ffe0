// SPDX-License-Identifier: BSD-3-Clause
// How a service's own TCP connections are: round trips, losses, what limits them.
// And the records of its connections that have ended. Neither needs root, or a
// loaded meter: the kernel tells each process of its own sockets.
//
//   auto connections = netmeter::ReadOwnConnections();
//   if (!connections.ok()) return connections.status();
//   for (const netmeter::Connection& c : *connections)
//     std::cout << c.remote_address << " rtt " << c.rtt_us << " us, sent again "
//               << c.retransmitted_segments << "\n";
//
// Of other processes' sockets, and of services and destinations, root alone is told:
// `netmeter sockets`. docs/connections.md says what each kernel has.
//
// Threads: the functions, any; a FlowDecoder, one at a time. As all of the library
// this never throws, aborts, prints, forks or starts a thread. Where there is no
// memory, every function returns ResourceExhausted.

#ifndef NETMETER_CONNECTIONS_H_
#define NETMETER_CONNECTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace netmeter {

// A TCP socket of this process. Of a socket that listens only the first members
// tell something, up to `remote_port`. Totals count from the socket's beginning.
struct Connection {
  int fd = -1;          // of several descriptors of one socket, the lowest
  uint64_t cookie = 0;  // as SO_COOKIE: no other socket of this boot has it
  bool mptcp = false;   // all below is of the first subflow then
  std::string state;    // the kernel's name, such as "ESTABLISHED"
  std::string local_address;  // "192.0.2.1" (never mapped), "2001:db8::1"
  uint16_t local_port = 0;
  std::string remote_address;  // "": not connected
  uint16_t remote_port = 0;
  std::string congestion;  // the congestion control, such as "cubic"

  // Round trips, in microseconds. 0: none measured.
  uint32_t rtt_us = 0;  // smoothed (RFC 6298)
  uint32_t rtt_variation_us = 0;
  uint32_t min_rtt_us = 0;
  uint32_t retransmission_timeout_us = 0;

  // Bytes of payload.
  uint64_t sent_bytes = 0;           // with those that were sent again
  uint64_t retransmitted_bytes = 0;  // of these
  uint64_t acknowledged_bytes = 0;
  uint64_t received_bytes = 0;
  uint32_t unsent_bytes = 0;  // written by the service, not sent yet; a level

  // Segments.
  uint32_t sent_segments = 0;
  uint32_t received_segments = 0;
  uint32_t retransmitted_segments = 0;
  uint32_t out_of_order_segments = 0;    // that came overtaken, or after a loss
  uint32_t duplicate_segments = 0;       // sent again in vain: the peer's DSACK
  uint32_t unacknowledged_segments = 0;  // under way; a level
  uint32_t lost_segments = 0;            // of these, taken for lost; a level

  // Time-outs in a row, without an answer since. A level: above 0, the peer is not
  // heard now. The kernel gives up after net.ipv4.tcp_retries2 of them.
  uint32_t timeouts_in_a_row = 0;

  // From Linux 6.7 on; before it the flag is false and these are 0.
  bool timeouts_known = false;
  uint32_t timeouts = 0;         // retransmission time-outs
  uint32_t timeout_time_ms = 0;  // the time that was lost in them

  // Bytes a second.
  uint64_t delivery_rate = 0;  // as it was measured last
  // That was all there was to send.
  bool delivery_limited_by_application = false;
  uint64_t pacing_rate = 0;  // 2^64 - 1: no limit

  // Since when there was something to send, and what held it back meanwhile, in
  // microseconds: the peer's window, this socket's buffer, or else the network.
  uint64_t busy_us = 0;
  uint64_t limited_by_receiver_us = 0;
  uint64_t limited_by_buffer_us = 0;

  uint32_t congestion_window_segments = 0;
  uint32_t segment_bytes = 0;      // payload of the largest segment to send
  uint32_t path_mtu = 0;           // bytes
  uint32_t send_window_bytes = 0;  // the peer's; 0: it can take no more
  uint32_t since_sent_ms = 0;      // since the last payload
  uint32_t since_received_ms = 0;

  // struct tcp_info of linux/tcp.h, as this kernel wrote it: what has no member
  // here. It may be shorter or longer than that of your headers.
  std::string tcp_info;
};

// One socket, of which the caller has a descriptor, whoever opened it. Costs eight
// system calls. Waits for a moment where another thread's call holds the socket's
// lock.
//   InvalidArgument   fd is no open TCP socket
//   Unimplemented     an MPTCP socket, and the kernel is older than Linux 5.16
absl::StatusOr<Connection> ReadConnection(int fd);

// All TCP sockets that this process has open, in the order of their descriptors;
// those that listen, too. Other processes' sockets are not looked at, so the cost
// does not grow with the host: a system call for each descriptor, and nine for each
// TCP socket. Sockets that another thread closes meanwhile are left out, and so are
// those for which ReadConnection() returns Unimplemented.
//   NotFound          no /proc is mounted
absl::StatusOr<std::vector<Connection>> ReadOwnConnections();

// A connection that has ended, as `netmeter flows` tells of it. docs/connections.md
// explains each field; a field that the record does not have is 0 or "".
struct FlowRecord {
  std::string record;     // "flow"; "remainder" and "lost" are no connections
  uint64_t start_ns = 0;  // since 1970
  uint64_t end_ns = 0;
  uint64_t duration_ns = 0;
  uint64_t handshake_ns = 0;
  std::string protocol;
  std::string family;
  std::string local_address;
  uint64_t local_port = 0;
  std::string remote_address;
  uint64_t remote_port = 0;
  uint64_t interface_index = 0;
  uint64_t cookie = 0;  // that of Connection
  std::string kind;
  std::string service;
  std::string destination;
  std::string transport;
  std::string path;
  std::string uplink;
  uint64_t owner_pid = 0;
  std::string process;
  std::string opened_by;  // "local", "remote"
  std::string end;        // "fin", "rst", "timeout", and so on
  std::string closed_by;  // "local", "remote"
  std::string error;      // such as "ETIMEDOUT"
  uint64_t partial = 0;
  uint64_t part = 0;
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
  std::string reason;    // of a remainder
  uint64_t records = 0;  // that were lost
};

// Reads what `netmeter flows --follow --protobuf` writes. That command needs root, as
// it loads programs; a service without root gets its output through a pipe that root
// makes (docs/connections.md has the unit). The decoder makes no system call, so the
// service reads the pipe as its event loop likes to:
//
//   netmeter::FlowDecoder decoder;
//   netmeter::FlowRecord record;
//   while ((size = read(pipe, buffer, sizeof(buffer))) > 0) {
//     if (!decoder.Append({buffer, size}).ok()) break;
//     while (decoder.Next(&record).value_or(false)) Handle(record);
//   }
class FlowDecoder {
 public:
  // Takes bytes as they come; they may end within a record. Keeps what Next() has not
  // returned yet, and up to 64 KiB beside it. After ResourceExhausted nothing of
  // `bytes` was taken.
  absl::Status Append(absl::string_view bytes);

  // True: *record is the next one. False: the rest of it has to come first; *record
  // is unchanged. A field of a newer netmeter is left out.
  //   DataLoss          the bytes are no such stream; so they stay
  absl::StatusOr<bool> Next(FlowRecord* record);

 private:
  std::string bytes_;
  size_t taken_ = 0;  // of bytes_, by records
};

}  // namespace netmeter

#endif  // NETMETER_CONNECTIONS_H_
