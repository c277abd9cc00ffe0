// SPDX-License-Identifier: BSD-3-Clause
// What `netmeter-loader load` costs: cold, on a machine without a meter, and
// warm, where one is loaded (an upgrade); with processes there whose open
// sockets it has to take over. And what the programs cost the verifier, one by
// one, and the loader the disk.
#include <bpf/bpf.h>
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
#include "test/program/programs.h"

namespace netmeter {
namespace internal {
namespace {

struct Settings {
  int rounds = 15;
  int processes = 200;
  int sockets = 5;
  std::string loader = "lib/loader/netmeter-loader";
};

// Processes with open sockets, which sleep. They end with this process.
void StartProcesses(const Settings& settings) {
  int ready[2];
  Check(pipe2(ready, O_CLOEXEC), "pipe");
  for (int i = 0; i < settings.processes; ++i) {
    if (Check(fork(), "fork") != 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int n = 0; n < settings.sockets; ++n) {
      Check(socket(AF_INET, SOCK_DGRAM, 0), "socket");
    }
    if (write(ready[1], "", 1) != 1) _exit(1);
    while (true) pause();
  }
  for (int i = 0; i < settings.processes; ++i) {
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

// Runs the loader; dies where it fails.
Cost RunLoader(const Settings& settings, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), settings.loader);
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
  if (status != 0) Die(arguments[1] + " by " + settings.loader + " failed");
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
    Add("cold" + name, RunLoader(settings, load), run->results());
    Add("warm" + name, RunLoader(settings, load), run->results());
    Add("unload" + name, RunLoader(settings, unload), run->results());
  }
}

void DescribePrograms(Results* results) {
  ProgramOptions options = DefaultOptions();
  options.tracing = true;
  std::string error;
  const auto programs = Programs::Load(options, &error);
  if (programs == nullptr) Die(error);
  nlohmann::json all = nlohmann::json::object();
  uint64_t verified = 0;
  bpf_program* program;
  bpf_object__for_each_program(program, programs->skeleton()->obj) {
    const int fd = bpf_program__fd(program);
    bpf_prog_info info = {};
    uint32_t size = sizeof(info);
    if (fd < 0 || bpf_obj_get_info_by_fd(fd, &info, &size) != 0) continue;
    all[bpf_program__name(program)] = {
        {"verified instructions", info.verified_insns},  // 0 before 5.16
        {"instructions", info.xlated_prog_len / 8},
        {"JITed bytes", info.jited_prog_len}};
    verified += info.verified_insns;
  }
  results->Fact("programs", all);
  results->Fact("verified instructions", verified);
}

void DescribeDisk(const Settings& settings, const std::string& directory,
                  Results* results) {
  struct stat status = {};
  Check(stat(settings.loader.c_str(), &status), "find the loader");
  results->Fact("loader: bytes", status.st_size);
  // As a package has it. The object is part of the loader.
  const std::string copy = directory + "/stripped";
  std::string error;
  if (!RunCommand("strip -o " + copy + " " + settings.loader, &error)) {
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
  DescribeDisk(settings, run->directory(), results);
  DescribePrograms(results);
  MeasureLoads(settings, cgroup, "", run);
  std::string error;
  if (!run->cgroup()->Enter(&error)) Die(error);
  StartProcesses(settings);
  if (!run->cgroup()->Leave()) Die("cannot leave the cgroup");
  results->Fact("processes", settings.processes);
  results->Fact("sockets", settings.processes * settings.sockets);
  MeasureLoads(settings, cgroup, ", with adoption", run);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter

int main(int argc, char** argv) {
  using namespace netmeter::internal;
  Settings settings;
  Benchmark benchmark("load", "ms of netmeter-loader load");
  benchmark.Number("rounds", &settings.rounds, 1,
                   "rounds of every measurement");
  benchmark.Number("processes", &settings.processes, 20,
                   "processes whose sockets are taken over");
  benchmark.Number("sockets", &settings.sockets, 5, "sockets of each");
  benchmark.Text("loader", &settings.loader, "the program");
  return benchmark.Main(argc, argv, [&](Run* run) { Measure(settings, run); });
}
