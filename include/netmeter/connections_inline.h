// SPDX-License-Identifier: BSD-3-Clause
// The functions of connections.h over the C API (connections_c.h), for the reason at the
// top of meter_inline.h. Programs that Bazel builds use them, too.

#ifndef NETMETER_CONNECTIONS_INLINE_H_
#define NETMETER_CONNECTIONS_INLINE_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "netmeter/connections.h"
#include "netmeter/connections_c.h"
#include "netmeter/status_inline.h"

namespace netmeter {
NETMETER_NAMESPACE_BEGIN
namespace internal {

inline Connection ConnectionOf(const netmeter_connection& from) {
  Connection to;
  to.fd = from.fd;
  to.cookie = from.cookie;
  to.mptcp = from.mptcp != 0;
  to.state = from.state;
  to.local_address = from.local_address;
  to.local_port = from.local_port;
  to.remote_address = from.remote_address;
  to.remote_port = from.remote_port;
  to.congestion = from.congestion;
  to.rtt_us = from.rtt_us;
  to.rtt_variation_us = from.rtt_variation_us;
  to.min_rtt_us = from.min_rtt_us;
  to.retransmission_timeout_us = from.retransmission_timeout_us;
  to.sent_bytes = from.sent_bytes;
  to.retransmitted_bytes = from.retransmitted_bytes;
  to.acknowledged_bytes = from.acknowledged_bytes;
  to.received_bytes = from.received_bytes;
  to.unsent_bytes = from.unsent_bytes;
  to.sent_segments = from.sent_segments;
  to.received_segments = from.received_segments;
  to.retransmitted_segments = from.retransmitted_segments;
  to.out_of_order_segments = from.out_of_order_segments;
  to.duplicate_segments = from.duplicate_segments;
  to.unacknowledged_segments = from.unacknowledged_segments;
  to.lost_segments = from.lost_segments;
  to.timeouts_in_a_row = from.timeouts_in_a_row;
  to.timeouts_known = from.timeouts_known != 0;
  to.timeouts = from.timeouts;
  to.timeout_time_ms = from.timeout_time_ms;
  to.delivery_rate = from.delivery_rate;
  to.delivery_limited_by_application =
      from.delivery_limited_by_application != 0;
  to.pacing_rate = from.pacing_rate;
  to.busy_us = from.busy_us;
  to.limited_by_receiver_us = from.limited_by_receiver_us;
  to.limited_by_buffer_us = from.limited_by_buffer_us;
  to.congestion_window_segments = from.congestion_window_segments;
  to.segment_bytes = from.segment_bytes;
  to.path_mtu = from.path_mtu;
  to.send_window_bytes = from.send_window_bytes;
  to.since_sent_ms = from.since_sent_ms;
  to.since_received_ms = from.since_received_ms;
  to.tcp_info.assign(reinterpret_cast<const char*>(from.tcp_info),
                     from.tcp_info_length);
  return to;
}

// Calls visit(number, name, member) for each member of a FlowRecord, which may be const:
// its number in flows.proto, its name in JSON, and a pointer.
template <typename Record, typename Visit>
void VisitFields(Record* record, const Visit& visit) {
  visit(1, "record", &record->record);
  visit(2, "start_ns", &record->start_ns);
  visit(3, "end_ns", &record->end_ns);
  visit(4, "duration_ns", &record->duration_ns);
  visit(5, "protocol", &record->protocol);
  visit(6, "family", &record->family);
  visit(7, "local_address", &record->local_address);
  visit(8, "local_port", &record->local_port);
  visit(9, "remote_address", &record->remote_address);
  visit(10, "remote_port", &record->remote_port);
  visit(11, "interface", &record->interface_index);
  visit(46, "interface_name", &record->interface_name);
  visit(45, "network", &record->network);
  visit(12, "cookie", &record->cookie);
  visit(13, "kind", &record->kind);
  visit(14, "service", &record->service);
  visit(15, "destination", &record->destination);
  visit(16, "transport", &record->transport);
  visit(17, "path", &record->path);
  visit(18, "uplink", &record->uplink);
  visit(19, "owner_pid", &record->owner_pid);
  visit(20, "process", &record->process);
  visit(21, "opened_by", &record->opened_by);
  visit(22, "handshake_ns", &record->handshake_ns);
  visit(23, "end", &record->end);
  visit(24, "closed_by", &record->closed_by);
  visit(25, "error", &record->error);
  visit(26, "partial", &record->partial);
  visit(27, "part", &record->part);
  visit(28, "tx_tcp_flags", &record->tx_tcp_flags);
  visit(29, "rx_tcp_flags", &record->rx_tcp_flags);
  visit(30, "tx_bytes", &record->tx_bytes);
  visit(31, "rx_bytes", &record->rx_bytes);
  visit(32, "tx_packets", &record->tx_packets);
  visit(33, "rx_packets", &record->rx_packets);
  visit(34, "tx_payload_bytes", &record->tx_payload_bytes);
  visit(35, "rx_payload_bytes", &record->rx_payload_bytes);
  visit(36, "tx_retransmit_bytes", &record->tx_retransmit_bytes);
  visit(37, "rx_retransmit_bytes", &record->rx_retransmit_bytes);
  visit(38, "tx_retransmits", &record->tx_retransmits);
  visit(39, "rtt_us", &record->rtt_us);
  visit(40, "min_rtt_us", &record->min_rtt_us);
  visit(41, "reason", &record->reason);
  visit(42, "records", &record->records);
  visit(43, "host", &record->host);
  visit(44, "labels", &record->labels);
  visit(47, "client_interface", &record->client_interface);
  visit(48, "client_interface_name", &record->client_interface_name);
  visit(49, "client_uplink", &record->client_uplink);
  visit(50, "client_mac", &record->client_mac);
  visit(51, "client_peer", &record->client_peer);
  visit(52, "client_name", &record->client_name);
}

inline void AssignField(const netmeter_flow_field& from, std::string* to) {
  to->assign(from.text, from.text_length);
}
inline void AssignField(const netmeter_flow_field& from,
                        std::map<std::string, std::string>* to) {
  (*to)[std::string(from.label, from.label_length)].assign(from.text,
                                                           from.text_length);
}
template <typename T>
void AssignField(const netmeter_flow_field& from, T* to) {
  *to = static_cast<T>(from.value);
}

// Callbacks of the C API.
inline int TakeConnection(const netmeter_connection* from, void* connection) {
  const absl::Status status = OutOfMemoryAsStatus([&] {
    *static_cast<Connection*>(connection) = ConnectionOf(*from);
    return absl::OkStatus();
  });
  return static_cast<int>(status.code());
}

inline int AddConnection(const netmeter_connection* connection,
                         void* connections) {
  const absl::Status status = OutOfMemoryAsStatus([&] {
    static_cast<std::vector<Connection>*>(connections)
        ->push_back(ConnectionOf(*connection));
    return absl::OkStatus();
  });
  return static_cast<int>(status.code());
}

inline int TakeFlowField(const netmeter_flow_field* from, void* record) {
  const absl::Status status = OutOfMemoryAsStatus([&] {
    VisitFields(static_cast<FlowRecord*>(record),
                [&](uint32_t number, const char*, auto* member) {
                  if (number == from->number) AssignField(*from, member);
                });
    return absl::OkStatus();
  });
  return static_cast<int>(status.code());
}

}  // namespace internal

inline absl::StatusOr<Connection> ReadConnection(int fd) {
  Connection connection;
  netmeter_error error;
  const int code = netmeter_read_connection(fd, internal::TakeConnection,
                                            &connection, &error);
  if (code != NETMETER_OK) return internal::StatusOf(code, error);
  return connection;
}

inline absl::StatusOr<std::vector<Connection>> ReadOwnConnections() {
  std::vector<Connection> connections;
  netmeter_error error;
  const int code =
      netmeter_visit_connections(internal::AddConnection, &connections, &error);
  if (code != NETMETER_OK) return internal::StatusOf(code, error);
  return connections;
}

inline absl::Status FlowDecoder::Append(absl::string_view bytes) {
  // More than the longest record.
  constexpr size_t kMostBytes = 64 * 1024;
  return internal::OutOfMemoryAsStatus([&] {
    if (taken_ == bytes_.size()) {
      bytes_.clear();
      taken_ = 0;
    } else if (taken_ > kMostBytes) {
      bytes_.erase(0, taken_);
      taken_ = 0;
    }
    bytes_.append(bytes.data(), bytes.size());
    return absl::OkStatus();
  });
}

inline absl::StatusOr<bool> FlowDecoder::Next(FlowRecord* record) {
  FlowRecord read;
  size_t used = 0;
  netmeter_error error;
  const int code =
      netmeter_decode_flow(bytes_.data() + taken_, bytes_.size() - taken_,
                           internal::TakeFlowField, &read, &used, &error);
  if (code != NETMETER_OK) return internal::StatusOf(code, error);
  if (used == 0) return false;
  *record = std::move(read);
  taken_ += used;
  return true;
}

NETMETER_NAMESPACE_END
}  // namespace netmeter

#endif  // NETMETER_CONNECTIONS_INLINE_H_
