// SPDX-License-Identifier: BSD-3-Clause
#include "lib/base/text_table.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_split.h"
#include "lib/base/text.h"

namespace netmeter {
namespace internal {
namespace {

TextTable Table() {
  TextTable table({{"NAME", TextColumn::kLeft},
                   {"DESTINATION", TextColumn::kLeft, 1},
                   {"TX", TextColumn::kRight},
                   {"PACKETS", TextColumn::kRight, 2}});
  table.Add({"a-service-with-a-name-of-40-characters--", "cloud", "5", "1"});
  table.Add({"b", "-", "1024", "22"});
  return table;
}

TEST(TextTable, HasAllWithoutATerminal) {
  EXPECT_EQ(
      Table().Format(0),
      "NAME                                      DESTINATION    TX  "
      "PACKETS\n"
      "a-service-with-a-name-of-40-characters--  cloud           5        "
      "1\n"
      "b                                         -            1024       "
      "22\n");
}

TEST(TextTable, CutsNamesThenDropsColumnsThenCutsMore) {
  EXPECT_EQ(Table().Format(56),
            "NAME                          DESTINATION    TX  PACKETS\n"
            "a-service-with-a-name-of-40~  cloud           5        1\n"
            "b                             -            1024       22\n");
  EXPECT_EQ(Table().Format(24),
            "NAME                  TX\n"
            "a-service-with-a-~     5\n"
            "b                   1024\n");
}

TEST(TextTable, FitsWhateverTheWidthAsLongAsNumbersDo) {
  for (size_t width = 12; width < 90; ++width) {
    for (const auto line : absl::StrSplit(Table().Format(width), '\n')) {
      EXPECT_LE(DisplayWidth(line), width);
    }
  }
}

TEST(TextTable, CutsBetweenCharacters) {
  TextTable table({{"N", TextColumn::kLeft}});
  table.Add({"ääääääääää"});
  EXPECT_EQ(table.Format(6), "N\näääää~\n");
}

// The bug: a Chinese name or a combining accent shifted the columns to its right.
TEST(TextTable, AlignsWideAndCombiningCharacters) {
  TextTable table({{"NAME"}, {"TX", TextColumn::kRight}});
  table.Add({"卫星链路", "1"});
  table.Add({"cafe\xcc\x81", "22"});
  EXPECT_EQ(table.Format(0),
            "NAME      TX\n"
            "卫星链路   1\n"
            "cafe\xcc\x81      22\n");
  // "~" replaces a whole character.
  EXPECT_EQ(table.Format(11),
            "NAME     TX\n"
            "卫星链~   1\n"
            "cafe\xcc\x81     22\n");
  EXPECT_EQ(table.Format(10),
            "NAME    TX\n"
            "卫星~    1\n"
            "cafe\xcc\x81    22\n");
}

TEST(TextTable, AColumnGoesBeforeTextIsCutBelowItsLeast) {
  TextTable table({{"ADDRESS", TextColumn::kLeft, 0, 15},
                   {"NOTE", TextColumn::kLeft, 1, 6}});
  table.Add({"192.0.2.111:443", "a long one"});
  EXPECT_EQ(table.Format(23),
            "ADDRESS          NOTE\n"
            "192.0.2.111:443  a lon~\n");
  EXPECT_EQ(table.Format(22), "ADDRESS\n192.0.2.111:443\n");
}

TEST(TextLayout, AStreamHasColumnsOfAFixedWidth) {
  const std::vector<TextColumn> columns = {{"NAME", TextColumn::kLeft, 0, 6, 8},
                                           {"TX", TextColumn::kRight, 0, 0, 5}};
  const TextLayout terminal(columns, 80);
  EXPECT_EQ(terminal.Header(), "NAME         TX\n");
  EXPECT_EQ(terminal.Line({"a-long-name", "1"}), "a-long-~      1\n");
  // Lines to a file are never cut.
  EXPECT_EQ(TextLayout(columns, 0).Line({"a-long-name", "1"}),
            "a-long-name      1\n");
}

TEST(TextTable, WithoutHeadersHasOnlyRows) {
  TextTable table({{}, {"", TextColumn::kRight}, {}});
  table.Add({"packets", "7", "reason"});
  table.Add({"names", "12", ""});
  EXPECT_EQ(table.Format(0, 2), "  packets   7  reason\n  names    12\n");
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
