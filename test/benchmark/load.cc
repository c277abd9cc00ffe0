// SPDX-License-Identifier: BSD-3-Clause
// The cost of `netmeter-loader load`: cold, on a machine without a meter, and warm, with
// a loaded meter (an upgrade); with processes whose open sockets it has to take over.
// Also the disk space of the loader.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "test/benchmark/harness.h"

namespace netmeter {
namespace internal {
namespace {

constexpr char kLoader[] = "lib/netmeter_loader/netmeter-loader";
constexpr int kSockets = 5;  // of each process

struct Settings {
  int rounds, processes;
};

// Processes with open sockets, which sleep. They end with this process.
void StartProcesses(int processes) {
  int ready[2];
  Check(pipe2(ready, O_CLOEXEC), "pipe");
  for (int i = 0; i < processes; ++i) {
    if (Check(fork(), "fork") != 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int n = 0; n < kSockets; ++n) {
      Check(socket(AF_INET, SOCK_DGRAM, 0), "socket");
    }
    if (write(ready[1], "", 1) != 1) _exit(1);
    while (true) pause();
  }
  for (int i = 0; i < processes; ++i) {
    char byte;
    pollfd waiting = {ready[0], POLLIN, 0};
    if (poll(&waiting, 1, 20000) != 1 || read(ready[0], &byte, 1) != 1) {
      Die("a process did not start");
    }
  }
  close(ready[0]);
  close(ready[1]);
}

struct Cost {
  double ms = 0, cpu_ms = 0;
  long kib = 0;
};

// Runs the loader; ends the process if it fails.
Cost RunLoader(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), std::string(kLoader));
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(&argument[0]);
  argv.push_back(nullptr);
  const double start = NowNs();
  const pid_t child = Check(vfork(), "fork");
  if (child == 0) {
    execv(argv[0], argv.data());
    _exit(127);
  }
  int status = 0;
  rusage usage = {};
  Check(wait4(child, &status, 0, &usage), "wait");
  Cost cost;
  cost.ms = (NowNs() - start) / 1e6;
  if (status != 0)
    Die(arguments[1] + " by " + std::string(kLoader) + " failed");
  for (const timeval& time : {usage.ru_utime, usage.ru_stime}) {
    cost.cpu_ms += static_cast<double>(time.tv_sec) * 1e3 +
                   static_cast<double>(time.tv_usec) / 1e3;
  }
  cost.kib = usage.ru_maxrss;
  return cost;
}

void Add(const std::string& name, const Cost& cost, Results* results) {
  results->Add(name, "netmeter-loader", "ms", Better::kLess, cost.ms);
  results->Add(name, "netmeter-loader", "CPU ms", Better::kLess, cost.cpu_ms);
  results->Add(name, "netmeter-loader", "KiB", Better::kLess,
               static_cast<double>(cost.kib));
}

// Cold and warm in turns. The cgroup has the processes in it.
void MeasureLoads(const Settings& settings, const std::string& cgroup,
                  const std::string& name, Run* run) {
  const std::string pin_dir = run->directory() + "/pins";
  const std::vector<std::string> load = {"load",    "--quiet",   "--cgroup",
                                         cgroup,    "--pin-dir", pin_dir,
                                         "--group", ""};
  const std::vector<std::string> unload = {"unload", "--quiet", "--pin-dir",
                                           pin_dir};
  for (int round = 0; round < settings.rounds; ++round) {
    Add("cold" + name, RunLoader(load), run->results());
    Add("warm" + name, RunLoader(load), run->results());
    Add("unload" + name, RunLoader(unload), run->results());
  }
}

void DescribeDisk(const std::string& directory, Results* results) {
  struct stat status = {};
  Check(stat(kLoader, &status), "find the loader");
  results->Fact("loader: bytes", status.st_size);
  // As a package has it. The object is part of the loader.
  const std::string copy = directory + "/stripped";
  std::string error;
  if (!RunCommand("strip -o " + copy + " " + std::string(kLoader), &error)) {
    results->Skip("loader, stripped", "", error);
    return;
  }
  Check(stat(copy.c_str(), &status), "find the copy");
  results->Fact("loader, stripped: bytes", status.st_size);
}

void Measure(const Settings& settings, Run* run) {
  const std::string cgroup = run->CgroupPath();
  run->MountDirectory();
  Results* results = run->results();
  DescribeDisk(run->directory(), results);
  MeasureLoads(settings, cgroup, "", run);
  std::string error;
  if (!run->cgroup()->Enter(&error)) Die(error);
  StartProcesses(settings.processes);
  if (!run->cgroup()->Leave()) Die("cannot leave the cgroup");
  results->Fact("processes", settings.processes);
  results->Fact("sockets", settings.processes * kSockets);
  MeasureLoads(settings, cgroup, ", with adoption", run);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter

int main(int argc, char** argv) {
  using namespace netmeter::internal;
  return RunBenchmark("load", argc, argv, [](Run* run) {
    Measure({run->Of(15, 1), run->Of(200, 20)}, run);
  });
}
