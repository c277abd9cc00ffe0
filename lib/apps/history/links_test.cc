// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/history/links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string.h>

#include <string>

namespace netmeter {
namespace internal {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A host with one uplink, `satellite`: sat0 and wwan*. All packets have 114 bytes with
// their layer-2 header.
class LinksTest : public testing::Test {
 protected:
  void SetUp() override {
    reading_.names = {{1, "satellite"}, {2, "lte"}, {15, "other"}};
    reading_.patterns = {{"satellite", {"sat0"}}, {"lte", {"wwan*"}}};
  }

  Interface* Add(uint32_t index, const char* name) {
    Interface interface;
    interface.index = index;
    interface.name = name;
    interface.header = {14, 14};
    reading_.interfaces.push_back(interface);
    return &reading_.interfaces.back();
  }
  void Remove(uint32_t index) {
    auto& all = reading_.interfaces;
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i].index == index) all.erase(all.begin() + i--);
    }
  }
  Interface* At(uint32_t index) {
    for (Interface& one : reading_.interfaces) {
      if (one.index == index) return &one;
    }
    return nullptr;
  }
  static nm_interface_counts Packets(uint64_t tx, uint64_t rx) {
    return {114 * tx, 114 * rx, tx, rx};
  }
  // As the loader, or a program that sees the interface for the first time.
  InterfaceEntry* AddEntry(uint32_t index, uint32_t uplink, const char* name,
                           const nm_interface_counts& base) {
    InterfaceEntry entry = {};
    entry.first = {index, static_cast<nm_u16>(uplink), 0};
    for (const InterfaceEntry& other : reading_.entries) {
      if (other.first.ifindex != index || other.first.uplink != uplink)
        continue;
      ++entry.first.stay;
    }
    strcpy(entry.second.name, name);
    entry.second.begin = base;
    reading_.entries.push_back(entry);
    return &reading_.entries.back();
  }
  // Moves an interface by a load.
  void Load(uint32_t index, uint32_t from, uint32_t to) {
    for (InterfaceEntry& entry : reading_.entries) {
      if (entry.first.ifindex != index || entry.first.uplink != from) continue;
      if (entry.second.ended_ns != 0) continue;
      entry.second.ended_ns = 1;
      SetHeader(At(index)->header, &entry.second);
      entry.second.end = At(index)->counts;
    }
    AddEntry(index, to, At(index)->name.c_str(), At(index)->counts);
  }

  // Each uplink and interface with packets sent and received, and "ended".
  std::vector<std::string> Count() {
    std::vector<std::string> texts;
    for (const auto& one : CountLinks(reading_, &seen_)) {
      const Counters& counted = one.second.counted;
      if (counted.IsZero() && !one.second.ended) continue;
      EXPECT_EQ(counted.value[0], 100 * counted.value[2]);
      EXPECT_EQ(counted.value[1], 100 * counted.value[3]);
      texts.push_back(one.first.first + " " + one.first.second + " " +
                      std::to_string(counted.value[2]) + " " +
                      std::to_string(counted.value[3]) +
                      (one.second.ended ? " ended" : ""));
    }
    return texts;
  }

  LinkReading reading_;
  SeenLinks seen_;
};

TEST_F(LinksTest, EachPacketSinceTheLoadIsCountedOnce) {
  Add(2, "sat0")->counts = Packets(50, 60);
  AddEntry(2, 1, "sat0", Packets(40, 50));
  EXPECT_THAT(Count(), ElementsAre("satellite sat0 10 10"));
  EXPECT_THAT(Count(), IsEmpty());
  At(2)->counts = Packets(53, 61);
  EXPECT_THAT(Count(), ElementsAre("satellite sat0 3 1"));
}

TEST_F(LinksTest, AnInterfaceThatAppearsCountsFromZero) {
  EXPECT_THAT(Count(), IsEmpty());
  Add(7, "wwan3")->counts = Packets(5, 6);
  Add(8, "eth9")->counts = Packets(5, 6);  // in no uplink
  EXPECT_THAT(Count(), ElementsAre("lte wwan3 5 6"));
}

TEST_F(LinksTest, AnInterfaceThatGoesAwayEndsOnce) {
  Add(7, "wwan3")->counts = Packets(5, 6);
  Count();
  Remove(7);
  EXPECT_THAT(Count(), ElementsAre("lte wwan3 0 0 ended"));
  EXPECT_THAT(Count(), IsEmpty());
  // Another one came and went between two records: a program saw it.
  AddEntry(9, 2, "wwan4", {});
  EXPECT_THAT(Count(), ElementsAre("lte wwan4 0 0 ended"));
  EXPECT_THAT(Count(), IsEmpty());
}

// If it comes back from another namespace, it is the same device.
TEST_F(LinksTest, AnInterfaceThatComesBackIsNotCountedAgain) {
  Interface interface = *Add(7, "wwan3");
  interface.counts = Packets(5, 6);
  *At(7) = interface;
  Count();
  Remove(7);
  Count();
  interface.counts = Packets(6, 6);
  reading_.interfaces.push_back(interface);
  EXPECT_THAT(Count(), ElementsAre("lte wwan3 1 0"));
}

TEST_F(LinksTest, AReplacedInterfaceOrOneThatBeginsAgainCountsFromZero) {
  Add(2, "sat0")->counts = Packets(50, 60);
  AddEntry(2, 1, "sat0", Packets(40, 50));
  Count();
  // With the same name and more packets.
  Remove(2);
  Add(3, "sat0")->counts = Packets(70, 80);
  EXPECT_THAT(Count(), ElementsAre("satellite sat0 70 80 ended"));
  At(3)->counts = Packets(1, 90);
  EXPECT_THAT(Count(), ElementsAre("satellite sat0 1 90 ended"));
  At(3)->counts = Packets(2, 90);
  EXPECT_THAT(Count(), ElementsAre("satellite sat0 1 0"));
}

TEST_F(LinksTest, ALoadThatMovesAnInterfaceDividesWhatItCounted) {
  Add(7, "wwan3")->counts = Packets(5, 6);
  AddEntry(7, 2, "wwan3", Packets(1, 1));
  EXPECT_THAT(Count(), ElementsAre("lte wwan3 4 5"));
  At(7)->counts = Packets(10, 10);
  Load(7, 2, 1);
  reading_.patterns = {{"satellite", {"sat0", "wwan*"}}};
  At(7)->counts = Packets(11, 13);
  EXPECT_THAT(Count(), ElementsAre("lte wwan3 5 4", "satellite wwan3 1 3"));
  EXPECT_THAT(Count(), IsEmpty());
  // A load that no record has seen yet is divided, too.
  seen_.clear();
  EXPECT_THAT(Count(), ElementsAre("lte wwan3 9 9", "satellite wwan3 1 3"));
}

// The bug: a stay had a base that later loads shifted, which is no point in time. The
// last record had 500 for satellite and 100 for lte, and later records a negative row.
TEST_F(LinksTest, EachLoadThatMovesAnInterfaceDividesWhatItCounted) {
  const auto load = [this](uint64_t packets, uint32_t from, uint32_t to) {
    At(2)->counts = Packets(packets, 0);
    Load(2, from, to);
    reading_.patterns = {{to == 1 ? "satellite" : "lte", {"sat0"}}};
  };
  const auto count = [this](uint64_t packets) {
    At(2)->counts = Packets(packets, 0);
    return Count();
  };
  Add(2, "sat0");
  AddEntry(2, 1, "sat0", {});
  load(1000, 1, 2);
  EXPECT_THAT(count(1500),
              ElementsAre("lte sat0 500 0", "satellite sat0 1000 0"));
  load(1800, 2, 1);
  load(2000, 1, 2);
  EXPECT_THAT(count(2100),
              ElementsAre("lte sat0 400 0", "satellite sat0 200 0"));
  load(2110, 2, 1);
  EXPECT_THAT(count(2130), ElementsAre("lte sat0 10 0", "satellite sat0 20 0"));
  // A record at a load, and a stay without packets.
  EXPECT_THAT(count(2200), ElementsAre("satellite sat0 70 0"));
  load(2200, 1, 2);
  load(2200, 2, 1);
  EXPECT_THAT(count(2201), ElementsAre("satellite sat0 1 0"));
  seen_.clear();
  EXPECT_THAT(Count(), ElementsAre("lte sat0 910 0", "satellite sat0 1291 0"));
}

// A stay of long ago does not tell that a load has divided the interval.
TEST_F(LinksTest, ARenameAfterMovesIsARename) {
  Add(2, "sat0");
  AddEntry(2, 1, "sat0", {});
  At(2)->counts = Packets(10, 10);
  Load(2, 1, 2);
  At(2)->counts = Packets(20, 20);
  Load(2, 2, 1);
  At(2)->counts = Packets(30, 30);
  EXPECT_THAT(Count(), ElementsAre("lte sat0 10 10", "satellite sat0 20 20"));
  At(2)->counts = Packets(35, 35);
  At(2)->name = "wwan7";
  EXPECT_THAT(Count(),
              ElementsAre("lte wwan7 5 5", "satellite sat0 0 0 ended"));
}

// What it counted before the load belongs to the uplink of the last record.
TEST_F(LinksTest,
       AMeterThatIsLoadedAnewDividesWhatAnInterfaceCountedAtTheLoad) {
  Add(7, "wwan3")->counts = Packets(5, 6);
  AddEntry(7, 2, "wwan3", Packets(1, 1));
  Count();
  At(7)->counts = Packets(10, 10);
  reading_.entries.clear();
  reading_.patterns = {{"satellite", {"sat0", "wwan*"}}};
  AddEntry(7, 1, "wwan3", At(7)->counts);
  Add(8, "sat0")->counts = Packets(3, 4);  // appeared before the load
  AddEntry(8, 1, "sat0", At(8)->counts);
  At(7)->counts = Packets(11, 13);
  EXPECT_THAT(Count(), ElementsAre("lte wwan3 5 4", "satellite sat0 3 4",
                                   "satellite wwan3 1 3"));
  EXPECT_THAT(Count(), IsEmpty());
  // Another load moves it on before the next record.
  At(7)->counts = Packets(20, 20);
  reading_.entries.clear();
  AddEntry(7, 2, "wwan3", At(7)->counts);
  reading_.patterns = {{"satellite", {"sat0"}}, {"lte", {"wwan*"}}};
  At(7)->counts = Packets(22, 21);
  Load(7, 2, 3);
  reading_.names[3] = "mobile";
  reading_.patterns = {{"satellite", {"sat0"}}, {"mobile", {"wwan*"}}};
  At(7)->counts = Packets(25, 30);
  EXPECT_THAT(Count(), ElementsAre("lte wwan3 2 1", "mobile wwan3 3 9",

                                   "satellite wwan3 9 7"));
}

// The bug: what it had counted since the record before it went was of an uplink without a
// name.
TEST_F(LinksTest, AnInterfaceThatCameBackBeforeALoadCountsForItsUplink) {
  Add(2, "sat0")->counts = Packets(50, 60);
  AddEntry(2, 1, "sat0", Packets(40, 50));
  Count();
  const Interface sat0 = *At(2);
  Remove(2);
  Count();
  reading_.interfaces.push_back(sat0);
  At(2)->counts = Packets(70, 90);
  reading_.entries.clear();
  AddEntry(2, 1, "sat0", At(2)->counts);
  At(2)->counts = Packets(75, 92);
  EXPECT_THAT(Count(), ElementsAre("satellite sat0 25 32"));
}

// The program makes an entry that counts from 0. The bug would be that all packets of
// before count for the new uplink.
TEST_F(LinksTest, ARenamedInterfaceCountsForItsNewUplinkFromThenOn) {
  Add(7, "eth7")->counts = Packets(500, 500);
  AddEntry(7, 15, "eth7", Packets(100, 100));
  EXPECT_THAT(Count(), IsEmpty());
  At(7)->name = "wwan3";
  At(7)->counts = Packets(503, 502);
  EXPECT_THAT(Count(), ElementsAre("lte wwan3 3 2"));
  AddEntry(7, 2, "wwan3", {});
  EXPECT_THAT(Count(), IsEmpty());
  seen_.clear();
  EXPECT_THAT(Count(), ElementsAre("lte wwan3 403 402"));
}

TEST_F(LinksTest, AnInterfaceThatIsRenamedOutOfItsUplinkEndsThere) {
  Add(2, "sat0")->counts = Packets(50, 60);
  AddEntry(2, 1, "sat0", Packets(40, 50));
  Count();
  At(2)->counts = Packets(55, 65);
  At(2)->name = "wwan7";
  EXPECT_THAT(Count(),
              ElementsAre("lte wwan7 5 5", "satellite sat0 0 0 ended"));
  At(2)->name = "eth7";
  EXPECT_THAT(Count(), ElementsAre("lte wwan7 0 0 ended"));
  EXPECT_THAT(Count(), IsEmpty());
}

// The VLAN's packets are also those of its card.
TEST_F(LinksTest, AnInterfaceOnAnotherOneOfItsUplinkIsNotCountedTwice) {
  reading_.patterns = {{"satellite", {"sat*"}}};
  Add(2, "sat0")->counts = Packets(50, 60);
  Add(3, "sat0.7")->counts = Packets(10, 10);
  At(3)->lower = 2;
  Add(4, "sat-br")->counts = Packets(40, 40);
  At(2)->master = 4;
  EXPECT_THAT(Count(), ElementsAre("satellite sat0 50 60"));
}

// The series of the meter, and what the interface counted, in bytes.
class AddLinksTest : public LinksTest {
 protected:
  void Count(int64_t tx, int64_t rx) {
    samples_.tx_bytes += static_cast<uint64_t>(tx);
    samples_.rx_bytes += static_cast<uint64_t>(rx);
  }
  // Records, and returns the sums of the uplink, and the unnamed traffic.
  std::vector<int64_t> Record(const LinkCount* link) {
    samples_.kind = Kind::kService;
    samples_.name = "mme";
    samples_.uplink = "satellite";
    Totals now = TotalsOf({samples_});
    if (link != nullptr) {
      AddLinks({{{"satellite", "sat0"}, *link}}, before_, &now);
    } else {
      KeepKind(before_, kInterfaceKind, &now);
      KeepKind(before_, kUnnamedKind, &now);
    }
    before_ = now;
    Counters sum, unnamed;
    for (const auto& series : now) {
      if (series.first.path != "direct") continue;
      sum += series.second;
      if (series.first.kind == kUnnamedKind) unnamed = series.second;
    }
    return {sum.value[0], sum.value[1], unnamed.value[0], unnamed.value[1]};
  }
  static LinkCount Link(int64_t tx, int64_t rx, bool ended = false) {
    LinkCount link;
    link.counted.value = {tx, rx};
    link.ended = ended;
    return link;
  }
  std::vector<int64_t> Record(const LinkCount& link) { return Record(&link); }

  Sample samples_;
  Totals before_;
};

TEST_F(AddLinksTest, TheSumOfAnUplinkIsWhatItsInterfacesCounted) {
  Count(100, 200);
  EXPECT_THAT(Record(Link(150, 200)), ElementsAre(150, 200, 50, 0));
  Count(10, 0);
  EXPECT_THAT(Record(Link(10, 5)), ElementsAre(160, 205, 50, 5));
  // An interface that counts GSO packets as one.
  Count(1000, 0);
  EXPECT_THAT(Record(Link(900, 0)), ElementsAre(1060, 205, -50, 5));
}

// The bug would be that the interfaces' traffic of two intervals is compared with the
// meter's of one.
TEST_F(AddLinksTest, ARecordWithoutInterfacesLosesNothing) {
  Count(100, 0);
  Record(Link(150, 0));
  Count(10, 0);
  EXPECT_THAT(Record(nullptr), ElementsAre(160, 0, 50, 0));
  Count(10, 0);
  EXPECT_THAT(Record(Link(30, 0)), ElementsAre(180, 0, 60, 0));
}

TEST_F(AddLinksTest, AnInterfaceThatHasEndedCountedWhatTheMeterHas) {
  Count(100, 0);
  Record(Link(150, 0));
  Count(70, 5);
  EXPECT_THAT(Record(Link(0, 20, true)), ElementsAre(220, 20, 50, 15));
  Count(1, 0);
  EXPECT_THAT(Record(Link(1, 0)), ElementsAre(221, 20, 50, 15));
}

// The bug: the former uplink had its services' bytes, but none of the interface's.
TEST_F(AddLinksTest, ARenamedInterfaceHasForEachUplinkWhatTheMeterHas) {
  Count(100, 0);
  Record(Link(150, 0));
  Count(30, 5);
  LinkCount moved = Link(0, 0, true), here = Link(40, 20);
  moved.moved_to = {"lte", "wwan7"};
  Totals now = TotalsOf({samples_});
  AddLinks({{{"satellite", "sat0"}, moved}, {{"lte", "wwan7"}, here}}, before_,
           &now);
  const auto interface = [&](const char* uplink, const char* name) {
    const Counters& counted =
        now[{kInterfaceKind, name, "", "other", kInterfacePath, uplink}];
    return std::make_pair(counted.value[0], counted.value[1]);
  };
  EXPECT_EQ(interface("satellite", "sat0"), std::make_pair(180L, 5L));
  EXPECT_EQ(interface("lte", "wwan7"), std::make_pair(10L, 15L));
}

TEST_F(AddLinksTest, HeadersOfUnknownSizeAreNoUnnamedTraffic) {
  Count(100, 100);
  LinkCount link = Link(110, 120);
  link.tx_headers = link.rx_headers = 14;
  EXPECT_THAT(Record(link), ElementsAre(100, 106, 0, 6));
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
