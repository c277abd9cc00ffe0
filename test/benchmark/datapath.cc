// SPDX-License-Identifier: BSD-3-Clause
// What one packet costs: netmeter's programs beside an empty program and
// beside a hash that all CPUs share. Everything is paired: in each round every
// program runs, in turn, and what is printed is the median over the rounds of
// the difference to the empty program of the same round.
//
// Three ways, since each hides something:
//   BPF_PROG_TEST_RUN   one packet again and again: everything is in the cache
//   run time            real packets, by the kernel's own clock around each
//                       run (BPF_ENABLE_STATS), which sees one program at work
//   round trip          real packets, by what a ping-pong takes
#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comparison.skel.h"
#include "lib/core/unique_fd.h"
#include "test/program/packet.h"
#include "test/program/programs.h"
#include "test/program/sandbox.h"

namespace netmeter {
namespace internal {
namespace {

constexpr char kUsage[] =
    R"(datapath [--rounds N] [--repeat N] [--round-trips N]: ns per packet.

  --rounds N       rounds of every measurement (41); of those with real
                   packets, which are short, five times as many
  --repeat N       runs of a packet in one BPF_PROG_TEST_RUN (1000000)
  --round-trips N  ping-pongs of one round with real packets (1000)

Needs root. Run it by test/benchmark.sh.
)";

struct Settings {
  int rounds = 41;
  int repeat = 1000000;
  int round_trips = 1000;
};

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "datapath: %s\n", what.c_str());
  _exit(1);
}

[[noreturn]] void DieWithErrno(const std::string& what) {
  Die(what + ": " + std::strerror(errno));
}

int Check(int result, const char* what) {
  if (result < 0) DieWithErrno(what);
  return result;
}

double NowNs(clockid_t clock = CLOCK_MONOTONIC) {
  timespec now;
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) * 1e9 +
         static_cast<double>(now.tv_nsec);
}

// How often this thread was taken off its CPU.
long Preemptions() {
  rusage usage = {};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nivcsw + usage.ru_nvcsw;
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 != 0 ? values[half]
                                : (values[half - 1] + values[half]) / 2;
}

// --- What is measured --------------------------------------------------------

enum Subject { kEmpty, kTable, kStorage, kHash, kSubjects };

const char* NameOf(int subject) {
  switch (subject) {
    case kEmpty:
      return "empty program, itself";
    case kTable:
      return "netmeter, socket table";
    case kStorage:
      return "netmeter, socket storage";
    default:
      return "shared hash, 28-byte key";
  }
}

struct Hooks {
  int egress = -1;
  int ingress = -1;

  int Of(Direction direction) const {
    return direction == Direction::kEgress ? egress : ingress;
  }
};

// Samples of one column, by subject; one value per round.
struct Column {
  std::string title;
  std::vector<double> samples[kSubjects];

  double Over(int subject) const {
    if (subject == kEmpty) return Median(samples[kEmpty]);
    std::vector<double> differences;
    for (size_t i = 0; i < samples[subject].size(); ++i) {
      differences.push_back(samples[subject][i] - samples[kEmpty][i]);
    }
    return Median(differences);
  }
};

void Print(const std::string& title, const std::vector<Column>& columns) {
  std::printf("\n%s\n  %-26s", title.c_str(), "ns over the empty program");
  for (const Column& column : columns) {
    std::printf(" %8s", column.title.c_str());
  }
  std::printf("\n");
  for (int subject : {kTable, kStorage, kHash, kEmpty}) {
    std::printf("  %-26s", NameOf(subject));
    for (const Column& column : columns) {
      if (column.samples[subject].empty()) {
        std::printf(" %8s", "-");
      } else {
        std::printf(subject == kEmpty ? " %8.1f" : " %+8.1f",
                    column.Over(subject));
      }
    }
    std::printf("\n");
  }
  std::printf("  %-26s", "hash / socket table");
  for (const Column& column : columns) {
    const double table = column.Over(kTable);
    if (column.samples[kTable].empty() || table <= 0) {
      std::printf(" %8s", "-");
    } else {
      std::printf(" %7.1fx", column.Over(kHash) / table);
    }
  }
  std::printf("\n");
  std::fflush(stdout);
}

// All subjects once a round, each time another one first.
void ForEachRound(int rounds, const std::function<void(int)>& measure) {
  for (int round = 0; round < rounds; ++round) {
    for (int i = 0; i < kSubjects; ++i) measure((round + i) % kSubjects);
  }
}

// --- BPF_PROG_TEST_RUN -------------------------------------------------------

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

// What the machine takes for one atomic add, the CPUs at once on one word: next
// to nothing where two virtual CPUs are threads of one core, and then no
// program can show what sharing costs.
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
           const Hooks (&hooks)[kSubjects])
      : settings_(settings), programs_(programs), hooks_(hooks) {}

  // Frame in one direction on so many CPUs at once.
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
          if (subject == kTable) {
            samples[i] = RunInTable(programs_, test, wait);
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

  void Run(const std::string& title, const std::vector<int>& cpus) {
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
    Print(title, columns);
    if (disturbed_ > samples_ / 10) {
      std::printf("  (disturbed by other processes: %d of %d samples)\n",
                  disturbed_, samples_);
    }
    samples_ = disturbed_ = 0;
  }

  // The price of a packet that is not counted.
  void RunLoopback(int cpu) const {
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
      differences.push_back(RunOnce(test).ns - empty);
    }
    std::printf("  %-26s %+8.1f\n", "loopback, not counted",
                Median(differences));
    std::fflush(stdout);
  }

 private:
  const Settings& settings_;
  const Programs& programs_;
  const Hooks (&hooks_)[kSubjects];
  int samples_ = 0, disturbed_ = 0;
};

// --- Real packets ------------------------------------------------------------

struct RunTime {
  uint64_t ns = 0;
  uint64_t runs = 0;
};

RunTime ReadRunTime(int program_fd) {
  bpf_prog_info info = {};
  uint32_t size = sizeof(info);
  Check(bpf_obj_get_info_by_fd(program_fd, &info, &size), "program info");
  RunTime time;
  time.ns = info.run_time_ns;
  time.runs = info.run_cnt;
  return time;
}

double NsPerRun(const RunTime& before, const RunTime& after) {
  if (after.runs == before.runs) Die("the program did not run");
  return static_cast<double>(after.ns - before.ns) /
         static_cast<double>(after.runs - before.runs);
}

sockaddr_in At(const char* address, uint16_t port) {
  sockaddr_in result = {};
  result.sin_family = AF_INET;
  result.sin_port = htons(port);
  inet_pton(AF_INET, address, &result.sin_addr);
  return result;
}

// Two network namespaces, one veth pair, and sockets in both.
class Link {
 public:
  // The process is in a network namespace of its own, with nm0 and nm1.
  Link() {
    here_ = UniqueFd(
        Check(open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC), "namespace"));
    Check(unshare(CLONE_NEWNET), "new network namespace");
    there_ = UniqueFd(
        Check(open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC), "namespace"));
    Enter(here_);
    Shell("ip link set nm1 netns /proc/" + std::to_string(getpid()) + "/fd/" +
          std::to_string(there_.get()));
    Shell("ip addr add 10.77.0.1/24 dev nm0");
    Shell("ip link set nm0 up");
    Enter(there_);
    Shell("ip addr add 10.77.0.2/24 dev nm1");
    Shell("ip link set nm1 up");
    Enter(here_);
  }

  UniqueFd SocketHere(int type) { return Socket(here_, type); }
  UniqueFd SocketThere(int type) { return Socket(there_, type); }

  // Connected UDP sockets at both ends.
  void ConnectUdp(uint16_t port) {
    udp_here_ = SocketHere(SOCK_DGRAM);
    udp_there_ = SocketThere(SOCK_DGRAM);
    const sockaddr_in here = At("10.77.0.1", port);
    const sockaddr_in there = At("10.77.0.2", port);
    Bind(udp_here_, here);
    Bind(udp_there_, there);
    Connect(udp_here_, there);
    Connect(udp_there_, here);
  }

  void ConnectTcp(uint16_t port) {
    const UniqueFd listener = SocketThere(SOCK_STREAM);
    const sockaddr_in there = At("10.77.0.2", port);
    Bind(listener, there);
    Check(listen(listener.get(), 1), "listen");
    tcp_here_ = SocketHere(SOCK_STREAM);
    Connect(tcp_here_, there);
    tcp_there_ = UniqueFd(Check(
        accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC), "accept"));
    const int on = 1;
    for (int fd : {tcp_here_.get(), tcp_there_.get()}) {
      Check(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)),
            "TCP_NODELAY");
    }
  }

  const UniqueFd& udp_here() const { return udp_here_; }
  const UniqueFd& udp_there() const { return udp_there_; }
  const UniqueFd& tcp_here() const { return tcp_here_; }
  const UniqueFd& tcp_there() const { return tcp_there_; }

 private:
  static void Shell(const std::string& command) {
    std::string error;
    if (!RunCommand(command, &error)) Die(error);
  }
  static void Enter(const UniqueFd& where) {
    Check(setns(where.get(), CLONE_NEWNET), "enter a network namespace");
  }
  UniqueFd Socket(const UniqueFd& where, int type) {
    Enter(where);
    UniqueFd fd(Check(socket(AF_INET, type | SOCK_CLOEXEC, 0), "socket"));
    Enter(here_);
    return fd;
  }
  static void Bind(const UniqueFd& fd, const sockaddr_in& address) {
    Check(bind(fd.get(), reinterpret_cast<const sockaddr*>(&address),
               sizeof(address)),
          "bind");
  }
  static void Connect(const UniqueFd& fd, const sockaddr_in& address) {
    Check(connect(fd.get(), reinterpret_cast<const sockaddr*>(&address),
                  sizeof(address)),
          "connect");
  }

  UniqueFd here_, there_;
  UniqueFd udp_here_, udp_there_, tcp_here_, tcp_there_;
};

constexpr size_t kMessage = 64;

void PingPong(const UniqueFd& here, const UniqueFd& there, int count) {
  char message[kMessage] = {};
  for (int i = 0; i < count; ++i) {
    for (const auto& pair : {std::make_pair(here.get(), there.get()),
                             std::make_pair(there.get(), here.get())}) {
      if (send(pair.first, message, kMessage, 0) != kMessage ||
          recv(pair.second, message, kMessage, MSG_WAITALL) != kMessage) {
        DieWithErrno("ping-pong");
      }
    }
  }
}

constexpr int kRealRounds = 5;

class RealPackets {
 public:
  RealPackets(const Settings& settings, const Hooks (&hooks)[kSubjects],
              int cgroup_fd)
      : settings_(settings), hooks_(hooks) {
    egress_ = UniqueFd(Check(bpf_link_create(hooks[kEmpty].egress, cgroup_fd,
                                             BPF_CGROUP_INET_EGRESS, nullptr),
                             "attach"));
    ingress_ = UniqueFd(Check(bpf_link_create(hooks[kEmpty].ingress, cgroup_fd,
                                              BPF_CGROUP_INET_INGRESS, nullptr),
                              "attach"));
  }

  // Puts other programs into the places of those that are attached.
  void Use(int subject) {
    Check(bpf_link_update(egress_.get(), hooks_[subject].egress, nullptr),
          "replace a program");
    Check(bpf_link_update(ingress_.get(), hooks_[subject].ingress, nullptr),
          "replace a program");
  }

  void Run(Link* link, const std::vector<int>& cpus) {
    if (!PinToCpu(cpus.front())) DieWithErrno("pin to a CPU");
    const int count = settings_.round_trips;
    auto udp = [&] { PingPong(link->udp_here(), link->udp_there(), count); };
    auto tcp = [&] { PingPong(link->tcp_here(), link->tcp_there(), count); };
    // Sockets find their places, caches warm up.
    for (int subject = 0; subject < kSubjects; ++subject) {
      Use(subject);
      udp();
      tcp();
    }
    double runs_per_trip[2] = {};
    std::vector<Column> run_times, round_trips;
    for (const bool is_tcp : {false, true}) {
      Column tx, rx;
      tx.title = is_tcp ? "TCP tx" : "UDP tx";
      rx.title = is_tcp ? "TCP rx" : "UDP rx";
      const UniqueFd stats(
          Check(bpf_enable_stats(BPF_STATS_RUN_TIME), "enable statistics"));
      uint64_t runs = 0;
      ForEachRound(kRealRounds * settings_.rounds, [&](int subject) {
        runs += RunTimes(subject, is_tcp ? std::function<void()>(tcp) : udp,
                         &tx, &rx);
      });
      runs_per_trip[is_tcp] = static_cast<double>(runs) / count /
                              (kRealRounds * settings_.rounds * kSubjects);
      run_times.push_back(tx);
      run_times.push_back(rx);
    }
    if (cpus.size() > 1) {
      Column tx, rx;
      tx.title = "2xUDP tx";
      rx.title = "2xUDP rx";
      const UniqueFd stats(
          Check(bpf_enable_stats(BPF_STATS_RUN_TIME), "enable statistics"));
      ForEachRound(kRealRounds * settings_.rounds, [&](int subject) {
        RunTimes(
            subject, [&] { SendOnAll(link->udp_here(), cpus); }, &tx, &rx);
      });
      run_times.push_back(tx);
      run_times.push_back(rx);
    }
    Print(
        "Real packets over a veth pair, run time of one program "
        "(2x: two CPUs at once on one socket)",
        run_times);

    int disturbed = 0;
    for (const bool is_tcp : {false, true}) {
      Column column;
      column.title = is_tcp ? "TCP" : "UDP";
      Drain(link->udp_there());
      ForEachRound(kRealRounds * settings_.rounds, [&](int subject) {
        Use(subject);
        // Once more where another process had the CPU meanwhile.
        double taken = 0;
        for (int attempt = 0; attempt < 5; ++attempt) {
          const long preempted = Preemptions();
          const double start = NowNs();
          if (is_tcp) {
            tcp();
          } else {
            udp();
          }
          taken = NowNs() - start;
          if (Preemptions() == preempted) break;
          if (attempt == 4) disturbed += 1;
        }
        column.samples[subject].push_back(taken / count /
                                          runs_per_trip[is_tcp]);
      });
      round_trips.push_back(column);
    }
    Print(
        "Real packets over a veth pair, round trip by the number of program "
        "runs in it\n(the empty program's line is the whole of the kernel's "
        "work)",
        round_trips);
    const int samples = 2 * kRealRounds * settings_.rounds * kSubjects;
    if (disturbed > samples / 10) {
      std::printf("  (disturbed by other processes: %d of %d samples)\n",
                  disturbed, samples);
    }
  }

 private:
  // One sample for each of the two programs; the number of runs.
  uint64_t RunTimes(int subject, const std::function<void()>& work, Column* tx,
                    Column* rx) {
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

  // Nobody reads: what does not fit is dropped behind the ingress hook.
  void SendOnAll(const UniqueFd& fd, const std::vector<int>& cpus) const {
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
          if (send(fd.get(), message, kMessage, 0) != kMessage) {
            DieWithErrno("send");
          }
        }
      });
    }
    for (std::thread& worker : workers) worker.join();
  }

  static void Drain(const UniqueFd& fd) {
    char message[kMessage];
    while (recv(fd.get(), message, kMessage, MSG_DONTWAIT) >= 0) {
    }
  }

  const Settings& settings_;
  const Hooks (&hooks_)[kSubjects];
  UniqueFd egress_, ingress_;
};

// --- All of it ---------------------------------------------------------------

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string CpuModel() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (line.compare(0, 10, "model name") == 0) {
      return line.substr(line.find(':') + 2);
    }
  }
  return "unknown CPU";
}

void PrintConditions(const Settings& settings, const std::vector<int>& cpus) {
  utsname system = {};
  uname(&system);
  std::printf(
      "netmeter datapath, ns per packet, medians of %d paired rounds\n"
      "  %s %s, %zu x %s, JIT %s, load average %s\n"
      "  %d runs per BPF_PROG_TEST_RUN, %d round trips per round\n",
      settings.rounds, system.sysname, system.release, cpus.size(),
      CpuModel().c_str(),
      FirstLine("/proc/sys/net/core/bpf_jit_enable") == "0" ? "off" : "on",
      FirstLine("/proc/loadavg").substr(0, 4).c_str(), settings.repeat,
      settings.round_trips);
  std::fflush(stdout);
}

std::unique_ptr<Programs> LoadOrDie(uint32_t max_sockets) {
  ProgramOptions options;
  options.max_series = 256;
  options.max_names = 256;
  options.max_processes = 256;
  options.max_sockets = max_sockets;
  options.socket_hooks = true;
  std::string error;
  std::unique_ptr<Programs> programs = Programs::Load(options, &error);
  if (programs == nullptr) Die(error);
  return programs;
}

void Measure(const Settings& settings, OwnCgroup* cgroup) {
  std::string error;
  const std::vector<int> cpus = AllowedCpus();
  if (cpus.empty()) Die("no CPU to run on");
  PrintConditions(settings, cpus);
  if (!EnterOwnNetwork(&error)) Die(error);

  // Two meters: in one every socket finds a free entry of the socket table, in
  // the other one they all share one entry, which is taken.
  const auto table = LoadOrDie(16384);
  const auto storage = LoadOrDie(1);
  std::unique_ptr<comparison_bpf, void (*)(comparison_bpf*)> comparison(
      comparison_bpf__open_and_load(), comparison_bpf__destroy);
  if (comparison == nullptr) DieWithErrno("load the programs to compare with");
  auto hooks_of = [](const Programs& programs) {
    return Hooks{programs.ProgramFd(Direction::kEgress),
                 programs.ProgramFd(Direction::kIngress)};
  };
  Hooks hooks[kSubjects];
  hooks[kEmpty] = {bpf_program__fd(comparison->progs.bm_empty_tx),
                   bpf_program__fd(comparison->progs.bm_empty_rx)};
  hooks[kTable] = hooks_of(*table);
  hooks[kStorage] = hooks_of(*storage);
  hooks[kHash] = {bpf_program__fd(comparison->progs.bm_hash_tx),
                  bpf_program__fd(comparison->progs.bm_hash_rx)};

  TestRuns test_runs(settings, *table, hooks);
  test_runs.Run("BPF_PROG_TEST_RUN, one CPU", {cpus.front()});
  test_runs.RunLoopback(cpus.front());
  if (cpus.size() > 1) {
    test_runs.Run("BPF_PROG_TEST_RUN, two CPUs at once on one series",
                  {cpus[0], cpus[1]});
    std::vector<double> alone, both;
    for (int i = 0; i < 9; ++i) {
      alone.push_back(AtomicAddNs({cpus[0]}));
      both.push_back(AtomicAddNs({cpus[0], cpus[1]}));
    }
    std::printf(
        "  (the machine itself: an atomic add takes %.1f ns, by both CPUs on "
        "one word %.1f)\n",
        Median(alone), Median(both));
  } else {
    std::printf("\nonly one CPU: nothing about two\n");
  }

  if (!table->AttachSocketHooks(cgroup->fd(), &error) ||
      !storage->AttachSocketHooks(cgroup->fd(), &error) ||
      !cgroup->Enter(&error)) {
    Die(error);
  }
  Link link;
  RealPackets real(settings, hooks, cgroup->fd());
  // The socket that takes the only entry.
  real.Use(kStorage);
  const UniqueFd hog = link.SocketHere(SOCK_DGRAM);
  const sockaddr_in nobody = At("10.77.0.2", 9);
  if (sendto(hog.get(), "", 0, 0, reinterpret_cast<const sockaddr*>(&nobody),
             sizeof(nobody)) != 0) {
    DieWithErrno("take the only entry");
  }
  // Connected with the programs in place, as on a host that runs a meter.
  real.Use(kTable);
  link.ConnectUdp(4000);
  link.ConnectTcp(4001);
  real.Run(&link, cpus);

  // Was measured what the lines say?
  const nm_stats in_table = table->ReadStats();
  const nm_stats in_storage = storage->ReadStats();
  if (in_table.sockets_claimed < 4 || in_table.sockets_taken != 0) {
    Die("the sockets were not in the socket table");
  }
  if (in_storage.sockets_claimed != 1 || in_storage.sockets_taken < 4) {
    Die("the sockets were not in socket storage");
  }
}

pid_t g_child = 0;

void EndChild(int) { kill(g_child, SIGKILL); }

// The work is done by a child, so that whatever ends it, nothing stays: the
// programs, the sockets and the namespaces go with it, the cgroup after it.
int Main(const Settings& settings) {
  std::string error;
  const std::unique_ptr<OwnCgroup> cgroup =
      OwnCgroup::Make("nm-benchmark", &error);
  if (cgroup == nullptr) {
    std::fprintf(stderr, "datapath: %s\n", error.c_str());
    return 1;
  }
  const pid_t parent = getpid();
  g_child = fork();
  if (g_child < 0) {
    std::perror("datapath: fork");
    return 1;
  }
  if (g_child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    Measure(settings, cgroup.get());
    std::fflush(stdout);
    _exit(0);
  }
  for (int number : {SIGINT, SIGTERM, SIGHUP}) signal(number, EndChild);
  int status = 0;
  while (waitpid(g_child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter

int main(int argc, char** argv) {
  netmeter::internal::Settings settings;
  const std::map<std::string, int*> numbers = {
      {"--rounds", &settings.rounds},
      {"--repeat", &settings.repeat},
      {"--round-trips", &settings.round_trips},
  };
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--help" || option == "-h") {
      std::fputs(netmeter::internal::kUsage, stdout);
      return 0;
    }
    const auto number = numbers.find(option);
    if (number == numbers.end() || i + 1 == argc ||
        (*number->second = std::atoi(argv[++i])) < 1) {
      std::fprintf(stderr, "datapath: bad option %s (--help tells)\n",
                   option.c_str());
      return 2;
    }
  }
  return netmeter::internal::Main(settings);
}
