// SPDX-License-Identifier: BSD-3-Clause
// A name may contain any bytes, and any user may choose one. Code that prints or
// publishes names makes them safe with these functions.
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

// Valid UTF-8: each byte that is not (RFC 3629) becomes \xNN.
std::string ToUtf8(absl::string_view bytes);

// Like ToUtf8(), but \xNN also replaces each byte of characters that a terminal would
// obey: control characters, line and paragraph separators, and characters that change the
// direction of writing or have no width.
std::string ToTerminal(absl::string_view bytes);

// Quotes the text as one word for a shell: the name of a unit's cgroup may have a
// backslash.
std::string ShellWord(absl::string_view text);

// The number of terminal columns that valid UTF-8 takes: CJK characters take two,
// combining ones none. Does not depend on the locale.
size_t DisplayWidth(absl::string_view utf8);

// The beginning of the text, of at most `width` columns.
absl::string_view CutToWidth(absl::string_view utf8, size_t width);

// The text in lines of at most `width` columns, broken at blanks, and each ended by a
// newline. All lines but the first begin with two blanks. 0 means no limit.
std::string WrapText(absl::string_view utf8, size_t width);

// " (did you mean max_series?)", with the one of `known` that `word` may be a misspelling
// or the beginning or the last word of; "" if there is none. Of several that `word` is a
// part of, it is the shortest, and the last of equals, as SocketFields() ends with the
// common ones.
std::string DidYouMean(absl::string_view word,
                       const std::vector<std::string>& known);

// Numbers for people. All sizes, rates, times and shares are formatted here.
//
//   HumanBytes(1536, SizeUnits::kBinary)   "1.5 KiB"
//   HumanBytes(1536, SizeUnits::kDecimal)  "1.5 kB"
//   HumanBytes(1536, SizeUnits::kExact)    "1536"
//   HumanMilliseconds(1536)                "1.54 ms"
//   HumanDuration(1536)                    "1.5 s"
//   HumanPercent(1, 3)                     "33.3%"
//
// Threads: any.

enum class SizeUnits {
  kBinary,   // KiB is 1024 bytes
  kDecimal,  // kB is 1000 bytes
  kExact,    // all digits, without a unit
};

std::string HumanBytes(uint64_t bytes, SizeUnits units);

// Like HumanBytes(), for a number that may be negative, such as a difference of counters.
std::string HumanSignedBytes(int64_t bytes, SizeUnits units);

// "1.5K" for narrow columns, such as those of a screen that changes each second. At most
// 6 characters.
std::string ShortBytes(double bytes, SizeUnits units);

// Three digits: "0.045 ms", "1.54 ms", "154 ms".
std::string HumanMilliseconds(double us);

// "312 ms", "12.3 s", "1:02:03".
std::string HumanDuration(uint64_t ms);

// "33.3%"; "0.0%" if `all` is 0.
std::string HumanPercent(double part, double all, int decimals = 1);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_BASE_TEXT_H_
