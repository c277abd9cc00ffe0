// SPDX-License-Identifier: BSD-3-Clause
// The fields of a socket: the one table for the columns, JSON, protobuf, sort and
// sockets.proto of `netmeter sockets`. A field that the kernel did not send
// is in no output.
//
// Threads: any; the table does not change.

#ifndef NETMETER_LIB_SOCKETS_FIELDS_H_
#define NETMETER_LIB_SOCKETS_FIELDS_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "lib/sockets/attribution.h"
#include "lib/sockets/diag_message.h"
#include "lib/sockets/field.h"
#include "lib/sockets/holders.h"

namespace netmeter {
namespace internal {

// One socket and what belongs to it.
struct SocketRow {
  const DiagSocket* socket = nullptr;
  const SocketOwner* owner = nullptr;
  const Holders* holders = nullptr;
  uint64_t time_ns = 0;  // CLOCK_REALTIME of the reading
  uint64_t network = 0;  // inode of the namespace
};

using SocketField = Field<SocketRow>;

// In the order of sockets.proto. `processes`, which is a list, is not among
// them.
const std::vector<SocketField>& SocketFields();
constexpr uint32_t kProcessesNumber = 90;

// Null where there is none.
const SocketField* FindField(absl::string_view name);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_SOCKETS_FIELDS_H_
