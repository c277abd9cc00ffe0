// SPDX-License-Identifier: BSD-3-Clause
// A record of `netmeter flows`: the programs' record of a flow, with names. One table of
// fields is used for JSON, protobuf and flows.proto.
//
// Threads: any, but one at a time for a FlowNames.

#ifndef NETMETER_LIB_APPS_CONNECTIONS_FLOW_H_
#define NETMETER_LIB_APPS_CONNECTIONS_FLOW_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bpf/flows.h"
#include "lib/apps/connections/fields.h"
#include "lib/apps/connections/filter.h"
#include "lib/apps/connections/origin.h"
#include "lib/apps/connections/owner_names.h"
#include "lib/base/text.h"
#include "lib/base/text_table.h"
#include "lib/reader/series_reader.h"
#include "lib/reader/shared_maps.h"
#include "lib/reader/words.h"
#include "netmeter/sample.h"

namespace netmeter {
namespace internal {

// The kind of a line.
enum class FlowLine {
  kFlow,
  kRemainder,  // a series' traffic that is in no flow, and the reason
  kLost,       // the number of lost records so far
};

// The client's side of a forwarded flow. The client is the local end.
struct FlowClient {
  uint32_t interface = 0;  // index
  std::string interface_name;
  std::string uplink;  // "": none
  std::string mac;     // "02:00:..."; "": no Ethernet
  std::string peer;    // public key of WireGuard; "": none
  std::string name;    // "": none
};

struct FlowRow {
  FlowLine line = FlowLine::kFlow;
  nm_flow_record record = {};  // only for a flow
  // CLOCK_REALTIME. For lines other than flows: the start of counting, and the time of
  // the read.
  uint64_t start_ns = 0;
  uint64_t end_ns = 0;
  Sample series;        // the key alone: kind, name, destination and so on
  std::string process;  // that made the socket; "": OwnerNames finds none
  uint32_t reason =
      0;  // enum nm_unrecorded_reason, only for unrecorded traffic
  uint64_t records = 0;        // number of lost records
  nm_flow_counts counts = {};  // for all lines
  FlowClient client;           // only for a forwarded flow

  bool is_forwarded() const { return series.kind == kForwardedRow; }
};

// "192.0.2.1". Of a forwarded flow, the client's.
std::string LocalAddress(const FlowRow& row);

using FlowField = Field<FlowRow>;

// In the order of flows.proto, without the fields of Origin.
const std::vector<FlowField>& FlowFields();

// The end of a flow: "fin", "rst", "timeout" and so on; docs/connections.md has all. And
// the side that closed it: "local", "remote", or "" if neither did.
std::string EndName(const nm_flow_record& record);
std::string ClosedBy(const nm_flow_record& record);
std::string UnrecordedReasonName(uint32_t reason);

// Appends one object, in one line and without a newline.
void AppendJson(const FlowRow& row, const Origin& origin, std::string* out);
// Appends the length as a varint, and then one message Flow.
void AppendProtobuf(const FlowRow& row, const Origin& origin, std::string* out);
// The columns of a table. A stream's rows are not known beforehand, so each column has a
// fixed width.
TextLayout FlowLayout(size_t width);
// A line of the table, with a newline.
std::string TableLine(const FlowRow& row, const TextLayout& layout,
                      SizeUnits sizes);

// Adds the counters of a row of unrecorded traffic to another one.
void AddRemainder(const FlowRow& row, FlowRow* sum);

// Whether the row's series passes the filter: its service, destination and uplink.
bool MatchesSeries(const SocketFilter& filter, const FlowRow& row);
// Also compares the ends of a flow. Unrecorded traffic has none.
bool Matches(const SocketFilter& filter, const FlowRow& row);

// Adds names to records. It is made when its follower begins.
class FlowNames {
 public:
  explicit FlowNames(std::shared_ptr<const SharedMaps> maps);

  // The kernel's nm_stats.moves. While it is the same, and even, no series moves.
  nm_u64 Moves() const;

  // `wire_name`: Follower::WireNameOf().
  FlowRow RowOf(const nm_flow_record& record,
                const std::string& wire_name = "");

  // For unrecorded traffic, with the name that the series had. A slot may get another
  // series later. So call Know() several times a second with the present keys.
  FlowRow RowOf(const nm_unrecorded_key& key, const nm_unrecorded& rest);
  void Know(const nm_unrecorded_key& key);

  // The number of lost records so far.
  FlowRow RowOfLost(uint64_t records) const;

 private:
  const Sample& SeriesOf(uint32_t slot);
  // The key of the row that `netmeter list` has for a forwarded flow.
  Sample ForwardedSeries(nm_u64 interfaces, uint32_t uplinks);
  std::string InterfaceName(uint32_t index);
  void AddForwarded(const std::string& wire_name, FlowRow* row);
  FlowRow RowUntilNow(FlowLine line) const;

  const std::shared_ptr<const SharedMaps> maps_;
  const SeriesReader reader_;
  const uint64_t began_ns_;
  nm_u64 moves_ = 1;  // valid for by_slot_
  std::unordered_map<uint32_t, Sample> by_slot_;
  OwnerNames owners_;
  std::map<uint32_t, std::string> interfaces_;  // names, by index
  std::map<uint32_t, std::string> uplinks_;     // names, by number
  // Key: slot and nm_unrecorded_key.moves.
  std::map<std::pair<uint32_t, nm_u64>, std::shared_ptr<const Sample>> known_;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_CONNECTIONS_FLOW_H_
