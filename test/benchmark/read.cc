// SPDX-License-Identifier: BSD-3-Clause
// What reading costs a service: its own series, 16 of them, and all series of
// the host, 4,096 of them, by the library; and how many allocations it makes. The maps
// are real ones, as the loader makes them, filled by this process.
//
// That a read makes no system call is shown by the kernel: in a process that
// may only write and exit (seccomp's strict mode) reads go on; the first
// system call of theirs would be the end of it.
#include <linux/seccomp.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "lib/testing/fake_meter.h"
#include "netmeter/meter.h"
#include "test/benchmark/full_meter.h"
#include "test/benchmark/harness.h"

// By this process, in all its threads. All but what goes by malloc(3) itself.
std::atomic<int> g_allocations{0};

void* operator new(std::size_t size) {
  ++g_allocations;
  void* const memory = std::malloc(size);
  if (memory == nullptr) std::abort();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace netmeter {
namespace internal {
namespace {

struct Settings {
  int rounds = 101;
  int reads = 200;
};

// Reads `count` times; the number of series that the last read had.
using Reader = size_t (*)(const Meter& meter, int count);

// Into a vector that is kept from read to read, as who reads often does.
size_t ReadOwn(const Meter& meter, int count) {
  static std::vector<Sample> samples;
  for (int i = 0; i < count; ++i) {
    if (!meter.ReadService(kFullMeterService, &samples).ok()) return 0;
  }
  return samples.size();
}

size_t ReadAll(const Meter& meter, int count) {
  static std::vector<Sample> samples;
  for (int i = 0; i < count; ++i) {
    if (!meter.ReadHost(&samples).ok()) return 0;
  }
  return samples.size();
}

// Into a new vector at each read.
size_t ReadOwnAnew(const Meter& meter, int count) {
  size_t series = 0;
  for (int i = 0; i < count; ++i) {
    const auto samples = meter.ReadService(kFullMeterService);
    if (!samples.ok()) return 0;
    series = samples->size();
  }
  return series;
}

size_t ReadAllAnew(const Meter& meter, int count) {
  size_t series = 0;
  for (int i = 0; i < count; ++i) {
    const auto samples = meter.ReadHost();
    if (!samples.ok()) return 0;
    series = samples->size();
  }
  return series;
}

// How many allocations a read makes that is not the first one.
int CountAllocations(const Meter& meter, Reader reader) {
  reader(meter, 2);
  const int before = g_allocations;
  reader(meter, 1);
  return g_allocations - before;
}

// Makes one, so that the trap is seen to work.
size_t MakeSystemCall(const Meter&, int) {
  syscall(SYS_getppid);
  return 0;
}

// Whether so many reads work where any system call is the end. The process is
// warm: memory that it needs for the first time is had before.
bool MakesNoSystemCall(const Meter& meter, Reader reader) {
  const pid_t child = Check(fork(), "fork");
  if (child == 0) {
    reader(meter, 10);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0) syscall(SYS_exit, 2);
    reader(meter, 100);
    syscall(SYS_exit, 0);  // exit_group(2), which _exit() is, is refused
  }
  int status = 0;
  Check(waitpid(child, &status, 0), "wait");
  if (WIFEXITED(status) && WEXITSTATUS(status) == 2) {
    Die("this kernel has no seccomp");
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

std::unique_ptr<Meter> OpenOrDie(const FullMeter& full) {
  MeterOptions options;
  options.pin_dir = full.pin_dir();
  auto opened = Meter::Open(options);
  if (!opened.ok()) Die(std::string(opened.status().message()));
  return std::move(*opened);
}

// Names that a string has to allocate memory for, as those of hosts often are. In
// a meter of its own, after the others.
void MeasureLongNames(const Settings& settings, Run* run) {
  const FullMeter full(run->directory(), ".services.example.com");
  const std::unique_ptr<Meter> meter = OpenOrDie(full);
  constexpr char kCase[] = "all series, long names";
  if (ReadAll(*meter, 10) != kFullMeterSeries) Die("a read of long names");
  Results* results = run->results();
  results->Fact(std::string(kCase) + ": allocations",
                CountAllocations(*meter, ReadAll));
  for (int round = 0; round < settings.rounds; ++round) {
    const double start = NowNs(CLOCK_THREAD_CPUTIME_ID);
    ReadAll(*meter, settings.reads);
    results->Add(kCase, "netmeter", "ns", Better::kLess,
                 (NowNs(CLOCK_THREAD_CPUTIME_ID) - start) / settings.reads);
  }
}

void Measure(const Settings& settings, Run* run) {
  FullMeter full(run->directory());
  const std::unique_ptr<Meter> opened = OpenOrDie(full);
  const Meter& meter = *opened;
  const struct {
    const char* name;
    Reader reader;
    size_t series;
    bool keeps_vector;
  } cases[] = {
      {"own series", ReadOwn, kFullMeterOwnSeries, true},
      {"all series", ReadAll, kFullMeterSeries, true},
      {"own series, new vector", ReadOwnAnew, kFullMeterOwnSeries, false},
      {"all series, new vector", ReadAllAnew, kFullMeterSeries, false},
  };
  if (MakesNoSystemCall(meter, MakeSystemCall)) Die("the trap does not work");
  Results* results = run->results();
  for (const auto& one : cases) {
    if (one.reader(meter, 10) != one.series) {
      Die(std::string("a read of ") + one.name + " was not complete");
    }
    results->Fact(std::string(one.name) + ": series", one.series);
    results->Fact(std::string(one.name) + ": system calls",
                  MakesNoSystemCall(meter, one.reader) ? 0 : 1);
    if (!one.keeps_vector) continue;
    results->Fact(std::string(one.name) + ": allocations",
                  CountAllocations(meter, one.reader));
  }
  for (int round = 0; round < settings.rounds; ++round) {
    for (const auto& one : cases) {
      const double start = NowNs(CLOCK_THREAD_CPUTIME_ID);
      one.reader(meter, settings.reads);
      results->Add(one.name, "netmeter", "ns", Better::kLess,
                   (NowNs(CLOCK_THREAD_CPUTIME_ID) - start) / settings.reads);
    }
  }
  // The slots that are free then are not looked at again and again.
  full.Sweep();
  if (ReadOwn(meter, 10) != kFullMeterOwnSeries) Die("a read after a sweep");
  for (int round = 0; round < settings.rounds; ++round) {
    const double start = NowNs(CLOCK_THREAD_CPUTIME_ID);
    ReadOwn(meter, settings.reads);
    results->Add("own series, after a sweep", "netmeter", "ns", Better::kLess,
                 (NowNs(CLOCK_THREAD_CPUTIME_ID) - start) / settings.reads);
  }
}

}  // namespace
}  // namespace internal
}  // namespace netmeter

int main(int argc, char** argv) {
  using namespace netmeter::internal;
  Settings settings;
  Benchmark benchmark("read", "ns of a read by the library");
  benchmark.Number("rounds", &settings.rounds, 3,
                   "rounds of every measurement");
  benchmark.Number("reads", &settings.reads, 10, "reads of one sample");
  return benchmark.Main(argc, argv, [&](Run* run) {
    Measure(settings, run);
    MeasureLongNames(settings, run);
  });
}
