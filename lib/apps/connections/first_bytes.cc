// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/connections/first_bytes.h"

#include <algorithm>

namespace netmeter {
namespace internal {

FirstBytes::FirstBytes(const nm_config& config, size_t most)
    : config_(config), most_(most) {}

void FirstBytes::Add(const nm_flow_bytes& bytes) {
  // The oldest first.
  if (readings_.size() >= most_) readings_.erase(readings_.begin());
  const auto added = readings_.try_emplace({bytes.born_ns, bytes.event.cookie});
  Reading& reading = added.first->second;
  if (added.second) {
    const nm_u16* const end =
        config_.http_ports +
        std::min<nm_u32>(config_.http_ports_count, NM_MAX_HTTP_PORTS);
    const bool is_http = std::find(config_.http_ports, end, bytes.port) != end;
    nm_naming_start(&reading.naming, is_http ? NM_WIRE_HTTP : NM_WIRE_TLS);
    reading.next = bytes.first_seq + 1;
  }
  if (reading.naming.result != NM_NAMING_MORE) return;
  const uint32_t known = reading.next - bytes.seq;  // a retransmission's
  const uint32_t length = std::min<uint32_t>(bytes.length, NM_FLOW_BYTES);
  if (static_cast<int32_t>(known) < 0) {
    reading.naming.result = NM_NAMING_FAILED;
    return;
  }
  for (uint32_t i = known; i < length; i++) {
    nm_naming_byte(&reading.naming, bytes.bytes[i]);
    if (reading.naming.result != NM_NAMING_MORE) return;
  }
  reading.next = std::max(known, length) + bytes.seq;
}

std::string FirstBytes::Take(const nm_flow_record& record) {
  const auto found = readings_.find({record.state.born_ns, record.state.id});
  if (found == readings_.end()) return "";
  const nm_naming& naming = found->second.naming;
  std::string name;
  if (naming.result == NM_NAMING_FOUND) {
    name.assign(reinterpret_cast<const char*>(naming.name), naming.name_length);
  }
  if (record.event.end != NM_END_ACTIVE) readings_.erase(found);
  return name;
}

}  // namespace internal
}  // namespace netmeter
