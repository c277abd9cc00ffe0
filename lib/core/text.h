// SPDX-License-Identifier: BSD-3-Clause
// Names are any bytes, and anybody may choose one. Whatever prints or publishes
// them makes them safe by these functions.
//
// Threads: any.

#ifndef NETMETER_LIB_CORE_TEXT_H_
#define NETMETER_LIB_CORE_TEXT_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace netmeter {
namespace internal {

// Valid UTF-8: bytes that are not (RFC 3629) become \xNN.
std::string ToUtf8(absl::string_view bytes);

// As ToUtf8(). Everything that a terminal would obey becomes \xNN for each of its
// bytes, too: control characters, line and paragraph separators, and characters
// that turn the direction of writing or have no width.
std::string ToTerminal(absl::string_view bytes);

// As one word for a shell: a unit's cgroup may have a backslash in its name.
std::string ShellWord(absl::string_view text);

// Characters of valid UTF-8.
size_t CountCharacters(absl::string_view utf8);

// " (did you mean max_series?)", with the one of `known` that `word` may be a
// misspelling of; or "", if there is none.
std::string DidYouMean(absl::string_view word,
                       const std::vector<std::string>& known);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_CORE_TEXT_H_
