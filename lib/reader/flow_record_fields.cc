// SPDX-License-Identifier: BSD-3-Clause
#include "lib/reader/flow_record_fields.h"

namespace netmeter {
namespace internal {

const std::vector<FlowRecordField>& FlowRecordFields() {
  using Record = FlowRecord;
  static const auto* const fields = new std::vector<FlowRecordField>{
      {1, "record", &Record::record, nullptr},
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
      {42, "records", nullptr, &Record::records}};
  return *fields;
}

}  // namespace internal
}  // namespace netmeter
