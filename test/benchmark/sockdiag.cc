// SPDX-License-Identifier: BSD-3-Clause
// What it costs to list many sockets: `netmeter sockets`, with a meter, beside
// ss(8), which has none. All of them print every socket with its process and all
// of TCP_INFO, to nowhere, in a network namespace of their own.
//
// The sockets are the two ends of TCP connections over loopback. They live in several
// processes, because one process may not open all of them.
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "test/benchmark/harness.h"
#include "test/benchmark/network.h"

namespace netmeter {
namespace internal {
namespace {

constexpr char kLoader[] = "lib/netmeter_loader/netmeter-loader";
constexpr char kNetmeter[] = "lib/apps/netmeter/netmeter";

struct Settings {
  int sockets, rounds;
};

constexpr int kMostPerProcess = 20000;  // connections; two descriptors each
constexpr uint16_t kPort = 4000;

struct Subject {
  std::string name;
  std::vector<std::string> arguments;
};

// Connections to one address of loopback, with a byte each, and sleeps.
void OpenConnections(int number, int count) {
  const sockaddr_in address =
      At("127.0.1." + std::to_string(number + 1), kPort);
  const UniqueFd listener(
      Check(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket"));
  Bind(listener, address);
  Check(listen(listener.get(), 64), "listen");
  for (int i = 0; i < count; ++i) {
    UniqueFd client(
        Check(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket"));
    Connect(client, address);
    if (send(client.get(), "x", 1, 0) != 1) DieWithErrno("send");
    UniqueFd server(Check(accept(listener.get(), nullptr, nullptr), "accept"));
    client.Release();
    server.Release();
  }
}

// Processes that hold this number of sockets; they end with this one.
void StartProcesses(int sockets) {
  rlimit files = {};
  Check(getrlimit(RLIMIT_NOFILE, &files), "read the limit of descriptors");
  files.rlim_cur = files.rlim_max;
  Check(setrlimit(RLIMIT_NOFILE, &files), "raise the limit of descriptors");
  // Two descriptors for each connection, and some more.
  const int most = static_cast<int>(
      std::min<rlim_t>(kMostPerProcess, (files.rlim_max - 100) / 2));
  Shell("sysctl -qw net.ipv4.ip_local_port_range='1024 65000'");
  int connections = sockets / 2;
  for (int number = 0; connections > 0; ++number) {
    const int count = std::min(connections, most);
    connections -= count;
    int ready[2];
    Check(pipe2(ready, O_CLOEXEC), "pipe");
    if (Check(fork(), "fork") == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      OpenConnections(number, count);
      if (write(ready[1], "", 1) != 1) _exit(1);
      while (true) pause();
    }
    close(ready[1]);
    char byte;
    if (read(ready[0], &byte, 1) != 1)
      Die("a process did not open its sockets");
    close(ready[0]);
  }
}

void Load(const std::string& cgroup, const std::string& pin_dir) {
  Shell(std::string(kLoader) + " load --quiet --group '' --cgroup " + cgroup +
        " --pin-dir " + pin_dir);
}

// One run, with its output to nowhere.
void MeasureOnce(const Subject& subject, int sockets, Results* results) {
  std::vector<std::string> arguments = subject.arguments;
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(&argument[0]);
  argv.push_back(nullptr);
  const UniqueFd nowhere(
      Check(open("/dev/null", O_WRONLY | O_CLOEXEC), "/dev/null"));
  const double start = NowNs();
  const pid_t child = Check(fork(), "fork");
  if (child == 0) {
    dup2(nowhere.get(), STDOUT_FILENO);
    execvp(argv[0], argv.data());
    _exit(127);
  }
  int status = 0;
  rusage usage = {};
  Check(wait4(child, &status, 0, &usage), "wait");
  const double ns = NowNs() - start;
  if (status != 0) Die(subject.name + " failed");
  double cpu_us = 0;
  for (const timeval& time : {usage.ru_utime, usage.ru_stime}) {
    cpu_us += static_cast<double>(time.tv_sec) * 1e6 +
              static_cast<double>(time.tv_usec);
  }
  const std::string name = std::to_string(sockets) + " sockets";
  results->Add(name, subject.name, "us per socket", Better::kLess,
               ns / 1e3 / sockets);
  results->Add(name, subject.name, "CPU us per socket", Better::kLess,
               cpu_us / sockets);
  results->Add(name, subject.name, "KiB", Better::kLess,
               static_cast<double>(usage.ru_maxrss));
}

void Measure(const Settings& settings, Run* run) {
  const std::string cgroup = run->CgroupPath();
  const std::string pin_dir = run->directory() + "/pins";
  run->MountDirectory();
  NetNamespace().Enter();
  Load(cgroup, pin_dir);
  std::string error;
  if (!run->cgroup()->Enter(&error)) Die(error);
  StartProcesses(settings.sockets);
  if (!run->cgroup()->Leave()) Die("cannot leave the cgroup");
  const std::vector<std::string> ours = {kNetmeter, "sockets", "--pin-dir",
                                         pin_dir};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), ours.begin(), ours.end());
    return more;
  };
  const std::vector<Subject> subjects = {
      {"ss", {"ss", "-tinpuOHa"}},
      {"netmeter", with({})},
      {"netmeter --json", with({"--json"})},
      {"netmeter --protobuf", with({"--protobuf"})},
      {"netmeter --json --sort", with({"--json", "--sort", "tcpi_rtt"})}};
  ForEachRound(settings.rounds, static_cast<int>(subjects.size()),
               [&](int subject) {
                 MeasureOnce(subjects[static_cast<size_t>(subject)],
                             settings.sockets, run->results());
               });
  Shell(std::string(kLoader) + " unload --quiet --pin-dir " + pin_dir);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter

int main(int argc, char** argv) {
  using namespace netmeter::internal;
  return RunBenchmark("sockdiag", argc, argv, [](Run* run) {
    Measure({run->Of(100000, 1000), run->Of(5, 2)}, run);
  });
}
