// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/connections/format.h"

#include <netinet/in.h>

#include <algorithm>
#include <map>
#include <protozero/pbf_writer.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "lib/base/csv.h"
#include "lib/base/text.h"
#include "lib/base/users.h"

namespace netmeter {
namespace internal {
namespace {

// "192.0.2.1:443", "[2001:db8::1]:443", "*:0".
std::string EndText(const DiagSocket& socket, bool local) {
  const std::string address = AddressText(
      socket.family, local ? socket.local_address : socket.remote_address);
  const uint16_t port = local ? socket.local_port : socket.remote_port;
  return socket.family == AF_INET ? absl::StrCat(address, ":", port)
                                  : absl::StrCat("[", address, "]:", port);
}

// "nginx/812", or "nginx/812+3" if three more descriptors have it.
std::string ProcessText(const SocketRow& row) {
  std::string text;
  int more = 0;
  row.holders->ForEach(row.socket->inode, [&](const Holder& holder) {
    if (text.empty()) {
      text = absl::StrCat(ToTerminal(*holder.name), "/", holder.pid);
    } else {
      more++;
    }
  });
  if (more > 0) absl::StrAppend(&text, "+", more);
  return text;
}

// The user of the socket; its number if this host has no such user.
std::string UserText(uint32_t uid) {
  thread_local std::map<uint32_t, std::string> known;
  const auto [found, made] = known.try_emplace(uid);
  if (made) found->second = UserName(uid);
  return found->second.empty() ? absl::StrCat(uid) : ToTerminal(found->second);
}

// "" for a socket that is not connected.
std::string RemoteName(const SocketRow& row) {
  const DiagSocket& socket = *row.socket;
  if (row.names == nullptr || socket.remote_port == 0) return "";
  return ToTerminal(row.names->Find({socket.family, socket.remote_address}));
}

std::string CellText(const SocketColumn& column, const SocketRow& row,
                     SizeUnits sizes) {
  if (column.field == nullptr) {
    if (column.name == "process") return ProcessText(row);
    if (column.name == "user") return UserText(row.socket->uid);
    if (column.name == kRemoteName) return RemoteName(row);
    return EndText(*row.socket, column.name == "local");
  }
  FieldValue value;
  column.field->read(row, &value);
  if (value.kind == FieldValue::kNumber) {
    return NumberText(value.number, column.field->unit, sizes);
  }
  return ToTerminal(value.text);
}

// Calls body(field, value) for each column whose field the row has.
template <typename Body>
void ForEachValue(const std::vector<SocketColumn>& columns,
                  const SocketRow& row, const Body& body) {
  thread_local FieldValue value;
  for (const SocketColumn& column : columns) {
    if (column.field == nullptr) continue;
    value.kind = FieldValue::kNone;
    column.field->read(row, &value);
    if (value.kind != FieldValue::kNone) body(*column.field, value);
  }
}

bool HasProcesses(const std::vector<SocketColumn>& columns) {
  return std::any_of(columns.begin(), columns.end(), NeedsHolders);
}

bool IsNumber(const SocketColumn& column) {
  return column.field != nullptr && !column.field->is_text;
}

}  // namespace

std::vector<SocketColumn> AllColumns() {
  std::vector<SocketColumn> columns;
  for (const SocketField& field : SocketFields()) {
    columns.push_back({field.name, &field});
  }
  columns.push_back({"processes", nullptr});
  return columns;
}

bool NeedsHolders(const SocketColumn& column) {
  return column.name == "process" || column.name == "processes";
}

void AppendJson(const std::vector<SocketColumn>& columns, const SocketRow& row,
                const Origin& origin, std::string* out) {
  const size_t start = out->size();
  ForEachValue(columns, row,
               [&](const SocketField& field, const FieldValue& value) {
                 AppendJsonField(field.name, value, out);
               });
  out->append(origin.json());
  if (HasProcesses(columns)) {
    out->append(",\"processes\":[");
    bool first = true;
    row.holders->ForEach(row.socket->inode, [&](const Holder& holder) {
      absl::StrAppend(out, first ? "" : ",", "{\"pid\":", holder.pid,
                      ",\"fd\":", holder.fd, ",\"name\":");
      AppendJsonText(*holder.name, out);
      out->push_back('}');
      first = false;
    });
    out->push_back(']');
  }
  CloseJsonObject(start, out);
}

void AppendProtobuf(const std::vector<SocketColumn>& columns,
                    const SocketRow& row, const Origin& origin,
                    std::string* out) {
  const size_t start = out->size();
  out->append(origin.protobuf());
  ForEachValue(columns, row,
               [&](const SocketField& field, const FieldValue& value) {
                 AppendProtobufField(field.number, value, out);
               });
  if (HasProcesses(columns)) {
    row.holders->ForEach(row.socket->inode, [&](const Holder& holder) {
      protozero::pbf_writer message(*out);
      protozero::pbf_writer process(message, kProcessesNumber);
      process.add_uint32(1, holder.pid);
      process.add_uint32(2, holder.fd);
      process.add_string(3, ToUtf8(*holder.name));
    });
  }
  InsertLength(start, out);
}

std::string CsvHeader(const std::vector<SocketColumn>& columns) {
  return absl::StrCat(
      absl::StrJoin(
          columns, ",",
          [](std::string* out, const SocketColumn& c) { out->append(c.name); }),
      "\n");
}

std::string CsvLine(const std::vector<SocketColumn>& columns,
                    const SocketRow& row) {
  std::vector<std::string> cells;
  for (const SocketColumn& column : columns) {
    cells.push_back(CsvField(CellText(column, row, SizeUnits::kExact)));
  }
  return absl::StrCat(absl::StrJoin(cells, ","), "\n");
}

std::string DefaultColumns(bool uplinks) {
  return absl::StrCat(
      "protocol,state,rqueue,wqueue,local,remote,process,kind,service,"
      "destination,",
      uplinks ? "uplink," : "",
      "tcpi_rtt,tcpi_total_retrans,tcpi_bytes_sent,tcpi_bytes_received");
}

absl::StatusOr<std::vector<SocketColumn>> ParseColumns(const std::string& list,
                                                       bool in_table) {
  std::vector<SocketColumn> columns;
  std::vector<std::string> known = {"processes"};
  if (in_table) known = {"local", "remote", kRemoteName, "process", "user"};
  for (const SocketField& field : SocketFields()) known.push_back(field.name);
  for (const absl::string_view name : absl::StrSplit(list, ',')) {
    SocketColumn column;
    column.name = std::string(name);
    column.field = FindField(name);
    if (std::find(known.begin(), known.end(), column.name) == known.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--columns: unknown column '", name, "'", DidYouMean(name, known)));
    }
    columns.push_back(std::move(column));
  }
  return columns;
}

std::vector<TextColumn> TextColumns(const std::vector<SocketColumn>& columns,
                                    bool keep_all) {
  // Columns with the highest numbers are dropped first.
  static const auto* const order =
      new std::map<std::string, int>{{"wqueue", 12},
                                     {"rqueue", 12},
                                     {"kind", 11},
                                     {"tcpi_snd_cwnd", 10},
                                     {"tcpi_total_retrans", 9},
                                     {"tcpi_bytes_received", 8},
                                     {"tcpi_bytes_sent", 8},
                                     {"tcpi_rtt", 7},
                                     {"protocol", 6},
                                     {"uplink", 5},
                                     {"destination", 4},
                                     {"process", 3},
                                     {"state", 2}};
  // Room for an IPv4 address and its port, for a process with its id, and for enough of a
  // name to tell most names apart.
  constexpr size_t kAddress = 21, kProcess = 23, kName = 12;
  std::vector<TextColumn> table;
  for (const SocketColumn& column : columns) {
    TextColumn made;
    made.header = absl::AsciiStrToUpper(column.name);
    made.side = IsNumber(column) ? TextColumn::kRight : TextColumn::kLeft;
    const auto found = order->find(column.name);
    if (!keep_all && found != order->end()) made.drop = found->second;
    made.least = column.name == "local" || column.name == "remote" ? kAddress
                 : column.name == "process"                        ? kProcess
                                                                   : kName;
    table.push_back(std::move(made));
  }
  return table;
}

std::vector<std::string> Cells(const std::vector<SocketColumn>& columns,
                               const SocketRow& row, SizeUnits sizes) {
  std::vector<std::string> cells;
  for (const SocketColumn& column : columns) {
    cells.push_back(CellText(column, row, sizes));
    if (cells.back().empty()) cells.back() = "-";
  }
  return cells;
}

}  // namespace internal
}  // namespace netmeter
