// SPDX-License-Identifier: BSD-3-Clause
#include "test/benchmark/real_packets.h"

#include <bpf/bpf.h>
#include <sys/socket.h>

#include <atomic>
#include <cstdio>
#include <string>
#include <thread>
#include <utility>

#include "test/benchmark/run_time.h"
#include "test/program/sandbox.h"

namespace netmeter {
namespace internal {
namespace {

constexpr size_t kMessage = 64;

// A round with real packets is short, so there are more of them.
constexpr int kRealRounds = 5;

void Drain(const UniqueFd& fd) {
  char message[kMessage];
  while (recv(fd.get(), message, kMessage, MSG_DONTWAIT) >= 0) {
  }
}

}  // namespace

RealPackets::RealPackets(const Settings& settings,
                         const Hooks (&hooks)[kSubjects],
                         Programs* const (&meters)[kSubjects], Link* link,
                         int cgroup_fd)
    : settings_(settings),
      hooks_(hooks),
      meters_(meters),
      link_(link),
      cgroup_fd_(cgroup_fd),
      rounds_(kRealRounds * settings.rounds) {
  egress_ = UniqueFd(Check(bpf_link_create(hooks[kEmpty].egress, cgroup_fd,
                                           BPF_CGROUP_INET_EGRESS, nullptr),
                           "attach"));
  ingress_ = UniqueFd(Check(bpf_link_create(hooks[kEmpty].ingress, cgroup_fd,
                                            BPF_CGROUP_INET_INGRESS, nullptr),
                            "attach"));
  std::string error;
  for (Programs* meter : meters_) {
    if (meter != nullptr && !meter->AttachSocketHooks(cgroup_fd, &error)) {
      Die(error);
    }
  }
}

void RealPackets::SwapPacketHooks(int subject) {
  Check(bpf_link_update(egress_.get(), hooks_[subject].egress, nullptr),
        "replace a program");
  Check(bpf_link_update(ingress_.get(), hooks_[subject].ingress, nullptr),
        "replace a program");
}

// The sockets stay known to their meter, as long as none of them is closed. TCP
// goes on to ask for a program at each round-trip time that it measures, which
// costs a look at an empty list where none is attached.
void RealPackets::Use(int subject) {
  for (Programs* meter : meters_) {
    if (meter != nullptr) meter->Detach();
  }
  std::string error;
  if (meters_[subject] != nullptr &&
      !meters_[subject]->AttachSocketHooks(cgroup_fd_, &error)) {
    Die(error);
  }
  SwapPacketHooks(subject);
}

void RealPackets::Run(const std::vector<int>& cpus) {
  if (!PinToCpu(cpus.front())) DieWithErrno("pin to a CPU");
  WarmUp();
  PrintRunTimes(cpus);
  PrintRoundTrips();
}

// Sockets find their places, caches warm up.
void RealPackets::WarmUp() {
  for (int subject = 0; subject < kSubjects; ++subject) {
    Use(subject);
    PingPong(false);
    PingPong(true);
  }
}

void RealPackets::PrintRunTimes(const std::vector<int>& cpus) {
  std::vector<Column> columns;
  for (const bool is_tcp : {false, true}) {
    const uint64_t runs = AddRunTimes(
        is_tcp ? "TCP tx" : "UDP tx", is_tcp ? "TCP rx" : "UDP rx",
        [&] { PingPong(is_tcp); }, &columns);
    runs_per_trip_[is_tcp] = static_cast<double>(runs) / settings_.round_trips /
                             (rounds_ * kSubjects);
  }
  if (cpus.size() > 1) {
    AddRunTimes(
        "2xUDP tx", "2xUDP rx", [&] { SendOnAll(cpus); }, &columns);
  }
  Report(settings_, "run time",
         "Real packets over a veth pair, run time of one program "
         "(2x: two CPUs at once on one socket)",
         columns);
}

void RealPackets::PrintRoundTrips() {
  std::vector<Column> columns;
  int disturbed = 0;
  for (const bool is_tcp : {false, true}) {
    Column column;
    column.title = is_tcp ? "TCP" : "UDP";
    Drain(link_->udp_there());
    ForEachRound(rounds_, [&](int subject) {
      Use(subject);
      // Once more where another process had the CPU meanwhile.
      double taken = 0;
      for (int attempt = 0; attempt < 5; ++attempt) {
        const long preempted = Preemptions();
        const double start = NowNs();
        PingPong(is_tcp);
        taken = NowNs() - start;
        if (Preemptions() == preempted) break;
        if (attempt == 4) disturbed += 1;
      }
      column.samples[subject].push_back(taken / settings_.round_trips /
                                        runs_per_trip_[is_tcp]);
    });
    columns.push_back(column);
  }
  Report(settings_, "round trip",
         "Real packets over a veth pair, round trip by the number of program "
         "runs in it\n(the empty program's line is the whole of the kernel's "
         "work)",
         columns);
  const int samples = 2 * rounds_ * kSubjects;
  if (disturbed > samples / 10) {
    std::printf("  (disturbed by other processes: %d of %d samples)\n",
                disturbed, samples);
  }
}

uint64_t RealPackets::AddRunTimes(const char* tx_title, const char* rx_title,
                                  const std::function<void()>& work,
                                  std::vector<Column>* columns) {
  Column tx, rx;
  tx.title = tx_title;
  rx.title = rx_title;
  const UniqueFd stats = EnableRunTime();
  uint64_t runs = 0;
  ForEachRound(rounds_,
               [&](int subject) { runs += RunTimes(subject, work, &tx, &rx); });
  columns->push_back(tx);
  columns->push_back(rx);
  return runs;
}

// One sample for each of the two programs; the number of runs.
uint64_t RealPackets::RunTimes(int subject, const std::function<void()>& work,
                               Column* tx, Column* rx) {
  Use(subject);
  const RunTime tx_before = ReadRunTime(hooks_[subject].egress);
  const RunTime rx_before = ReadRunTime(hooks_[subject].ingress);
  work();
  const RunTime tx_after = ReadRunTime(hooks_[subject].egress);
  const RunTime rx_after = ReadRunTime(hooks_[subject].ingress);
  tx->samples[subject].push_back(NsPerRun(tx_before, tx_after));
  rx->samples[subject].push_back(NsPerRun(rx_before, rx_after));
  return tx_after.runs - tx_before.runs + rx_after.runs - rx_before.runs;
}

void RealPackets::PingPong(bool is_tcp) const {
  const int here = (is_tcp ? link_->tcp_here() : link_->udp_here()).get();
  const int there = (is_tcp ? link_->tcp_there() : link_->udp_there()).get();
  char message[kMessage] = {};
  for (int i = 0; i < settings_.round_trips; ++i) {
    for (const auto& pair :
         {std::make_pair(here, there), std::make_pair(there, here)}) {
      if (send(pair.first, message, kMessage, 0) != kMessage ||
          recv(pair.second, message, kMessage, MSG_WAITALL) != kMessage) {
        DieWithErrno("ping-pong");
      }
    }
  }
}

// Nobody reads: what does not fit is dropped after the ingress hook.
void RealPackets::SendOnAll(const std::vector<int>& cpus) const {
  const int fd = link_->udp_here().get();
  std::atomic<int> go{0};
  std::vector<std::thread> workers;
  for (size_t i = 0; i < 2; ++i) {
    workers.emplace_back([&, i] {
      if (!PinToCpu(cpus[i])) DieWithErrno("pin to a CPU");
      go.fetch_add(1);
      while (go.load() < 2) {
      }
      char message[kMessage] = {};
      for (int n = 0; n < settings_.round_trips * 4; ++n) {
        if (send(fd, message, kMessage, 0) != kMessage) {
          DieWithErrno("send");
        }
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
}

}  // namespace internal
}  // namespace netmeter
