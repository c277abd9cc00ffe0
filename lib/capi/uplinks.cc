// SPDX-License-Identifier: BSD-3-Clause
// Uplinks in the C API. Rows point to the strings of the C++ result, and to each other.
// They are made anew by each read.
#include <cstddef>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "lib/base/no_throw.h"
#include "lib/capi/handles.h"
#include "netmeter/meter.h"
#include "netmeter/netmeter.h"
#include "netmeter/uplinks.h"

namespace netmeter {
namespace {

// The structs of version 1.0 of the ABI: none may get shorter, or move a member.
static_assert(sizeof(void*) != 8 || (sizeof(netmeter_uplink_counts) == 80 &&
                                     sizeof(netmeter_uplink_interface) == 72 &&
                                     sizeof(netmeter_forwarded) == 56 &&
                                     sizeof(netmeter_uplink) == 88),
              "a struct grew: WHAT_TO_DO of lib/capi/abi_test.py says "
              "whether it may; if so, correct its size here");

template <typename Row>
Row NewRow() {
  Row row = {};
  row.size = sizeof(row);
  return row;
}

netmeter_uplink_counts RowOf(const UplinkCounts& from) {
  auto row = NewRow<netmeter_uplink_counts>();
  row.interface_bytes = from.interface_bytes;
  row.interface_packets = from.interface_packets;
  row.local_bytes = from.local_bytes;
  row.local_packets = from.local_packets;
  row.forwarded_bytes = from.forwarded_bytes;
  row.forwarded_packets = from.forwarded_packets;
  row.layer2_header_bytes = from.layer2_header_bytes;
  row.unnamed_bytes = from.unnamed_bytes;
  row.unnamed_packets = from.unnamed_packets;
  return row;
}

netmeter_uplink_interface RowOf(const UplinkInterface& from) {
  auto row = NewRow<netmeter_uplink_interface>();
  row.name = from.name.c_str();
  row.not_counted = from.not_counted.c_str();
  row.tx_bytes = from.tx_bytes;
  row.rx_bytes = from.rx_bytes;
  row.tx_packets = from.tx_packets;
  row.rx_packets = from.rx_packets;
  row.index = from.index;
  row.tx_header_bytes = from.tx_header_bytes;
  row.rx_header_bytes = from.rx_header_bytes;
  row.has_left = from.has_left ? 1 : 0;
  return row;
}

netmeter_forwarded RowOf(const ForwardedTraffic& from) {
  auto row = NewRow<netmeter_forwarded>();
  row.interface_name = from.interface.c_str();
  row.client = from.client.c_str();
  row.tx_bytes = from.tx_bytes;
  row.rx_bytes = from.rx_bytes;
  row.tx_packets = from.tx_packets;
  row.rx_packets = from.rx_packets;
  return row;
}

// Nested rows. Their pointers stay valid if the object moves.
template <typename Row>
class Rows {
 public:
  template <typename From>
  explicit Rows(const std::vector<From>& from) {
    rows_.reserve(from.size());
    for (const From& one : from) {
      rows_.push_back(RowOf(one));
      pointers_.push_back(&rows_.back());
    }
  }
  const Row* const* data() const { return pointers_.data(); }
  size_t size() const { return pointers_.size(); }

 private:
  std::vector<Row> rows_;
  std::vector<const Row*> pointers_;
};

// What a netmeter_uplink points to.
struct Nested {
  explicit Nested(const Uplink& from)
      : counts{RowOf(from.tx), RowOf(from.rx)},
        interfaces(from.interfaces),
        forwarded(from.forwarded) {}

  std::vector<netmeter_uplink_counts> counts;
  Rows<netmeter_uplink_interface> interfaces;
  Rows<netmeter_forwarded> forwarded;
};

}  // namespace
}  // namespace netmeter

struct netmeter_uplinks {
  std::vector<netmeter::Uplink> found;
  std::vector<netmeter::Nested> nested;
  std::vector<netmeter_uplink> rows;
};

namespace netmeter {
namespace {

absl::Status Read(const Meter& meter, netmeter_uplinks* uplinks) {
  auto found = meter.ReadUplinks();
  if (!found.ok()) return found.status();
  netmeter_uplinks read;
  read.found = *std::move(found);
  for (const Uplink& one : read.found) {
    read.nested.emplace_back(one);
    const Nested& nested = read.nested.back();
    auto row = NewRow<netmeter_uplink>();
    row.name = one.name.c_str();
    row.tx = &nested.counts[0];
    row.rx = &nested.counts[1];
    row.interfaces = nested.interfaces.data();
    row.interface_count = nested.interfaces.size();
    row.forwarded = nested.forwarded.data();
    row.forwarded_count = nested.forwarded.size();
    row.unknown = one.unknown.c_str();
    row.forwarded_unknown = one.forwarded_unknown.c_str();
    row.is_paid = one.is_paid ? 1 : 0;
    row.leads_to_clients = one.leads_to_clients ? 1 : 0;
    row.forwarded_began_later = one.forwarded_began_later ? 1 : 0;
    read.rows.push_back(row);
  }
  *uplinks = std::move(read);
  return absl::OkStatus();
}

}  // namespace
}  // namespace netmeter

netmeter_uplinks* netmeter_uplinks_new(void) {
  return new (std::nothrow) netmeter_uplinks;
}

void netmeter_uplinks_free(netmeter_uplinks* uplinks) { delete uplinks; }

size_t netmeter_uplinks_count(const netmeter_uplinks* uplinks) {
  return uplinks == nullptr ? 0 : uplinks->rows.size();
}

const netmeter_uplink* netmeter_uplinks_get(const netmeter_uplinks* uplinks,
                                            size_t index) {
  if (index >= netmeter_uplinks_count(uplinks)) return nullptr;
  return &uplinks->rows[index];
}

int netmeter_read_uplinks(netmeter_meter* meter, netmeter_uplinks* uplinks,
                          netmeter_error* error) {
  return netmeter::internal::Return(
      netmeter::internal::WithoutThrowing([&] {
        if (meter == nullptr) {
          return absl::InvalidArgumentError("meter is NULL");
        }
        if (uplinks == nullptr) {
          return absl::InvalidArgumentError("uplinks is NULL");
        }
        return netmeter::Read(*meter->meter, uplinks);
      }),
      error);
}
