// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/connections/flow.h"

#include <arpa/inet.h>
#include <errno.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <time.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <sstream>
#include <string>

#include "absl/strings/str_split.h"
#include "lib/base/text.h"
#include "lib/base/text_table.h"
#include "lib/testing/failing_new.h"

namespace netmeter {
namespace internal {
namespace {

FlowRow Row() {
  FlowRow row;
  row.record.event.end = NM_END_CLOSED;
  row.record.event.kind = NM_FLOW_CONNECTION;
  row.record.event.protocol = IPPROTO_TCP;
  row.record.event.cookie = 77;
  nm_flow_state& state = row.record.state;
  state.local[2] = state.remote[2] = htonl(0xffff);
  state.local[3] = inet_addr("192.0.2.2");
  state.remote[3] = inet_addr("203.0.113.7");
  state.local_port = 51724;
  state.remote_port = 443;
  state.flags = NM_FLOW_MADE | NM_FLOW_OPENED | NM_FLOW_FIN_SENT |
                NM_FLOW_FIN_RECEIVED | NM_FLOW_FIN_OURS_FIRST;
  state.srtt_us = 612400;
  state.tx_tcp_flags = TH_SYN | TH_ACK | TH_FIN;
  state.device = {3, 4026531840, "wwan0"};
  row.counts.tx_bytes = 5000;
  row.start_ns = 1000;
  row.end_ns = 4000;
  row.series.kind = Kind::kService;
  row.series.name = "subscriberdb";
  row.series.destination = "streamer";
  row.series.transport = Transport::kTcp;
  return row;
}

nlohmann::json Json(const FlowRow& row) {
  std::string text;
  AppendJson(row, Origin(), &text);
  EXPECT_EQ(text.find('\n'), std::string::npos);
  return nlohmann::json::parse(text);
}

FlowRow ForwardedRow() {
  FlowRow row = Row();
  row.record.event.kind = NM_FLOW_FORWARDED;
  row.series.kind = kForwardedRow;
  row.series.name = "br0";
  row.client = {5, "br0", "lan", "02:00:00:00:00:01", "", ""};
  return row;
}

// Its addresses are those of the client and of the peer, and it has no socket.
TEST(FlowTest, AForwardedFlowHasAClientAndNothingOfASocket) {
  const nlohmann::json json = Json(ForwardedRow());
  EXPECT_EQ(json["kind"], "forwarded");
  EXPECT_EQ(json["client_interface"], 5);
  EXPECT_EQ(json["client_interface_name"], "br0");
  EXPECT_EQ(json["client_uplink"], "lan");
  EXPECT_EQ(json["client_mac"], "02:00:00:00:00:01");
  EXPECT_EQ(json["end"], "fin");
  EXPECT_EQ(json["closed_by"], "local");
  for (const char* const name :
       {"tx_payload_bytes", "rx_payload_bytes", "tx_retransmit_bytes",
        "rx_retransmit_bytes"}) {
    EXPECT_FALSE(json.contains(name)) << name;
  }
  for (const char* const name : {"client_interface", "client_mac"}) {
    EXPECT_FALSE(Json(Row()).contains(name)) << name;
  }
}

TEST(Flow, JsonHasZerosAndLeavesOutWhatIsNotKnown) {
  // The bug: zeros were left out, and a database read them as unknown.
  FlowRow row = Row();
  row.end_ns = row.start_ns;
  row.record.state.srtt_us = 0;
  row.record.state.min_rtt_us = ~uint32_t{0};
  row.record.event.cookie = 0;
  row.record.state.device = {};
  nlohmann::json json = Json(row);
  for (const char* const name :
       {"duration_ns", "partial", "part", "rx_bytes", "rx_payload_bytes",
        "tx_retransmit_bytes", "rx_packets", "rx_retransmit_bytes"}) {
    ASSERT_TRUE(json.contains(name)) << name;
    EXPECT_EQ(json[name], 0) << name;
  }
  for (const char* const name :
       {"rtt_us", "min_rtt_us", "handshake_ns", "cookie", "owner_pid",
        "tx_retransmits", "interface_name", "network"}) {
    EXPECT_FALSE(json.contains(name)) << name;
  }
  row.record.state.flags |= NM_FLOW_CLOSED;
  json = Json(row);
  EXPECT_EQ(json.value("tx_retransmits", -1), 0);
}

TEST(Flow, JsonEscapesTexts) {
  FlowRow row = Row();
  row.process = "a \"b\" \\ \t \xc3\xa9 \x7f";
  EXPECT_EQ(Json(row)["process"], row.process);
  row.process = "\xff";
  EXPECT_EQ(Json(row)["process"], "\\xff");
}

TEST(Flow, ARecordIsWrittenWithoutAnAllocation) {
  FlowRow row = Row();
  row.series.destination = "a-name-that-needs-memory.example.com";
  std::string out;
  out.reserve(1 << 16);
  for (const auto append : {&AppendJson, &AppendProtobuf}) {
    append(row, Origin(), &out);  // the first needs memory
    FailNew fail(0);
    append(row, Origin(), &out);
    EXPECT_FALSE(fail.Failed());
  }
}

std::string EndOf(uint32_t flags, uint32_t error,
                  uint32_t end = NM_END_CLOSED) {
  nm_flow_record record = Row().record;
  record.state.flags = flags;
  record.state.error = error;
  record.event.end = end;
  const std::string by = ClosedBy(record);
  return EndName(record) + (by.empty() ? "" : " " + by);
}

TEST(Flow, JsonHasWhatTheProgramsWroteWithNames) {
  const nlohmann::json json = Json(Row());
  EXPECT_EQ(json["record"], "flow");
  EXPECT_EQ(json["protocol"], "tcp");
  EXPECT_EQ(json["family"], "ipv4");
  EXPECT_EQ(json["local_address"], "192.0.2.2");
  EXPECT_EQ(json["remote_address"], "203.0.113.7");
  EXPECT_EQ(json["remote_port"], 443);
  EXPECT_EQ(json["service"], "subscriberdb");
  EXPECT_EQ(json["destination"], "streamer");
  EXPECT_EQ(json["kind"], "service");
  EXPECT_EQ(json["end"], "fin");
  EXPECT_EQ(json["closed_by"], "local");
  EXPECT_EQ(json["opened_by"], "local");
  EXPECT_EQ(json["duration_ns"], 3000);
  EXPECT_EQ(json["tx_bytes"], 5000);
  EXPECT_EQ(json["rtt_us"], 612400);
  EXPECT_EQ(json["tx_tcp_flags"], 0x13);
  EXPECT_EQ(json["rx_tcp_flags"], 0);
  EXPECT_EQ(json["interface"], 3);
  EXPECT_EQ(json["interface_name"], "wwan0");
  EXPECT_EQ(json["network"], 4026531840);
  EXPECT_EQ(json.count("error"), 0U);
  EXPECT_EQ(json["partial"], 0);
}

TEST(Flow, TheEndIsTold) {
  EXPECT_EQ(EndOf(NM_FLOW_FIN_SENT | NM_FLOW_FIN_RECEIVED, 0), "fin remote");
  EXPECT_EQ(EndOf(NM_FLOW_FIN_SENT | NM_FLOW_FIN_OURS_FIRST, 0), "fin local");
  EXPECT_EQ(EndOf(NM_FLOW_RST_RECEIVED, ECONNREFUSED), "rst remote");
  EXPECT_EQ(EndOf(NM_FLOW_RST_SENT, 0), "rst local");
  EXPECT_EQ(EndOf(NM_FLOW_RST_SENT, ETIMEDOUT), "timeout");
  EXPECT_EQ(EndOf(0, ETIMEDOUT), "timeout");
  EXPECT_EQ(EndOf(0, EHOSTUNREACH), "error");
  EXPECT_EQ(EndOf(0, 0), "closed local");
  EXPECT_EQ(EndOf(0, 0, NM_END_RELEASED), "closed local");
  EXPECT_EQ(EndOf(0, 0, NM_END_IDLE), "idle");
  EXPECT_EQ(EndOf(0, 0, NM_END_MOVED), "moved");
  EXPECT_EQ(EndOf(0, 0, NM_END_ACTIVE), "active");
  EXPECT_EQ(EndOf(0, 0, NM_END_OPEN), "open");
  EXPECT_EQ(EndOf(0, 0, NM_END_HANDSHAKE), "half_open");
  EXPECT_EQ(EndOf(NM_FLOW_RST_RECEIVED, 0, NM_END_HANDSHAKE), "rst remote");
  EXPECT_EQ(EndOf(0, 0, 99), "end_99");
}

// The bug: a RST from any host, with any number, decided how a connection had ended, even
// if TCP had not accepted it.
TEST(Flow, AStrayRstEndsNothing) {
  const uint32_t closed = NM_FLOW_CLOSED | NM_FLOW_RST_RECEIVED;
  const uint32_t both = NM_FLOW_FIN_SENT | NM_FLOW_FIN_RECEIVED;
  EXPECT_EQ(EndOf(closed | both, 0), "fin remote");
  EXPECT_EQ(EndOf(closed | both | NM_FLOW_FIN_OURS_FIRST, 0), "fin local");
  EXPECT_EQ(EndOf(closed, EHOSTUNREACH), "error");
  EXPECT_EQ(EndOf(closed | NM_FLOW_RST_SENT, 0), "rst local");
  for (const uint32_t error : {ECONNRESET, ECONNREFUSED, EPIPE}) {
    EXPECT_EQ(EndOf(closed | both, error), "rst remote");
  }
}

// Like EndOf(), for a TCP socket whose end a hook has reported.
std::string EndFrom(uint32_t last_state, uint32_t flags, uint32_t error) {
  nm_flow_record record = Row().record;
  record.state.flags = NM_FLOW_CLOSED | flags;
  record.state.error = error;
  record.state.last_state = last_state;
  const std::string by = ClosedBy(record);
  return EndName(record) + (by.empty() ? "" : " " + by);
}

constexpr uint32_t kFins[] = {
    0, NM_FLOW_FIN_SENT | NM_FLOW_FIN_OURS_FIRST, NM_FLOW_FIN_RECEIVED,
    NM_FLOW_FIN_SENT | NM_FLOW_FIN_RECEIVED,
    NM_FLOW_FIN_SENT | NM_FLOW_FIN_RECEIVED | NM_FLOW_FIN_OURS_FIRST};

// The bug: a follower that was started after our FIN saw only the peer's, and named the
// peer. One that saw no FIN reported that neither side closed.
TEST(Flow, WhoClosedFirstIsToldByTheState) {
  for (const uint32_t fins : kFins) {
    for (const uint32_t stray : {0, NM_FLOW_RST_RECEIVED}) {
      const uint32_t flags = fins | stray;
      for (const uint32_t state : {TCP_FIN_WAIT1, TCP_FIN_WAIT2, TCP_CLOSING}) {
        EXPECT_EQ(EndFrom(state, flags, 0), "fin local") << state << flags;
      }
      for (const uint32_t state : {TCP_CLOSE_WAIT, TCP_LAST_ACK}) {
        EXPECT_EQ(EndFrom(state, flags, 0), "fin remote") << state << flags;
      }
      // A FIN that TCP has not accepted, because it had a wrong number.
      for (const uint32_t state : {TCP_ESTABLISHED, TCP_SYN_SENT}) {
        EXPECT_EQ(EndFrom(state, flags, 0), "closed local") << state << flags;
      }
    }
  }
}

TEST(Flow, WhoResetIsToldByWhatTcpTook) {
  constexpr uint32_t kStates[] = {TCP_ESTABLISHED, TCP_FIN_WAIT1,
                                  TCP_FIN_WAIT2,   TCP_CLOSING,
                                  TCP_LAST_ACK,    TCP_CLOSE_WAIT};
  for (const uint32_t state : kStates) {
    const uint32_t reset = state == TCP_CLOSE_WAIT ? EPIPE : ECONNRESET;
    for (const uint32_t fins : kFins) {
      for (const uint32_t sent : {0, NM_FLOW_RST_SENT}) {
        const uint32_t both = fins | sent | NM_FLOW_RST_RECEIVED;
        EXPECT_EQ(EndFrom(state, both, reset), "rst remote") << state << both;
        EXPECT_EQ(EndFrom(state, both, ETIMEDOUT), "timeout");
      }
      const uint32_t ours = fins | NM_FLOW_RST_SENT;
      EXPECT_EQ(EndFrom(state, ours, 0), "rst local") << state << ours;
      EXPECT_EQ(EndFrom(state, ours, reset), "rst local") << state << ours;
      EXPECT_EQ(EndFrom(state, ours, ECONNABORTED), "rst local");
      EXPECT_EQ(EndFrom(state, ours | NM_FLOW_RST_RECEIVED, 0), "rst local");
      EXPECT_EQ(EndFrom(state, ours | NM_FLOW_RST_RECEIVED, ECONNABORTED),
                "rst local");
      EXPECT_EQ(EndFrom(state, fins | NM_FLOW_RST_RECEIVED, EHOSTUNREACH),
                "error");
    }
  }
  // Refused by a RST, and by ICMP.
  EXPECT_EQ(EndFrom(TCP_SYN_SENT, NM_FLOW_RST_RECEIVED, ECONNREFUSED),
            "rst remote");
  EXPECT_EQ(EndFrom(TCP_SYN_SENT, 0, ECONNREFUSED), "error");
}

// The kernel answers data for a closed socket with a RST from no socket. The bug: such a
// flow ended as "error", and closed_by was empty.
TEST(Flow, ARstThatNoHookSawHasASide) {
  for (const uint32_t fins : kFins) {
    EXPECT_EQ(EndFrom(TCP_FIN_WAIT1, fins, ECONNRESET), "rst local");
    EXPECT_EQ(EndFrom(TCP_FIN_WAIT2, fins, ECONNRESET), "rst local");
    EXPECT_EQ(EndFrom(TCP_ESTABLISHED, fins, ECONNRESET), "rst remote");
    EXPECT_EQ(EndFrom(TCP_CLOSE_WAIT, fins, EPIPE), "rst remote");
  }
}

TEST(Flow, ALineThatIsNoFlowHasNoAddresses) {
  FlowRow row = Row();
  row.line = FlowLine::kRemainder;
  row.reason = NM_UNRECORDED_LOST;
  row.records = 12;
  nlohmann::json json = Json(row);
  EXPECT_EQ(json["record"], "remainder");
  EXPECT_EQ(json["reason"], "lost_records");
  EXPECT_EQ(json["records"], 12);
  EXPECT_EQ(json["tx_bytes"], 5000);
  EXPECT_EQ(json.count("local_address"), 0U);
  row.line = FlowLine::kLost;
  json = Json(row);
  EXPECT_EQ(json["record"], "lost");
  EXPECT_EQ(json.count("tx_bytes"), 0U);
}

TEST(Flow, AnyBytesMakeValidLines) {
  std::mt19937 random(12);
  const TextLayout layout = FlowLayout(80);
  for (int i = 0; i < 1000; i++) {
    FlowRow row;
    const auto fill = [&random](void* to, size_t size) {
      for (size_t at = 0; at < size; at++) {
        static_cast<char*>(to)[at] = static_cast<char>(random());
      }
    };
    fill(&row.record, sizeof(row.record));
    fill(&row.counts, sizeof(row.counts));
    if (random() % 2 != 0) row.record.event.end = random() % 8;
    row.line = static_cast<FlowLine>(random() % 3);
    row.reason = random() % 8;
    row.series.name.resize(random() % 64);
    fill(&row.series.name[0], row.series.name.size());
    row.process = row.series.name;
    EXPECT_TRUE(Json(row).is_object());
    const std::string line = TableLine(row, FlowLayout(80), SizeUnits::kBinary);
    EXPECT_EQ(line.find('\n'), line.size() - 1);
    EXPECT_EQ(line.find('\x1b'), std::string::npos);
    std::string message;
    AppendProtobuf(row, Origin(), &message);
    EXPECT_GT(message.size(), 2U);
  }
}

// The bug: the table had no time, no duration and no process, and ignored the terminal's
// width.
TEST(Flow, ATableHasWhenHowLongAndWhichProcess) {
  setenv("TZ", "UTC", 1);
  tzset();
  FlowRow row = Row();
  row.process = "python3";
  row.record.state.tgid = 812;
  const auto text = [&row](uint64_t seconds, size_t width) {
    row.end_ns = 86399999999999;  // the last moment of a day
    row.start_ns = row.end_ns - seconds * 1000000000 - 312000000;
    const TextLayout layout = FlowLayout(width);
    return layout.Header() + TableLine(row, layout, SizeUnits::kBinary);
  };
  EXPECT_EQ(
      text(0, 80),
      "TIME      DURATION  REMOTE                 SERVICE                TX"
      "          RX\n"
      "23:59:59    312 ms  203.0.113.7:443        subscriberdb      4.9 KiB"
      "         0 B\n");
  EXPECT_EQ(text(12, 120),
            "TIME      DURATION  REMOTE                 PROCESS         "
            "SERVICE       "
            "DESTINATION   END                TX          RX\n"
            "23:59:59    12.3 s  203.0.113.7:443        python3/812     "
            "subscriberdb  "
            "streamer      fin           4.9 KiB         0 B\n");
  EXPECT_THAT(text(3723, 0),
              ::testing::HasSubstr(
                  " 1:02:03  tcp    192.0.2.2:51724           203.0.113.7:443  "
                  "         python3/812       subscriberdb      streamer   "));
  row.process.clear();  // it has ended
  EXPECT_THAT(text(0, 0), ::testing::HasSubstr(" 812  "));
  // A connection of 20 s, older than the follower, had a duration of 974 ms.
  row.record.state.flags |= NM_FLOW_PARTIAL;
  EXPECT_THAT(text(0, 0), ::testing::HasSubstr("   >312 ms  tcp "));
}

TEST(Flow, FiltersCompareEndsAndNames) {
  SocketFilter filter;
  EXPECT_TRUE(Matches(filter, Row()));
  filter.ports = {443};
  ASSERT_TRUE(AddAddress("203.0.113.0/24", &filter).ok());
  EXPECT_TRUE(Matches(filter, Row()));
  filter.services = {"mme"};
  EXPECT_FALSE(Matches(filter, Row()));
  filter.services = {"subscriberdb"};
  EXPECT_TRUE(Matches(filter, Row()));
  filter.uplinks = {"wan"};
  EXPECT_FALSE(Matches(filter, Row()));
  filter.uplinks = {""};
  EXPECT_TRUE(Matches(filter, Row()));
  filter.ports = {80};
  EXPECT_FALSE(Matches(filter, Row()));
  // Unrecorded traffic has no addresses.
  FlowRow row = Row();
  row.line = FlowLine::kRemainder;
  EXPECT_TRUE(Matches(filter, row));
}

TEST(Flow, TheSchemaHasTheSameFields) {
  std::ifstream file("lib/flows/flows.proto");
  std::set<std::string> schema, fields;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string optional, type, name, equals, number;
    words >> optional >> type >> name >> equals >> number;
    if (optional != "optional" || name == "host") continue;
    schema.insert(type + " " + name + " " + number);
  }
  for (const FlowField& field : FlowFields()) {
    fields.insert((field.is_text ? "string " : "uint64 ") + field.name + " " +
                  std::to_string(field.number) + ";");
  }
  EXPECT_EQ(schema, fields);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
