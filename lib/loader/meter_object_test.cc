// SPDX-License-Identifier: BSD-3-Clause
// The table of pins (lib/reader/pins.h) beside the BPF object: neither has a map
// or a program that the other does not know. The object is opened, not loaded,
// so that no privilege is needed.
#include <bpf/libbpf.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>

#include "bpf/internal.h"
#include "lib/loader/adds.h"
#include "lib/reader/pins.h"
// After the types that it names.
#include "netmeter.skel.h"

namespace netmeter {
namespace internal {
namespace {

using Names = std::set<std::string>;

// nm_command is run by the loader itself (BPF_PROG_TEST_RUN), and attached
// nowhere.
const Names kUnattachedPrograms = {"nm_command", "nm_scan"};

class MeterObjectTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(skeleton_, nullptr); }

  bpf_map* Map(const MapPin& pin) {
    return bpf_object__find_map_by_name(skeleton_->obj,
                                        ObjectNameOf(pin.pin).c_str());
  }

  std::unique_ptr<netmeter_bpf, void (*)(netmeter_bpf*)> skeleton_{
      netmeter_bpf__open(), netmeter_bpf__destroy};
};

TEST_F(MeterObjectTest, EveryMapIsInTheTableOrSaidToBeUnpinned) {
  Names expected;
  for (const MapPin& pin : MapPins()) {
    EXPECT_TRUE(expected.insert(ObjectNameOf(pin.pin)).second) << pin.pin;
  }
  for (const UnpinnedMap& map : UnpinnedMaps()) {
    EXPECT_TRUE(expected.insert(map.name).second) << map.name;
  }
  for (const ExtentPin& pin : ExtentPins()) {
    EXPECT_TRUE(expected.insert(ObjectNameOf(pin.pin)).second) << pin.pin;
  }
  Names found;
  const bpf_map* map;
  bpf_object__for_each_map(map, skeleton_->obj) {
    if (map == skeleton_->maps.rodata || map == skeleton_->maps.bss) continue;
    found.insert(bpf_map__name(map));
  }
  EXPECT_EQ(found, expected);
}

TEST_F(MeterObjectTest, EveryProgramIsLinkedOrSaidToBeUnattached) {
  Names expected = kUnattachedPrograms;
  // nm_egress, which is the link's, and its variant.
  EXPECT_TRUE(expected.insert(EgressProgramOf(NM_ADDS_CLAIMED)).second);
  for (const LinkPin& pin : LinkPins()) {
    EXPECT_TRUE(expected.insert(ObjectNameOf(pin.pin)).second) << pin.pin;
  }
  Names found;
  bpf_program* program;
  bpf_object__for_each_program(program, skeleton_->obj) {
    found.insert(bpf_program__name(program));
  }
  EXPECT_EQ(found, expected);
}

// The kernel maps no map without this flag.
TEST_F(MeterObjectTest, SharedMapsAndNoOthersCanBeMapped) {
  Names readers;
  for (const MapPin& pin : MapPins()) {
    SCOPED_TRACE(pin.pin);
    bpf_map* map = Map(pin);
    ASSERT_NE(map, nullptr);
    EXPECT_EQ((bpf_map__map_flags(map) & BPF_F_MMAPABLE) != 0, pin.shared());
    if (!pin.shared()) continue;
    EXPECT_TRUE(readers.insert(PinOf(pin.reader)).second);
    EXPECT_STREQ(PinOf(pin.reader), pin.pin);
    EXPECT_EQ(bpf_map__type(map), BPF_MAP_TYPE_ARRAY);
    EXPECT_EQ(bpf_map__value_size(map), ValueSizeOf(pin.reader));
  }
  EXPECT_EQ(readers.size(), static_cast<size_t>(kSharedMaps));
}

TEST_F(MeterObjectTest, LinksSayWhichProgramsTrace) {
  for (const LinkPin& pin : LinkPins()) {
    SCOPED_TRACE(pin.pin);
    const bpf_program* program = bpf_object__find_program_by_name(
        skeleton_->obj, ObjectNameOf(pin.pin).c_str());
    ASSERT_NE(program, nullptr);
    EXPECT_EQ(bpf_program__type(program) == BPF_PROG_TYPE_TRACING,
              pin.tracing());
    // Without BTF of the kernel for its tracepoints a meter goes on.
    EXPECT_TRUE(!pin.tracing() || pin.feature == NM_FEATURE_PROCESS_TRACKING);
  }
}

// What kAsDeclared leaves alone is declared with its size.
TEST_F(MeterObjectTest, EveryOtherMapIsSizedByTheLoader) {
  for (const MapPin& pin : MapPins()) {
    const bpf_map* map = Map(pin);
    ASSERT_NE(map, nullptr);
    if (pin.entries != Entries::kAsDeclared) {
      EXPECT_EQ(bpf_map__max_entries(map), 1u) << pin.pin;
    } else if (bpf_map__type(map) != BPF_MAP_TYPE_SK_STORAGE) {
      EXPECT_GT(bpf_map__max_entries(map), 1u) << pin.pin;
    }
  }
}

TEST_F(MeterObjectTest, InfoIsPinnedLastAndOpenedFirst) {
  EXPECT_EQ(MapPins().back().reader, kInfo);
  EXPECT_EQ(OpeningOrder().front(), kInfo);
  EXPECT_EQ(OpeningOrder().size(), static_cast<size_t>(kSharedMaps));
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
