// SPDX-License-Identifier: BSD-3-Clause
// Structs of the C API that begin with their size, so that programs and libraries of
// different versions work together. New members come at the end. A program that was built
// with version 1.0 always passes the size of that version: a newer library reads, and
// fills, only the members that the program has. A newer program passes a larger size: an
// older library ignores the unknown members, and fills them with 0. A size above
// kMaxStructBytes is invalid: the program has forgotten to set it.
//
// Threads: any.

#ifndef NETMETER_LIB_BASE_SIZED_H_
#define NETMETER_LIB_BASE_SIZED_H_

#include <string.h>

#include <algorithm>
#include <cstddef>

namespace netmeter {
namespace internal {

constexpr size_t kMaxStructBytes = 64 << 10;

// Copies the members that the caller's *given has into *to. Returns false, and leaves *to
// unchanged, if the caller's struct has no valid size, or ends before `first_size`, the
// size of version 1.0.
template <typename T>
bool TakeSized(const T* given, size_t first_size, T* to) {
  static_assert(offsetof(T, size) == 0, "begins with its size");
  if (given->size < first_size || given->size > kMaxStructBytes) return false;
  memcpy(to, given, std::min(given->size, sizeof(*to)));
  return true;
}

// Copies `from` into the caller's *to, up to the size of *to. The caller's further
// members become 0; its size stays. Returns false, and leaves *to unchanged, in the cases
// of TakeSized().
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

#endif  // NETMETER_LIB_BASE_SIZED_H_
