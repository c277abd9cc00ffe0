// SPDX-License-Identifier: BSD-3-Clause
// The fields of a structure of the running kernel, by its BTF: the places of those that
// are not the same in all kernels.
//
// Threads: any.

#ifndef NETMETER_LIB_APPS_CONNECTIONS_KERNEL_FIELDS_H_
#define NETMETER_LIB_APPS_CONNECTIONS_KERNEL_FIELDS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "lib/netlink/number_fields.h"

namespace netmeter {
namespace internal {

struct KernelField {
  std::string name;
  NumberField place;  // without a name
};

// The fields from byte `offset` on. Empty without BTF. Costs 15 milliseconds, and 9 MB of
// memory meanwhile.
std::vector<KernelField> KernelFieldsFrom(const char* structure, size_t offset);

// The size of struct tcp_info in this kernel; 0 if it cannot be found.
size_t TcpInfoSize();

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_CONNECTIONS_KERNEL_FIELDS_H_
