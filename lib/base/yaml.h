// SPDX-License-Identifier: BSD-3-Clause
// What yaml-cpp lacks: finding a second document, and errors that say what to write.
//
// Threads: any.

#ifndef NETMETER_LIB_BASE_YAML_H_
#define NETMETER_LIB_BASE_YAML_H_

#include <string>

#include "absl/strings/string_view.h"

namespace YAML {
class Exception;
class Node;
}  // namespace YAML

namespace netmeter {
namespace internal {

// YAML::Load(), which takes a quoted text without an end for one that ends with the file.
// Throws for that, too.
YAML::Node LoadYaml(const std::string& yaml);

// The line, from 1, of the second document of a YAML text. 0 if there are fewer than two.
// Throws what yaml-cpp throws.
int LineOfSecondDocument(const std::string& yaml);

// What is wrong in a text that yaml-cpp cannot parse, and in which line, from 1. The text
// begins with the key of the first column: "uplinks: '[' without ']'".
struct YamlFault {
  int line = 1;
  std::string text;
};
YamlFault DescribeFault(absl::string_view yaml, const YAML::Exception& error);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_BASE_YAML_H_
