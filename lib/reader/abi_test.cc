// SPDX-License-Identifier: BSD-3-Clause
// A second copy of the layout and the numbers of version 1. A change in one place changes
// what programs on other hosts were built with.
#include "netmeter/abi.h"

#include <gtest/gtest.h>
#include <stddef.h>
#include <string.h>

#include <set>

namespace {

TEST(Abi, SizesAreThoseOfVersionOne) {
  EXPECT_EQ(sizeof(nm_cell), 64u);
  EXPECT_EQ(sizeof(nm_tcp), 160u);
  EXPECT_EQ(sizeof(nm_name), 72u);
  EXPECT_EQ(sizeof(nm_stats), 512u);
  EXPECT_EQ(sizeof(nm_info), 1168u);
  EXPECT_EQ(sizeof(nm_series_key), 8u);
  EXPECT_EQ(sizeof(nm_series_value), 136u);
  EXPECT_EQ(sizeof(nm_uplink_key), 20u);
  EXPECT_EQ(sizeof(nm_interface_key), 8u);
  EXPECT_EQ(sizeof(nm_interface), 112u);
  EXPECT_EQ(sizeof(nm_forwarded_key), 12u);
  EXPECT_EQ(sizeof(nm_forwarded), 16u);
  EXPECT_EQ(sizeof(nm_client_key), 24u);
  EXPECT_EQ(sizeof(nm_client), 32u);
}

TEST(Abi, CellsAreSelfDescribing) {
  EXPECT_EQ(offsetof(nm_cell, service), 0u);
  EXPECT_EQ(offsetof(nm_cell, destination), 2u);
  EXPECT_EQ(offsetof(nm_cell, transport), 4u);
  EXPECT_EQ(offsetof(nm_cell, path), 5u);
  EXPECT_EQ(offsetof(nm_cell, kind), 6u);
  EXPECT_EQ(offsetof(nm_cell, flags), 7u);
  EXPECT_EQ(offsetof(nm_cell, tx_bytes), 8u);
  EXPECT_EQ(offsetof(nm_cell, rx_bytes), 16u);
  EXPECT_EQ(offsetof(nm_cell, tx_packets), 24u);
  EXPECT_EQ(offsetof(nm_cell, rx_packets), 32u);
  EXPECT_EQ(offsetof(nm_cell, tx_payload_bytes), 40u);
  EXPECT_EQ(offsetof(nm_cell, rx_payload_bytes), 48u);
  EXPECT_EQ(offsetof(nm_cell, tx_retransmit_bytes), 56u);
}

TEST(Abi, ConnectionsAreSelfDescribing) {
  EXPECT_EQ(offsetof(nm_tcp, kind), 6u);
  EXPECT_EQ(offsetof(nm_tcp, opened), 8u);
  EXPECT_EQ(offsetof(nm_tcp, accepted), 16u);
  EXPECT_EQ(offsetof(nm_tcp, closed), 24u);
  EXPECT_EQ(offsetof(nm_tcp, failed), 32u);
  EXPECT_EQ(offsetof(nm_tcp, rtt_us), 40u);
  EXPECT_EQ(offsetof(nm_tcp, rtt_buckets), 48u);
  EXPECT_EQ(offsetof(nm_tcp, resets_sent), 128u);
  EXPECT_EQ(offsetof(nm_tcp, resets_received), 136u);
  EXPECT_EQ(offsetof(nm_tcp, timeouts), 144u);
  EXPECT_EQ(offsetof(nm_tcp, retransmitted_segments), 152u);
  const nm_u32 bounds[] = NM_RTT_BOUNDS_US;
  EXPECT_EQ(sizeof(bounds) / sizeof(bounds[0]), NM_RTT_BUCKETS - 1u);
}

TEST(Abi, NamesInfoAndStatsAreWhereTheyWere) {
  EXPECT_EQ(offsetof(nm_name, length), 0u);
  EXPECT_EQ(offsetof(nm_name, bytes), 8u);
  EXPECT_EQ(offsetof(nm_info, magic), 0u);
  EXPECT_EQ(offsetof(nm_info, abi_major), 8u);
  EXPECT_EQ(offsetof(nm_info, abi_minor), 10u);
  EXPECT_EQ(offsetof(nm_info, info_size), 12u);
  EXPECT_EQ(offsetof(nm_info, cells_per_series), 28u);
  EXPECT_EQ(offsetof(nm_info, max_series), 32u);
  EXPECT_EQ(offsetof(nm_info, max_names), 36u);
  EXPECT_EQ(offsetof(nm_info, created_ns), 48u);
  EXPECT_EQ(offsetof(nm_info, closed), 96u);
  EXPECT_EQ(offsetof(nm_info, version), 104u);
  EXPECT_EQ(offsetof(nm_info, suffixes), 776u);
  EXPECT_EQ(offsetof(nm_info, tcp_size), 968u);
  EXPECT_EQ(offsetof(nm_info, adds_received), 972u);
  EXPECT_EQ(offsetof(nm_info, adds_sent), 973u);
  EXPECT_EQ(offsetof(nm_info, uplinks), 974u);
  EXPECT_EQ(offsetof(nm_info, decimal_sizes), 1002u);
  EXPECT_EQ(offsetof(nm_info, first_series), 1004u);
  EXPECT_EQ(offsetof(nm_info, paid_uplinks), 1014u);
  EXPECT_EQ(offsetof(nm_info, client_uplinks), 1016u);
  EXPECT_EQ(offsetof(nm_info, uplinks_network), 1024u);
  EXPECT_EQ(offsetof(nm_info, forwarded_since_ns), 1032u);
  EXPECT_EQ(offsetof(nm_info, config_hash), 1040u);
  EXPECT_EQ(offsetof(nm_info, reserved), 1048u);
  EXPECT_EQ(NM_INFO_LEAST_BYTES, 1040);
  EXPECT_EQ(offsetof(nm_stats, reserved), 224u);
  EXPECT_EQ(NM_STATS_LEAST_BYTES, 224);
  EXPECT_EQ(offsetof(nm_stats, slots_allocated), 0u);
  EXPECT_EQ(offsetof(nm_stats, refused_controls), 112u);
}

TEST(Abi, UplinksAreWhereTheyWere) {
  EXPECT_EQ(NM_FORWARDED_INDEX(1, 15), 31);
  EXPECT_EQ(offsetof(nm_uplink_key, name), 4u);
  EXPECT_EQ(offsetof(nm_interface_key, uplink), 4u);
  EXPECT_EQ(offsetof(nm_interface_key, stay), 6u);
  EXPECT_EQ(offsetof(nm_interface_counts, rx_bytes), 8u);
  EXPECT_EQ(offsetof(nm_interface_counts, tx_packets), 16u);
  EXPECT_EQ(offsetof(nm_interface, begin), 16u);
  EXPECT_EQ(offsetof(nm_interface, end), 48u);
  EXPECT_EQ(offsetof(nm_interface, began_ns), 80u);
  EXPECT_EQ(offsetof(nm_interface, ended_ns), 88u);
  EXPECT_EQ(offsetof(nm_interface, tx_header), 96u);
  EXPECT_EQ(offsetof(nm_forwarded_key, out), 4u);
  EXPECT_EQ(offsetof(nm_forwarded_key, uplinks), 8u);
  EXPECT_EQ(offsetof(nm_forwarded, packets), 8u);
  EXPECT_EQ(offsetof(nm_client_key, interface), 16u);
  EXPECT_EQ(offsetof(nm_client_key, uplink), 20u);
  EXPECT_EQ(offsetof(nm_client, rx_bytes), 8u);
  EXPECT_EQ(offsetof(nm_client, tx_packets), 16u);
}

TEST(Abi, MagicIsReadableInMemory) {
  const nm_u64 magic = NM_MAGIC;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  EXPECT_EQ(memcmp(&magic, "LIBNETM1", 8), 0);
#endif
}

TEST(Abi, ReservedSlotsAreDistinctAndBelowTheFirst) {
  std::set<int> slots;
  for (int name = NM_NAME_UNATTRIBUTED; name <= NM_NAME_OVERFLOW; ++name) {
    for (int transport = 0; transport < NM_TRANSPORT_COUNT; ++transport) {
      for (int path = 0; path < NM_PATH_COUNT; ++path) {
        slots.insert(NM_SLOT_RESERVED(name, transport, path));
      }
    }
  }
  EXPECT_EQ(slots.size(), 20u);
  EXPECT_EQ(*slots.begin(), 1);
  EXPECT_EQ(*slots.rbegin(), NM_SLOT_FIRST - 1);
}

TEST(Abi, ControlNumbersAreThoseOfVersionOne) {
  EXPECT_EQ(NM_SOL, 0x6e74);
  EXPECT_EQ(NM_REGISTER, 1);
  EXPECT_EQ(NM_TAG, 2);
  EXPECT_EQ(NM_NAME_BYTES, 64);
}

}  // namespace
