// SPDX-License-Identifier: BSD-3-Clause
// Any user of the host may choose the name of a series, and so may a peer, as the name
// can come from a packet. Names end up in metrics, whose readers refuse invalid UTF-8,
// and on an administrator's terminal, which obeys escape sequences. The functions here
// make names harmless for both: each byte of a bad character becomes \xNN. Two different
// names may then look alike; families.cc sums series whose labels are equal.
#include "lib/base/text.h"

#include <locale.h>
#include <wchar.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace netmeter {
namespace internal {
namespace {

// Length of the character at the start of `bytes`, and its code point. 0 if the bytes are
// not UTF-8 as RFC 3629 defines it. RFC 3629 excludes overlong forms, surrogates, and
// everything above 10FFFF.
size_t DecodeCharacter(absl::string_view bytes, uint32_t* code) {
  const auto at = [&bytes](size_t i) {
    return static_cast<unsigned char>(bytes[i]);
  };
  const unsigned char first = at(0);
  if (first < 0x80) {
    *code = first;
    return 1;
  }
  size_t length;
  uint32_t smallest;
  if (first >= 0xc2 && first <= 0xdf) {
    length = 2;
    smallest = 0x80;
  } else if (first >= 0xe0 && first <= 0xef) {
    length = 3;
    smallest = 0x800;
  } else if (first >= 0xf0 && first <= 0xf4) {
    length = 4;
    smallest = 0x10000;
  } else {
    return 0;
  }
  if (bytes.size() < length) return 0;
  *code = first & (0xffu >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xc0) != 0x80) return 0;
    *code = *code << 6 | (at(i) & 0x3f);
  }
  if (*code < smallest || *code > 0x10ffff) return 0;
  if (*code >= 0xd800 && *code <= 0xdfff) return 0;
  return length;
}

// Unsafe are the control characters of ASCII and of Latin-1, and characters that change
// how the text around them is shown: soft hyphen, Arabic letter mark, Mongolian vowel
// separator, byte order mark, spaces of no width, marks and overrides of the direction,
// line and paragraph separators, invisible operators, annotations, and language tags.
bool IsSafeOnTerminal(uint32_t code) {
  if (code < 0x20 || (code >= 0x7f && code < 0xa0)) return false;
  return !(code == 0xad || code == 0x61c || code == 0x180e || code == 0xfeff ||
           (code >= 0x200b && code <= 0x200f) ||
           (code >= 0x2028 && code <= 0x202e) ||
           (code >= 0x2060 && code <= 0x206f) ||
           (code >= 0xfff9 && code <= 0xfffb) ||
           (code >= 0xe0000 && code <= 0xe0fff));
}

void AppendEscaped(absl::string_view bytes, std::string* out) {
  for (const char byte : bytes) {
    absl::StrAppend(
        out, "\\x",
        absl::Hex(static_cast<unsigned char>(byte), absl::kZeroPad2));
  }
}

std::string Escape(absl::string_view bytes, bool for_terminal) {
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    uint32_t code = 0;
    const size_t length = DecodeCharacter(bytes, &code);
    const absl::string_view character =
        bytes.substr(0, std::max<size_t>(length, 1));
    if (length == 0 || (for_terminal && !IsSafeOnTerminal(code))) {
      AppendEscaped(character, &out);
    } else {
      out.append(character.data(), character.size());
    }
    bytes.remove_prefix(character.size());
  }
  return out;
}

// While an object of this class lives, wcwidth(3) knows all characters in this thread
// alone. Under LC_ALL=C it knows only ASCII. The locale of the process does not change.
// On a host without glibc's C.UTF-8, such as an empty container, nothing changes.
class Utf8Locale {
 public:
  Utf8Locale() {
    static const locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
    before_ = uselocale(utf8);
  }
  ~Utf8Locale() { uselocale(before_); }
  Utf8Locale(const Utf8Locale&) = delete;
  Utf8Locale& operator=(const Utf8Locale&) = delete;

 private:
  locale_t before_;
};

// The number of bytes that fit into `most` columns; *width gets their columns.
size_t TakeWidth(absl::string_view utf8, size_t most, size_t* width) {
  if (std::all_of(utf8.begin(), utf8.end(), [](char c) {
        return absl::ascii_isascii(static_cast<unsigned char>(c));
      })) {
    return *width = std::min(most, utf8.size());
  }
  const Utf8Locale locale;
  size_t bytes = 0;
  while (bytes < utf8.size()) {
    uint32_t code = 0;
    const size_t length = DecodeCharacter(utf8.substr(bytes), &code);
    const int columns = wcwidth(static_cast<wchar_t>(code));
    // An unknown character most likely takes one column.
    const size_t added = columns < 0 ? 1 : static_cast<size_t>(columns);
    if (*width + added > most) break;
    *width += added;
    bytes += std::max<size_t>(length, 1);
  }
  return bytes;
}

// The number of characters to change, add, remove or swap with their successor to turn a
// into b (optimal string alignment). d[i][j] is the number for the first i characters of
// a and the first j of b.
size_t DistanceOf(absl::string_view a, absl::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1,
                                     std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1,
                          d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

constexpr char kUnits[] = " KMGTPE";

// Divides *value by `base` until it is below `top`; returns how often, at most 6 times.
size_t Scale(double base, double top, double* value) {
  size_t unit = 0;
  while (*value >= top && unit < 6) {
    *value /= base;
    ++unit;
  }
  return unit;
}

}  // namespace

std::string ToUtf8(absl::string_view bytes) {
  return Escape(bytes, /*for_terminal=*/false);
}

std::string ToTerminal(absl::string_view bytes) {
  return Escape(bytes, /*for_terminal=*/true);
}

std::string ShellWord(absl::string_view text) {
  const bool plain = std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
           absl::string_view("/._-:@").find(c) != absl::string_view::npos;
  });
  if (plain && !text.empty()) return std::string(text);
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

size_t DisplayWidth(absl::string_view utf8) {
  size_t width = 0;
  TakeWidth(utf8, utf8.size(), &width);
  return width;
}

absl::string_view CutToWidth(absl::string_view utf8, size_t width) {
  size_t taken = 0;
  return utf8.substr(0, TakeWidth(utf8, width, &taken));
}

std::string WrapText(absl::string_view utf8, size_t width) {
  constexpr absl::string_view kIndent = "\n  ";
  std::string lines;
  size_t used = 0;
  for (const absl::string_view word : absl::StrSplit(utf8, ' ')) {
    const size_t size = DisplayWidth(word);
    if (used != 0 && width != 0 && used + 1 + size > width) {
      absl::StrAppend(&lines, kIndent, word);
      used = kIndent.size() - 1 + size;
    } else {
      absl::StrAppend(&lines, used == 0 ? "" : " ", word);
      used += (used == 0 ? 0 : 1) + size;
    }
  }
  return lines + "\n";
}

std::string DidYouMean(absl::string_view word,
                       const std::vector<std::string>& known) {
  if (word.size() > 64) return "";
  std::string best;
  // One character in three may be wrong.
  size_t smallest = word.size() / 3 + 1;
  for (const std::string& candidate : known) {
    // A word that was cut short, such as proto, or rtt for tcpi_rtt.
    const bool is_part = word.size() > 2 && word.size() < candidate.size() &&
                         (absl::StartsWith(candidate, word) ||
                          absl::EndsWith(candidate, absl::StrCat("_", word)));
    if (is_part && (smallest > 1 || candidate.size() <= best.size())) {
      smallest = 1;
      best = candidate;
    }
    // The difference in length is the least number of changes.
    if (std::max(word.size(), candidate.size()) -
            std::min(word.size(), candidate.size()) >=
        smallest) {
      continue;
    }
    const size_t distance = DistanceOf(word, candidate);
    if (distance < smallest) {
      smallest = distance;
      best = candidate;
    }
  }
  return best.empty() ? "" : absl::StrCat(" (did you mean ", best, "?)");
}

std::string HumanBytes(uint64_t bytes, SizeUnits units) {
  if (units == SizeUnits::kExact) return absl::StrCat(bytes);
  const bool decimal = units == SizeUnits::kDecimal;
  const double base = decimal ? 1000 : 1024;
  double value = static_cast<double>(bytes);
  if (value < base) return absl::StrCat(bytes, " B");
  // Rounding would turn 1023.95 into 1024.0.
  const size_t unit = Scale(base, base - 0.05, &value);
  return absl::StrFormat("%.1f %c%s", value,
                         decimal && unit == 1 ? 'k' : kUnits[unit],
                         decimal ? "B" : "iB");
}

std::string HumanSignedBytes(int64_t bytes, SizeUnits units) {
  if (bytes >= 0) return HumanBytes(static_cast<uint64_t>(bytes), units);
  return "-" + HumanBytes(0 - static_cast<uint64_t>(bytes), units);
}

std::string ShortBytes(double bytes, SizeUnits units) {
  const double base = units == SizeUnits::kDecimal ? 1000 : 1024;
  // Rounding would turn 999.95 into 1000.0.
  const size_t unit = Scale(base, 999.95, &bytes);
  return unit == 0 ? absl::StrFormat("%.0f", bytes)
                   : absl::StrFormat("%.1f%c", bytes, kUnits[unit]);
}

std::string HumanMilliseconds(double us) {
  const double ms = us / 1000;
  const int decimals = ms < 1 ? 3 : ms < 10 ? 2 : ms < 100 ? 1 : 0;
  return absl::StrFormat("%.*f ms", decimals, ms);
}

std::string HumanDuration(uint64_t ms) {
  const uint64_t seconds = ms / 1000;
  if (seconds == 0) return absl::StrCat(ms, " ms");
  if (seconds < 60) return absl::StrFormat("%d.%d s", seconds, ms / 100 % 10);
  return absl::StrFormat("%d:%02d:%02d", seconds / 3600, seconds / 60 % 60,
                         seconds % 60);
}

std::string HumanPercent(double part, double all, int decimals) {
  return absl::StrFormat("%.*f%%", decimals, all == 0 ? 0 : 100 * part / all);
}

}  // namespace internal
}  // namespace netmeter
