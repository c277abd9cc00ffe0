// SPDX-License-Identifier: BSD-3-Clause
#include "test/benchmark/test_runs.h"

#include <bpf/bpf.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <functional>
#include <thread>

#include "test/program/sandbox.h"

namespace netmeter {
namespace internal {
namespace {

struct TestRun {
  int fd = -1;
  uint32_t ifindex = 0;
  int repeat = 0;
  const std::vector<uint8_t>* frame = nullptr;
};

// Of one call, per run of the program.
struct Sample {
  double ns = 0;           // of this thread's time
  bool hit = true;         // the socket's entry was used, where that was wanted
  bool disturbed = false;  // somebody else had the CPU for a part of it
};

Sample RunOnce(const TestRun& test) {
  __sk_buff context = {};
  context.ifindex = test.ifindex;
  LIBBPF_OPTS(bpf_test_run_opts, run);
  run.data_in = test.frame->data();
  run.data_size_in = static_cast<uint32_t>(test.frame->size());
  run.ctx_in = &context;
  run.ctx_size_in = sizeof(context);
  run.repeat = test.repeat;
  const double start = NowNs(), own_start = NowNs(CLOCK_THREAD_CPUTIME_ID);
  if (bpf_prog_test_run_opts(test.fd, &run) != 0) DieWithErrno("test run");
  const double own = NowNs(CLOCK_THREAD_CPUTIME_ID) - own_start;
  const double all = NowNs() - start;
  if (run.retval != 1) Die("a packet was dropped");
  Sample sample;
  sample.ns = own / test.repeat;
  sample.disturbed = all > own * 1.05;
  return sample;
}

// Every test run has a new socket, which no hook tells the end of: of itself
// it gets no entry of the socket table. It is given one here, by the cookie
// that it is going to have; whether that came true shows in the entry.
Sample RunInTable(const Programs& programs, const TestRun& test,
                  const std::function<void()>& wait) {
  const uint32_t mask = programs.options().max_sockets - 1;
  const uint64_t cookie = NextCookie();
  const uint32_t index = static_cast<uint32_t>(cookie) & mask;
  nm_socket socket = {};
  socket.word = NM_COOKIE(cookie);
  if (!programs.WriteSocket(index, socket)) DieWithErrno("write an entry");
  wait();
  Sample sample = RunOnce(test);
  socket = programs.ReadSocket(index);
  programs.WriteSocket(index, nm_socket());
  sample.hit = NM_WORD_COOKIE(socket.word) == NM_COOKIE(cookie) &&
               NM_WORD_SLOT(socket.word) != 0;
  return sample;
}

}  // namespace

double AtomicAddNs(const std::vector<int>& cpus) {
  constexpr int kAdds = 5000000;
  alignas(64) std::atomic<uint64_t> word{0};
  std::atomic<size_t> ready{0};
  std::vector<double> results(cpus.size());
  std::vector<std::thread> workers;
  for (size_t i = 0; i < cpus.size(); ++i) {
    workers.emplace_back([&, i] {
      if (!PinToCpu(cpus[i])) DieWithErrno("pin to a CPU");
      ready.fetch_add(1);
      while (ready.load() < cpus.size()) {
      }
      const double start = NowNs(CLOCK_THREAD_CPUTIME_ID);
      for (int n = 0; n < kAdds; ++n) word.fetch_add(1);
      results[i] = (NowNs(CLOCK_THREAD_CPUTIME_ID) - start) / kAdds;
    });
  }
  for (std::thread& worker : workers) worker.join();
  return *std::max_element(results.begin(), results.end());
}

double TestRuns::Measure(int subject, Direction direction,
                         const std::vector<uint8_t>& frame,
                         const std::vector<int>& cpus) {
  TestRun test;
  test.fd = hooks_[subject].Of(direction);
  test.ifindex = programs_.ethernet_ifindex();
  test.repeat = settings_.repeat;
  test.frame = &frame;
  const int threads = static_cast<int>(cpus.size());
  int disturbed = 0;
  for (int attempt = 0; attempt < 100; ++attempt) {
    std::atomic<int> ready{0};
    auto wait = [&] {
      ready.fetch_add(1);
      while (ready.load() < threads) {
      }
    };
    std::vector<Sample> samples(cpus.size());
    std::vector<std::thread> workers;
    for (int i = 0; i < threads; ++i) {
      workers.emplace_back([&, i] {
        if (!PinToCpu(cpus[i])) DieWithErrno("pin to a CPU");
        if (tables_[subject] != nullptr) {
          samples[i] = RunInTable(*tables_[subject], test, wait);
        } else {
          wait();
          samples[i] = RunOnce(test);
        }
      });
    }
    for (std::thread& worker : workers) worker.join();
    Sample mean;
    for (const Sample& sample : samples) {
      mean.ns += sample.ns / threads;
      mean.hit = mean.hit && sample.hit;
      mean.disturbed = mean.disturbed || sample.disturbed;
    }
    if (!mean.hit) continue;
    // Two threads get in each other's way only while both of them run.
    if (threads > 1 && mean.disturbed && ++disturbed < 5) continue;
    samples_ += 1;
    disturbed_ += mean.disturbed ? 1 : 0;
    return mean.ns;
  }
  Die("100 times another socket took the cookie");
}

void TestRuns::Run(const std::string& title, const std::vector<int>& cpus) {
  const std::vector<uint8_t> udp =
      Packet::Ipv4().Udp(40000, 443).Payload(100).Frame();
  const std::vector<uint8_t> tcp = Packet::Ipv4()
                                       .Tcp(40000, 443, 12)
                                       .Seq(1000)
                                       .Ack(2000)
                                       .Payload(100)
                                       .Frame();
  struct {
    const char* title;
    const std::vector<uint8_t>& frame;
    Direction direction;
  } const cases[] = {
      {"UDP tx", udp, Direction::kEgress},
      {"UDP rx", udp, Direction::kIngress},
      {"TCP tx", tcp, Direction::kEgress},
      {"TCP rx", tcp, Direction::kIngress},
  };
  std::vector<Column> columns;
  for (const auto& test : cases) {
    columns.emplace_back();
    columns.back().title = test.title;
  }
  ForEachRound(settings_.rounds, [&](int subject) {
    for (size_t i = 0; i < columns.size(); ++i) {
      const bool is_tcp = &cases[i].frame == &tcp;
      // A connection gets its state when it first sends, which the socket
      // of this test run never does.
      if (subject == kStorage && is_tcp &&
          cases[i].direction == Direction::kIngress) {
        continue;
      }
      columns[i].samples[subject].push_back(
          Measure(subject, cases[i].direction, cases[i].frame, cpus));
    }
  });
  Report(settings_,
         cpus.size() == 1 ? "test run, one CPU" : "test run, two CPUs", title,
         columns);
  if (disturbed_ > samples_ / 10) {
    std::printf("  (disturbed by other processes: %d of %d samples)\n",
                disturbed_, samples_);
  }
  samples_ = disturbed_ = 0;
}

void TestRuns::RunLoopback(int cpu) const {
  static constexpr char kCase[] = "test run, one CPU/loopback, not counted";
  const std::vector<uint8_t> udp =
      Packet::Ipv4().Udp(40000, 443).Payload(100).Frame();
  if (!PinToCpu(cpu)) DieWithErrno("pin to a CPU");
  std::vector<double> differences;
  for (int round = 0; round < settings_.rounds; ++round) {
    TestRun test;
    test.ifindex = Programs::kLoopback;
    test.repeat = settings_.repeat;
    test.frame = &udp;
    test.fd = hooks_[kEmpty].egress;
    const double empty = RunOnce(test).ns;
    test.fd = hooks_[kTable].egress;
    const double table = RunOnce(test).ns;
    settings_.results->Add(kCase, "empty", "ns", Better::kLess, empty);
    settings_.results->Add(kCase, "socket table", "ns", Better::kLess, table);
    differences.push_back(table - empty);
  }
  std::printf("  %-26s %+8.1f\n", "loopback, not counted", Median(differences));
  std::fflush(stdout);
}

}  // namespace internal
}  // namespace netmeter
