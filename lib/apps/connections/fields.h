// SPDX-License-Identifier: BSD-3-Clause
// The fields of a socket. This table is used for the columns, JSON, protobuf, sort and
// sockets.proto of `netmeter sockets`. A field that the kernel did not send is in no
// output.
//
// Threads: any; the table does not change.

#ifndef NETMETER_LIB_APPS_CONNECTIONS_FIELDS_H_
#define NETMETER_LIB_APPS_CONNECTIONS_FIELDS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "lib/apps/connections/attribution.h"
#include "lib/apps/connections/reverse_names.h"
#include "lib/base/text.h"
#include "lib/netlink/diag_message.h"
#include "lib/netlink/holders.h"

namespace netmeter {
namespace internal {

// A field of a row, such as a socket or a flow: its name in JSON, its number in protobuf,
// and the function that reads it. A command has one table of them, and all its output
// formats use it.
//
//   const std::vector<Field<SocketRow>>& fields = SocketFields();
//   AppendJsonFields(fields, row, &out);
//
// Threads: any; a table does not change.

struct FieldValue {
  enum Kind { kNone, kNumber, kText };
  Kind kind = kNone;
  uint64_t number = 0;
  std::string text;

  void SetNumber(uint64_t value) {
    kind = kNumber;
    number = value;
  }
  // An empty text counts as missing. Reuses the memory of the last one.
  void SetText(absl::string_view value) {
    if (value.empty()) return;
    kind = kText;
    text.assign(value.data(), value.size());
  }
};

// The unit in which a table shows a number.
enum class Unit { kNone, kBytes, kMicroseconds, kBytesPerSecond };

template <typename Row>
struct Field {
  std::string name;  // in JSON, in the .proto and on the command line
  uint32_t number;   // in the .proto; never reused. 0: not in it
  bool is_text;
  Unit unit;
  std::function<void(const Row&, FieldValue*)> read;
};

// The text of a number in a table. SizeUnits::kExact also leaves out the unit of time.
std::string NumberText(uint64_t number, Unit unit, SizeUnits sizes);

// Appends a text with its quotes. The result is valid UTF-8.
void AppendJsonText(absl::string_view text, std::string* out);

// Appends ,"name": and the value.
void AppendJsonField(const std::string& name, const FieldValue& value,
                     std::string* out);

// Makes an object of the fields that begin at `start`, each after a comma.
void CloseJsonObject(size_t start, std::string* out);

// Appends a field of a message.
void AppendProtobufField(uint32_t number, const FieldValue& value,
                         std::string* message);

// Puts the length of the message that begins at `start` in front of it, as a varint.
void InsertLength(size_t start, std::string* out);

// Appends the fields that the row has, as AppendJsonField().
template <typename Row>
void AppendJsonFields(const std::vector<Field<Row>>& fields, const Row& row,
                      std::string* out) {
  thread_local FieldValue value;
  for (const Field<Row>& field : fields) {
    value.kind = FieldValue::kNone;
    field.read(row, &value);
    if (value.kind == FieldValue::kNone) continue;
    AppendJsonField(field.name, value, out);
  }
}

template <typename Row>
void AppendProtobufFields(const std::vector<Field<Row>>& fields, const Row& row,
                          std::string* message) {
  thread_local FieldValue value;
  for (const Field<Row>& field : fields) {
    value.kind = FieldValue::kNone;
    field.read(row, &value);
    if (value.kind != FieldValue::kNone) {
      AppendProtobufField(field.number, value, message);
    }
  }
}

// A socket, its service, and its processes.
struct SocketRow {
  const DiagSocket* socket = nullptr;
  const SocketOwner* owner = nullptr;
  const Holders* holders = nullptr;
  uint64_t time_ns = 0;           // CLOCK_REALTIME of the reading
  uint64_t network = 0;           // inode of the namespace
  ReverseNames* names = nullptr;  // not null if a column needs them
};

using SocketField = Field<SocketRow>;

// In the order of sockets.proto, without the list `processes` and the fields of Origin.
const std::vector<SocketField>& SocketFields();
constexpr uint32_t kProcessesNumber = 90;

// Null if there is no such field.
const SocketField* FindField(absl::string_view name);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_CONNECTIONS_FIELDS_H_
