// SPDX-License-Identifier: BSD-3-Clause
// Tables of the fields, with the kernel's names, of the structures that the kernel sends
// with a socket. The kernel only adds fields at the end (include/uapi/linux/tcp.h), so a
// table reads the structure of every kernel. A shorter structure has fewer fields.
// RestOf() keeps the part of a longer one after the table's last field. sockets_root_test
// compares the tables with the BTF of the running kernel.
//
// Threads: any; nothing here changes.

#ifndef NETMETER_LIB_NETLINK_NUMBER_FIELDS_H_
#define NETMETER_LIB_NETLINK_NUMBER_FIELDS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"

namespace netmeter {
namespace internal {

struct NumberField {
  const char* name;
  uint16_t offset;  // in bytes
  uint8_t size;     // 1, 2, 4 or 8 bytes
  uint8_t shift;    // of a bit field, in its byte
  uint8_t bits;     // of a bit field; 0: not a bit field
  // The size of the first version of the structure that has the field, if earlier
  // versions had padding at its place. 0: the end of the field.
  uint16_t since;
  bool largest_is_none = false;  // the kernel's mark: not measured yet
};

const std::vector<NumberField>& TcpInfoFields();
const std::vector<NumberField>& MptcpInfoFields();
const std::vector<NumberField>& SctpInfoFields();
const std::vector<NumberField>& SkMeminfoFields();
const std::vector<NumberField>& VegasFields();
const std::vector<NumberField>& DctcpFields();
const std::vector<NumberField>& BbrFields();

// Returns false if the structure is older than the field, or the kernel has no value yet.
bool ReadNumber(absl::string_view structure, const NumberField& field,
                uint64_t* value);

// The end of the last field of the table.
size_t EndOf(const std::vector<NumberField>& fields);
// The bytes after that.
absl::string_view RestOf(absl::string_view structure,
                         const std::vector<NumberField>& fields);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_NETLINK_NUMBER_FIELDS_H_
