// SPDX-License-Identifier: BSD-3-Clause
#include "lib/testing/failing_new.h"

#include <cstdlib>
#include <new>

namespace {

thread_local bool g_armed = false;
thread_local bool g_and_after = false;
thread_local bool g_failed = false;
thread_local int g_left = 0;

void* Allocate(std::size_t size) {
  if (g_armed && g_left-- <= 0) {
    g_failed = true;
    if (!g_and_after) g_armed = false;
    throw std::bad_alloc();
  }
  void* memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t size) { return Allocate(size); }
void* operator new[](std::size_t size) { return Allocate(size); }
// Like the standard library's. The address sanitizer replaces operator new by one that
// does not match the delete below.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  try {
    return Allocate(size);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace netmeter {
namespace internal {

FailNew::FailNew(int number, bool and_after) {
  g_left = number;
  g_and_after = and_after;
  g_failed = false;
  g_armed = true;
}

FailNew::~FailNew() { g_armed = false; }

bool FailNew::Failed() {
  g_armed = false;
  return g_failed;
}

}  // namespace internal
}  // namespace netmeter
