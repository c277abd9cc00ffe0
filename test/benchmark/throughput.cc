// SPDX-License-Identifier: BSD-3-Clause
// The loss of traffic that is counted: operations a second and CPU time by operation,
// without a meter, with netmeter, and with others. Each phase sets one of them up, opens
// the connections, sends for a while and removes all again, so that "off" is off. The
// phases of a round take turns, and only phases of one round are compared.
//
// The CPU time is that of this process, of the watching process if there is one, and of
// the kernel's softirq threads. The kernel's work for a packet is nearly always in the
// time of its sender.
//
// "ablate" compares two threads on one CPU instead, which take turns. One is in the
// measured cgroup and one outside of it. Each has a network of its own, so that an
// observer of an interface sees only the first one. The difference of their CPU time for
// a connection is the cost. It leaves out the test that the kernel makes for all cgroups
// while any of them has a program.
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"

#include "test/benchmark/harness.h"
#include "test/benchmark/network.h"
#include "test/benchmark/observer.h"
#include "test/benchmark/workload.h"
#include "test/program/programs.h"

namespace netmeter {
namespace internal {
namespace {

struct Settings {
  int rounds, milliseconds;
};

class Phases {
 public:
  Phases(const Settings& settings, Run* run)
      : settings_(settings),
        results_(run->results()),
        cgroup_(run->cgroup()),
        network_(cgroup_),
        observers_(MakeObservers(run)),
        missing_(observers_.size()) {}

  void Measure(const Place& place, Workload* workload) {
    ForEachRound(settings_.rounds, static_cast<int>(observers_.size()),
                 [&](int i) {
                   const auto index = static_cast<size_t>(i);
                   if (!missing_[index]) Phase(index, place, workload);
                 });
  }

  TestNetwork* network() { return &network_; }

 private:
  void Phase(size_t index, const Place& place, Workload* workload) {
    Observer* observer = observers_[index].get();
    const std::string missing = observer->Start(cgroup_->fd(), place);
    if (!missing.empty()) {
      observer->Stop();
      missing_[index] = true;
      results_->Skip("", observer->name(), missing);
      return;
    }
    const double seconds = settings_.milliseconds / 1000.0;
    workload->Open(&network_, place);
    workload->Run(seconds / 10);
    const double own = OwnCpuNs(), others = observer->CpuNs();
    const double start = NowNs();
    const double rate = workload->Run(seconds);
    const double took = (NowNs() - start) / 1e9;
    const double cpu = OwnCpuNs() - own + observer->CpuNs() - others;
    workload->Close();
    observer->Stop();
    const std::string test_case = place.name + "/" + workload->name();
    results_->Add(test_case, observer->name(), workload->unit(), Better::kMore,
                  rate);
    if (rate > 0) {
      results_->Add(test_case, observer->name(), "CPU ns per operation",
                    Better::kLess, cpu / (rate * took));
    }
  }

  const Settings& settings_;
  Results* const results_;
  OwnCgroup* const cgroup_;
  TestNetwork network_;
  const std::vector<std::unique_ptr<Observer>> observers_;
  std::vector<bool> missing_;
};

std::vector<std::unique_ptr<Workload>> MakeWorkloads(const std::string& which) {
  std::vector<std::unique_ptr<Workload>> all;
  if (which == "churn") {
    all.push_back(MakeChurn());
    return all;
  }
  all.push_back(MakeTcpRequests());
  all.push_back(MakeSmallUdp(1));
  all.push_back(MakeSmallUdp(40));
  return all;
}

// The runs of netmeter's programs for an operation, and their time by the kernel's clock.
void CountRuns(TestNetwork* network, const Place& place, Workload* workload,
               const std::string& operation, Run* run) {
  std::string error;
  const auto programs = Programs::Load(DefaultOptions(), &error);
  if (programs == nullptr ||
      !programs->AttachSocketHooks(run->cgroup()->fd(), &error) ||
      !programs->AttachPacketHooks(run->cgroup()->fd(), &error)) {
    Die(error);
  }
  const UniqueFd stats = EnableRunTime();
  workload->Open(network, place);
  const RunTime before = PacketRuns(*programs);
  const uint64_t operations = workload->operations();
  workload->Run(run->Of(300, 20) / 1000.0);
  workload->Close();
  const RunTime after = PacketRuns(*programs);
  const auto all = static_cast<double>(workload->operations() - operations);
  const std::string of = " of a " + operation;
  run->results()->Fact(
      place.name + ": counted packets" + of,
      std::round(static_cast<double>(after.runs - before.runs) / all * 10) /
          10);
  run->results()->Fact(
      place.name + ": ns of netmeter's programs" + of,
      std::round(static_cast<double>(after.ns - before.ns) / all));
  programs->Detach();
}

void Download(const Settings& settings, Run* run) {
  Phases phases(settings, run);
  TestNetwork* const network = phases.network();
  const auto download = MakeDownload();
  struct {
    const char* name;
    bool tso, gro;
  } const links[] = {{"TSO and GRO", true, true},
                     {"GRO alone", false, true},
                     {"neither", false, false}};
  for (const auto& link : links) {
    Place place = network->veth();
    place.name = link.name;
    network->SetOffloads(link.tso, link.gro);
    CountRuns(network, place, download.get(), "megabyte", run);
    phases.Measure(place, download.get());
  }
}

void Measure(const Settings& settings, Run* run) {
  run->results()->Fact("ms per phase", settings.milliseconds);
  Phases phases(settings, run);
  const bool churn = run->word() == "churn";
  if (churn) {
    // They tell whether one end is counted, or both.
    for (const Place* place :
         {&phases.network()->veth(), &phases.network()->both_ends()}) {
      CountRuns(phases.network(), *place, MakeChurn().get(), "connection", run);
    }
  }
  for (const auto& workload : MakeWorkloads(run->word())) {
    phases.Measure(phases.network()->loopback(), workload.get());
    phases.Measure(phases.network()->veth(), workload.get());
    if (churn) phases.Measure(phases.network()->both_ends(), workload.get());
  }
}

constexpr size_t kInside = 0, kOutside = 1;

struct Ends {
  std::string name;
  bool veth, server_too;
};

struct Turns {
  std::vector<double> ns[2];  // of a connection, by batch
  double connections = 0;     // of both
};

// Runs this number of batches inside of the cgroup, and outside of it. A socket belongs
// to the cgroup of the thread that makes it, and an accepted one to that of its listener.
Turns TakeTurns(TestNetwork* const networks[2], const Ends& ends, int cgroup_fd,
                size_t batches) {
  Turns turns;
  std::mutex mutex;
  std::condition_variable changed;
  size_t turn = kInside;
  bool done = false;
  const auto work = [&](size_t side) {
    TestNetwork* const network = networks[side];
    const auto join = [&] {
      const UniqueFd threads(openat(cgroup_fd, "cgroup.threads", O_WRONLY));
      Check(write(threads.get(), "0", 1), "move a thread to the cgroup");
    };
    network->Enter();
    PinToCpu(AllowedCpus().front());
    // Other work on this CPU would leave its own data in the cache, for one side more
    // than for the other. If the kernel refuses, the quartiles show it.
    const sched_param priority = {1};
    sched_setscheduler(0, SCHED_FIFO, &priority);
    const std::unique_ptr<Workload> churn = MakeChurn();
    if (side == kInside && ends.server_too) join();
    churn->Open(network,
                ends.veth ? network->both_ends() : network->loopback());
    if (side == kInside && !ends.server_too) join();
    const auto mine = [&] { return done || turn == side; };
    std::unique_lock<std::mutex> lock(mutex);
    for (changed.wait(lock, mine); !done; changed.wait(lock, mine)) {
      const double before = NowNs(CLOCK_THREAD_CPUTIME_ID);
      const int connections = churn->RunBatch();
      turns.ns[side].push_back((NowNs(CLOCK_THREAD_CPUTIME_ID) - before) /
                               connections);
      turns.connections += connections;
      done = turns.ns[kOutside].size() == batches;
      turn = 1 - side;
      changed.notify_one();
    }
    churn->Close();
  };
  std::thread inside(work, kInside), outside(work, kOutside);
  inside.join();
  outside.join();
  return turns;
}

double Median(std::vector<double> values) {
  const auto middle =
      values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void Ablate(int rounds, size_t batches, Run* run) {
  const Ends cases[] = {{"veth, client", true, false},
                        {"veth, both ends", true, true},
                        {"loopback, client", false, false},
                        {"loopback, both ends", false, true}};
  std::string error;
  const UniqueFd cgroup = run->cgroup()->MakeForThreads(&error);
  if (!cgroup.ok()) Die(error);
  const auto observers = MakeObservers(run, {}, /*paired=*/true);
  // Observers start in the network that was made last.
  TestNetwork outside(run->cgroup()), inside(run->cgroup());
  TestNetwork* const networks[] = {&inside, &outside};
  const auto phase = [&](const Ends& ends, Observer* observer) {
    Turns turns;
    const std::string missing = observer->Start(
        cgroup.get(), ends.veth ? inside.both_ends() : inside.loopback());
    if (missing.empty()) {
      turns = TakeTurns(networks, ends, cgroup.get(), batches);
    } else {
      run->results()->Skip("", observer->name(), missing);
    }
    observer->Stop();
    return turns;
  };
  nlohmann::json none, table;  // which has no holes
  for (const Ends& ends : cases) {
    none[ends.name + ", runs"] = none[ends.name + ", ns"] = 0;
    ForEachRound(rounds, static_cast<int>(observers.size()), [&](int i) {
      Observer* const observer = observers[static_cast<size_t>(i)].get();
      Turns turns = phase(ends, observer);
      if (turns.connections == 0) return;
      const double off = Median(turns.ns[kOutside]);
      for (size_t k = 0; k < turns.ns[kInside].size(); ++k) {
        turns.ns[kInside][k] -= turns.ns[kOutside][k];
      }
      const double more = Median(turns.ns[kInside]);
      run->results()->Add(ends.name, observer->name(), "us more", Better::kLess,
                          more / 1000);
      run->results()->Add(ends.name, observer->name(), "% more", Better::kLess,
                          100 * more / off);
    });
  }
  // In phases of their own: the clock of the programs costs time.
  const UniqueFd stats = EnableRunTime();
  for (const Ends& ends : cases) {
    for (const auto& observer : observers) {
      std::vector<RunTime> before;
      for (const bpf_program* program : observer->programs()) {
        before.push_back(ReadRunTime(bpf_program__fd(program)));
      }
      const double connections = phase(ends, observer.get()).connections / 2;
      for (size_t k = 0; k < before.size(); ++k) {
        const bpf_program* const program = observer->programs()[k];
        const RunTime after = ReadRunTime(bpf_program__fd(program));
        if (after.runs == before[k].runs) continue;
        const auto runs = static_cast<double>(after.runs - before[k].runs);
        const auto ns = static_cast<double>(after.ns - before[k].ns);
        const std::string name =
            observer->name() + ": " + bpf_program__name(program);
        nlohmann::json& row = *table.emplace(name, none).first;
        row[ends.name + ", runs"] = std::round(runs / connections * 10) / 10;
        row[ends.name + ", ns"] = std::llround(ns / connections);
      }
    }
  }
  run->results()->Fact("a connection's programs", table);
}

// Prints the time of a short connection by function, with netmeter at both ends. perf(1)
// samples this process, and knows JITed programs by their names.
void Profile(const Settings& settings, Run* run) {
  constexpr size_t kMostLines = 50;
  TestNetwork network(run->cgroup());
  const std::unique_ptr<Workload> churn = MakeChurn();
  for (const auto& observer : MakeObservers(run)) {
    if (observer->name() != "netmeter") continue;
    const std::string missing =
        observer->Start(run->cgroup()->fd(), network.both_ends());
    if (!missing.empty()) Die(missing);
    churn->Open(&network, network.both_ends());
    const double seconds = settings.milliseconds / 1000.0;
    churn->Run(seconds / 10);
    const std::string data = absl::StrCat("/tmp/nm-profile-", getpid());
    const std::string own = absl::StrCat(getpid());
    const pid_t perf = fork();
    if (perf == 0) {
      execlp("perf", "perf", "record", "-q", "-p", own.c_str(), "-e",
             "cpu-clock", "-F", "4999", "-o", data.c_str(), "sleep",
             absl::StrCat(seconds).c_str(), nullptr);
      _exit(127);
    }
    double connections = 0;
    const double begin = NowNs(), cpu_begin = NowNs(CLOCK_PROCESS_CPUTIME_ID);
    int status = 0;
    while (waitpid(perf, &status, WNOHANG) == 0) {
      connections += churn->Run(0.05) * 0.05;
    }
    const double took = NowNs() - begin;
    const double cpu = NowNs(CLOCK_PROCESS_CPUTIME_ID) - cpu_begin;
    churn->Close();
    observer->Stop();
    if (status != 0) Die("perf failed (apt-get install linux-perf)");
    // "  12.34%  [k] bpf_prog_0123456789abcdef_nm_egress"
    const std::string command =
        "perf report --stdio -q --sort symbol -i " + data + " 2> /dev/null";
    FILE* const report = popen(command.c_str(), "r");
    if (report == nullptr) DieWithErrno("start perf");
    const double cpu_ns = cpu / connections;
    printf("%.0f connections a second\n\n   ns a connection  function\n",
           connections / took * 1e9);
    char line[512], function[256];
    double percent = 0;
    for (size_t lines = 0; fgets(line, sizeof(line), report) != nullptr;) {
      if (sscanf(line, " %lf%% [%*c] %255s", &percent, function) != 2) continue;
      if (lines++ < kMostLines) {
        printf("  %16.0f  %s\n", percent / 100 * cpu_ns, function);
      }
    }
    pclose(report);
    unlink(data.c_str());
  }
}

}  // namespace
}  // namespace internal
}  // namespace netmeter

int main(int argc, char** argv) {
  using namespace netmeter::internal;
  return RunBenchmark("throughput", argc, argv, [](Run* run) {
    if (run->word() == "profile") {
      Profile({1, run->Of(5000, 500)}, run);
      return;
    }
    if (run->word() == "ablate") {
      Ablate(run->Of(20, 1), static_cast<size_t>(run->Of(75, 15)), run);
      return;
    }
    const Settings settings = {run->Of(9, 1), run->Of(300, 20)};
    (run->word() == "download" ? Download : Measure)(settings, run);
  });
}
