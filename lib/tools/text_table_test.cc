// SPDX-License-Identifier: BSD-3-Clause
#include "lib/tools/text_table.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_split.h"
#include "lib/core/text.h"

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
      EXPECT_LE(CountCharacters(line), width);
    }
  }
}

TEST(TextTable, CutsBetweenCharacters) {
  TextTable table({{"N", TextColumn::kLeft}});
  table.Add({"ääääääääää"});
  EXPECT_EQ(table.Format(6), "N\näääää~\n");
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
