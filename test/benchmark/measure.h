// SPDX-License-Identifier: BSD-3-Clause
// What is measured, and how it is compared: columns of samples, one sample per
// round and subject.
//
// Every measurement is paired. A round runs each subject once, and what is
// printed is the median over the rounds of the difference to the empty program
// of the same round. What disturbs the machine for longer than a round disturbs
// all subjects alike and is not in the difference.
//
// Threads: each object belongs to one.

#ifndef NETMETER_TEST_BENCHMARK_MEASURE_H_
#define NETMETER_TEST_BENCHMARK_MEASURE_H_

#include <functional>
#include <string>
#include <vector>

#include "test/benchmark/harness.h"
#include "test/program/packet.h"
#include "test/program/programs.h"

namespace netmeter {
namespace internal {

struct Settings {
  int rounds = 41;
  int repeat = 1000000;
  int round_trips = 1000;
  Results* results = nullptr;  // every sample goes there, too
};

// How often this thread was taken off its CPU.
long Preemptions();

double Median(std::vector<double> values);

enum Subject {
  kEmpty,
  kTable,
  kStorage,
  kHash,
  kFloor,
  kOneUplink,    // as kTable, with one uplink
  kFourUplinks,  // ... with four
  kSubjects
};

// "socket table": as the results have it.
const char* KeyOf(int subject);

struct Hooks {
  int egress = -1;
  int ingress = -1;

  int Of(Direction direction) const {
    return direction == Direction::kEgress ? egress : ingress;
  }
};

// Samples of one column, by subject; one value per round.
struct Column {
  std::string title;
  std::vector<double> samples[kSubjects];

  double Over(int subject) const {
    if (subject == kEmpty) return Median(samples[kEmpty]);
    std::vector<double> differences;
    for (size_t i = 0; i < samples[subject].size(); ++i) {
      differences.push_back(samples[subject][i] - samples[kEmpty][i]);
    }
    return Median(differences);
  }
};

// A table on stdout: a line per subject, a number per column. The samples go
// to the results as the cases `way`/title of the column.
void Report(const Settings& settings, const std::string& way,
            const std::string& title, const std::vector<Column>& columns);

// All subjects once a round, each time another one first.
void ForEachRound(int rounds, const std::function<void(int)>& measure);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_TEST_BENCHMARK_MEASURE_H_
