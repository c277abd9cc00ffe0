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

// A kernel of which task_struct has these members, and that has these functions.
std::string Types(const std::vector<const char*>& members,
                  const std::vector<const char*>& functions = {}) {
  btf* types = btf__new_empty();
  const int number = btf__add_int(types, "int", 4, BTF_INT_SIGNED);
  btf__add_struct(types, "task_struct", 4 * members.size());
  uint32_t offset = 0;
  for (const char* member : members) {
    btf__add_field(types, member, number, offset, 0);
    offset += 32;
  }
  btf__add_array(types, number, number, 3);
  btf__add_enum(types, "choice", 4);
  btf__add_enum_value(types, "one", 1);
  const int prototype = btf__add_func_proto(types, 0);
  btf__add_func_param(types, "bpf_param", number);
  for (const char* function : functions) {
    btf__add_func(types, function, BTF_FUNC_STATIC, prototype);
  }
  uint32_t size = 0;
  const void* bytes = btf__raw_data(types, &size);
  const std::string result(static_cast<const char*>(bytes), size);
  btf__free(types);
  return result;
}

Adds Choose(const std::string& btf, const char* version, bool may_disable,
            bool has_exchange) {
  Preemption preemption = PreemptionOf(btf, version);
  preemption.may_disable = may_disable;
  preemption.has_exchange = has_exchange;
  return ChooseAdds(preemption);
}

TEST(Adds, ArePlainWhereNothingIsPreempted) {
  const Adds adds = Choose(Types({"pid"}), kVoluntary, false, false);
  EXPECT_EQ(adds.ingress, NM_ADDS_PLAIN);
  EXPECT_EQ(adds.egress, NM_ADDS_PLAIN);
  // 5.15 and newer, built without preemption.
  EXPECT_EQ(
      Choose(Types({"migration_disabled"}), kVoluntary, true, true).egress,
      NM_ADDS_PLAIN);
}

// Up to 5.14 migrate_disable() disables preemption.
TEST(Adds, ArePlainWhereProgramsAreNotPreempted) {
  const std::string types = Types({"rcu_read_lock_nesting"});
  EXPECT_EQ(Choose(types, "#1 SMP PREEMPT", false, true).egress, NM_ADDS_PLAIN);
  // With one CPU a task does not count the calls of migrate_disable() on newer
  // kernels either.
  EXPECT_EQ(Choose(types, "#1 PREEMPT", false, true).egress, NM_ADDS_CLAIMED);
}

TEST(Adds, AreGuardedByTheCheapestThatThereIs) {
  const std::string types =
      Types({"migration_disabled", "rcu_read_lock_nesting"});
  const struct {
    bool may_disable, has_exchange;
    nm_adds adds;
  } cases[] = {{true, true, NM_ADDS_CLAIMED},
               {true, false, NM_ADDS_FENCED},
               {false, true, NM_ADDS_CLAIMED},
               {false, false, NM_ADDS_ATOMIC}};
  for (const auto& test : cases) {
    const Adds adds =
        Choose(types, kDynamic, test.may_disable, test.has_exchange);
    EXPECT_EQ(adds.egress, test.adds);
    EXPECT_EQ(adds.ingress, NM_ADDS_PLAIN);
  }
}

// From 6.13 on a kernel with PREEMPT_LAZY alone has no PREEMPT_RCU.
TEST(Adds, AreGuardedOnALazyKernel) {
  EXPECT_EQ(Choose(Types({"migration_disabled"}), kLazy, true, true).egress,
            NM_ADDS_CLAIMED);
}

TEST(Adds, OfWhatIsReceivedAreAtomicWithPreemptRt) {
  for (const char* member : {"softirq_disable_cnt", "rtmutex"}) {
    const Adds adds = Choose(Types({member}), kVoluntary, false, true);
    EXPECT_EQ(adds.ingress, NM_ADDS_ATOMIC) << member;
    EXPECT_EQ(adds.egress, NM_ADDS_CLAIMED) << member;
  }
  const Adds adds = Choose(Types({"pid"}), kRealtime, false, false);
  EXPECT_EQ(adds.ingress, NM_ADDS_ATOMIC);
  EXPECT_EQ(adds.egress, NM_ADDS_ATOMIC);
}

TEST(Adds, AreAtomicWhereNothingIsKnown) {
  const std::string whole = Types({"pid"});
  EXPECT_EQ(Choose("", kVoluntary, false, false).ingress, NM_ADDS_ATOMIC);
  EXPECT_EQ(Choose(whole, "", false, false).ingress, NM_ADDS_ATOMIC);
  // Cut short anywhere: nothing is read behind the end.
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::unique_ptr<char[]> copy(new char[size]);
    whole.copy(copy.get(), size);
    const absl::string_view part(copy.get(), size);
    EXPECT_EQ(ChooseAdds(PreemptionOf(part, kVoluntary)).egress,
              NM_ADDS_ATOMIC);
    FindFunction(part, "pid");
  }
}

TEST(Adds, FunctionsAreFoundAsLibbpfDoes) {
  const std::string types =
      Types({"bpf_member", "pid"}, {"bpf_first", "bpf_second"});
  btf* parsed = btf__new(types.data(), static_cast<uint32_t>(types.size()));
  for (const char* name : {"bpf_first", "bpf_second"}) {
    EXPECT_EQ(static_cast<int>(FindFunction(types, name)),
              btf__find_by_name_kind(parsed, name, BTF_KIND_FUNC));
  }
  btf__free(parsed);
  EXPECT_EQ(FindFunction(types, "bpf_member"), 0u);  // no function
  EXPECT_EQ(FindFunction(types, "bpf_fir"), 0u);
  EXPECT_EQ(FindFunction(types, "bpf_third"), 0u);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
