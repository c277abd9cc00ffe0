// SPDX-License-Identifier: BSD-3-Clause
// The functions of connections.h over the C API (connections_c.h), for the reason at the
// top of meter_inline.h. Programs that Bazel builds use them, too.

#ifndef NETMETER_CONNECTIONS_INLINE_H_
#define NETMETER_CONNECTIONS_INLINE_H_

#include <array>
#include <cstdint>
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

// A member of FlowRecord, under its name and number in flows.proto. Either `text` or
// `value` is null.
struct FlowRecordField {
  uint32_t number;
  const char* name;
  std::string FlowRecord::*text;
  uint64_t FlowRecord::*value;
};

inline const std::array<FlowRecordField, 44>& FlowRecordFields() {
  using Record = FlowRecord;
  static const std::array<FlowRecordField, 44> fields = {
      {{1, "record", &Record::record, nullptr},
       {2, "start_ns", nullptr, &Record::start_ns},
       {3, "end_ns", nullptr, &Record::end_ns},
       {4, "duration_ns", nullptr, &Record::duration_ns},
       {5, "protocol", &Record::protocol, nullptr},
       {6, "family", &Record::family, nullptr},
       {7, "local_address", &Record::local_address, nullptr},
       {8, "local_port", nullptr, &Record::local_port},
       {9, "remote_address", &Record::remote_address, nullptr},
       {10, "remote_port", nullptr, &Record::remote_port},
       {11, "interface", nullptr, &Record::interface_index},
       {46, "interface_name", &Record::interface_name, nullptr},
       {45, "network", nullptr, &Record::network},
       {12, "cookie", nullptr, &Record::cookie},
       {13, "kind", &Record::kind, nullptr},
       {14, "service", &Record::service, nullptr},
       {15, "destination", &Record::destination, nullptr},
       {16, "transport", &Record::transport, nullptr},
       {17, "path", &Record::path, nullptr},
       {18, "uplink", &Record::uplink, nullptr},
       {19, "owner_pid", nullptr, &Record::owner_pid},
       {20, "process", &Record::process, nullptr},
       {21, "opened_by", &Record::opened_by, nullptr},
       {22, "handshake_ns", nullptr, &Record::handshake_ns},
       {23, "end", &Record::end, nullptr},
       {24, "closed_by", &Record::closed_by, nullptr},
       {25, "error", &Record::error, nullptr},
       {26, "partial", nullptr, &Record::partial},
       {27, "part", nullptr, &Record::part},
       {28, "tx_tcp_flags", nullptr, &Record::tx_tcp_flags},
       {29, "rx_tcp_flags", nullptr, &Record::rx_tcp_flags},
       {30, "tx_bytes", nullptr, &Record::tx_bytes},
       {31, "rx_bytes", nullptr, &Record::rx_bytes},
       {32, "tx_packets", nullptr, &Record::tx_packets},
       {33, "rx_packets", nullptr, &Record::rx_packets},
       {34, "tx_payload_bytes", nullptr, &Record::tx_payload_bytes},
       {35, "rx_payload_bytes", nullptr, &Record::rx_payload_bytes},
       {36, "tx_retransmit_bytes", nullptr, &Record::tx_retransmit_bytes},
       {37, "rx_retransmit_bytes", nullptr, &Record::rx_retransmit_bytes},
       {38, "tx_retransmits", nullptr, &Record::tx_retransmits},
       {39, "rtt_us", nullptr, &Record::rtt_us},
       {40, "min_rtt_us", nullptr, &Record::min_rtt_us},
       {41, "reason", &Record::reason, nullptr},
       {42, "records", nullptr, &Record::records}}};
  return fields;
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
    auto* const to = static_cast<FlowRecord*>(record);
    for (const FlowRecordField& field : FlowRecordFields()) {
      if (field.number != from->number) continue;
      if (field.text != nullptr && from->text != nullptr) {
        (to->*field.text).assign(from->text, from->text_length);
      } else if (field.value != nullptr && from->text == nullptr) {
        to->*field.value = from->value;
      }
    }
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
