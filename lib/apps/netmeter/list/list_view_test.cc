// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/netmeter/list/list_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "lib/base/text.h"

namespace netmeter {
namespace internal {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Sample Make(Kind kind, const std::string& name, const std::string& destination,
            Path path, uint64_t tx, uint64_t rx) {
  Sample sample;
  sample.kind = kind;
  sample.name = name;
  sample.destination = destination;
  sample.transport = Transport::kTcp;
  sample.path = path;
  sample.tx_bytes = tx;
  sample.rx_bytes = rx;
  return sample;
}

std::vector<Sample> Samples() {
  return {Make(Kind::kService, "magmad", "cloud", Path::kDirect, 100, 900),
          Make(Kind::kService, "magmad", "cloud", Path::kProxy, 5, 5),
          Make(Kind::kBinary, "curl", "", Path::kDirect, 400, 10),
          Make(Kind::kUnattributed, "unattributed", "", Path::kDirect, 1, 0)};
}

std::vector<ListRow> Rows() { return ListRows(Samples(), {}, 0); }

std::string Names(const std::vector<ListRow>& rows) {
  std::string names;
  for (const ListRow& row : rows) {
    names += row.sample.name + std::to_string(row.sample.tx_bytes) + " ";
  }
  return names;
}

TEST(ListView, SortsByWhatIsAskedFor) {
  std::vector<ListRow> rows = Rows();
  SortRows(ListSort::kTotal, &rows);
  EXPECT_EQ(Names(rows), "magmad100 curl400 magmad5 unattributed1 ");
  SortRows(ListSort::kSent, &rows);
  EXPECT_EQ(Names(rows), "curl400 magmad100 magmad5 unattributed1 ");
  SortRows(ListSort::kName, &rows);
  EXPECT_EQ(Names(rows), "curl400 magmad100 magmad5 unattributed1 ");
  SortRows(ListSort::kReceived, &rows);
  EXPECT_EQ(Names(rows), "magmad100 curl400 magmad5 unattributed1 ");
}

TEST(ListView, FiltersByNameDestinationKindAndUplink) {
  std::vector<ListRow> rows = Rows();
  FilterRows({"magmad", "", "", ""}, &rows);
  EXPECT_EQ(Names(rows), "magmad100 magmad5 ");
  rows = Rows();
  FilterRows({"", "", "binary", ""}, &rows);
  EXPECT_EQ(Names(rows), "curl400 ");
  FilterRows({"", "cloud", "", ""}, &rows);
  EXPECT_EQ(Names(rows), "");
  rows = Rows();
  rows[0].sample.uplink = "satellite";
  std::vector<ListRow> none = rows;
  FilterRows({"", "", "", "satellite"}, &rows);
  EXPECT_EQ(Names(rows), "magmad100 ");
  FilterRows({"", "", "", "-"}, &none);
  EXPECT_EQ(Names(none), "magmad5 curl400 unattributed1 ");
}

TEST(ListView, HasAColumnAndASumOfEachUplinkWhereThereAreAny) {
  std::vector<ListRow> rows = Rows();
  rows[0].sample.uplink = "satellite";
  rows[2].sample.uplink = "other";
  ListView view;
  view.units = SizeUnits::kExact;
  view.uplinks = true;
  const std::string text = FormatView(rows, view);
  EXPECT_THAT(text, HasSubstr("UPLINK"));
  EXPECT_THAT(text, HasSubstr("total, satellite"));
  EXPECT_THAT(text, HasSubstr("total, other"));
  // It was "total, direct", as if it were the total of the uplinks.
  EXPECT_THAT(text, HasSubstr("total, no uplink"));
  EXPECT_THAT(text, HasSubstr("total, proxy"));
  EXPECT_THAT(FormatView(Rows(), ListView()), Not(HasSubstr("UPLINK")));
  EXPECT_THAT(FormatView(Rows(), ListView()), HasSubstr("total, direct"));
}

// Root and a member of the group had different totals with the same label.
TEST(ListView, ATotalOfAnUplinkSaysThatForwardedTrafficIsNotInIt) {
  std::vector<ListRow> rows = Rows();
  rows[0].sample.uplink = "satellite";
  ListView view;
  view.uplinks = true;
  EXPECT_THAT(FormatView(rows, view), Not(HasSubstr("without forwarded")));
  view.lacks_forwarded = true;
  for (const absl::string_view line :
       absl::StrSplit(FormatView(rows, view), '\n')) {
    EXPECT_EQ(absl::StrContains(line, "without forwarded"),
              absl::StrContains(line, "total, satellite"))
        << line;
  }
}

// What is on the bill is the sum of all rows of path direct, also of those that
// have no room.
TEST(ListView, HasTheSumOfEachPathAndOfWhatIsNotShown) {
  std::vector<ListRow> rows = Rows();
  SortRows(ListSort::kTotal, &rows);
  ListView view;
  view.units = SizeUnits::kExact;
  view.top = 1;
  const std::string text = FormatView(rows, view);
  const auto fields = [&text](const std::string& begin) {
    for (const absl::string_view line : absl::StrSplit(text, '\n')) {
      if (line.find(begin) == absl::string_view::npos) continue;
      std::vector<std::string> words =
          absl::StrSplit(line.substr(line.find(begin)), ' ', absl::SkipEmpty());
      return words[2] + " " + words[3] + " " + words[4];
    }
    return std::string("no line");
  };
  EXPECT_EQ(fields("(2 more)"), "direct 401 10");
  EXPECT_EQ(fields("(1 more)"), "proxy 5 5");
  EXPECT_EQ(fields("total, direct"), "direct 501 910");
  EXPECT_EQ(fields("total, proxy"), "proxy 5 5");
  view.filtered = true;
  EXPECT_THAT(FormatView(rows, view), Not(HasSubstr("total")));
}

TEST(ListView, FitsTheTerminal) {
  std::vector<Sample> samples = Samples();
  samples[0].name = std::string(64, 'n');
  samples[0].destination = std::string(64, 'd');
  for (const bool rates : {false, true}) {
    for (const size_t width : {60, 80, 120, 200}) {
      ListView view;
      view.width = width;
      view.rates = rates;
      const std::string text = FormatView(ListRows(samples, {}, 0), view);
      for (const auto line : absl::StrSplit(text, '\n')) {
        EXPECT_LE(DisplayWidth(line), width) << text;
      }
    }
  }
}

TEST(ListView, RatesAreOfTheTimeSinceTheReadBefore) {
  const std::vector<Sample> before = Samples();
  std::vector<Sample> now = before;
  now[0].tx_bytes += 4096;
  now[0].rx_bytes -= 20;  // pending that was named
  now.push_back(Make(Kind::kBinary, "new", "", Path::kDirect, 2, 4));
  const std::vector<ListRow> rows = ListRows(now, before, 2.0);
  EXPECT_EQ(rows[0].tx_rate, 2048);
  EXPECT_EQ(rows[0].rx_rate, -10);
  EXPECT_EQ(rows[1].tx_rate, 0);
  EXPECT_EQ(rows[4].rx_rate, 2);
  ListView view;
  view.rates = true;
  EXPECT_THAT(FormatView(rows, view), HasSubstr("  2.0 KiB  -10 B  "));
}

TEST(ListView, DifferencesMayBeBelowZero) {
  ListView view;
  view.is_signed = true;
  view.units = SizeUnits::kExact;
  EXPECT_THAT(FormatView(ListRows({Make(Kind::kPending, "a", "", Path::kDirect,
                                        static_cast<uint64_t>(-7), 0)},
                                  {}, 0),
                         view),
              HasSubstr(" -7 "));
}

// The bug: 7 below 0 was the largest of all, and all that --top 1 showed.
TEST(ListView, SortsDifferencesBelowZeroLast) {
  std::vector<ListRow> rows =
      ListRows({Make(Kind::kPending, "mme", "", Path::kDirect,
                     static_cast<uint64_t>(-7), 0),
                Make(Kind::kService, "mme", "cloud", Path::kDirect, 1000, 0)},
               {}, 0);
  for (const ListSort sort : {ListSort::kTotal, ListSort::kSent}) {
    SortRows(sort, &rows, /*is_signed=*/true);
    EXPECT_EQ(rows[0].sample.kind, Kind::kService);
  }
}

// The bug: a megabyte of last week was the rate of the second in which it was evicted.
TEST(ListView, EvictionIsNoTraffic) {
  const std::vector<ListRow> rows = ListRows(
      {Make(Kind::kEvicted, "binary", "", Path::kDirect, 1000000, 500000)},
      {Make(Kind::kBinary, "curl", "", Path::kDirect, 1000000, 500000)}, 1);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].tx_rate, 0);
  EXPECT_EQ(rows[0].rx_rate, 0);
}

ListView WithoutSums() {
  ListView view;
  view.sums = false;
  return view;
}

TEST(ListView, ContainersHaveTheirNames) {
  std::vector<Sample> samples(
      3, Make(Kind::kContainer, "0123456789ab", "", Path::kDirect, 1, 2));
  samples[1].name = "ba9876543210";
  samples[2].kind = Kind::kService;
  ListView view = WithoutSums();
  view.names = {{"0123456789ab", "web\033"}};
  const std::string table = FormatView(ListRows(samples, {}, 0), view);
  EXPECT_THAT(table, HasSubstr("container  0123456789ab (web\\x1b)  "));
  EXPECT_THAT(table, HasSubstr("container  ba9876543210            "));
  EXPECT_THAT(table, HasSubstr("service    0123456789ab            "));
  const auto json = nlohmann::json::parse(FormatJson(samples, view.names));
  EXPECT_EQ(json[0]["name"], "0123456789ab");
  EXPECT_EQ(json[0]["container_name"], "web\033");
  EXPECT_FALSE(json[1].contains("container_name"));
  EXPECT_FALSE(json[2].contains("container_name"));
}

TEST(ListView, UsersHaveTheirNames) {
  std::vector<Sample> samples(2,
                              Make(Kind::kUser, "0", "", Path::kDirect, 1, 2));
  samples[1].name = "4294967290";
  const std::string table = FormatView(ListRows(samples, {}, 0), WithoutSums());
  EXPECT_THAT(table, HasSubstr("user  0 (root)    "));
  EXPECT_THAT(table, HasSubstr("user  4294967290  "));
  const auto json = nlohmann::json::parse(FormatJson(samples));
  EXPECT_EQ(json[0]["user_name"], "root");
  EXPECT_FALSE(json[1].contains("user_name"));
}

TEST(ListView, IsAligned) {
  const std::vector<Sample> samples = {
      Make(Kind::kService, "caf\xc3\xa9", "", Path::kDirect, 2048, 1),
      Make(Kind::kService, "a", "", Path::kDirect, 3, 4)};
  EXPECT_EQ(
      FormatView(ListRows(samples, {}, 0), WithoutSums()),
      "KIND     NAME  DESTINATION  TRANSPORT  PATH         TX   RX  TX PKTS"
      "  RX PKTS  TX PAYLOAD  RX PAYLOAD  RETRANSMIT\n"
      "service  caf\xc3\xa9  -            tcp        direct  2.0 KiB  1 B"
      "        0        0         0 B         0 B         0 B\n"
      "service  a     -            tcp        direct      3 B  4 B"
      "        0        0         0 B         0 B         0 B\n");
}

TEST(ListView, WithoutSeriesSaysSoBelowTheHeader) {
  ListView view;
  view.when_empty = "(nothing: \x1b[2J)";
  const std::string table = FormatView({}, view);
  EXPECT_THAT(table, HasSubstr("KIND"));
  EXPECT_THAT(table, HasSubstr("\n(nothing: \\x1b[2J)\n"));
}

TEST(ListView, LetsNoNameReachTheTerminal) {
  const std::string table =
      FormatView(ListRows({Make(Kind::kService, "\x1b[2J\n\x9b\xe2\x80\xae", "",
                                Path::kDirect, 1, 1)},
                          {}, 0),
                 WithoutSums());
  EXPECT_THAT(table, HasSubstr("\\x1b[2J\\x0a\\x9b\\xe2\\x80\\xae"));
  EXPECT_THAT(table, Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
