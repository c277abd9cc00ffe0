// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/object.h"

#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "bpf/internal.h"
#include "lib/base/pins.h"
// After the types that it names.
#include "netmeter.skel.h"

namespace netmeter {
namespace internal {

namespace {

// --- The table of pins (lib/base/pins.h) beside the BPF object: neither has a map or a
// program that the other does not know. The object is opened, not loaded, so that no
// privilege is needed.

using Names = std::set<std::string>;

// The loader runs nm_command itself (BPF_PROG_TEST_RUN). An eviction attaches nm_scan, an
// iterator, by a link that is not pinned.
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
    if (map == skeleton_->maps.rodata || map == skeleton_->maps.bss ||
        map == skeleton_->maps.data_followers) {
      continue;
    }
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

// --- How packets add ---

// What distributions build; each has an SMP kernel.
constexpr char kVoluntary[] = "#1 SMP Debian 5.10.223-1 (2024-08-10)";
constexpr char kDynamic[] = "#1 SMP PREEMPT_DYNAMIC Debian 6.1.90-1";
constexpr char kRealtime[] = "#1 SMP PREEMPT_RT Debian 5.10.223-1";
constexpr char kLazy[] = "#1 SMP PREEMPT Debian 6.13";

// A kernel of which task_struct has these members.
std::string Types(const std::vector<const char*>& members) {
  btf* types = btf__new_empty();
  const int number = btf__add_int(types, "int", 4, BTF_INT_SIGNED);
  btf__add_struct(types, "task_struct", 4 * members.size());
  uint32_t offset = 0;
  for (const char* member : members) {
    btf__add_field(types, member, number, offset, 0);
    offset += 32;
  }
  uint32_t size = 0;
  const void* bytes = btf__raw_data(types, &size);
  const std::string result(static_cast<const char*>(bytes), size);
  btf__free(types);
  return result;
}

Adds Choose(const std::string& btf, const char* version, bool has_exchange) {
  Preemption preemption = PreemptionOf(btf, version);
  preemption.has_exchange = has_exchange;
  return ChooseAdds(preemption);
}

TEST(Adds, ArePlainWhereNothingIsPreempted) {
  const Adds adds = Choose(Types({"pid"}), kVoluntary, false);
  EXPECT_EQ(adds.ingress, NM_ADDS_PLAIN);
  EXPECT_EQ(adds.egress, NM_ADDS_PLAIN);
  // 5.11 and newer, built without preemption.
  EXPECT_EQ(Choose(Types({"migration_disabled"}), kVoluntary, true).egress,
            NM_ADDS_PLAIN);
}

// Up to 5.10 migrate_disable() disables preemption.
TEST(Adds, ArePlainWhereProgramsAreNotPreempted) {
  const std::string types = Types({"rcu_read_lock_nesting"});
  EXPECT_EQ(Choose(types, "#1 SMP PREEMPT", true).egress, NM_ADDS_PLAIN);
  // With one CPU a task does not count the calls of migrate_disable() on newer
  // kernels either.
  EXPECT_EQ(Choose(types, "#1 PREEMPT", true).egress, NM_ADDS_CLAIMED);
}

// bpf_preempt_disable() would guard them, too, but no kernel has it and lacks
// the exchange: it came with 6.11, to programs that are compiled, and by then
// the compilers of all architectures that offer it had the exchange.
TEST(Adds, AreGuardedByTheExchangeWhereThereIsOne) {
  const std::string types =
      Types({"migration_disabled", "rcu_read_lock_nesting"});
  for (const bool has_exchange : {true, false}) {
    const Adds adds = Choose(types, kDynamic, has_exchange);
    EXPECT_EQ(adds.egress, has_exchange ? NM_ADDS_CLAIMED : NM_ADDS_ATOMIC);
    EXPECT_EQ(adds.ingress, NM_ADDS_PLAIN);
  }
}

// From 6.13 on a kernel with PREEMPT_LAZY alone has no PREEMPT_RCU.
TEST(Adds, AreGuardedOnALazyKernel) {
  EXPECT_EQ(Choose(Types({"migration_disabled"}), kLazy, true).egress,
            NM_ADDS_CLAIMED);
}

TEST(Adds, OfWhatIsReceivedAreAtomicWithPreemptRt) {
  for (const char* member : {"softirq_disable_cnt", "rwbase_rt"}) {
    const Adds adds = Choose(Types({member}), kVoluntary, true);
    EXPECT_EQ(adds.ingress, NM_ADDS_ATOMIC) << member;
    EXPECT_EQ(adds.egress, NM_ADDS_CLAIMED) << member;
  }
  const Adds adds = Choose(Types({"pid"}), kRealtime, false);
  EXPECT_EQ(adds.ingress, NM_ADDS_ATOMIC);
  EXPECT_EQ(adds.egress, NM_ADDS_ATOMIC);
}

// struct rt_mutex is in any kernel, and its member `rtmutex` in the types of
// some: Debian's 7.3 was taken for PREEMPT_RT, and added atomically.
TEST(Adds, OfWhatIsReceivedArePlainWhereRealtimeMutexesAreOnlyKnown) {
  EXPECT_EQ(Choose(Types({"rtmutex"}), kDynamic, true).ingress, NM_ADDS_PLAIN);
}

TEST(Adds, AreAtomicWhereNothingIsKnown) {
  const std::string whole = Types({"pid"});
  EXPECT_EQ(Choose("", kVoluntary, false).ingress, NM_ADDS_ATOMIC);
  EXPECT_EQ(Choose(whole, "", false).ingress, NM_ADDS_ATOMIC);
}

}  // namespace

}  // namespace internal
}  // namespace netmeter
