// SPDX-License-Identifier: BSD-3-Clause
// Many sockets at once, all of them open and all of them sending: what one more
// costs in memory, whether a packet costs the same when there are more of
// them, and whether every byte of them is counted.
//
// The sockets are UDP, each bound to a port and connected. They live in several
// processes, because one process may not open all of them. All of them send, in an order
// without neighbours, to a socket outside of the cgroup.
//
// The memory is what the slab allocator says, which is where sockets and their
// storage are: machine-wide, so that what others do meanwhile is in it. How
// many sockets there are at most is computed from what the first ones took:
// half of the memory that is available stays available. The rest, up to
// 1,000,000, is arithmetic, which the results say.
#include <bpf/bpf.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comparison.skel.h"
#include "test/benchmark/harness.h"
#include "test/benchmark/network.h"
#include "test/program/programs.h"

namespace netmeter {
namespace internal {
namespace {

struct Settings {
  int most;
  int rounds, passes;
};

constexpr int kMostPerProcess = 50000;
// What a process has open beside its sockets: programs, maps, and the pipes of all
// that were made before.
constexpr int kOtherDescriptors = 500;
constexpr int kPortsPerAddress = 50000;
constexpr uint16_t kFirstPort = 10000;
constexpr int kMostSockets = 1000000;
constexpr uint16_t kSinkPort = 9;
constexpr size_t kMessage = 64;
constexpr size_t kPacket = 20 + 8 + kMessage;

// A process with some of the sockets, which does what it is told by a byte.
class Holder {
 public:
  enum Command : char { kOpen = 'o', kSend = 's', kClose = 'c', kEnd = 'e' };

  // Sockets `first` to `first + count` of all.
  Holder(int first, int count) : first_(first), count_(count) {
    int to[2], from[2];
    Check(pipe2(to, O_CLOEXEC), "pipe");
    Check(pipe2(from, O_CLOEXEC), "pipe");
    to_ = UniqueFd(to[1]);
    from_ = UniqueFd(from[0]);
    const UniqueFd commands(to[0]), replies(from[1]);
    pid_ = Check(fork(), "fork");
    if (pid_ == 0) {
      to_ = UniqueFd();
      Obey(commands.get(), replies.get());
    }
  }
  // Holders that were made later have this pipe open, too: it has no end as long as
  // they live. So the end is a command.
  ~Holder() {
    const char byte = kEnd;
    if (write(to_.get(), &byte, 1) != 1) kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

  // Returns the CPU time that it took the process, in ns.
  double Do(Command command) {
    const char byte = command;
    double ns = 0;
    if (write(to_.get(), &byte, 1) != 1 ||
        read(from_.get(), &ns, sizeof(ns)) != sizeof(ns)) {
      Die("a process with sockets has ended");
    }
    return ns;
  }

 private:
  [[noreturn]] void Obey(int commands, int replies) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    std::vector<UniqueFd> sockets;
    char command;
    while (read(commands, &command, 1) == 1 && command != kEnd) {
      const double start = NowNs(CLOCK_THREAD_CPUTIME_ID);
      if (command == kOpen) {
        for (int i = 0; i < count_; ++i) sockets.push_back(Open(first_ + i));
      } else if (command == kSend) {
        Send(sockets);
      } else {
        sockets.clear();
      }
      const double ns = NowNs(CLOCK_THREAD_CPUTIME_ID) - start;
      if (write(replies, &ns, sizeof(ns)) != sizeof(ns)) break;
    }
    _exit(0);
  }

  static UniqueFd Open(int number) {
    UniqueFd fd(Check(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0),
                      "socket (fs.file-max?)"));
    const std::string address =
        "10.79.0." + std::to_string(1 + number / kPortsPerAddress);
    Bind(fd, At(address,
                static_cast<uint16_t>(kFirstPort + number % kPortsPerAddress)));
    Connect(fd, At("10.77.0.2", kSinkPort));
    return fd;
  }

  // A step that shares no factor with the number reaches all of them.
  static void Send(const std::vector<UniqueFd>& sockets) {
    const char message[kMessage] = {};
    const size_t count = sockets.size();
    size_t step = count * 618 / 1000 + 1, at = 0;
    while (Gcd(step, count) != 1) ++step;
    for (size_t i = 0; i < count; ++i) {
      if (send(sockets[at].get(), message, kMessage, 0) != kMessage) {
        DieWithErrno("send");
      }
      at = (at + step) % count;
    }
  }

  static size_t Gcd(size_t a, size_t b) { return b == 0 ? a : Gcd(b, a % b); }

  const int first_, count_;
  UniqueFd to_, from_;
  pid_t pid_ = -1;
};

class Crowd {
 public:
  Crowd(const Settings& settings, Run* run)
      : settings_(settings), run_(run), results_(run->results()) {
    std::string error;
    comparison_.reset(comparison_bpf__open_and_load());
    if (comparison_ == nullptr) DieWithErrno("load an empty program");
    rlimit limit = {};
    Check(getrlimit(RLIMIT_NOFILE, &limit), "limit of descriptors");
    limit.rlim_cur = limit.rlim_max;
    Check(setrlimit(RLIMIT_NOFILE, &limit), "limit of descriptors");
    // Two processes at least: so the short way, --smoke, has all that a million
    // sockets have.
    per_process_ = static_cast<int>(
        std::min<rlim_t>(limit.rlim_max - kOtherDescriptors, kMostPerProcess));
    per_process_ = std::max(1, std::min(per_process_, settings.most / 2));
  }

  // So many sockets, without a meter and with one.
  void Measure(int count) {
    const std::string name = std::to_string(count) + " sockets";
    const double plain = MemoryOf(count, nullptr);
    const auto programs = LoadMeter(count);
    std::string error;
    if (!programs->AttachSocketHooks(run_->cgroup()->fd(), &error)) Die(error);
    const int empty = bpf_program__fd(comparison_->progs.bm_empty_tx);
    const int netmeter = programs->ProgramFd(Direction::kEgress);
    egress_ = UniqueFd(Check(bpf_link_create(empty, run_->cgroup()->fd(),
                                             BPF_CGROUP_INET_EGRESS, nullptr),
                             "attach"));
    uint64_t passes = 0;
    bytes_per_socket_ = MemoryOf(count, [&] {
      // The first packet of each finds its series.
      results_->Add(name, "netmeter", "ns of the first send", Better::kLess,
                    Send(netmeter, count));
      passes += 1;
      for (int round = 0; round < settings_.rounds; ++round) {
        Sample("empty", name, empty, count);
        Sample("netmeter", name, netmeter, count);
        passes += 2;
      }
    });
    egress_ = UniqueFd();
    results_->Add(name, "off", "bytes per socket", Better::kLess, plain);
    results_->Add(name, "netmeter", "bytes per socket", Better::kLess,
                  bytes_per_socket_);
    results_->Fact(name + ": bytes of the socket table",
                   64 * uint64_t{programs->options().max_sockets});
    CheckBalance(name, *programs, passes * static_cast<uint64_t>(count));
  }

  // The slab memory of a socket with the meter, of the last measurement.
  double BytesPerSocket() const { return bytes_per_socket_; }

 private:
  struct Balance {
    uint64_t sent = 0;
    int64_t packets_missing = 0, bytes_missing = 0;
  };

  struct Destroy {
    void operator()(comparison_bpf* skeleton) const {
      comparison_bpf__destroy(skeleton);
    }
  };

  static std::unique_ptr<Programs> LoadMeter(int count) {
    ProgramOptions options = DefaultOptions();
    // A table that all of them fit in; docs/configuration.md tells of it.
    while (options.max_sockets < static_cast<uint32_t>(count)) {
      options.max_sockets *= 2;
    }
    std::string error;
    auto programs = Programs::Load(options, &error);
    if (programs == nullptr) Die(error);
    return programs;
  }

  // Opens them, does `work` and closes them; slab bytes of each.
  double MemoryOf(int count, const std::function<void()>& work) {
    holders_.clear();
    for (int first = 0; first < count; first += per_process_) {
      holders_.push_back(std::make_unique<Holder>(
          first, std::min(per_process_, count - first)));
    }
    const double before = SettledSlab();
    for (const auto& holder : holders_) holder->Do(Holder::kOpen);
    if (work != nullptr) work();
    const double each = (Memory("Slab") - before) / count;
    for (const auto& holder : holders_) holder->Do(Holder::kClose);
    holders_.clear();
    return each;
  }

  // What was closed before is freed a little later.
  static double SettledSlab() {
    double last = Memory("Slab");
    for (int i = 0; i < 15; ++i) {
      usleep(200000);
      const double now = Memory("Slab");
      if (now > last * 0.999) return now;
      last = now;
    }
    return last;
  }

  // All of them send once, with this program in place; the sender's time.
  double Send(int program, int count) {
    Check(bpf_link_update(egress_.get(), program, nullptr),
          "replace a program");
    double ns = 0;
    for (const auto& holder : holders_) ns += holder->Do(Holder::kSend);
    return ns / count;
  }

  // Twice: by the time of the sender, and by the kernel's clock around each run
  // of the program.
  void Sample(const std::string& subject, const std::string& name, int program,
              int count) {
    results_->Add(name, subject, "ns per send", Better::kLess,
                  Send(program, count));
    const UniqueFd stats = EnableRunTime();
    const RunTime before = ReadRunTime(program);
    Send(program, count);
    const RunTime after = ReadRunTime(program);
    if (after.runs - before.runs < static_cast<uint64_t>(count)) {
      Die("the program did not run for each packet");
    }
    results_->Add(name, subject, "ns per run", Better::kLess,
                  NsPerRun(before, after));
  }

  void CheckBalance(const std::string& name, const Programs& programs,
                    uint64_t sent) {
    uint64_t packets = 0, bytes = 0;
    for (const auto& slot : programs.ReadCounters()) {
      packets += slot.second.tx_packets;
      bytes += slot.second.tx_bytes;
    }
    // The sum of all passes.
    Balance& balance = balances_[name];
    balance.sent += sent;
    balance.packets_missing += std::abs(static_cast<int64_t>(sent - packets));
    balance.bytes_missing +=
        std::abs(static_cast<int64_t>(sent * kPacket - bytes));
    results_->Fact(name + ": packets sent", balance.sent);
    results_->Fact(name + ": packets missing in the counters",
                   balance.packets_missing);
    results_->Fact(name + ": bytes missing in the counters",
                   balance.bytes_missing);
    const nm_stats stats = programs.ReadStats();
    results_->Fact(name + ": in the socket table", stats.sockets_claimed);
    results_->Fact(name + ": beside it", stats.socket_collisions);
  }

  const Settings& settings_;
  Run* const run_;
  Results* const results_;
  std::unique_ptr<comparison_bpf, Destroy> comparison_;
  std::vector<std::unique_ptr<Holder>> holders_;
  UniqueFd egress_;
  std::map<std::string, Balance> balances_;
  int per_process_ = 0;
  double bytes_per_socket_ = 0;
};

// Takes all packets and keeps few of them.
UniqueFd MakeSink(TestNetwork* network) {
  UniqueFd sink;
  network->AsServer(network->veth(), [&] {
    sink = UniqueFd(
        Check(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), "socket"));
    const int bytes = 1;
    Check(setsockopt(sink.get(), SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes)),
          "SO_RCVBUF");
    Bind(sink, At("10.77.0.2", kSinkPort));
  });
  return sink;
}

// How many descriptors the machine may have beside those that it has.
int SpareDescriptors() {
  std::ifstream file("/proc/sys/fs/file-nr");
  double used = 0, unused = 0, most = 0;
  file >> used >> unused >> most;
  return static_cast<int>(std::min(2e9, (most - used) * 0.8));
}

void Measure(const Settings& settings, Run* run) {
  TestNetwork network(run->cgroup());
  Shell("ip route add local 10.79.0.0/24 dev lo");
  const UniqueFd sink = MakeSink(&network);
  Results* results = run->results();
  Crowd crowd(settings, run);
  const int wanted = std::min(settings.most, kMostSockets);
  int most = std::min(wanted, SpareDescriptors());
  // In passes: each has its own tables elsewhere in memory, and what disturbs the
  // machine for some seconds disturbs one of them, not all rounds of a number of sockets.
  for (int pass = 0; pass < settings.passes; ++pass) {
    for (int count = std::min(1000, wanted); count < most; count *= 10) {
      crowd.Measure(count);
      // The table is the meter's, and of the same size for all of them.
      const double each = std::max(1024.0, crowd.BytesPerSocket()) + 2 * 64;
      most =
          std::min(most, static_cast<int>(Memory("MemAvailable") / 2 / each));
    }
  }
  crowd.Measure(most);
  results->Fact("sockets", most);
  results->Fact("sockets wanted", wanted);
  results->Fact("bytes of memory", Memory("MemTotal"));
  // The arithmetic for the rest.
  results->Fact("1000000 sockets: bytes, computed",
                1e6 * crowd.BytesPerSocket() + 64 * (1 << 20));
}

}  // namespace
}  // namespace internal
}  // namespace netmeter

int main(int argc, char** argv) {
  using namespace netmeter::internal;
  return RunBenchmark("sockets", argc, argv, [](Run* run) {
    Measure({run->Of(1000000, 2000), run->Of(5, 1), run->Of(5, 1)}, run);
  });
}
