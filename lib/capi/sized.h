// SPDX-License-Identifier: BSD-3-Clause
// Structs of the C API that begin with their size, so that programs and libraries of
// different versions understand each other. New members come at the end. A program
// that was built with version 1.0 gives the size of that version for ever: a newer
// library takes, and fills, as much as the program has. A newer program gives a larger
// size: an older library does not look at what it does not know, and fills it with 0.
// A size above kMaxStructBytes is no size: the program has forgotten to set it.
//
// Threads: any.

#ifndef NETMETER_LIB_CAPI_SIZED_H_
#define NETMETER_LIB_CAPI_SIZED_H_

#include <string.h>

#include <algorithm>
#include <cstddef>

namespace netmeter {
namespace internal {

constexpr size_t kMaxStructBytes = 64 << 10;

// Copies what the caller has of *given into *to. False, with *to as it was, if the
// caller's struct ends before `first_size`, which is what version 1.0 had, or has no
// size.
template <typename T>
bool TakeSized(const T* given, size_t first_size, T* to) {
  static_assert(offsetof(T, size) == 0, "begins with its size");
  if (given->size < first_size || given->size > kMaxStructBytes) return false;
  memcpy(to, given, std::min(given->size, sizeof(*to)));
  return true;
}

// Copies `from` into the caller's *to as far as that goes. What follows there is 0;
// the size is the caller's. False, with *to as it was, as above.
template <typename T>
bool FillSized(const T& from, size_t first_size, T* to) {
  static_assert(offsetof(T, size) == 0, "begins with its size");
  const size_t size = to->size;
  if (size < first_size || size > kMaxStructBytes) return false;
  const size_t known = std::min(size, sizeof(from));
  memcpy(static_cast<void*>(to), &from, known);
  memset(reinterpret_cast<char*>(to) + known, 0, size - known);
  to->size = size;
  return true;
}

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_CAPI_SIZED_H_
