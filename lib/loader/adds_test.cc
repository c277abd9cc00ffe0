// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/adds.h"

#include <bpf/btf.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace netmeter {
namespace internal {
namespace {

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
  // 5.15 and newer, built without preemption.
  EXPECT_EQ(Choose(Types({"migration_disabled"}), kVoluntary, true).egress,
            NM_ADDS_PLAIN);
}

// Up to 5.14 migrate_disable() disables preemption.
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
  // Cut short anywhere: nothing is read past the end.
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::unique_ptr<char[]> copy(new char[size]);
    whole.copy(copy.get(), size);
    const absl::string_view part(copy.get(), size);
    EXPECT_EQ(ChooseAdds(PreemptionOf(part, kVoluntary)).egress,
              NM_ADDS_ATOMIC);
  }
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
