// SPDX-License-Identifier: BSD-3-Clause
// What yaml-cpp leaves to its callers: a second document, and words for an error.
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

// The line, from 1, of the second document of a YAML text; 0: there is one, or none.
// Throws what yaml-cpp throws.
int LineOfSecondDocument(const std::string& yaml);

// What yaml-cpp did not like about a text.
std::string WhyNoYaml(absl::string_view yaml, const YAML::Exception& error);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_BASE_YAML_H_
