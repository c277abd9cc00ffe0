// SPDX-License-Identifier: BSD-3-Clause
// What a packet costs by BPF_PROG_TEST_RUN: one packet again and again, on one
// CPU or on two at once. Everything is in the cache, so this is the least that a
// packet can cost.

#ifndef NETMETER_TEST_BENCHMARK_TEST_RUNS_H_
#define NETMETER_TEST_BENCHMARK_TEST_RUNS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "test/benchmark/measure.h"
#include "test/program/packet.h"
#include "test/program/programs.h"

namespace netmeter {
namespace internal {

// What the machine takes for one atomic add, the CPUs at once on one word: next
// to nothing where two virtual CPUs are threads of one core, and then no
// program can show what sharing costs.
double AtomicAddNs(const std::vector<int>& cpus);

class TestRuns {
 public:
  // All must outlive this. `tables`: nullptr for a subject that is no meter whose
  // sockets are in its table.
  TestRuns(const Settings& settings, const Programs& programs,
           Programs* const (&tables)[kSubjects],
           const Hooks (&hooks)[kSubjects])
      : settings_(settings),
        programs_(programs),
        tables_(tables),
        hooks_(hooks) {}

  // Prints a table: UDP and TCP in both directions, on all `cpus` at once.
  void Run(const std::string& title, const std::vector<int>& cpus);

  // Prints the price of a packet that is not counted.
  void RunLoopback(int cpu) const;

 private:
  // One sample: a frame in one direction, on all `cpus` at once.
  double Measure(int subject, Direction direction,
                 const std::vector<uint8_t>& frame,
                 const std::vector<int>& cpus);

  const Settings& settings_;
  const Programs& programs_;
  Programs* const (&tables_)[kSubjects];
  const Hooks (&hooks_)[kSubjects];
  int samples_ = 0, disturbed_ = 0;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_TEST_BENCHMARK_TEST_RUNS_H_
