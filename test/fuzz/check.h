// SPDX-License-Identifier: BSD-3-Clause
// FUZZ_CHECK(condition): an invariant; libFuzzer keeps the input that breaks
// it.

#ifndef NETMETER_TEST_FUZZ_CHECK_H_
#define NETMETER_TEST_FUZZ_CHECK_H_

#include <cstdio>
#include <cstdlib>

#define FUZZ_CHECK(condition)                                      \
  do {                                                             \
    if (!(condition)) {                                            \
      fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, \
              #condition);                                         \
      abort();                                                     \
    }                                                              \
  } while (0)

#endif  // NETMETER_TEST_FUZZ_CHECK_H_
