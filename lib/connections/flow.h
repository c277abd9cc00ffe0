// SPDX-License-Identifier: BSD-3-Clause
// A record of `netmeter flows`: what the programs wrote of a flow, with names. The
// one table of its fields is that of JSON, protobuf and flows.proto.
//
// Threads: FlowNames, one at a time; all else any.

#ifndef NETMETER_LIB_CONNECTIONS_FLOW_H_
#define NETMETER_LIB_CONNECTIONS_FLOW_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bpf/flows.h"
#include "lib/base/text.h"
#include "lib/base/text_table.h"
#include "lib/connections/fields.h"
#include "lib/connections/filter.h"
#include "lib/reader/series_reader.h"
#include "lib/reader/shared_maps.h"
#include "netmeter/sample.h"

namespace netmeter {
namespace internal {

// What a line is about.
enum class FlowLine {
  kFlow,
  kRemainder,  // what of a series is in no flow, and why
  kLost,       // how many records were lost so far
};

struct FlowRow {
  FlowLine line = FlowLine::kFlow;
  nm_flow_record record = {};  // of a flow
  // CLOCK_REALTIME. Of what is no flow: since when it counts, and when it was read.
  uint64_t start_ns = 0;
  uint64_t end_ns = 0;
  Sample series;         // the key alone: kind, name, destination and so on
  std::string process;   // of the process that made the socket; "": it has gone
  uint32_t reason = 0;   // of a remainder: enum nm_rest_reason
  uint64_t records = 0;  // that were lost
  nm_flow_counts counts = {};  // of any line
};

using FlowField = Field<FlowRow>;

// In the order of flows.proto.
const std::vector<FlowField>& FlowFields();

// How a flow ended: "fin", "rst", "timeout" and so on; docs/connections.md has
// all. And which end closed it: "local", "remote", or "" where nobody did.
std::string EndName(const nm_flow_record& record);
std::string ClosedBy(const nm_flow_record& record);
std::string RestName(uint32_t reason);

// Appends one object, in one line and without a newline.
void AppendJson(const FlowRow& row, std::string* out);
// Appends the length as a varint, and then one message Flow.
void AppendProtobuf(const FlowRow& row, std::string* out);
// The columns of a table. A stream does not know its rows: each has a fixed width.
TextLayout FlowLayout(size_t width);
// A line of it, with a newline.
std::string TableLine(const FlowRow& row, const TextLayout& layout,
                      SizeUnits sizes);

// Adds what a row of a remainder counted to another one.
void AddRemainder(const FlowRow& row, FlowRow* sum);

// Whether the options of the command line let it through. Of a remainder, service,
// destination and uplink are compared.
bool Matches(const SocketFilter& filter, const FlowRow& row);

// Gives records their names. It is made when its follower begins.
class FlowNames {
 public:
  explicit FlowNames(std::shared_ptr<const SharedMaps> maps);

  FlowRow RowOf(const nm_flow_record& record);

  // Of a remainder, with the name that the series had. A slot may be another series'
  // later on, so Know() is to be called several times a second with what there is.
  FlowRow RowOf(const nm_rest_key& key, const nm_rest& rest);
  void Know(const nm_rest_key& key);

  // How many were lost so far.
  FlowRow RowOfLost(uint64_t records) const;

 private:
  const Sample& SeriesOf(uint32_t slot);
  nm_u64 Moves() const;
  FlowRow RowUntilNow(FlowLine line) const;

  const std::shared_ptr<const SharedMaps> maps_;
  const SeriesReader reader_;
  const uint64_t began_ns_;
  nm_u64 moves_ = 1;  // of what by_slot_ has
  std::unordered_map<uint32_t, Sample> by_slot_;
  // By slot and nm_rest_key.moves.
  std::map<std::pair<uint32_t, nm_u64>, std::shared_ptr<const Sample>> known_;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_CONNECTIONS_FLOW_H_
