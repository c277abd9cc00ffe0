// SPDX-License-Identifier: BSD-3-Clause
#include "lib/publish/family_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace netmeter {
namespace internal {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;

constexpr int kFamilies = static_cast<int>(FamilyId::kCount);

std::vector<std::string> Chosen(const FamilySet& set) {
  std::vector<std::string> names;
  for (int i = 0; i < kFamilies; ++i) {
    const FamilyId id = static_cast<FamilyId>(i);
    const char* name = InfoOf(id).name;
    EXPECT_EQ(set.Contains(name), FamilySetAccess::Has(set, id)) << name;
    if (FamilySetAccess::Has(set, id)) names.emplace_back(name);
  }
  return names;
}

std::vector<std::string> Parsed(const char* list) {
  const auto set = FamilySet::Parse(list);
  EXPECT_TRUE(set.ok()) << set.status();
  return set.ok() ? Chosen(*set) : std::vector<std::string>();
}

TEST(FamilyTable, HasOneRowForEachName) {
  std::set<std::string> names;
  for (int i = 0; i < kFamilies; ++i) {
    names.insert(InfoOf(static_cast<FamilyId>(i)).name);
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(kFamilies));
}

TEST(FamilySet, DefaultIsAllButTheHistogramAndWhatTellsOfTrouble) {
  EXPECT_EQ(Parsed("default"), Chosen(FamilySet()));
  std::vector<std::string> all = Parsed("all");
  EXPECT_EQ(all.size(), static_cast<size_t>(kFamilies));
  std::string list = "default";
  for (const char* family :
       {"netmeter_tcp_resets_sent_total", "netmeter_tcp_resets_received_total",
        "netmeter_tcp_timeouts_total",
        "netmeter_tcp_retransmitted_segments_total",
        "netmeter_tcp_rtt_seconds"}) {
    list += std::string(",") + family;
    EXPECT_FALSE(FamilySet().Contains(family));
    EXPECT_FALSE(FamilySet::Kernsnoopd().Contains(family));
  }
  EXPECT_EQ(Parsed(list.c_str()), all);
  EXPECT_EQ(Chosen(FamilySet()).size() + 5, all.size());
}

TEST(FamilySet, BytesAreAllThatCountBytes) {
  EXPECT_THAT(
      Parsed("bytes"),
      ElementsAre(
          "netmeter_up", "netmeter_omitted_services",
          "netmeter_wire_bytes_total", "netmeter_pending_bytes",
          "netmeter_evicted_bytes_total", "netmeter_proxy_bytes_total",
          "netmeter_proxy_pending_bytes", "netmeter_proxy_evicted_bytes_total",
          "netmeter_tcp_retransmit_bytes_total", "netmeter_uplink_bytes_total",
          "netmeter_forwarded_bytes_total", "netmeter_budget_limit_bytes",
          "netmeter_budget_used_bytes"));
}

TEST(FamilySet, NetmeterIsTheDefaultWithoutMagmasNames) {
  std::vector<std::string> expected;
  for (const std::string& name : Chosen(FamilySet())) {
    if (name.find("magma_") != 0 && name.find("linux_") != 0) {
      expected.push_back(name);
    }
  }
  EXPECT_EQ(Parsed("netmeter,netmeter_omitted_services"), expected);
  EXPECT_EQ(expected.size() + 4, Chosen(FamilySet()).size());
}

TEST(FamilySet, KernsnoopdIsWhatKernsnoopdPublished) {
  EXPECT_THAT(Parsed("kernsnoopd"),
              ElementsAre("netmeter_up", "netmeter_omitted_services",
                          "magma_bytes_sent_total", "linux_bytes_sent_total"));
}

// A profile for slow links had none of the budgets, so the alert at 80 % was silent.
TEST(FamilySet, BillHasWhatItsAlertsNeed) {
  EXPECT_THAT(
      Parsed("bill"),
      ElementsAre("netmeter_up", "netmeter_omitted_services",
                  "netmeter_wire_bytes_total", "netmeter_pending_bytes",
                  "netmeter_evicted_bytes_total", "netmeter_uplink_bytes_total",
                  "netmeter_forwarded_bytes_total",
                  "netmeter_budget_limit_bytes", "netmeter_budget_used_bytes",
                  "netmeter_cost_micros", "netmeter_budget_error"));
}

TEST(FamilySet, ListsAddUp) {
  EXPECT_THAT(Parsed(" netmeter_series ,netmeter_up, netmeter_series"),
              ElementsAre("netmeter_up", "netmeter_omitted_services",
                          "netmeter_series"));
}

TEST(FamilySet, AWrongNameIsAnErrorThatNamesTheSets) {
  for (const char* list : {"", ",", "bytes,", "Bytes", "netmeter_wire_bytes",
                           "default;all", "none", "\x1b[2J"}) {
    const auto set = FamilySet::Parse(list);
    ASSERT_EQ(set.status().code(), absl::StatusCode::kInvalidArgument) << list;
    EXPECT_THAT(std::string(set.status().message()),
                EndsWith("the sets are default, netmeter, all, bytes, bill and "
                         "kernsnoopd"));
    EXPECT_EQ(set.status().message().find('\x1b'), std::string::npos);
  }
  EXPECT_THAT(std::string(FamilySet::Parse("byte").status().message()),
              HasSubstr("'byte' (did you mean bytes?)"));
  EXPECT_THAT(
      std::string(FamilySet::Parse("netmeter_wire_bytes").status().message()),
      HasSubstr("(did you mean netmeter_"));
}

TEST(FamilySet, ContainsNothingUnknown) {
  EXPECT_FALSE(FamilySet().Contains("netmeter_nonsense"));
  EXPECT_FALSE(FamilySet().Contains("default"));
  EXPECT_FALSE(FamilySet().Contains(""));
}

TEST(Scope, HasAWordForEach) {
  EXPECT_STREQ(ScopeName(Scope::kService), "service");
  EXPECT_STREQ(ScopeName(Scope::kHost), "host");
  EXPECT_STREQ(ScopeName(Scope::kUnregistered), "unregistered");
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
