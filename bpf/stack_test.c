// SPDX-License-Identifier: BSD-3-Clause
/* For stack_test.py: static functions that call one another. far() uses more stack than
 * the limit, near() does not. */

static __attribute__((noinline)) int leaf(int *number) {
  volatile char bytes[200];

  bytes[*number & 63] = 1;
  return bytes[3] + *number;
}

static __attribute__((noinline)) int middle(int *number) {
  volatile char bytes[400];

  bytes[*number & 63] = 1;
  return leaf(number) + bytes[2];
}

__attribute__((section("tc"))) int far(int *number) { return middle(number); }

__attribute__((section("tc"))) int near(int *number) { return leaf(number); }
