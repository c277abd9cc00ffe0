// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/name_sources.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace netmeter {
namespace internal {
namespace {

std::string Described(const std::string& cgroup) {
  const CgroupPlace place = PlaceOf(cgroup);
  return place.unit + "|" + place.container;
}

TEST(NameSourcesTest, UnitsAreTheInnermostThatAreInNoContainer) {
  const std::string id(64, 'a'), other(64, 'b');
  EXPECT_EQ(Described("/"), "|");
  EXPECT_EQ(Described("/init.scope"), "|");
  EXPECT_EQ(Described("/user.slice/user-0.slice/session-1.scope"), "|");
  EXPECT_EQ(Described("/system.slice/ssh.service"), "ssh.service|");
  EXPECT_EQ(Described("/a.service/b@c.service/x/y"), "b@c.service|");
  EXPECT_EQ(Described("/system.slice/docker-" + id + ".scope"),
            "|aaaaaaaaaaaa");
  EXPECT_EQ(Described("/docker/" + id + "/system.slice/in.service"),
            "|aaaaaaaaaaaa");
  EXPECT_EQ(Described("/web.service/libpod-payload-" + id),
            "web.service|aaaaaaaaaaaa");
  EXPECT_EQ(Described("/docker/" + other + "/docker/" + id), "|aaaaaaaaaaaa");
  EXPECT_EQ(Described("/docker/" + id.substr(1)), "|");
  EXPECT_EQ(Described("/docker/" + id.substr(1) + "g"), "|");
  EXPECT_EQ(Described("/docker/x" + id), "|");
  EXPECT_EQ(Described("/.service"), "|");
  // As the kernel part, which looks at eight levels.
  EXPECT_EQ(Described("/a.service/1/2/3/4/5/6/7"), "a.service|");
  EXPECT_EQ(Described("/a.service/1/2/3/4/5/6/7/8"), "|");
}

TEST(NameSourcesTest, TheLongestPatternNamesAUnitsService) {
  const std::map<std::string, std::string> units = {
      {"magma@*.service", "$1"},
      {"magma@mme.service", "core"},
      {"magma@mme*.service", "mmes"},
      {"*.service", "rest"}};
  EXPECT_EQ(ServiceOfUnit(units, "magma@state.service"), "state");
  EXPECT_EQ(ServiceOfUnit(units, "magma@mme.service"), "core");
  EXPECT_EQ(ServiceOfUnit(units, "magma@mme2.service"), "mmes");
  EXPECT_EQ(ServiceOfUnit(units, "magma@.service"), "magma@.service");
  EXPECT_EQ(ServiceOfUnit(units, "ssh.service"), "rest");
  EXPECT_EQ(ServiceOfUnit({{"a.service", "b"}}, "aa.service"), "");
}

// The bug: "a.*.service" took "a.service", whose first bytes are its own.
TEST(NameSourcesTest, APatternTakesNoPartOfTheUnitsSuffix) {
  EXPECT_EQ(ServiceOfUnit({{"a.*.service", "$1"}}, "a.service"), "");
  EXPECT_EQ(ServiceOfUnit({{"a.*.service", "b"}}, "a.service"), "");
  EXPECT_EQ(
      ServiceOfUnit({{"a.*.service", "b"}, {"*.service", "$1"}}, "a.service"),
      "a");
  EXPECT_EQ(ServiceOfUnit({{"a.*.service", "$1"}}, "a.x.service"), "x");
}

TEST(NameSourcesTest, OrdersThatCannotBeMeantAreErrors) {
  const auto error = [](const std::vector<std::string>& sources) {
    return std::string(CheckNameSources(sources).message());
  };
  EXPECT_EQ(error(DefaultNameSources()), "");
  EXPECT_EQ(error(AllNameSources()), "");
  EXPECT_EQ(error({"registration", "executable"}), "");
  EXPECT_EQ(error({}),
            "names_from: expected registration first and executable last");
  EXPECT_EQ(error({"executable", "registration"}),
            "names_from: expected registration first and executable last");
  EXPECT_EQ(error({"registration", "units", "executable"}),
            "names_from: 'units': expected registration, command_line, "
            "service_list, unit, container, executable");
  EXPECT_EQ(error({"registration", "unit", "unit", "executable"}),
            "names_from: 'unit' is there twice");
  EXPECT_EQ(
      error({"registration", "service_list", "command_line", "executable"}),
      "names_from: expected command_line before service_list");
}

TEST(NameSourcesTest, RanksAreThePlacesInTheList) {
  EXPECT_EQ(RanksOf(DefaultNameSources()), (SourceRanks{2, 3, 0, 0}));
  EXPECT_EQ(RanksOf({"registration", "container", "unit", "executable"}),
            (SourceRanks{0, 0, 3, 2}));
}

TEST(NameSourcesTest, PatternsThatCannotMatchAreErrors) {
  const auto error = [](const std::string& pattern,
                        const std::string& service) {
    return std::string(CheckUnit(pattern, service).message());
  };
  EXPECT_EQ(error("magma@*.service", "$1"), "");
  EXPECT_EQ(error("*.service", "all"), "");
  EXPECT_EQ(error("ssh", "x"),
            "units: 'ssh': expected the name of a unit, such as ssh.service");
  EXPECT_EQ(error(std::string(60, 'a') + ".service", "x"),
            "units: '" + std::string(60, 'a') +
                ".ser...': expected at most 63 bytes");
  // These could match no unit.
  for (const char* name :
       {"web-[0-9].service", "web?.service", " web.service", "a/b.service"}) {
    EXPECT_EQ(error(name, "x"), "units: '" + std::string(name) +
                                    "': expected letters, digits, :-_.\\@ and "
                                    "one *");
  }
  EXPECT_EQ(error("a\n.service", "x").find('\n'), std::string::npos);
  EXPECT_EQ(error("a*b.service", "x"),
            "units: 'a*b.service': expected at most one *, right before "
            ".service");
  EXPECT_EQ(error("a.service", "$1"),
            "units: 'a.service': $1 is what a * stands for, and there is none");
  EXPECT_EQ(error("a*.service", "x-$1"),
            "units: 'a*.service': expected a name, or $1 alone");
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
