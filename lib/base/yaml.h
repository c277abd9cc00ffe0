// SPDX-License-Identifier: BSD-3-Clause
// Helpers that yaml-cpp lacks: finding a second document, and plain error messages.
//
// Threads: any.

#ifndef NETMETER_LIB_BASE_YAML_H_
#define NETMETER_LIB_BASE_YAML_H_

#include <string>

#include "absl/strings/string_view.h"

namespace YAML {
class Exception;
}

namespace netmeter {
namespace internal {

// The line, from 1, of the second document of a YAML text. 0 if there are fewer than two.
// Throws what yaml-cpp throws.
int LineOfSecondDocument(const std::string& yaml);

// A plain message for an error of yaml-cpp.
std::string WhyNoYaml(absl::string_view yaml, const YAML::Exception& error);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_BASE_YAML_H_
