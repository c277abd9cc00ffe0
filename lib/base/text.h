// SPDX-License-Identifier: BSD-3-Clause
// Names are any bytes, and anybody may choose one. Whatever prints or publishes
// them makes them safe by these functions.
//
// Threads: any.

#ifndef NETMETER_LIB_BASE_TEXT_H_
#define NETMETER_LIB_BASE_TEXT_H_

#include <cstddef>
#include <cstdint>
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

// Numbers of bytes for people: the one formatter of sizes.
//
//   HumanBytes(1536, SizeUnits::kBinary)   "1.5 KiB"
//   HumanBytes(1536, SizeUnits::kDecimal)  "1.5 kB"
//   HumanBytes(1536, SizeUnits::kExact)    "1536"
//
// Threads: any.

enum class SizeUnits {
  kBinary,   // KiB is 1024 bytes
  kDecimal,  // kB is 1000 bytes
  kExact,    // all digits, without a unit
};

std::string HumanBytes(uint64_t bytes, SizeUnits units);

// The same, also below 0, as a difference of two counters may be.
std::string HumanSignedBytes(int64_t bytes, SizeUnits units);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_BASE_TEXT_H_
