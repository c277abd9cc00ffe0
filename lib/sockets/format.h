// SPDX-License-Identifier: BSD-3-Clause
// A socket as a line of JSON, as a message of sockets.proto, and as a row of a
// table.
//
// Threads: any; a SocketTable, one at a time.

#ifndef NETMETER_LIB_SOCKETS_FORMAT_H_
#define NETMETER_LIB_SOCKETS_FORMAT_H_

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/sockets/fields.h"

namespace netmeter {
namespace internal {

// Appends one object, in one line and without a newline. Texts are valid UTF-8.
void AppendJson(const SocketRow& row, std::string* out);

// Appends the length as a varint, and then one message Socket.
void AppendProtobuf(const SocketRow& row, std::string* out);

// A column: a field, or one of `local`, `remote` (address and port) and
// `process`.
struct SocketColumn {
  std::string name;
  const SocketField* field = nullptr;  // null: one of the three
};

// Of a list with commas. InvalidArgument names what is no column.
absl::StatusOr<std::vector<SocketColumn>> ParseColumns(const std::string& list);
std::string DefaultColumns(bool uplinks);

// Rows, until their widths are known. Costs about the text of each row.
class SocketTable {
 public:
  SocketTable(std::vector<SocketColumn> columns, SizeUnits sizes);

  void Add(const SocketRow& row);
  size_t size() const { return rows_.size(); }

  // One row, formatted like those of Add(), to be added later by AddCells().
  std::string Cells(const SocketRow& row) const;
  void AddCells(std::string cells);

  std::string Format() const;

 private:
  const std::vector<SocketColumn> columns_;
  const SizeUnits sizes_;
  std::vector<size_t> widths_;
  std::vector<std::string> rows_;  // cells, with a NUL after each
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_SOCKETS_FORMAT_H_
