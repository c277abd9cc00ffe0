// SPDX-License-Identifier: BSD-3-Clause
// What one packet costs by BPF_PROG_TEST_RUN, which runs a program on one packet again
// and again, on one CPU or on two at once, so that everything is in the cache:
// netmeter's programs beside an empty program, a hash that all CPUs share, and the
// least that a meter by sockets could do. In each round every program runs, in turn;
// the report compares the samples of one round.
#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comparison.skel.h"
#include "lib/testing/net_namespace.h"
#include "test/benchmark/harness.h"
#include "test/program/packet.h"
#include "test/program/programs.h"
#include "test/program/sandbox.h"
// After the types that it names.
#include "always_new.skel.h"

namespace netmeter {
namespace internal {
namespace {

struct Settings {
  int rounds;
  int repeat;
  Results* results;
};

enum Subject {
  kEmpty,
  kTable,
  kStorage,
  kHash,
  kFloor,
  kOneUplink,    // as kTable, with one uplink
  kFourUplinks,  // ... with four
  kTwoExtents,   // as kTable, with tables that have grown
  kSubjects
};
constexpr const char* kNames[kSubjects] = {
    "empty", "socket table", "socket storage", "shared hash",
    "floor", "one uplink",   "four uplinks",   "two extents"};

struct Hooks {
  int egress = -1, ingress = -1;

  int Of(Direction direction) const {
    return direction == Direction::kEgress ? egress : ingress;
  }
};

struct TestRun {
  int fd = -1;
  uint32_t ifindex = 0;
  int repeat = 0;
  const std::vector<uint8_t>* frame = nullptr;
};

// Of one call, per run of the program.
struct Sample {
  double ns = 0;           // of this thread's time
  bool hit = true;         // the socket's entry was used, or none was wanted
  bool disturbed = false;  // another process had the CPU for a part of it
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

// What the machine takes for one atomic add, the CPUs at once on one word: next
// to nothing if two virtual CPUs are threads of one core, and then no program
// can show what sharing costs.
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

class TestRuns {
 public:
  TestRuns(const Settings& settings, const Programs& programs,
           Programs* const (&tables)[kSubjects],
           const Hooks (&hooks)[kSubjects])
      : settings_(settings),
        programs_(programs),
        tables_(tables),
        hooks_(hooks) {}

  // UDP and TCP in both directions, on all `cpus` at once.
  void Run(const std::string& way, const std::vector<int>& cpus) {
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
    ForEachRound(settings_.rounds, kSubjects, [&](int subject) {
      for (const auto& test : cases) {
        // A connection gets its state when it first sends, which the socket
        // of a test run never does.
        if (subject == kStorage && &test.frame == &tcp &&
            test.direction == Direction::kIngress)
          continue;
        Add(way + "/" + test.title, subject,
            Measure(subject, test.direction, test.frame, cpus));
      }
    });
  }

  // The price of a packet that is not counted.
  void RunLoopback(int cpu) const {
    const std::vector<uint8_t> udp =
        Packet::Ipv4().Udp(40000, 443).Payload(100).Frame();
    if (!PinToCpu(cpu)) DieWithErrno("pin to a CPU");
    for (int round = 0; round < settings_.rounds; ++round) {
      for (const int subject : {kEmpty, kTable}) {
        TestRun test;
        test.ifindex = Programs::kLoopback;
        test.repeat = settings_.repeat;
        test.frame = &udp;
        test.fd = hooks_[subject].egress;
        Add("test run, one CPU/loopback, not counted", subject,
            RunOnce(test).ns);
      }
    }
  }

 private:
  void Add(const std::string& test_case, int subject, double ns) const {
    settings_.results->Add(test_case, kNames[subject], "ns", Better::kLess, ns);
  }

  // One sample: a frame in one direction, on all `cpus` at once.
  double Measure(int subject, Direction direction,
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
      return mean.ns;
    }
    Die("100 times another socket took the cookie");
  }

  const Settings& settings_;
  const Programs& programs_;
  Programs* const (&tables_)[kSubjects];  // null unless the sockets are in one
  const Hooks (&hooks_)[kSubjects];
};

// A test run has one segment of TCP, which from its second run on is a retransmission:
// an add less than new data takes, and none of the two stores. This build of the programs
// takes it for new each time.
std::unique_ptr<Programs> LoadOrDie(uint32_t max_sockets,
                                    const std::vector<std::string>& uplinks,
                                    bool grown = false) {
  size_t size = 0;
  const void* bytes = always_new_bpf__elf_bytes(&size);
  ProgramOptions options = DefaultOptions();
  options.uplinks = uplinks;
  options.max_sockets = max_sockets;
  if (grown) {  // all ordinary series are in the second extent
    options.first_series = NM_SLOT_FIRST;
    options.max_series = 2 * NM_SLOT_FIRST;
  }
  options.elf = absl::string_view(static_cast<const char*>(bytes), size);
  std::string error;
  std::unique_ptr<Programs> programs = Programs::Load(options, &error);
  if (programs == nullptr) Die(error);
  return programs;
}

void Measure(const Settings& settings) {
  std::string error;
  const std::vector<int> cpus = AllowedCpus();
  if (cpus.empty()) Die("no CPU to run on");
  NetNamespace network;
  network.AddVeth({&network, "nm0", MacAddress(1), {}},
                  {&network, "nm1", MacAddress(2), {}});
  network.Enter();
  // In the second meter all sockets share one entry of the table, which is taken.
  // The last uplink is that of all interfaces here.
  const uint32_t most = DefaultOptions().max_sockets;
  const struct {
    Subject subject;
    std::unique_ptr<Programs> programs;
  } meters[] = {{kTable, LoadOrDie(most, {})},
                {kStorage, LoadOrDie(1, {})},
                {kOneUplink, LoadOrDie(most, {"*"})},
                {kFourUplinks, LoadOrDie(most, {"sat0", "wwan*", "ppp*", "*"})},
                {kTwoExtents, LoadOrDie(most, {}, /*grown=*/true)}};
  const std::unique_ptr<comparison_bpf, void (*)(comparison_bpf*)> comparison(
      comparison_bpf__open_and_load(), comparison_bpf__destroy);
  if (comparison == nullptr) DieWithErrno("load the programs to compare with");
  const auto& others = comparison->progs;
  Hooks hooks[kSubjects];
  hooks[kEmpty] = {bpf_program__fd(others.bm_empty_tx),
                   bpf_program__fd(others.bm_empty_rx)};
  hooks[kHash] = {bpf_program__fd(others.bm_hash_tx),
                  bpf_program__fd(others.bm_hash_rx)};
  hooks[kFloor] = {bpf_program__fd(others.bm_floor_tx),
                   bpf_program__fd(others.bm_floor_rx)};
  Programs* tables[kSubjects] = {};
  for (const auto& meter : meters) {
    hooks[meter.subject] = {meter.programs->ProgramFd(Direction::kEgress),
                            meter.programs->ProgramFd(Direction::kIngress)};
    if (meter.subject != kStorage) {
      tables[meter.subject] = meter.programs.get();
    }
  }
  const Programs& table = *meters[0].programs;
  TestRuns test_runs(settings, table, tables, hooks);
  test_runs.Run("test run, one CPU", {cpus[0]});
  test_runs.RunLoopback(cpus[0]);
  if (cpus.size() > 1) {
    test_runs.Run("test run, two CPUs", {cpus[0], cpus[1]});
  } else {
    settings.results->Skip("test run, two CPUs", "", "only one CPU");
  }
  // Was measured what the columns say?
  nm_cell sum = {};
  for (const auto& slot : table.ReadCounters()) {
    sum.tx_retransmit_bytes += slot.second.tx_retransmit_bytes;
    if (slot.second.transport != NM_TRANSPORT_TCP) continue;
    sum.tx_payload_bytes += slot.second.tx_payload_bytes;
    sum.rx_payload_bytes += slot.second.rx_payload_bytes;
  }
  if (sum.tx_retransmit_bytes != 0 || sum.tx_payload_bytes == 0 ||
      sum.rx_payload_bytes == 0) {
    Die("TCP's segments were not new");
  }
  // What the machine itself takes, which limits what any program can do.
  for (int i = 0; i < 9; ++i) {
    settings.results->Add("atomic add/one CPU", "machine", "ns", Better::kLess,
                          AtomicAddNs({cpus[0]}));
    if (cpus.size() == 1) continue;
    settings.results->Add("atomic add/two CPUs", "machine", "ns", Better::kLess,
                          AtomicAddNs({cpus[0], cpus[1]}));
  }
}

}  // namespace
}  // namespace internal
}  // namespace netmeter

int main(int argc, char** argv) {
  using namespace netmeter::internal;
  return RunBenchmark("datapath", argc, argv, [](Run* run) {
    Measure({run->Of(41, 1), run->Of(1000000, 20000), run->results()});
  });
}
