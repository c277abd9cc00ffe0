// SPDX-License-Identifier: BSD-3-Clause
// A socket as a line of JSON, as a message of sockets.proto, and as a row of a table.
//
// Threads: any.

#ifndef NETMETER_LIB_APPS_CONNECTIONS_FORMAT_H_
#define NETMETER_LIB_APPS_CONNECTIONS_FORMAT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/apps/connections/fields.h"
#include "lib/apps/connections/origin.h"
#include "lib/base/text.h"
#include "lib/base/text_table.h"

namespace netmeter {
namespace internal {

// A column: a field, or one of `local`, `remote` (address and port), `remote_name`,
// `process` and `user`, which are texts for people, and `processes`, which is the list of
// JSON and protobuf.
struct SocketColumn {
  std::string name;
  const SocketField* field = nullptr;  // null: one of these
};

// Parses a list with commas. InvalidArgument names an unknown column. `in_table`: without
// `processes`; otherwise without texts for people.
absl::StatusOr<std::vector<SocketColumn>> ParseColumns(const std::string& list,
                                                       bool in_table = true);
std::string DefaultColumns(bool uplinks);
// Those of JSON and protobuf: all fields, and `processes`.
std::vector<SocketColumn> AllColumns();
// This column needs SocketRow.names.
constexpr char kRemoteName[] = "remote_name";
// Whether it takes the processes that hold a socket.
bool NeedsHolders(const SocketColumn& column);

// Appends one object, in one line and without a newline. Texts are valid UTF-8.
void AppendJson(const std::vector<SocketColumn>& columns, const SocketRow& row,
                const Origin& origin, std::string* out);

// Appends the length as a varint, and then one message Socket.
void AppendProtobuf(const std::vector<SocketColumn>& columns,
                    const SocketRow& row, const Origin& origin,
                    std::string* out);

// A line of CSV, with exact numbers and a newline.
std::string CsvHeader(const std::vector<SocketColumn>& columns);
std::string CsvLine(const std::vector<SocketColumn>& columns,
                    const SocketRow& row);

// For a TextTable. `keep_all`: no column is dropped if there is little room.
std::vector<TextColumn> TextColumns(const std::vector<SocketColumn>& columns,
                                    bool keep_all);

// The cells of one row.
std::vector<std::string> Cells(const std::vector<SocketColumn>& columns,
                               const SocketRow& row, SizeUnits sizes);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_CONNECTIONS_FORMAT_H_
