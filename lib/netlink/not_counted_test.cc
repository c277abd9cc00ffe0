// SPDX-License-Identifier: BSD-3-Clause
#include "lib/netlink/not_counted.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace netmeter {
namespace internal {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> Notes(const Uplinks& uplinks,
                               const std::vector<Interface>& interfaces) {
  std::vector<std::string> notes;
  for (const NotCounted& one : FindNotCounted(uplinks, interfaces)) {
    notes.push_back(NoteOf(one));
  }
  return notes;
}

Interface Named(uint32_t index, const char* name) {
  Interface interface;
  interface.index = index;
  interface.name = name;
  return interface;
}

// The bug: a misspelt interface, a port or the loopback device counted nothing, without a
// warning.
TEST(FindNotCounted, NamesWhatHasNoPacketsOfItsOwn) {
  Interface port = Named(3, "eth1"), card = Named(4, "eth2"),
            renamed = Named(5, "eth3"), routed = Named(6, "eth4"),
            ovs = Named(8, "eth5");
  port.master = card.master = 2;
  port.port_of = "bridge";
  card.port_of = "bond";
  renamed.alternatives = {"the-satellite-dish-on-the-roof"};
  routed.port_of = "vrf";
  ovs.port_of = "openvswitch";
  const std::vector<Interface> interfaces = {
      Named(1, "lo"), Named(2, "br0"), port, card, renamed, routed, ovs};
  EXPECT_THAT(
      Notes({{"a", {"eth1"}},
             {"b", {"eth2"}},
             {"c", {"the-satellite-dish-on-the-roof", "br0", "eth4", "e*"}},
             {"d", {"lo", "sta0", "wwan*"}},
             {"e", {"eth5"}}},
            interfaces),
      ElementsAre(
          "uplinks: a: eth1: a port of bridge br0: its packets count as those "
          "of br0",
          "uplinks: b: eth2: a port of bond br0: its packets count as those of "
          "br0",
          "uplinks: d: lo: loopback is in no uplink",
          "uplinks: d: sta0: no such interface",
          "uplinks: d: wwan*: no such interface",
          "uplinks: e: eth5: a port of Open vSwitch: name the interface that "
          "has the address"));
  EXPECT_THAT(Notes({}, interfaces), IsEmpty());
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
