// SPDX-License-Identifier: BSD-3-Clause
// Decodes records that the code of `netmeter flows --protobuf` wrote.
#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "lib/apps/connections/flow.h"
#include "lib/apps/connections/origin.h"
#include "netmeter/connections.h"

namespace netmeter {
namespace internal {
namespace {

FlowRow Row() {
  FlowRow row;
  row.record.state.local[2] = row.record.state.remote[2] = htonl(0xffff);
  row.record.state.local[3] = htonl(0xc0000202);   // 192.0.2.2
  row.record.state.remote[3] = htonl(0xcb007107);  // 203.0.113.7
  row.record.state.local_port = 40000;
  row.record.state.remote_port = 443;
  row.record.state.flags = NM_FLOW_PARTIAL;
  row.record.state.srtt_us = 612400 << 3;
  row.start_ns = 1000000000000000000;
  row.end_ns = row.start_ns + 3000;
  row.series.kind = Kind::kService;
  row.series.name = "subscriberdb";
  row.series.destination = "streamer";
  row.series.transport = Transport::kTcp;
  row.process = "subscriberdb";
  row.counts.tx_bytes = 5000;
  row.counts.rx_bytes = uint64_t{1} << 40;
  return row;
}

std::string Stream(const FlowRow& row) {
  std::string bytes;
  AppendProtobuf(row, Origin(), &bytes);
  return bytes;
}

// As `netmeter flows --json` prints a member of a FlowRecord.
std::string TextOf(uint64_t value) { return std::to_string(value); }
std::string TextOf(const std::string& text) { return text; }
std::string TextOf(Kind kind) { return KindName(kind); }
std::string TextOf(Transport transport) { return TransportName(transport); }
std::string TextOf(Path path) { return PathName(path); }
std::string TextOf(const std::map<std::string, std::string>& labels) {
  return nlohmann::json(labels).dump();
}

// By number: its name and text in the record.
std::map<uint32_t, std::pair<std::string, std::string>> FieldsOf(
    const FlowRecord& record) {
  std::map<uint32_t, std::pair<std::string, std::string>> fields;
  VisitFields(&record,
              [&](uint32_t number, const char* name, const auto* member) {
                fields[number] = {name, TextOf(*member)};
              });
  return fields;
}

TEST(FlowDecoder, KnowsEveryFieldUnderItsNumber) {
  auto fields = FieldsOf(FlowRecord());
  for (const FlowField& field : FlowFields()) {
    EXPECT_EQ(fields[field.number].first, field.name);
    fields.erase(field.number);
  }
  // Those of Origin.
  EXPECT_EQ(fields.size(), 2U);
  EXPECT_EQ(fields[43].first, "host");
  EXPECT_EQ(fields[44].first, "labels");
}

TEST(FlowDecoder, ReadsWhatTheCommandWrites) {
  const auto origin = Origin::Make({"site=ulm", "rack=", "a b=c=d"});
  ASSERT_TRUE(origin.ok());
  std::string stream;
  AppendProtobuf(Row(), *origin, &stream);
  FlowDecoder decoder;
  FlowRecord record;
  ASSERT_TRUE(decoder.Append(stream).ok());
  ASSERT_TRUE(*decoder.Next(&record));
  auto fields = FieldsOf(record);
  std::string line;
  AppendJson(Row(), *origin, &line);
  const nlohmann::json json = nlohmann::json::parse(line);
  for (const auto& item : json.items()) {
    const std::string& name = item.key();
    const nlohmann::json& value = item.value();
    const auto found =
        std::find_if(fields.begin(), fields.end(),
                     [&](const auto& one) { return one.second.first == name; });
    ASSERT_NE(found, fields.end()) << name;
    EXPECT_EQ(found->second.second,
              value.is_string() ? value.get<std::string>() : value.dump())
        << name;
    fields.erase(found);
  }
  // What the row does not have.
  for (const auto& [number, field] : fields) {
    EXPECT_TRUE(field.second.empty() || field.second == "0") << field.first;
  }
  EXPECT_EQ(record.service, "subscriberdb");
  EXPECT_EQ(record.kind, Kind::kService);
  EXPECT_EQ(record.path, Path::kDirect);
  EXPECT_EQ(record.remote_address, "203.0.113.7");
  EXPECT_EQ(record.remote_port, 443);
  EXPECT_EQ(record.partial, true);
  EXPECT_EQ(record.rx_bytes, uint64_t{1} << 40);
  EXPECT_EQ(record.labels.at("a b"), "c=d");
  EXPECT_FALSE(*decoder.Next(&record));
}

TEST(FlowDecoder, WithoutASeriesAndForANewWordTheEnumsAreUnknown) {
  FlowRow row = Row();
  row.line = FlowLine::kLost;
  const std::string lost = Stream(row);
  // record "flow", transport "quic"
  const std::string newer(
      "\x0d\x0a\x04"
      "flow\x82\x01\x04quic");
  FlowDecoder decoder;
  for (const std::string& stream : {lost, newer}) {
    FlowRecord record;
    ASSERT_TRUE(decoder.Append(stream).ok());
    ASSERT_TRUE(*decoder.Next(&record));
    EXPECT_STREQ(KindName(record.kind), "unknown");
    EXPECT_STREQ(TransportName(record.transport), "unknown");
    EXPECT_STREQ(PathName(record.path), "unknown");
  }
}

TEST(FlowDecoder, TakesTheBytesAsTheyCome) {
  std::string stream;
  for (uint64_t i = 0; i < 1000; ++i) {
    FlowRow row = Row();
    row.counts.tx_packets = i;
    row.process.assign(i % 300, 'p');
    AppendProtobuf(row, Origin(), &stream);
  }
  for (const size_t piece : {size_t{1}, size_t{7}, size_t{100000}}) {
    FlowDecoder decoder;
    FlowRecord record;
    uint64_t count = 0;
    for (size_t at = 0; at < stream.size(); at += piece) {
      ASSERT_TRUE(decoder.Append(stream.substr(at, piece)).ok());
      while (*decoder.Next(&record)) {
        EXPECT_EQ(record.tx_packets, count);
        EXPECT_EQ(record.process.size(), count % 300);
        ++count;
      }
    }
    EXPECT_EQ(count, 1000U) << piece;
  }
}

TEST(FlowDecoder, AFieldOfANewerNetmeterIsLeftOut) {
  std::string stream = Stream(Row());
  stream += std::string("\x98\x06\x05", 3);   // number 99: 5
  stream += std::string("\xa2\x06\x01x", 4);  // number 100: "x"
  size_t head = 1;  // the length of the enlarged message
  while ((stream[head - 1] & 128) != 0) ++head;
  const std::string whole = stream.substr(head);
  std::string length(1, static_cast<char>((whole.size() & 127) | 128));
  length += static_cast<char>(whole.size() >> 7);
  FlowDecoder decoder;
  FlowRecord record;
  ASSERT_TRUE(decoder.Append(length + whole).ok());
  ASSERT_TRUE(*decoder.Next(&record));
  EXPECT_EQ(record.tx_bytes, 5000U);
}

TEST(FlowDecoder, WhatIsNoSuchStreamIsAnError) {
  for (const std::string& bytes :
       {std::string("{\"record\": \"flow\", \"service\": \"subscriberdb\"}\n") +
            std::string(200, ' '),
        std::string(20, '\xff'), std::string("\x02\x0a\x7f", 3),
        std::string("\x00", 1)}) {
    FlowDecoder decoder;
    FlowRecord record;
    record.service = "before";
    ASSERT_TRUE(decoder.Append(bytes).ok());
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(decoder.Next(&record).status().code(),
                absl::StatusCode::kDataLoss);
    }
    EXPECT_EQ(record.service, "before");
  }
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
