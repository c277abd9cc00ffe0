// SPDX-License-Identifier: BSD-3-Clause
// The observers of a soak: readers that fail if a total decreases, and a count of the
// kernel's objects of meters.

#ifndef NETMETER_TEST_LIVE_SOAK_WATCH_H_
#define NETMETER_TEST_LIVE_SOAK_WATCH_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "test/live/child.h"

namespace netmeter {
namespace internal {

// Of one reader, in shared memory.
struct ReaderState {
  uint64_t reads = 0;
  uint64_t backwards = 0;  // values that were lower than before, and may not be
  uint64_t resets = 0;  // series that were evicted: gone, or less than before
  uint64_t errors = 0;  // reads that failed
  uint64_t resident_kib = 0;
  char last[200] = "";  // the last of these
};

// A process that reads all series again and again, from a meter that it holds or, with
// `anew`, from one that it opens each time.
class SoakReader {
 public:
  SoakReader(const std::string& pin_dir, const NetNamespace& network,
             bool anew);
  ~SoakReader();

  ReaderState State() const;

 private:
  struct Shared;
  Shared* shared_;
  std::unique_ptr<Child> child_;
};

// Maps and programs of the kernel with our names, and the memory of the maps, except
// those of meters of other cgroups: `cgroup` is the number of ours.
struct KernelState {
  int maps = 0;
  int programs = 0;
  uint64_t kib = 0;
};
KernelState ReadKernelState(uint64_t cgroup);

// The memory of the cgroup v2 above those of all meters: who sends waits while it has
// no room. Not there if the host has the memory controller of cgroup v1.
class MemoryCgroup {
 public:
  MemoryCgroup();
  ~MemoryCgroup();

  bool exists() const { return !path_.empty(); }
  // Leaves no room, or all.
  void Squeeze(bool on) const;

 private:
  std::string path_, control_;
  bool enabled_here_ = false;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_TEST_LIVE_SOAK_WATCH_H_
