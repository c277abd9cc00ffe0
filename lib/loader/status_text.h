// SPDX-License-Identifier: BSD-3-Clause
// Prints a MeterStatus, for people and for programs.
//
// Threads: any.

#ifndef NETMETER_LIB_LOADER_STATUS_TEXT_H_
#define NETMETER_LIB_LOADER_STATUS_TEXT_H_

#include <string>

#include "lib/loader/status.h"

namespace netmeter {
namespace internal {

// Some twenty lines.
std::string StatusAsText(const MeterStatus& status);

// One object.
std::string StatusAsJson(const MeterStatus& status);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_STATUS_TEXT_H_
