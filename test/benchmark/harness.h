// SPDX-License-Identifier: BSD-3-Clause
// The frame of a benchmark: options, a time limit, a cgroup of its own, and
// nothing left behind.
//
// The work is done by a child process in a process group of its own. Programs,
// sockets and network namespaces go with it, however it ends; the parent ends
// what the child started, and removes the cgroup after it. SIGINT, SIGTERM,
// SIGHUP and the time limit end the child.
//
//   int main(int argc, char** argv) {
//     Benchmark benchmark("read", "what it measures");
//     int rounds = 41;
//     benchmark.Number("rounds", &rounds, 3, "rounds of every measurement");
//     return benchmark.Main(argc, argv, [&](Run* run) { ... });
//   }
//
// Threads: one.

#ifndef NETMETER_TEST_BENCHMARK_HARNESS_H_
#define NETMETER_TEST_BENCHMARK_HARNESS_H_

#include <sys/types.h>
#include <time.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "test/benchmark/results.h"
#include "test/program/sandbox.h"

namespace netmeter {
namespace internal {

// Says what is wrong, with errno if told so, and ends the process.
[[noreturn]] void Die(const std::string& what);
[[noreturn]] void DieWithErrno(const std::string& what);
// `result` unless it is negative: a call that sets errno.
int Check(int result, const char* what);

double NowNs(clockid_t clock = CLOCK_MONOTONIC);
// The CPU time of a process, all threads; 0 where there is none.
double CpuNsOf(pid_t pid);

// All subjects once a round, each time another one first.
void ForEachRound(int rounds, int subjects,
                  const std::function<void(int)>& measure);

// What the measuring function gets.
class Run {
 public:
  Run(const std::string& name, OwnCgroup* cgroup, std::string directory)
      : results_(name), cgroup_(cgroup), directory_(std::move(directory)) {}
  Results* results() { return &results_; }
  OwnCgroup* cgroup() { return cgroup_; }
  // For a process that has not left the mounts in which the cgroup was opened.
  std::string CgroupPath() const;
  // Empty, to be mounted upon: removed at the end, but nothing in it.
  const std::string& directory() const { return directory_; }
  // Mounts of this process's own, which go with it: a file system at directory(), for
  // pins and copies.
  void MountDirectory();

 private:
  Results results_;
  OwnCgroup* const cgroup_;
  const std::string directory_;
};

class Benchmark {
 public:
  // `about` is a sentence for --help.
  Benchmark(std::string name, std::string about);

  // Options: --NAME N, at least 1; --NAME TEXT. `smoke` is the value under
  // --smoke unless the option is given, too.
  void Number(const std::string& name, int* value, int smoke,
              const std::string& help);
  void Text(const std::string& name, std::string* value,
            const std::string& help);

  // Reads the options, runs `measure` in the child and writes the results. The
  // exit status.
  int Main(int argc, char** argv, const std::function<void(Run*)>& measure);

 private:
  struct Option {
    std::string name, help;
    int* number;
    int smoke;
    std::string* text;
    bool given;
  };

  bool Parse(int argc, char** argv, int* status);
  int Usage(bool error, const std::string& what) const;
  int RunChild(OwnCgroup* cgroup, const std::string& directory,
               const std::function<void(Run*)>& measure) const;

  const std::string name_, about_;
  std::vector<Option> options_;
  std::string json_;
  int time_limit_ = 1800;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_TEST_BENCHMARK_HARNESS_H_
