// SPDX-License-Identifier: BSD-3-Clause
// The members of FlowRecord under the names and numbers of flows.proto, for the decoder
// and the Python binding.
//
// Threads: any; the table does not change.

#ifndef NETMETER_LIB_READER_FLOW_RECORD_FIELDS_H_
#define NETMETER_LIB_READER_FLOW_RECORD_FIELDS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "netmeter/connections.h"

namespace netmeter {
namespace internal {

// Either `text` or `value` is null.
struct FlowRecordField {
  uint32_t number;
  const char* name;
  std::string FlowRecord::*text;
  uint64_t FlowRecord::*value;
};

const std::vector<FlowRecordField>& FlowRecordFields();

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_READER_FLOW_RECORD_FIELDS_H_
