// SPDX-License-Identifier: BSD-3-Clause
#include "lib/base/text.h"

#include <gtest/gtest.h>

#include <limits>

namespace netmeter {
namespace internal {
namespace {

TEST(ToUtf8, LeavesValidTextAlone) {
  EXPECT_EQ(ToUtf8(""), "");
  EXPECT_EQ(ToUtf8("plain \x1b[0m\n"), "plain \x1b[0m\n");
  EXPECT_EQ(ToUtf8("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"),
            "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
  EXPECT_EQ(ToUtf8("\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf"),
            "\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf");
}

TEST(ToUtf8, EscapesEachInvalidByte) {
  EXPECT_EQ(ToUtf8("\xff"), "\\xff");
  EXPECT_EQ(ToUtf8("a\x80z"), "a\\x80z");
  EXPECT_EQ(ToUtf8("\xc3"), "\\xc3");                    // cut short
  EXPECT_EQ(ToUtf8("\xe2\x82z"), "\\xe2\\x82z");         // cut short
  EXPECT_EQ(ToUtf8("\xc0\xaf"), "\\xc0\\xaf");           // overlong
  EXPECT_EQ(ToUtf8("\xe0\x80\xaf"), "\\xe0\\x80\\xaf");  // overlong
  EXPECT_EQ(ToUtf8("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // surrogate
  EXPECT_EQ(ToUtf8("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
  EXPECT_EQ(ToUtf8("\xf5\x80\x80\x80"), "\\xf5\\x80\\x80\\x80");
}

TEST(ToTerminal, EscapesWhatATerminalWouldObey) {
  EXPECT_EQ(ToTerminal("a\x1b]0;x\x07"), "a\\x1b]0;x\\x07");
  EXPECT_EQ(ToTerminal("a\nb\tc\x7f"), "a\\x0ab\\x09c\\x7f");
  EXPECT_EQ(ToTerminal("\xc2\x9b"), "\\xc2\\x9b");           // C1 CSI
  EXPECT_EQ(ToTerminal("\xe2\x80\xae"), "\\xe2\\x80\\xae");  // right to left
  EXPECT_EQ(ToTerminal("\xe2\x80\x8b"), "\\xe2\\x80\\x8b");  // no width
  EXPECT_EQ(ToTerminal("caf\xc3\xa9"), "caf\xc3\xa9");
}

TEST(ShellWord, IsOneWordOfWhatAShellWouldRead) {
  EXPECT_EQ(ShellWord("/run/netmeter-1_a.b:c@d"), "/run/netmeter-1_a.b:c@d");
  EXPECT_EQ(ShellWord(""), "''");
  EXPECT_EQ(ShellWord("a b"), "'a b'");
  EXPECT_EQ(ShellWord("$(x);y"), "'$(x);y'");
  EXPECT_EQ(ShellWord("it's \\x2d"), "'it'\\''s \\x2d'");
}

// The bug: a Chinese name shifted a table, because the table counted characters. The
// locale of the test is C, in which wcwidth(3) knows none of these.
TEST(DisplayWidth, CountsColumnsOfTheTerminal) {
  EXPECT_EQ(DisplayWidth(""), 0u);
  EXPECT_EQ(DisplayWidth("name"), 4u);
  EXPECT_EQ(DisplayWidth("caf\xc3\xa9"), 4u);
  EXPECT_EQ(DisplayWidth("cafe\xcc\x81"), 4u);  // a combining accent
  EXPECT_EQ(DisplayWidth("卫星"), 4u);
  EXPECT_EQ(DisplayWidth("한국어"), 6u);
  EXPECT_EQ(DisplayWidth("ｗ"), 2u);  // full width
  EXPECT_EQ(DisplayWidth("\xf0\x9f\x98\x80"), 2u);
}

TEST(CutToWidth, CutsBetweenCharactersAndKeepsWhatCombines) {
  EXPECT_EQ(CutToWidth("name", 9), "name");
  EXPECT_EQ(CutToWidth("name", 2), "na");
  EXPECT_EQ(CutToWidth("卫星链路", 4), "卫星");
  EXPECT_EQ(CutToWidth("卫星链路", 5), "卫星");  // half a character is dropped
  EXPECT_EQ(CutToWidth("e\xcc\x81nd", 1), "e\xcc\x81");
}

TEST(DidYouMean, KnowsMisspellingsAndNothingElse) {
  const std::vector<std::string> known = {"load", "unload", "status",
                                          "serve-fds"};
  EXPECT_EQ(DidYouMean("laod", known), " (did you mean load?)");
  EXPECT_EQ(DidYouMean("loadd", known), " (did you mean load?)");
  EXPECT_EQ(DidYouMean("staus", known), " (did you mean status?)");
  EXPECT_EQ(DidYouMean("servefds", known), " (did you mean serve-fds?)");
  EXPECT_EQ(DidYouMean("un-load", known), " (did you mean unload?)");
  EXPECT_EQ(DidYouMean("stat", known), " (did you mean status?)");
  // It was tcpv_rtt, which only sockets with TCP Vegas have.
  EXPECT_EQ(
      DidYouMean("rtt", {"state", "tcpv_rtt", "tcpi_rcv_rtt", "tcpi_rtt"}),
      " (did you mean tcpi_rtt?)");
  EXPECT_EQ(DidYouMean("", known), "");
  EXPECT_EQ(DidYouMean("list", known), "");
  EXPECT_EQ(DidYouMean(std::string(1 << 20, 'x'), known), "");
}

}  // namespace

namespace {

constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();

TEST(HumanBytes, UsesPowersOf1024) {
  EXPECT_EQ(HumanBytes(0, SizeUnits::kBinary), "0 B");
  EXPECT_EQ(HumanBytes(1023, SizeUnits::kBinary), "1023 B");
  EXPECT_EQ(HumanBytes(1024, SizeUnits::kBinary), "1.0 KiB");
  EXPECT_EQ(HumanBytes(1536, SizeUnits::kBinary), "1.5 KiB");
  EXPECT_EQ(HumanBytes(5 << 20, SizeUnits::kBinary), "5.0 MiB");
  EXPECT_EQ(HumanBytes(kMost, SizeUnits::kBinary), "16.0 EiB");
}

TEST(HumanBytes, UsesPowersOf1000) {
  EXPECT_EQ(HumanBytes(0, SizeUnits::kDecimal), "0 B");
  EXPECT_EQ(HumanBytes(999, SizeUnits::kDecimal), "999 B");
  EXPECT_EQ(HumanBytes(1000, SizeUnits::kDecimal), "1.0 kB");
  EXPECT_EQ(HumanBytes(100000000000, SizeUnits::kDecimal), "100.0 GB");
  EXPECT_EQ(HumanBytes(kMost, SizeUnits::kDecimal), "18.4 EB");
}

TEST(HumanBytes, NeverSaysAWholeUnitOfTheOneBelow) {
  EXPECT_EQ(HumanBytes((1 << 20) - 1, SizeUnits::kBinary), "1.0 MiB");
  EXPECT_EQ(HumanBytes((uint64_t{1} << 40) - 1, SizeUnits::kBinary), "1.0 TiB");
  EXPECT_EQ(HumanBytes(999999, SizeUnits::kDecimal), "1.0 MB");
}

TEST(HumanBytes, KeepsEveryDigit) {
  EXPECT_EQ(HumanBytes(kMost, SizeUnits::kExact), "18446744073709551615");
}

TEST(HumanSignedBytes, HasASign) {
  EXPECT_EQ(HumanSignedBytes(1536, SizeUnits::kBinary), "1.5 KiB");
  EXPECT_EQ(HumanSignedBytes(-1536, SizeUnits::kBinary), "-1.5 KiB");
  EXPECT_EQ(HumanSignedBytes(-1536, SizeUnits::kExact), "-1536");
  EXPECT_EQ(HumanSignedBytes(std::numeric_limits<int64_t>::min(),
                             SizeUnits::kDecimal),
            "-9.2 EB");
}

TEST(ShortBytes, HasSixCharactersAtMost) {
  EXPECT_EQ(ShortBytes(812, SizeUnits::kBinary), "812");
  EXPECT_EQ(ShortBytes(1000, SizeUnits::kBinary), "1.0K");
  EXPECT_EQ(ShortBytes(1536, SizeUnits::kDecimal), "1.5K");
  EXPECT_EQ(ShortBytes(999.94 * 1024, SizeUnits::kBinary), "999.9K");
  EXPECT_EQ(ShortBytes(999.96 * 1024, SizeUnits::kBinary), "1.0M");
}

TEST(HumanMilliseconds, HasThreeDigits) {
  EXPECT_EQ(HumanMilliseconds(45), "0.045 ms");
  EXPECT_EQ(HumanMilliseconds(1536), "1.54 ms");
  EXPECT_EQ(HumanMilliseconds(31250), "31.2 ms");
  EXPECT_EQ(HumanMilliseconds(4294967), "4295 ms");
}

TEST(HumanPercent, OfNothingIsNothing) {
  EXPECT_EQ(HumanPercent(1, 3), "33.3%");
  EXPECT_EQ(HumanPercent(2, 3, 0), "67%");
  EXPECT_EQ(HumanPercent(0, 0), "0.0%");
}

TEST(WrapText, BreaksAtBlanksOnly) {
  EXPECT_EQ(WrapText("one two three", 0), "one two three\n");
  EXPECT_EQ(WrapText("one two three", 13), "one two three\n");
  EXPECT_EQ(WrapText("one two three", 12), "one two\n  three\n");
  EXPECT_EQ(WrapText("one two three", 6), "one\n  two\n  three\n");
  EXPECT_EQ(WrapText("", 6), "\n");
}

}  // namespace

}  // namespace internal
}  // namespace netmeter
