// SPDX-License-Identifier: BSD-3-Clause
// The loss of traffic that is counted: operations a second and CPU time by operation,
// without a meter, with netmeter, and with others. Each phase sets one of them up, opens
// the connections, sends for a while and removes all again, so that "off" is off. The
// phases of a round take turns, and only phases of one round are compared.
//
// The CPU time is that of this process, of the watching process if there is one, and of
// the kernel's softirq threads. The kernel's work for a packet is nearly always in the
// time of its sender.
#include <string>
#include <vector>

#include "test/benchmark/harness.h"
#include "test/benchmark/network.h"
#include "test/benchmark/observer.h"
#include "test/benchmark/workload.h"

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

  const Network& network() const { return network_; }

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
  Network network_;
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

void Measure(const Settings& settings, Run* run) {
  std::string error;
  if (!EnterOwnNetwork(&error)) Die(error);
  run->results()->Fact("ms per phase", settings.milliseconds);
  Phases phases(settings, run);
  for (const auto& workload : MakeWorkloads(run->word())) {
    phases.Measure(phases.network().loopback(), workload.get());
    phases.Measure(phases.network().veth(), workload.get());
  }
}

}  // namespace
}  // namespace internal
}  // namespace netmeter

int main(int argc, char** argv) {
  using namespace netmeter::internal;
  return RunBenchmark("throughput", argc, argv, [](Run* run) {
    Measure({run->Of(9, 1), run->Of(300, 20)}, run);
  });
}
