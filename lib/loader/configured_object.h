// SPDX-License-Identifier: BSD-3-Clause
// Between the configuration and the BPF object: what the one says in the words of the
// other.
//
// Threads: any.

#ifndef NETMETER_LIB_LOADER_CONFIGURED_OBJECT_H_
#define NETMETER_LIB_LOADER_CONFIGURED_OBJECT_H_

#include "lib/loader/config.h"
#include "lib/loader/meter_object.h"

namespace netmeter {
namespace internal {

// All that the configuration alone decides. The number of CPUs, the adds, the types of
// the kernel and who may register come from the host.
MeterObjectOptions ObjectOptionsOf(const Config& config);

// For --verbose: which programs and maps the object has in the kernel.
void ReportObject(const MeterObject& object, bool upgrade);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_CONFIGURED_OBJECT_H_
