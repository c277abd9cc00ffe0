// SPDX-License-Identifier: BSD-3-Clause
// What is checked of the text of a configuration, whether it is netmeter.yml or a file
// of Magma's: documents, names, and the line that an error makes.
//
// Threads: any.

#ifndef NETMETER_LIB_LOADER_CONFIG_TEXT_H_
#define NETMETER_LIB_LOADER_CONFIG_TEXT_H_

#include <string>

#include "absl/strings/string_view.h"
#include "netmeter/abi.h"

namespace YAML {
class Exception;
}

namespace netmeter {
namespace internal {

// Services and aliases together.
constexpr size_t kMaxExecutables = 1024;

// The line, from 1, of the second document of a YAML text; 0: there is one, or none.
// Throws what yaml-cpp throws.
int LineOfSecondDocument(const std::string& yaml);

// What yaml-cpp did not like about a text.
std::string WhyNoYaml(absl::string_view yaml, const YAML::Exception& error);

// A value in a message: a file may hold a long one.
std::string Quote(const std::string& value);

// One line, whatever the file held.
std::string OneLine(std::string text);

// Why a text is no name, "'': a name has 1 to 64 bytes, no NUL"; "" for one that is.
std::string WhyNoName(const std::string& name, size_t most = NM_NAME_BYTES);
// ... no executable by which a process is found.
std::string WhyNoExecutable(const std::string& name);
// ... no suffix that is taken off a destination. It may be longer than what is stored
// of a name, of which its beginning is taken off then (lib/core/wire_name.h).
std::string WhyNoSuffix(const std::string& suffix);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_CONFIG_TEXT_H_
