// SPDX-License-Identifier: BSD-3-Clause
// What it costs to count the bytes of a packet for its flow, by data
// structure (study.bpf.c has the programs). Each sample is the CPU time
// of one BPF_PROG_TEST_RUN by its number of runs. A base program chooses the
// flow and does nothing else; it runs in every round, so that what a structure
// takes is the difference of a pair.
//
// A thread reads the events meanwhile. Its own time for each event, and the share of the
// events that found no room, are results, too. So are the kernel memory of a structure,
// and the share of the packets that it loses when there are twice as many flows as it has
// room for. If one CPU is under test, the thread runs
// on another one if there is one; if all are, it takes part in the crowd.
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/if_ether.h>
#include <linux/perf_event.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lib/base/kernel_object.h"
#include "lib/loader/object.h"
#include "lib/testing/net_namespace.h"
#include "study.skel.h"
#include "test/benchmark/harness.h"
#include "test/program/packet.h"
#include "test/program/programs.h"

namespace netmeter {
namespace internal {
namespace {

struct Settings {
  int rounds;
  int repeat;
};

constexpr uint32_t kManyFlows = 10000;
constexpr uint32_t kRoom = 65536;  // FLOWS
constexpr size_t kRingBytes = 16 * 1024 * 1024;

using Skeleton = std::unique_ptr<study_bpf, void (*)(study_bpf*)>;

// Reads what one kind of event programs send, until it is destroyed.
class Consumer {
 public:
  virtual ~Consumer() = default;

  void Start(int cpu) {  // -1: any
    stop_ = false;
    events_ = 0;
    thread_ = std::thread([this, cpu] {
      if (cpu >= 0 && !PinToCpu(cpu)) DieWithErrno("pin to a CPU");
      const double start = NowNs(CLOCK_THREAD_CPUTIME_ID);
      while (!stop_.load()) Poll(10);
      Poll(0);
      ns_ = NowNs(CLOCK_THREAD_CPUTIME_ID) - start;
    });
  }
  // The CPU time that an event took.
  double StopAndGetNsPerEvent() {
    stop_ = true;
    thread_.join();
    return events_ == 0 ? 0 : ns_ / static_cast<double>(events_);
  }

 protected:
  virtual void Poll(int timeout_ms) = 0;

  static int OnEvent(void* self, void* data, size_t size) {
    OnSample(self, 0, data, static_cast<uint32_t>(size));
    return 0;
  }
  static void OnSample(void* self, int, void* data, uint32_t size) {
    auto* consumer = static_cast<Consumer*>(self);
    // As a meter would: it looks at the event, and adds.
    uint64_t bytes = 0;
    if (size >= 24) std::memcpy(&bytes, static_cast<char*>(data) + 16, 8);
    consumer->bytes_ += bytes;
    consumer->events_ += 1;
  }

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
  uint64_t events_ = 0, bytes_ = 0;
  double ns_ = 0;
};

class RingConsumer : public Consumer {
 public:
  explicit RingConsumer(const std::vector<int>& maps) {
    for (int map : maps) {
      if (ring_ == nullptr) {
        ring_ = ring_buffer__new(map, OnEvent, this, nullptr);
        if (ring_ == nullptr) DieWithErrno("open a ring buffer");
      } else if (ring_buffer__add(ring_, map, OnEvent, this) != 0) {
        DieWithErrno("open a ring buffer");
      }
    }
  }
  ~RingConsumer() override { ring_buffer__free(ring_); }

 protected:
  void Poll(int timeout_ms) override { ring_buffer__poll(ring_, timeout_ms); }

 private:
  ring_buffer* ring_ = nullptr;
};

class PerfConsumer : public Consumer {
 public:
  explicit PerfConsumer(int map) {
    const size_t pages = kRingBytes / static_cast<size_t>(getpagesize());
    buffer_ = perf_buffer__new(map, pages, OnSample, nullptr, this, nullptr);
    if (buffer_ == nullptr) DieWithErrno("open a perf buffer");
  }
  ~PerfConsumer() override { perf_buffer__free(buffer_); }

 protected:
  void Poll(int timeout_ms) override { perf_buffer__poll(buffer_, timeout_ms); }

 private:
  perf_buffer* buffer_ = nullptr;
};

// A map, and the place of the bytes in its values.
struct Table {
  bpf_map* map;
  int offset;  // -1: it has no counts
};

struct Subject {
  std::string name;
  int program;
  Consumer* consumer;
  std::vector<Table> tables;
  uint32_t room;  // flows
  int repeat;     // runs of one sample
};

// The bytes that a map has counted.
double SumOf(const Table& table) {
  if (table.offset < 0) return 0;
  const int map = bpf_map__fd(table.map);
  const bool by_cpu = bpf_map__type(table.map) == BPF_MAP_TYPE_PERCPU_ARRAY ||
                      bpf_map__type(table.map) == BPF_MAP_TYPE_PERCPU_HASH;
  const size_t size = (bpf_map__value_size(table.map) + 7) / 8 * 8;
  const size_t values = by_cpu ? libbpf_num_possible_cpus() : 1;
  std::vector<char> key(bpf_map__key_size(table.map)), next(key.size()),
      value(size * values);
  double sum = 0;
  for (const void* previous = nullptr;
       bpf_map_get_next_key(map, previous, next.data()) == 0;
       previous = key.data()) {
    key = next;
    if (bpf_map_lookup_elem(map, key.data(), value.data()) != 0) continue;
    for (size_t i = 0; i < values; ++i) {
      uint64_t bytes = 0;
      std::memcpy(&bytes, &value[i * size + static_cast<size_t>(table.offset)],
                  sizeof(bytes));
      sum += static_cast<double>(bytes);
    }
  }
  return sum;
}

class Study {
 public:
  Study(const Settings& settings, Results* results)
      : settings_(settings),
        results_(results),
        skeleton_(study_bpf__open(), study_bpf__destroy),
        frame_(Packet::Ipv4().Udp(40000, 443).Payload(100).Frame()) {
    if (skeleton_ == nullptr) DieWithErrno("open the programs");
    const int cpus = libbpf_num_possible_cpus();
    skeleton_->rodata->bm_num_cpus = static_cast<uint32_t>(cpus);
    bpf_map__set_max_entries(skeleton_->maps.bm_cells, (kRoom + 1) * cpus);
    const bool has_exchange = ReadPreemption().value().has_exchange;
    bpf_program__set_autoload(skeleton_->progs.bm_ours_claimed, has_exchange);
    if (study_bpf__load(skeleton_.get()) != 0) {
      DieWithErrno("load the programs");
    }
    FillSocketTable();
    OpenRings(cpus);
    MakeSubjects();
  }
  ~Study() {
    for (int fd : rings_) close(fd);
  }

  // Every structure with this number of flows, on these CPUs at once.
  void Run(const std::string& name, uint32_t flows,
           const std::vector<int>& cpus, const std::vector<int>& all) {
    skeleton_->data->bm_flow_count = flows;
    const int spare = cpus.size() == 1 && all.size() > 1 ? all[1] : -1;
    // Tables fill, caches warm up.
    for (const Subject& subject : subjects_) Measure(subject, cpus, spare);
    ForEachRound(
        settings_.rounds, static_cast<int>(subjects_.size()), [&](int i) {
          const Subject& subject = subjects_[i];
          const Sample sample = Measure(subject, cpus, spare);
          results_->Add(name, subject.name, "ns", Better::kLess, sample.ns);
          if (subject.consumer == nullptr) return;
          results_->Add(name, subject.name, "reader ns", Better::kLess,
                        sample.reader_ns);
          results_->Add(name, subject.name, "share lost", Better::kLess,
                        sample.lost);
        });
  }

  // Twice as many flows as there is room for, and the memory that they take. Run it last:
  // the tables stay full.
  void Fill(int cpu) {
    if (!PinToCpu(cpu)) DieWithErrno("pin to a CPU");
    const auto sum_of = [](const Subject& subject) {
      double sum = 0;
      for (const Table& table : subject.tables) sum += SumOf(table);
      return sum;
    };
    for (Subject subject : subjects_) {
      if (subject.tables.empty()) continue;
      skeleton_->data->bm_flow_count = 2 * subject.room;
      subject.repeat = 8 * settings_.repeat;
      RunOnce(subject);
      const double before = sum_of(subject);
      RunOnce(subject);
      const double counted = sum_of(subject) - before;
      const double sent = static_cast<double>(frame_.size() - ETH_HLEN) *
                          static_cast<double>(subject.repeat);
      results_->Add("twice the flows", subject.name, "share lost when full",
                    Better::kLess, 1 - counted / sent);
      double bytes = 0;
      for (const Table& table : subject.tables) {
        bytes += FdInfoNumber(bpf_map__fd(table.map), "memlock");
      }
      results_->Add("memory", subject.name, "KiB", Better::kLess, bytes / 1024);
    }
  }

 private:
  struct Sample {
    double ns = 0, reader_ns = 0, lost = 0;
  };

  void FillSocketTable() {
    struct {
      uint64_t cookie;
      uint32_t slot, pad;
      uint64_t fill[6];
    } entry = {};
    const int map = bpf_map__fd(skeleton_->maps.bm_sockets);
    for (uint32_t i = 0; i < kRoom; ++i) {
      entry.cookie = entry.slot = i;
      Check(bpf_map_update_elem(map, &i, &entry, BPF_ANY), "fill a table");
    }
  }

  void OpenRings(int cpus) {
    for (uint32_t cpu = 0; cpu < static_cast<uint32_t>(cpus); ++cpu) {
      const int ring = Check(bpf_map_create(BPF_MAP_TYPE_RINGBUF, "bm_ring_cpu",
                                            0, 0, kRingBytes, nullptr),
                             "make a ring buffer");
      rings_.push_back(ring);
      Check(bpf_map_update_elem(bpf_map__fd(skeleton_->maps.bm_rings), &cpu,
                                &ring, BPF_ANY),
            "set a ring buffer");
    }
    ring_ = std::make_unique<RingConsumer>(
        std::vector<int>{bpf_map__fd(skeleton_->maps.bm_ring)});
    percpu_ring_ = std::make_unique<RingConsumer>(rings_);
    perf_ =
        std::make_unique<PerfConsumer>(bpf_map__fd(skeleton_->maps.bm_perf));
  }

  void MakeSubjects() {
    auto& progs = skeleton_->progs;
    auto& maps = skeleton_->maps;
    const struct {
      const char* name;
      bpf_program* program;
      Consumer* consumer;
      std::vector<Table> tables;
      uint32_t room = kRoom;
    } all[] = {
        {"base", progs.bm_base, nullptr, {}},
        {"ring buffer", progs.bm_ringbuf, ring_.get(), {}},
        {"per-CPU ring buffers", progs.bm_percpu_ring, percpu_ring_.get(), {}},
        {"perf buffer", progs.bm_perf_buffer, perf_.get(), {}},
        {"hash", progs.bm_hash, nullptr, {{maps.bm_hash_map, 0}}},
        {"per-CPU hash",
         progs.bm_percpu_hash,
         nullptr,
         {{maps.bm_percpu_hash_map, 0}}},
        {"LRU hash", progs.bm_lru_hash, nullptr, {{maps.bm_lru_hash_map, 0}}},
        {"array", progs.bm_array, nullptr, {{maps.bm_array_map, 0}}},
        {"per-CPU array",
         progs.bm_percpu_array,
         nullptr,
         {{maps.bm_percpu_array_map, 0}}},
        {"per-CPU array and hash",
         progs.bm_mix,
         nullptr,
         {{maps.bm_places, 16}, {maps.bm_displaced, 0}}},
        {"kernsnoopd, 40-byte key",
         progs.bm_kernsnoopd,
         nullptr,
         {{maps.bm_snoop, 0}},
         10240},
        {"Skydive, 500000 flows",
         progs.bm_skydive,
         nullptr,
         {{maps.bm_page_a, 32}},
         500000},
        {"netobserv, 500000 flows",
         progs.bm_netobserv,
         nullptr,
         {{maps.bm_flows, 8}},
         500000},
        {"netmeter, atomic adds", progs.bm_ours_atomic, nullptr, {}},
        {"netmeter, plain adds",
         progs.bm_ours_plain,
         nullptr,
         {{maps.bm_sockets, -1}, {maps.bm_cells, 0}}},
        {"netmeter, claimed adds", progs.bm_ours_claimed, nullptr, {}},
    };
    for (const auto& one : all) {
      if (bpf_program__fd(one.program) < 0) {
        results_->Skip("", one.name, "no exchange in programs");
        continue;
      }
      // Events have to fill their buffer more than once, or none could be lost.
      // A perf buffer wakes its reader by each of them, which takes so long
      // that it never fills.
      int repeat = settings_.repeat;
      if (one.consumer == perf_.get()) {
        repeat = std::max(1, repeat / 10);
      } else if (one.consumer != nullptr) {
        repeat *= 2;
      }
      subjects_.push_back({one.name, bpf_program__fd(one.program), one.consumer,
                           one.tables, one.room, repeat});
    }
  }

  uint64_t Lost() const {
    uint64_t lost = 0;
    for (const auto& cpu : skeleton_->bss->bm_cpu) lost += cpu.lost;
    return lost;
  }

  Sample Measure(const Subject& subject, const std::vector<int>& cpus,
                 int spare) {
    const uint64_t lost = Lost();
    if (subject.consumer != nullptr) subject.consumer->Start(spare);
    std::atomic<size_t> ready{0};
    std::vector<double> ns(cpus.size());
    std::vector<std::thread> workers;
    for (size_t i = 0; i < cpus.size(); ++i) {
      workers.emplace_back([&, i] {
        if (!PinToCpu(cpus[i])) DieWithErrno("pin to a CPU");
        ready.fetch_add(1);
        while (ready.load() < cpus.size()) {
        }
        ns[i] = RunOnce(subject);
      });
    }
    for (std::thread& worker : workers) worker.join();
    Sample sample;
    for (double one : ns) sample.ns += one / static_cast<double>(ns.size());
    if (subject.consumer != nullptr) {
      sample.reader_ns = subject.consumer->StopAndGetNsPerEvent();
      sample.lost = static_cast<double>(Lost() - lost) / subject.repeat /
                    static_cast<double>(cpus.size());
    }
    return sample;
  }

  // The CPU time of one run.
  double RunOnce(const Subject& subject) const {
    LIBBPF_OPTS(bpf_test_run_opts, run);
    run.data_in = frame_.data();
    run.data_size_in = static_cast<uint32_t>(frame_.size());
    run.repeat = subject.repeat;
    const double start = NowNs(CLOCK_THREAD_CPUTIME_ID);
    Check(bpf_prog_test_run_opts(subject.program, &run), "test run");
    return (NowNs(CLOCK_THREAD_CPUTIME_ID) - start) / subject.repeat;
  }

  const Settings& settings_;
  Results* const results_;
  const Skeleton skeleton_;
  const std::vector<uint8_t> frame_;
  std::vector<int> rings_;
  std::unique_ptr<Consumer> ring_, percpu_ring_, perf_;
  std::vector<Subject> subjects_;
};

void Measure(const Settings& settings, Run* run) {
  NetNamespace network;
  network.AddVeth({&network, "nm0", MacAddress(1), {}},
                  {&network, "nm1", MacAddress(2), {}});
  network.Enter();
  const std::vector<int> cpus = AllowedCpus();
  if (cpus.empty()) Die("no CPU to run on");
  Results* results = run->results();
  results->Fact("runs per sample", settings.repeat);
  Study study(settings, results);
  study.Run("one CPU/1 flow", 1, {cpus[0]}, cpus);
  study.Run("one CPU/10000 flows", kManyFlows, {cpus[0]}, cpus);
  if (cpus.size() == 1) {
    results->Skip("all CPUs/1 flow", "", "only one CPU");
    results->Skip("all CPUs/10000 flows", "", "only one CPU");
  } else {
    study.Run("all CPUs/1 flow", 1, cpus, cpus);
    study.Run("all CPUs/10000 flows", kManyFlows, cpus, cpus);
  }
  study.Fill(cpus[0]);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter

int main(int argc, char** argv) {
  using namespace netmeter::internal;
  return RunBenchmark("structures", argc, argv, [](Run* run) {
    Measure({run->Of(21, 1), run->Of(500000, 20000)}, run);
  });
}
