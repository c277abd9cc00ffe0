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

// The columns of a terminal that valid UTF-8 takes: CJK characters take two, combining
// ones none. The locale does not matter.
size_t DisplayWidth(absl::string_view utf8);

// The beginning, of at most `width` columns.
absl::string_view CutToWidth(absl::string_view utf8, size_t width);

// " (did you mean max_series?)", with the one of `known` that `word` may be a
// misspelling of, or the beginning; or "", if there is none.
std::string DidYouMean(absl::string_view word,
                       const std::vector<std::string>& known);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_CORE_TEXT_H_
