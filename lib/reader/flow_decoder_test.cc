// SPDX-License-Identifier: BSD-3-Clause
// Decodes records that the code of `netmeter flows --protobuf` wrote.
#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <string>

#include "lib/connections/flow.h"
#include "netmeter/connections.h"

namespace netmeter {
namespace internal {
namespace {

FlowRow Row() {
  FlowRow row;
  row.record.state.local[2] = row.record.state.remote[2] = htonl(0xffff);
  row.record.state.local[3] = htonl(0xc0000202);   // 192.0.2.2
  row.record.state.remote[3] = htonl(0xcb007107);  // 203.0.113.7
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

TEST(FlowDecoder, KnowsEveryFieldUnderItsNumberAndKind) {
  for (const FlowField& field : FlowFields()) {
    bool found = false;
    for (const FlowRecordField& known : FlowRecordFields()) {
      if (known.number != field.number) continue;
      found = true;
      EXPECT_EQ(known.name, field.name);
      EXPECT_EQ(known.text != nullptr, field.is_text) << field.name;
      EXPECT_NE(known.text != nullptr, known.value != nullptr) << field.name;
    }
    EXPECT_TRUE(found) << field.name;
  }
  EXPECT_EQ(FlowRecordFields().size(), FlowFields().size());
}

TEST(FlowDecoder, ReadsWhatTheCommandWrites) {
  FlowDecoder decoder;
  FlowRecord record;
  ASSERT_TRUE(decoder.Append(Stream(Row())).ok());
  ASSERT_TRUE(*decoder.Next(&record));
  for (const FlowField& field : FlowFields()) {
    FieldValue value;
    field.read(Row(), &value);
    for (const FlowRecordField& known : FlowRecordFields()) {
      if (known.number != field.number) continue;
      if (known.text != nullptr) {
        EXPECT_EQ(record.*known.text, value.text) << field.name;
      } else {
        EXPECT_EQ(record.*known.value, value.number) << field.name;
      }
    }
  }
  EXPECT_EQ(record.service, "subscriberdb");
  EXPECT_EQ(record.remote_address, "203.0.113.7");
  EXPECT_EQ(record.rx_bytes, uint64_t{1} << 40);
  EXPECT_FALSE(*decoder.Next(&record));
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
