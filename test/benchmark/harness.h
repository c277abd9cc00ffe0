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
//     return RunBenchmark("read", argc, argv,
//                         [](Run* run) { Measure(run->Of(41, 3), run); });
//   }
//
// Threads: one.

#ifndef NETMETER_TEST_BENCHMARK_HARNESS_H_
#define NETMETER_TEST_BENCHMARK_HARNESS_H_

#include <sys/types.h>
#include <time.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/unique_fd.h"
#include "lib/testing/check.h"
#include "test/program/sandbox.h"

namespace netmeter {
namespace internal {

double NowNs(clockid_t clock = CLOCK_MONOTONIC);
// The CPU time of a process, all threads; 0 if there is no such process.
double CpuNsOf(pid_t pid);

// All subjects once a round, each time another one first.
void ForEachRound(int rounds, int subjects,
                  const std::function<void(int)>& measure);

// What a benchmark measured, as JSON: every sample, and no judgement. Samples of one
// case and unit are pairs: the n-th of each subject was taken in the n-th round.
// summary.py describes the file.
enum class Better { kLess, kMore };

class Results {
 public:
  explicit Results(std::string benchmark) : benchmark_(std::move(benchmark)) {}

  // One sample of one subject.
  void Add(const std::string& test_case, const std::string& subject,
           const std::string& unit, Better better, double value);
  // What is counted or computed once: no sample has it.
  void Fact(const std::string& name, nlohmann::json value);
  // What this machine cannot measure, and why. Nothing is left out silently.
  void Skip(const std::string& test_case, const std::string& subject,
            const std::string& why);

  bool WriteTo(const std::string& path, std::string* error) const;

 private:
  struct Series {
    std::string test_case, subject, unit;
    Better better;
    std::vector<double> samples;
  };

  const std::string benchmark_;
  std::vector<Series> series_;
  nlohmann::json facts_ = nlohmann::json::object();
  nlohmann::json skipped_ = nlohmann::json::array();
};

// Another build of netmeter, to be measured beside this one: the file of its BPF object,
// whose programs and maps have the names of this build's, or else of its loader.
struct Build {
  std::string name, file;
  bool is_loader;
};

// What the measuring function gets.
class Run {
 public:
  Run(const std::string& name, OwnCgroup* cgroup, std::string directory,
      bool smoke, std::string word, std::vector<Build> builds,
      std::string netobserv)
      : results_(name),
        cgroup_(cgroup),
        directory_(std::move(directory)),
        smoke_(smoke),
        word_(std::move(word)),
        builds_(std::move(builds)),
        netobserv_(std::move(netobserv)) {}
  // An argument that is no option: which of several measurements.
  const std::string& word() const { return word_; }
  const std::vector<Build>& builds() const { return builds_; }
  // The file of netobserv's compiled programs, or "".
  const std::string& netobserv() const { return netobserv_; }
  // The second number with --smoke.
  int Of(int full, int smoke) const { return smoke_ ? smoke : full; }
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
  const bool smoke_;
  const std::string word_;
  const std::vector<Build> builds_;
  const std::string netobserv_;
};

// Runs `measure` in the child and writes what it measured. Options: --json FILE writes
// the results to a file; --smoke runs everything once and briefly; --object and --loader
// NAME=FILE, any number of them, are builds; --netobserv FILE has its programs. Returns
// the exit status.
int RunBenchmark(const std::string& name, int argc, char** argv,
                 const std::function<void(Run*)>& measure);

// The kernel's own clock around each run of a program, which is on while the descriptor
// of EnableRunTime() is open. It costs every program of the host some 20 ns a run.
struct RunTime {
  uint64_t ns = 0, runs = 0;
};
UniqueFd EnableRunTime();
RunTime ReadRunTime(int program_fd);
double NsPerRun(const RunTime& before, const RunTime& after);

// A field of /proc/meminfo, in bytes.
double Memory(const std::string& field);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_TEST_BENCHMARK_HARNESS_H_
