// SPDX-License-Identifier: BSD-3-Clause
// What reading costs a service: its own series, 16 of them, and all series of
// the host, 4,096 of them; and how many allocations it makes. By the C++ library from
// source, by C, and by the C++ of an installed library. The maps are real ones, as the
// loader makes them, filled by this process.
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
#include "test/benchmark/read_installed.h"

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
  int rounds;
  int reads;
};

using netmeter_benchmark::Reader;

// Reads into a vector that is kept from read to read, as a frequent reader does.
Reader ReadOwn(const Meter& meter) {
  const auto samples = std::make_shared<std::vector<Sample>>();
  return [&meter, samples](int count) -> size_t {
    for (int i = 0; i < count; ++i) {
      if (!meter.ReadService(kFullMeterService, samples.get()).ok()) return 0;
    }
    return samples->size();
  };
}

Reader ReadAll(const Meter& meter) {
  const auto samples = std::make_shared<std::vector<Sample>>();
  return [&meter, samples](int count) -> size_t {
    for (int i = 0; i < count; ++i) {
      if (!meter.ReadHost(samples.get()).ok()) return 0;
    }
    return samples->size();
  };
}

Reader ReadOwnRows(const Meter& meter) {
  const auto rows = std::make_shared<Rows>();
  return [&meter, rows](int count) -> size_t {
    for (int i = 0; i < count; ++i) {
      if (!meter.ReadService(kFullMeterService, rows.get()).ok()) return 0;
    }
    return rows->size();
  };
}

Reader ReadAllRows(const Meter& meter) {
  const auto rows = std::make_shared<Rows>();
  return [&meter, rows](int count) -> size_t {
    for (int i = 0; i < count; ++i) {
      if (!meter.ReadHost(rows.get()).ok()) return 0;
    }
    return rows->size();
  };
}

// Into a new vector at each read.
Reader ReadOwnAnew(const Meter& meter) {
  return [&meter](int count) {
    size_t series = 0;
    for (int i = 0; i < count; ++i) {
      const auto samples = meter.ReadService(kFullMeterService);
      if (!samples.ok()) return size_t{0};
      series = samples->size();
    }
    return series;
  };
}

Reader ReadAllAnew(const Meter& meter) {
  return [&meter](int count) {
    size_t series = 0;
    for (int i = 0; i < count; ++i) {
      const auto samples = meter.ReadHost();
      if (!samples.ok()) return size_t{0};
      series = samples->size();
    }
    return series;
  };
}

// How many allocations a read makes that is not the first one.
int CountAllocations(const Reader& reader) {
  reader(2);
  const int before = g_allocations;
  reader(1);
  return g_allocations - before;
}

// Makes one, so that the trap is seen to work.
size_t MakeSystemCall(int) {
  syscall(SYS_getppid);
  return 0;
}

// Whether this number of reads succeeds if any system call ends the process. The process
// is warm: it has the memory that it needs.
bool MakesNoSystemCall(const Reader& reader) {
  const pid_t child = Check(fork(), "fork");
  if (child == 0) {
    reader(10);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0) syscall(SYS_exit, 2);
    reader(100);
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

void Add(const std::string& name, const Reader& reader, int reads,
         Results* results) {
  const double start = NowNs(CLOCK_THREAD_CPUTIME_ID);
  reader(reads);
  results->Add(name, "netmeter", "ns", Better::kLess,
               (NowNs(CLOCK_THREAD_CPUTIME_ID) - start) / reads);
}

void Measure(const Settings& settings, Run* run) {
  const FullMeter full(run->directory());
  const std::unique_ptr<Meter> opened = OpenOrDie(full);
  const Meter& meter = *opened;
  const netmeter_benchmark::InstalledReaders installed =
      netmeter_benchmark::OpenInstalled(full.pin_dir(), kFullMeterService);
  if (installed.own_by_c == nullptr) Die("open by the installed library");
  const struct {
    const char* name;
    Reader reader;
    size_t series;
    bool keeps_memory;
  } cases[] = {
      {"own series", ReadOwn(meter), kFullMeterOwnSeries, true},
      {"all series", ReadAll(meter), kFullMeterSeries, true},
      {"own series, rows", ReadOwnRows(meter), kFullMeterOwnSeries, true},
      {"all series, rows", ReadAllRows(meter), kFullMeterSeries, true},
      {"own series, new vector", ReadOwnAnew(meter), kFullMeterOwnSeries,
       false},
      {"all series, new vector", ReadAllAnew(meter), kFullMeterSeries, false},
      {"own series, by C", installed.own_by_c, kFullMeterOwnSeries, true},
      {"all series, by C", installed.all_by_c, kFullMeterSeries, true},
      {"own series, installed C++", installed.own_by_cpp, kFullMeterOwnSeries,
       true},
      {"all series, installed C++", installed.all_by_cpp, kFullMeterSeries,
       true},
      {"own series, installed C++, rows", installed.own_by_rows,
       kFullMeterOwnSeries, true},
      {"all series, installed C++, rows", installed.all_by_rows,
       kFullMeterSeries, true},
  };
  if (MakesNoSystemCall(MakeSystemCall)) Die("the trap does not work");
  Results* results = run->results();
  for (const auto& one : cases) {
    if (one.reader(10) != one.series) {
      Die(std::string("a read of ") + one.name + " was not complete");
    }
    results->Fact(std::string(one.name) + ": series", one.series);
    results->Fact(std::string(one.name) + ": system calls",
                  MakesNoSystemCall(one.reader) ? 0 : 1);
    if (!one.keeps_memory) continue;
    results->Fact(std::string(one.name) + ": allocations",
                  CountAllocations(one.reader));
  }
  for (int round = 0; round < settings.rounds; ++round) {
    for (const auto& one : cases) {
      Add(one.name, one.reader, settings.reads, results);
    }
  }
}

}  // namespace
}  // namespace internal
}  // namespace netmeter

int main(int argc, char** argv) {
  using namespace netmeter::internal;
  return RunBenchmark("read", argc, argv, [](Run* run) {
    Measure({run->Of(101, 3), run->Of(200, 10)}, run);
  });
}
