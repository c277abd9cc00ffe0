// SPDX-License-Identifier: BSD-3-Clause
// Translates the configuration into options of the BPF object.
//
// Threads: any.

#ifndef NETMETER_LIB_LOADER_CONFIGURED_OBJECT_H_
#define NETMETER_LIB_LOADER_CONFIGURED_OBJECT_H_

#include "lib/loader/config.h"
#include "lib/loader/meter_object.h"

namespace netmeter {
namespace internal {

// The options that the configuration alone decides. The number of CPUs, the adds, the
// kernel's types and the registrants come from the host.
MeterObjectOptions ObjectOptionsOf(const Config& config);

// For --verbose: the object's programs and maps in the kernel.
void ReportObject(const MeterObject& object, bool upgrade);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_CONFIGURED_OBJECT_H_
