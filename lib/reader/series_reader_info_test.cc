// SPDX-License-Identifier: BSD-3-Clause
// What a reader takes from the map `info`, which a load may change.
#include <gtest/gtest.h>
#include <string.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lib/reader/series_buffers.h"
#include "lib/reader/series_reader.h"

namespace netmeter {
namespace internal {
namespace {

// The bug: a load may change how names on the wire become labels, but a reader kept the
// suffixes of the previous load until it was reopened.
TEST(SeriesReader, NamesOfDestinationsAreThoseOfTheLastLoad) {
  Buffers buffers(1, 64, 8);
  strcpy(buffers.info().suffixes, ".local");
  buffers.SetName(3, "mme");
  buffers.SetWireName(4, "a.test");
  buffers.SetWireName(5, "a.local");
  buffers.stats().slots_allocated = 2;
  for (nm_u16 i = 0; i < 2; ++i) {
    buffers.SetHead(21u + i, 0, 3, static_cast<nm_u16>(4 + i));
    buffers.Add(21u + i, 0, offsetof(nm_cell, tx_bytes), 5);
  }
  SeriesReader reader(buffers.view());
  const auto destinations = [&reader] {
    std::map<std::string, uint64_t> found;
    for (const Sample& sample : reader.ReadService("mme")) {
      found[sample.destination] += sample.tx_bytes;
    }
    return found;
  };
  using Found = std::map<std::string, uint64_t>;
  EXPECT_EQ(destinations(), (Found{{"a.test", 5}, {"a", 5}}));
  // The kernel part writes `info` in such a move.
  strcpy(buffers.info().suffixes, ".test\n.local");
  buffers.stats().moves += 2;
  EXPECT_EQ(destinations(), (Found{{"a", 10}}));
  strcpy(buffers.info().suffixes, ".local");
  buffers.info().fold_unknown = 1;
  buffers.stats().moves += 2;
  EXPECT_EQ(destinations(), (Found{{"other", 5}, {"a", 5}}));
}

// The bug: `netmeter sockets` asks for the key of a slot without a read before it. It
// printed "streamer.local" for the "streamer" of `netmeter list`, and no search found it.
TEST(SeriesReader, KeysAndNamesAreLabelsWithoutAReadBefore) {
  Buffers buffers(1, 64, 8);
  strcpy(buffers.info().suffixes, ".local");
  buffers.info().fold_unknown = 1;
  buffers.SetName(3, "mme");
  buffers.SetWireName(4, "streamer.local");
  buffers.SetWireName(5, "elsewhere.test");
  buffers.SetHead(21, 0, 3, 4);
  const SeriesReader reader(buffers.view());
  Sample key;
  ASSERT_TRUE(reader.ReadKey(21, &key));
  EXPECT_EQ(key.destination, "streamer");
  std::string name;
  ASSERT_TRUE(reader.ReadName(5, &name));
  EXPECT_EQ(name, "other");
}

// The bug: a load that keeps the tables may turn the socket table on or off. A reader
// opened before it still reported that connections are unknown, or that there are none.
TEST(SeriesReader, ConnectionsAreKnownWhereTheLastLoadCountsThem) {
  Buffers buffers(1, 64, 8);
  buffers.SetName(3, "mme");
  buffers.stats().slots_allocated = 1;
  buffers.SetHead(21, 0, 3, 0);
  buffers.tcp(21).opened = 7;
  buffers.info().features = 0;
  SeriesReader reader(buffers.view());
  const auto connections = [&reader] {
    const std::vector<Sample> samples = reader.ReadAll();
    return samples.size() == 1 ? samples[0].tcp : TcpConnections();
  };
  EXPECT_FALSE(connections().known);
  buffers.info().features = NM_FEATURE_SOCKET_TABLE;
  buffers.stats().moves += 2;
  EXPECT_TRUE(connections().known);
  EXPECT_EQ(connections().opened, 7u);
  buffers.info().features = 0;
  buffers.stats().moves += 2;
  EXPECT_FALSE(connections().known);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
