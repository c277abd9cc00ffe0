// SPDX-License-Identifier: BSD-3-Clause
// In a test that links this, operator new fails when the test asks for it.
//
//   for (int n = 0;; ++n) {
//     FailNew fail(n);  // the n-th allocation of this thread, from 0
//     const absl::Status status = meter.Register("mme");
//     if (!fail.Failed()) break;
//     EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
//   }
//
// Threads: each has its own count.

#ifndef NETMETER_LIB_TESTING_FAILING_NEW_H_
#define NETMETER_LIB_TESTING_FAILING_NEW_H_

namespace netmeter {
namespace internal {

// While it exists, one allocation of this thread throws std::bad_alloc, and with
// `and_after` all later ones do, too. Cannot be nested.
class FailNew {
 public:
  explicit FailNew(int number, bool and_after = false);
  ~FailNew();
  FailNew(const FailNew&) = delete;
  FailNew& operator=(const FailNew&) = delete;

  // Whether an allocation failed. After this call none fails.
  bool Failed();
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_TESTING_FAILING_NEW_H_
