// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/connections/flow.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/clock.h"
#include "lib/base/text.h"
#include "lib/netlink/diag_message.h"
#include "lib/reader/uplink_maps.h"

namespace netmeter {
namespace internal {
namespace {

// --- One record ---------------------------------------------------------------

bool Has(const nm_flow_record& record, uint32_t flags) {
  return (record.state.flags & flags) == flags;
}

bool IsIpv4(const nm_u32 address[4]) {
  return address[0] == 0 && address[1] == 0 && address[2] == htonl(0xffff);
}

// In the format of struct DiagSocket: IPv4 uses the first four bytes.
std::array<uint8_t, 16> BytesOf(const nm_u32 address[4]) {
  std::array<uint8_t, 16> bytes = {};
  if (IsIpv4(address)) {
    memcpy(bytes.data(), &address[3], 4);
  } else {
    memcpy(bytes.data(), address, 16);
  }
  return bytes;
}

uint8_t FamilyOf(const nm_flow_record& record) {
  return IsIpv4(record.state.remote) ? AF_INET : AF_INET6;
}

// The end that sent the RST that closed the flow, or the first FIN.
enum class Side { kNobody, kLocal, kRemote };

// Any host may send a RST. TCP accepts one with the right number, and then the socket has
// one of these errors (tcp_reset() in net/ipv4/tcp_input.c). The socket also has one if
// data arrived after this host had closed: the kernel then answers with a RST from no
// socket, which the programs do not see. If TCP accepted a RST that the programs did not
// see, the RST came within IPsec. If no hook reported the end of a flow, there is no
// error to check.
Side ResetBy(const nm_flow_record& record) {
  const uint32_t error = record.state.error, last = record.state.last_state;
  const bool taken = error == ECONNRESET || error == EPIPE;
  if (Has(record, NM_FLOW_RST_RECEIVED) &&
      (taken || error == ECONNREFUSED || !Has(record, NM_FLOW_CLOSED))) {
    return Side::kRemote;
  }
  if (Has(record, NM_FLOW_RST_SENT)) return Side::kLocal;
  if (!taken) return Side::kNobody;
  return last == TCP_FIN_WAIT1 || last == TCP_FIN_WAIT2 ? Side::kLocal
                                                        : Side::kRemote;
}

// Decides by the state of TCP: a FIN may also have any number, or be older than the
// follower. Decides by the packets if no hook reported the end.
Side FirstFinBy(const nm_flow_record& record) {
  if (Has(record, NM_FLOW_CLOSED)) {
    switch (record.state.last_state) {
      case TCP_FIN_WAIT1:
      case TCP_FIN_WAIT2:
      case TCP_CLOSING:
        return Side::kLocal;
      case TCP_CLOSE_WAIT:
      case TCP_LAST_ACK:
        return Side::kRemote;
      case TCP_ESTABLISHED:
      case TCP_SYN_SENT:
      case TCP_SYN_RECV:
        return Side::kNobody;
    }
  }
  if (Has(record, NM_FLOW_FIN_OURS_FIRST)) return Side::kLocal;
  if (Has(record, NM_FLOW_FIN_RECEIVED)) return Side::kRemote;
  return Has(record, NM_FLOW_FIN_SENT) ? Side::kLocal : Side::kNobody;
}

std::string SideName(Side side) {
  return side == Side::kLocal ? "local" : side == Side::kRemote ? "remote" : "";
}

std::string Ended(const nm_flow_record& record) {
  if (record.state.error == ETIMEDOUT) return "timeout";
  if (ResetBy(record) != Side::kNobody) return "rst";
  if (record.state.error != 0) return "error";
  return FirstFinBy(record) == Side::kNobody ? "closed" : "fin";
}

std::string LineName(FlowLine line) {
  switch (line) {
    case FlowLine::kFlow:
      return "flow";
    case FlowLine::kRemainder:
      return "remainder";
    case FlowLine::kLost:
      return "lost";
  }
  return "";
}

std::string ErrorName(uint32_t error) {
  if (error == 0) return "";
  const char* const name = strerrorname_np(static_cast<int>(error));
  return name == nullptr ? absl::StrCat(error) : name;
}

bool IsSameSeries(const Sample& a, const Sample& b) {
  return a.kind == b.kind && a.name == b.name &&
         a.destination == b.destination && a.transport == b.transport &&
         a.path == b.path && a.uplink == b.uplink;
}

Transport TransportOf(uint8_t protocol) {
  switch (protocol) {
    case IPPROTO_TCP:
      return Transport::kTcp;
    case IPPROTO_UDP:
    case IPPROTO_UDPLITE:
      return Transport::kUdp;
    case IPPROTO_SCTP:
      return Transport::kSctp;
    case IPPROTO_ICMP:
    case IPPROTO_ICMPV6:
      return Transport::kIcmp;
  }
  return Transport::kOther;
}

std::string MacText(const nm_u8 mac[6]) {
  if (std::all_of(mac, mac + 6, [](nm_u8 byte) { return byte == 0; })) {
    return "";
  }
  return absl::StrFormat("%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1],
                         mac[2], mac[3], mac[4], mac[5]);
}

// Makes the remote end of a forwarded flow the local one.
void SwapEnds(nm_flow_record* record) {
  static constexpr std::pair<uint32_t, uint32_t> kFlags[] = {
      {NM_FLOW_OPENED, NM_FLOW_ACCEPTED},
      {NM_FLOW_FIN_SENT, NM_FLOW_FIN_RECEIVED},
      {NM_FLOW_RST_SENT, NM_FLOW_RST_RECEIVED}};
  nm_flow_state& state = record->state;
  nm_flow_counts& counts = state.counts;
  uint32_t flags = state.flags & ~NM_FLOW_SWAPPED;
  const bool has_fin =
      (flags & NM_FLOW_FIN_SENT) != 0 || (flags & NM_FLOW_FIN_RECEIVED) != 0;
  for (const auto& pair : kFlags) {
    const bool first = (state.flags & pair.first) != 0;
    const bool second = (state.flags & pair.second) != 0;
    flags &= ~(pair.first | pair.second);
    flags |= (first ? pair.second : 0) | (second ? pair.first : 0);
  }
  if (has_fin) flags ^= NM_FLOW_FIN_OURS_FIRST;
  state.flags = flags;
  std::swap(state.local, state.remote);
  std::swap(state.local_port, state.remote_port);
  std::swap(state.tx_tcp_flags, state.rx_tcp_flags);
  std::swap(counts.tx_bytes, counts.rx_bytes);
  std::swap(counts.tx_packets, counts.rx_packets);
  record->event.cookie = NM_FLOW_INTERFACES(record->event.cookie & UINT32_MAX,
                                            record->event.cookie >> 32);
  state.slot = NM_SLOT_FORWARDED |
               NM_FORWARDED_INDEX(state.slot & 0xf, state.slot >> 4 & 0xf);
}

// --- The table of fields ------------------------------------------------------

class Table {
 public:
  const std::vector<FlowField>& fields() const { return fields_; }

  template <typename Read>
  void Number(uint32_t number, const char* name, const Read& read,
              Unit unit = Unit::kNone) {
    fields_.push_back({name, number, false, unit,
                       [read](const FlowRow& row, FieldValue* value) {
                         value->SetNumber(read(row));
                       }});
  }
  // Only for a flow.
  template <typename Read>
  void OfFlow(uint32_t number, const char* name, const Read& read,
              Unit unit = Unit::kNone) {
    fields_.push_back({name, number, false, unit,
                       [read](const FlowRow& row, FieldValue* value) {
                         if (row.line == FlowLine::kFlow) {
                           value->SetNumber(read(row));
                         }
                       }});
  }
  // Only for a flow. 0 means that the value is not known.
  template <typename Read>
  void IfKnown(uint32_t number, const char* name, const Read& read,
               Unit unit = Unit::kNone) {
    fields_.push_back({name, number, false, unit,
                       [read](const FlowRow& row, FieldValue* value) {
                         if (row.line != FlowLine::kFlow) return;
                         const uint64_t found = read(row);
                         if (found != 0) value->SetNumber(found);
                       }});
  }
  template <typename Read>
  void Text(uint32_t number, const char* name, const Read& read) {
    fields_.push_back({name, number, true, Unit::kNone,
                       [read](const FlowRow& row, FieldValue* value) {
                         value->SetText(read(row));
                       }});
  }
  template <typename Read>
  void TextOfFlow(uint32_t number, const char* name, const Read& read) {
    fields_.push_back({name, number, true, Unit::kNone,
                       [read](const FlowRow& row, FieldValue* value) {
                         if (row.line == FlowLine::kFlow) {
                           value->SetText(read(row));
                         }
                       }});
  }
  // TCP reports it when the connection ends.
  void Retransmits(uint32_t number, const char* name) {
    fields_.push_back({name, number, false, Unit::kNone,
                       [](const FlowRow& row, FieldValue* value) {
                         if (row.line == FlowLine::kFlow &&
                             Has(row.record, NM_FLOW_CLOSED)) {
                           value->SetNumber(row.record.state.retransmits);
                         }
                       }});
  }
  void TcpFlags(uint32_t number, const char* name,
                nm_u8 nm_flow_state::*member) {
    fields_.push_back({name, number, false, Unit::kNone,
                       [member](const FlowRow& row, FieldValue* value) {
                         if (row.line == FlowLine::kFlow &&
                             row.record.event.protocol == IPPROTO_TCP) {
                           value->SetNumber(row.record.state.*member);
                         }
                       }});
  }
  void Count(uint32_t number, const char* name, nm_u64 nm_flow_counts::*member,
             Unit unit) {
    fields_.push_back({name, number, false, unit,
                       [member](const FlowRow& row, FieldValue* value) {
                         if (row.line == FlowLine::kLost) return;
                         value->SetNumber(row.counts.*member);
                       }});
  }
  // A forwarded flow has no socket, which tells payload from retransmissions.
  void OfSocket(uint32_t number, const char* name,
                nm_u64 nm_flow_counts::*member) {
    fields_.push_back({name, number, false, Unit::kBytes,
                       [member](const FlowRow& row, FieldValue* value) {
                         if (row.line == FlowLine::kLost ||
                             row.is_forwarded()) {
                           return;
                         }
                         value->SetNumber(row.counts.*member);
                       }});
  }

 private:
  std::vector<FlowField> fields_;
};

void AddIdentity(Table* table) {
  table->Text(1, "record",
              [](const FlowRow& row) { return LineName(row.line); });
  table->Number(2, "start_ns", [](const FlowRow& row) { return row.start_ns; });
  table->Number(3, "end_ns", [](const FlowRow& row) { return row.end_ns; });
  table->OfFlow(4, "duration_ns",
                [](const FlowRow& row) { return row.end_ns - row.start_ns; });
  table->TextOfFlow(5, "protocol", [](const FlowRow& row) {
    return ProtocolName(row.record.event.protocol);
  });
  table->TextOfFlow(6, "family", [](const FlowRow& row) {
    return FamilyOf(row.record) == AF_INET ? "ipv4" : "ipv6";
  });
  table->TextOfFlow(7, "local_address", LocalAddress);
  table->OfFlow(8, "local_port",
                [](const FlowRow& row) { return row.record.state.local_port; });
  table->TextOfFlow(9, "remote_address", [](const FlowRow& row) {
    return AddressText(FamilyOf(row.record), BytesOf(row.record.state.remote));
  });
  table->OfFlow(10, "remote_port", [](const FlowRow& row) {
    return row.record.state.remote_port;
  });
  table->OfFlow(11, "interface", [](const FlowRow& row) {
    return row.record.state.device.ifindex;
  });
  table->TextOfFlow(46, "interface_name", [](const FlowRow& row) {
    const auto& name = row.record.state.device.name;
    return absl::string_view(name, strnlen(name, sizeof(name)));
  });
  table->IfKnown(45, "network", [](const FlowRow& row) {
    return row.record.state.device.network;
  });
  table->IfKnown(12, "cookie",
                 [](const FlowRow& row) { return row.record.event.cookie; });
}

void AddSeries(Table* table) {
  const auto named = [](const FlowRow& row) {
    return row.line != FlowLine::kLost && !row.series.name.empty();
  };
  table->Text(13, "kind", [named](const FlowRow& row) {
    return named(row) ? KindName(row.series.kind) : "";
  });
  table->Text(14, "service", [](const FlowRow& row) -> absl::string_view {
    return row.series.name;
  });
  table->Text(15, "destination", [](const FlowRow& row) -> absl::string_view {
    return row.series.destination;
  });
  table->Text(16, "transport", [named](const FlowRow& row) {
    return named(row) ? TransportName(row.series.transport) : "";
  });
  table->Text(17, "path", [named](const FlowRow& row) {
    return named(row) ? PathName(row.series.path) : "";
  });
  table->Text(18, "uplink", [](const FlowRow& row) -> absl::string_view {
    return row.series.uplink;
  });
  table->IfKnown(19, "owner_pid",
                 [](const FlowRow& row) { return row.record.state.tgid; });
  table->TextOfFlow(20, "process", [](const FlowRow& row) -> absl::string_view {
    return row.process;
  });
}

void AddEnd(Table* table) {
  table->TextOfFlow(21, "opened_by", [](const FlowRow& row) {
    const uint8_t kind = row.record.event.kind;
    if (kind == NM_FLOW_PEER) {
      return Has(row.record, NM_FLOW_STRANGER) ? "remote" : "local";
    }
    if (Has(row.record, NM_FLOW_OPENED)) return "local";
    return Has(row.record, NM_FLOW_ACCEPTED) || kind == NM_FLOW_HANDSHAKE
               ? "remote"
               : "";
  });
  table->IfKnown(22, "handshake_ns", [](const FlowRow& row) {
    const nm_flow_state& state = row.record.state;
    // A part that began later has none.
    return state.established_ns > state.start_ns
               ? state.established_ns - state.start_ns
               : 0;
  });
  table->TextOfFlow(23, "end",
                    [](const FlowRow& row) { return EndName(row.record); });
  table->TextOfFlow(24, "closed_by",
                    [](const FlowRow& row) { return ClosedBy(row.record); });
  table->TextOfFlow(25, "error", [](const FlowRow& row) {
    return ErrorName(row.record.state.error);
  });
  table->OfFlow(26, "partial", [](const FlowRow& row) {
    return Has(row.record, NM_FLOW_PARTIAL) ? 1 : 0;
  });
  table->OfFlow(27, "part",
                [](const FlowRow& row) { return row.record.state.part; });
  table->TcpFlags(28, "tx_tcp_flags", &nm_flow_state::tx_tcp_flags);
  table->TcpFlags(29, "rx_tcp_flags", &nm_flow_state::rx_tcp_flags);
}

void AddCounts(Table* table) {
  table->Count(30, "tx_bytes", &nm_flow_counts::tx_bytes, Unit::kBytes);
  table->Count(31, "rx_bytes", &nm_flow_counts::rx_bytes, Unit::kBytes);
  table->Count(32, "tx_packets", &nm_flow_counts::tx_packets, Unit::kNone);
  table->Count(33, "rx_packets", &nm_flow_counts::rx_packets, Unit::kNone);
  table->OfSocket(34, "tx_payload_bytes", &nm_flow_counts::tx_payload_bytes);
  table->OfSocket(35, "rx_payload_bytes", &nm_flow_counts::rx_payload_bytes);
  table->OfSocket(36, "tx_retransmit_bytes",
                  &nm_flow_counts::tx_retransmit_bytes);
  table->OfSocket(37, "rx_retransmit_bytes",
                  &nm_flow_counts::rx_retransmit_bytes);
  table->Retransmits(38, "tx_retransmits");
  table->IfKnown(
      39, "rtt_us", [](const FlowRow& row) { return row.record.state.srtt_us; },
      Unit::kMicroseconds);
  // The kernel's value is ~0 before the first measurement.
  table->IfKnown(
      40, "min_rtt_us",
      [](const FlowRow& row) {
        const uint32_t us = row.record.state.min_rtt_us;
        return us == ~uint32_t{0} ? 0 : us;
      },
      Unit::kMicroseconds);
  table->Text(41, "reason", [](const FlowRow& row) {
    return row.line == FlowLine::kRemainder ? UnrecordedReasonName(row.reason)
                                            : "";
  });
  table->Number(42, "records", [](const FlowRow& row) {
    return row.line == FlowLine::kFlow ? 1 : row.records;
  });
}

void AddClient(Table* table) {
  table->IfKnown(47, "client_interface",
                 [](const FlowRow& row) { return row.client.interface; });
  table->Text(48, "client_interface_name",
              [](const FlowRow& row) -> absl::string_view {
                return row.client.interface_name;
              });
  table->Text(49, "client_uplink", [](const FlowRow& row) -> absl::string_view {
    return row.client.uplink;
  });
  table->Text(50, "client_mac", [](const FlowRow& row) -> absl::string_view {
    return row.client.mac;
  });
  table->Text(51, "client_peer", [](const FlowRow& row) -> absl::string_view {
    return row.client.peer;
  });
  table->Text(52, "client_name", [](const FlowRow& row) -> absl::string_view {
    return row.client.name;
  });
}

const Table* MakeTable() {
  auto* const table = new Table();
  AddIdentity(table);
  AddSeries(table);
  AddEnd(table);
  AddCounts(table);
  AddClient(table);
  return table;
}

std::string EndText(const nm_flow_record& record, bool local) {
  const nm_flow_state& state = record.state;
  const uint8_t family = FamilyOf(record);
  const std::string address =
      AddressText(family, BytesOf(local ? state.local : state.remote));
  const uint16_t port = local ? state.local_port : state.remote_port;
  return family == AF_INET ? absl::StrCat(address, ":", port)
                           : absl::StrCat("[", address, "]:", port);
}

std::string OrDash(const std::string& text) {
  return text.empty() ? "-" : ToTerminal(text);
}

// The time at the end of a line, in local time.
std::string TimeText(uint64_t realtime_ns) {
  const time_t seconds = static_cast<time_t>(realtime_ns / 1000000000);
  tm local = {};
  localtime_r(&seconds, &local);
  return absl::StrFormat("%02d:%02d:%02d", local.tm_hour, local.tm_min,
                         local.tm_sec);
}

// "nginx/812", or "812" if it has ended. Narrow terminals have no LOCAL, so this column
// shows the client of a forwarded flow.
std::string ProcessText(const FlowRow& row) {
  const uint32_t pid = row.record.state.tgid;
  if (row.is_forwarded()) {
    return ToTerminal(row.client.name.empty() ? LocalAddress(row)
                                              : row.client.name);
  }
  if (pid == 0) return "-";
  return absl::StrCat(ToTerminal(row.process), row.process.empty() ? "" : "/",
                      pid);
}

}  // namespace

std::string LocalAddress(const FlowRow& row) {
  return AddressText(FamilyOf(row.record), BytesOf(row.record.state.local));
}

std::string EndName(const nm_flow_record& record) {
  switch (record.event.end) {
    case NM_END_CLOSED:
      return Ended(record);
    case NM_END_IDLE:
      return "idle";
    case NM_END_RELEASED:
      return "closed";
    case NM_END_MOVED:
      return "moved";
    case NM_END_HANDSHAKE:
      return Has(record, NM_FLOW_RST_RECEIVED) ? "rst" : "half_open";
    case NM_END_OPEN:
      return "open";
    case NM_END_ACTIVE:
      return "active";
  }
  return absl::StrCat("end_", record.event.end);
}

std::string ClosedBy(const nm_flow_record& record) {
  const std::string end = EndName(record);
  if (end == "rst") return SideName(ResetBy(record));
  if (end == "fin") return SideName(FirstFinBy(record));
  return end == "closed" && record.event.kind != NM_FLOW_FORWARDED ? "local"
                                                                   : "";
}

std::string UnrecordedReasonName(uint32_t reason) {
  switch (reason) {
    case NM_UNRECORDED_NO_FLOW:
      return "no_flow";
    case NM_UNRECORDED_LATE:
      return "late";
    case NM_UNRECORDED_FULL:
      return "table_full";
    case NM_UNRECORDED_LOST:
      return "lost_records";
    case NM_UNRECORDED_UPLINK:
      return "other_uplink";
  }
  return absl::StrCat("reason_", reason);
}

const std::vector<FlowField>& FlowFields() {
  static const Table* const table = MakeTable();
  return table->fields();
}

void AppendJson(const FlowRow& row, const Origin& origin, std::string* out) {
  const size_t start = out->size();
  AppendJsonFields(FlowFields(), row, out);
  out->append(origin.json());
  CloseJsonObject(start, out);
}

void AppendProtobuf(const FlowRow& row, const Origin& origin,
                    std::string* out) {
  const size_t start = out->size();
  out->append(origin.protobuf());
  AppendProtobufFields(FlowFields(), row, out);
  InsertLength(start, out);
}

TextLayout FlowLayout(size_t width) {
  constexpr auto kLeft = TextColumn::kLeft, kRight = TextColumn::kRight;
  return TextLayout({{"TIME", kLeft, 0, 8, 8},
                     {"DURATION", kRight},
                     {"PROTO", kLeft, 9},
                     {"LOCAL", kLeft, 8, 21, 24},
                     {"REMOTE", kLeft, 0, 21, 24},
                     {"PROCESS", kLeft, 4, 14, 16},
                     {"SERVICE", kLeft, 0, 12, 16},
                     {"DESTINATION", kLeft, 5, 12, 16},
                     {"END", kLeft, 3, 9, 9},
                     {"BY", kLeft, 10, 6, 6},
                     {"TX", kRight, 0, 0, 10},
                     {"RX", kRight, 0, 0, 10},
                     {"RETRANSMIT", kRight, 7},
                     {"RTT", kRight, 6, 0, 8}},
                    width);
}

std::string TableLine(const FlowRow& row, const TextLayout& layout,
                      SizeUnits sizes) {
  std::vector<std::string> cells;
  cells.reserve(14);  // columns
  cells.push_back(TimeText(row.end_ns));
  const auto add = [&cells](std::string cell) {
    cells.push_back(std::move(cell));
  };
  if (row.line == FlowLine::kFlow) {
    add(absl::StrCat(Has(row.record, NM_FLOW_PARTIAL) ? ">" : "",
                     HumanDuration((row.end_ns - row.start_ns) / 1000000)));
    add(ProtocolName(row.record.event.protocol));
    add(EndText(row.record, true));
    add(EndText(row.record, false));
    add(ProcessText(row));
  } else {
    const bool lost = row.line == FlowLine::kLost;
    add("-");
    add(TransportName(row.series.transport));
    add(row.records != 0 && !lost ? absl::StrCat(row.records, " records")
                                  : "-");
    add(absl::StrCat("(",
                     lost ? absl::StrCat(row.records, " lost records")
                          : UnrecordedReasonName(row.reason),
                     ")"));
    add("-");
  }
  add(OrDash(row.series.name));
  add(OrDash(row.series.destination));
  const bool flow = row.line == FlowLine::kFlow;
  add(flow ? EndName(row.record) : "-");
  add(flow ? OrDash(ClosedBy(row.record)) : "-");
  add(HumanBytes(row.counts.tx_bytes, sizes));
  add(HumanBytes(row.counts.rx_bytes, sizes));
  add(HumanBytes(row.counts.tx_retransmit_bytes, sizes));
  add(flow && row.record.state.srtt_us != 0
          ? NumberText(row.record.state.srtt_us, Unit::kMicroseconds, sizes)
          : "-");
  return layout.Line({cells.begin(), cells.end()});
}

void AddRemainder(const FlowRow& row, FlowRow* sum) {
  sum->records += row.records;
  for (nm_u64 nm_flow_counts::*const member :
       {&nm_flow_counts::tx_bytes, &nm_flow_counts::rx_bytes,
        &nm_flow_counts::tx_packets, &nm_flow_counts::rx_packets,
        &nm_flow_counts::tx_payload_bytes, &nm_flow_counts::rx_payload_bytes,
        &nm_flow_counts::tx_retransmit_bytes,
        &nm_flow_counts::rx_retransmit_bytes}) {
    sum->counts.*member += row.counts.*member;
  }
}

bool MatchesSeries(const SocketFilter& filter, const FlowRow& row) {
  return filter.MatchesNames(row.series.name, row.series.destination,
                             row.series.uplink);
}

bool Matches(const SocketFilter& filter, const FlowRow& row) {
  if (!MatchesSeries(filter, row)) return false;
  if (row.line != FlowLine::kFlow) return true;
  DiagSocket socket;
  socket.family = FamilyOf(row.record);
  socket.local_port = row.record.state.local_port;
  socket.remote_port = row.record.state.remote_port;
  socket.local_address = BytesOf(row.record.state.local);
  socket.remote_address = BytesOf(row.record.state.remote);
  return filter.MatchesEnds(socket);
}

FlowNames::FlowNames(std::shared_ptr<const SharedMaps> maps)
    : maps_(std::move(maps)),
      reader_(maps_->view()),
      began_ns_(ClockNs(CLOCK_REALTIME)) {}

nm_u64 FlowNames::Moves() const {
  return __atomic_load_n(&maps_->view().stats->moves, __ATOMIC_ACQUIRE);
}

const Sample& FlowNames::SeriesOf(uint32_t slot) {
  static const Sample* const nobody = new Sample();
  const nm_u64 moves = Moves();
  if (moves != moves_ || moves % 2 != 0) by_slot_.clear();
  moves_ = moves;
  const auto known = by_slot_.find(slot);
  if (known != by_slot_.end()) return known->second;
  Sample series;
  if (!reader_.ReadKey(slot, &series)) return *nobody;
  return by_slot_[slot] = std::move(series);
}

std::string FlowNames::InterfaceName(uint32_t index) {
  const auto known = interfaces_.find(index);
  if (known != interfaces_.end()) return known->second;
  if (const auto links = ReadLinks(*maps_); links.ok()) {
    interfaces_ = NamesOfInterfaces(*links);
    uplinks_ = links->names;
  }
  // As in the rows of `netmeter list`.
  return interfaces_.try_emplace(index, kForwardedKind).first->second;
}

Sample FlowNames::ForwardedSeries(nm_u64 interfaces, uint32_t uplinks) {
  Sample series;
  series.kind = kForwardedRow;
  series.name = InterfaceName(static_cast<uint32_t>(interfaces >> 32));
  series.uplink = uplinks_[uplinks & 0xf];
  return series;
}

void FlowNames::AddForwarded(const std::string& wire_name, FlowRow* row) {
  nm_flow_state& state = row->record.state;
  if (Has(row->record, NM_FLOW_SWAPPED)) SwapEnds(&row->record);
  const nm_u64 interfaces = row->record.event.cookie;
  FlowClient& client = row->client;
  row->counts = state.counts;
  row->series = ForwardedSeries(interfaces, state.slot & 0xff);
  row->series.transport = TransportOf(row->record.event.protocol);
  client.interface = static_cast<uint32_t>(interfaces >> 32);
  client.interface_name = row->series.name;
  client.uplink = uplinks_[state.slot >> 4 & 0xf];
  client.mac = MacText(state.mac);
  if (!wire_name.empty()) {
    row->series.destination = reader_.LabelOf(wire_name, /*huffman=*/false);
  } else if (state.destination != 0) {
    reader_.ReadName(state.destination, &row->series.destination);
  }
  nm_flow_device device = {};
  device.ifindex = static_cast<uint32_t>(interfaces);
  device.network = static_cast<uint32_t>(maps_->view().info->uplinks_network);
  const std::string name = InterfaceName(device.ifindex);
  memcpy(device.name, name.data(), std::min(name.size(), sizeof(device.name)));
  state.device = device;
  row->record.event.cookie = 0;
}

FlowRow FlowNames::RowOf(const nm_flow_record& record,
                         const std::string& wire_name) {
  const nm_flow_state& state = record.state;
  const uint64_t offset = ClockNs(CLOCK_REALTIME) - ClockNs(CLOCK_MONOTONIC);
  FlowRow row;
  row.record = record;
  row.counts = state.counts;
  row.start_ns = state.start_ns + offset;
  // A part that began after the last packet has none.
  row.end_ns =
      std::max({state.start_ns, state.last_ns, state.closed_ns}) + offset;
  if (record.event.kind == NM_FLOW_FORWARDED) {
    AddForwarded(wire_name, &row);
    return row;
  }
  row.series = SeriesOf(state.slot);
  row.process = owners_.Find(state.tgid, state.start).value_or("");
  return row;
}

// If a move happened between the packet and this call, the slot's present name is used:
// most slots keep theirs. A slot without a series was just evicted, and keeps its earlier
// name.
void FlowNames::Know(const nm_unrecorded_key& key) {
  if ((key.slot & NM_SLOT_FORWARDED) != 0) return;
  const std::pair<uint32_t, nm_u64> place(key.slot, key.moves);
  const auto after = known_.lower_bound(place);
  if (after != known_.end() && after->first == place) return;
  const auto before = after == known_.begin() ? known_.end() : std::prev(after);
  const bool has_before =
      before != known_.end() && before->first.first == key.slot;
  const nm_u64 moves = Moves();
  Sample series;
  if (moves % 2 == 0 && reader_.ReadKey(key.slot, &series) &&
      Moves() == moves) {
    known_.emplace_hint(after, place,
                        has_before && IsSameSeries(*before->second, series)
                            ? before->second
                            : std::make_shared<const Sample>(series));
  } else if (has_before && moves % 2 == 0 && key.moves != moves) {
    known_.emplace_hint(after, place, before->second);
  }
}

FlowRow FlowNames::RowUntilNow(FlowLine line) const {
  FlowRow row;
  row.line = line;
  row.start_ns = began_ns_;
  row.end_ns = ClockNs(CLOCK_REALTIME);
  return row;
}

FlowRow FlowNames::RowOfLost(uint64_t records) const {
  FlowRow row = RowUntilNow(FlowLine::kLost);
  row.records = records;
  return row;
}

FlowRow FlowNames::RowOf(const nm_unrecorded_key& key,
                         const nm_unrecorded& rest) {
  Know(key);
  const auto known = known_.find({key.slot, key.moves});
  FlowRow row = RowUntilNow(FlowLine::kRemainder);
  if (known != known_.end()) row.series = *known->second;
  if ((key.slot & NM_SLOT_FORWARDED) != 0) {
    row.series = ForwardedSeries(key.moves, key.slot & 0xff);
  }
  row.reason = key.reason;
  row.records = rest.records;
  row.counts = rest.counts;
  return row;
}

}  // namespace internal
}  // namespace netmeter
