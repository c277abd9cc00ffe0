// SPDX-License-Identifier: BSD-3-Clause
// Linked into a test, replaces operator new by one that fails where the test
// wants it to.
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

// While it exists, one allocation of this thread throws std::bad_alloc or, with
// `and_after`, that one and all that follow. Not nested.
class FailNew {
 public:
  explicit FailNew(int number, bool and_after = false);
  ~FailNew();
  FailNew(const FailNew&) = delete;
  FailNew& operator=(const FailNew&) = delete;

  // Whether it came to that; from here on nothing fails.
  bool Failed();
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_TESTING_FAILING_NEW_H_
