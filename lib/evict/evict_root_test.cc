// SPDX-License-Identifier: BSD-3-Clause
// An endless series of names passes through tables of one size. Idle names give back
// their room, and no byte is lost. No reader sees a counter shrink without notice,
// whenever the loader is killed.

#include <bpf/bpf.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/privileges.h"
#include "lib/base/unique_fd.h"
#include "lib/evict/evict.h"
#include "lib/loader/loader_fixture.h"
#include "lib/loader/system.h"
#include "lib/loader/unload.h"
#include "lib/testing/await.h"
#include "lib/testing/misattributed.h"
#include "lib/testing/run_shell.h"
#include "netmeter/abi.h"
#include "netmeter/meter.h"

namespace netmeter {
namespace internal {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// Sends this many bytes of payload over a socket to the proxy port on loopback.
bool Send(int fd, size_t bytes) {
  const sockaddr_in to = Loopback(8443);
  const std::string data(bytes, 'x');
  return sendto(fd, data.data(), data.size(), 0,
                reinterpret_cast<const sockaddr*>(&to),
                sizeof(to)) == static_cast<ssize_t>(bytes);
}

// A UDP socket of a service; of the process if `service` is empty.
UniqueFd SocketOf(const std::string& service) {
  UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!service.empty() &&
      setsockopt(fd.get(), NM_SOL, NM_SERVICE, service.data(),
                 static_cast<socklen_t>(service.size())) != 0) {
    return UniqueFd();
  }
  return fd;
}

// A TCP socket of a service, with a tag. Its owner is in the socket table, where a
// connection to the proxy port stays because the tag names its destination.
UniqueFd TaggedSocketOf(const std::string& service) {
  const std::string tag = "to-" + service;
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  for (const auto& named :
       {std::make_pair(NM_SERVICE, service), std::make_pair(NM_TAG, tag)}) {
    if (setsockopt(fd.get(), NM_SOL, named.first, named.second.data(),
                   static_cast<socklen_t>(named.second.size())) != 0) {
      return UniqueFd();
    }
  }
  return fd;
}

bool Connect(const UniqueFd& fd, uint16_t port) {
  const sockaddr_in to = Loopback(port);
  return connect(fd.get(), reinterpret_cast<const sockaddr*>(&to),
                 sizeof(to)) == 0;
}

// Listens at the proxy port, outside of the cgroup.
UniqueFd ListenOutside() {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in here = Loopback(8443);
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  EXPECT_EQ(
      bind(fd.get(), reinterpret_cast<const sockaddr*>(&here), sizeof(here)),
      0);
  EXPECT_EQ(listen(fd.get(), 16), 0);
  return fd;
}

// What processes of the test tell each other.
struct Shared {
  std::atomic<uint64_t> begun{0};  // datagrams of one byte
  std::atomic<uint64_t> sent{0};   // ... that have passed the hook
  std::atomic<uint64_t> evicted{0};
  std::atomic<bool> stop{false};
};

// Not with those that evict, which lanes of such a kernel leave out.
class EvictRefusalTest : public LoaderRootTest {};

// On Linux 7.3.4 a virtual machine crashed while sockets ended under nm_scan.
TEST_F(EvictRefusalTest, AKernelThatCouldCrashIsLeftAlone) {
  MustLoad();
  EvictOptions options;
  options.pin_dir = config_.pin_dir;
  const absl::StatusOr<EvictResult> result = Evict(options);
  const ShellResult quiet =
      RunShell("lib/netmeter_loader/netmeter-loader evict --quiet --pin-dir " +
               config_.pin_dir + " 2>&1");
  EXPECT_EQ(quiet.exit_status, 0) << quiet.output;
  if (std::stoi(KernelRelease()) < 7) {
    EXPECT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(quiet.output, "");
    return;
  }
  const std::string told = absl::StrCat(
      "evict could crash this kernel, as any from Linux 7.0 on: use larger "
      "tables (run: netmeter-loader load --pin-dir ",
      config_.pin_dir, " --max-series N --max-names N)");
  EXPECT_EQ(result.status(), absl::UnimplementedError(told));
  EXPECT_EQ(quiet.output, "netmeter-loader: note: " + told + "\n");
}

class EvictRootTest : public LoaderRootTest {
 protected:
  void SetUp() override {
    LoaderRootTest::SetUp();
    config_.destinations.clear();  // their names take room
    void* const memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    shared_ = new (memory) Shared;
  }
  void TearDown() override {
    LoaderRootTest::TearDown();
    munmap(shared_, sizeof(Shared));
  }

  absl::StatusOr<EvictResult> TryEvict(uint32_t idle_seconds = 0) {
    EvictOptions options;
    options.pin_dir = config_.pin_dir;
    options.idle_seconds = idle_seconds;
    return Evict(options);
  }
  EvictResult MustEvict(uint32_t idle_seconds = 0) {
    absl::StatusOr<EvictResult> result = TryEvict(idle_seconds);
    EXPECT_TRUE(result.ok()) << result.status();
    return last_ = result.ok() ? *result : EvictResult();
  }

  // A socket that is closed holds its series for a moment: an eviction came before.
  void EvictUntilSeriesAreAtMost(size_t count) {
    EXPECT_TRUE(Await([&] {
      MustEvict();
      return Payload().size() <= count;
    }));
  }
  void EvictUntilSeriesAre(size_t count) {
    EvictUntilSeriesAreAtMost(count);
    EXPECT_EQ(Payload().size(), count);
  }

  // Returns the number of evicted ones. A UDP socket goes after a grace period of RCU.
  uint64_t EvictUntil(uint64_t count, uint64_t gone = 0) {
    for (int i = 0; i < 100 && gone < count; usleep(100000), i++)
      gone += MustEvict().series;
    return gone;
  }

  // An eviction in a child that is killed after this number of steps. Returns its last
  // step, or "".
  std::string EvictKilledAfter(int steps) {
    return KilledAfter("", steps - 1, [this] { return TryEvict().ok(); });
  }

  // What `netmeter-loader load` prints, which keeps the configuration.
  std::string LoadByProgram() {
    const std::string command =
        absl::StrCat("lib/netmeter_loader/netmeter-loader load --pin-dir ",
                     config_.pin_dir, " --cgroup ", cgroup_, " 2>&1");
    FILE* const pipe = popen(command.c_str(), "r");
    std::string output;
    char buffer[4096];
    while (pipe != nullptr && fgets(buffer, sizeof(buffer), pipe) != nullptr) {
      output += buffer;
    }
    EXPECT_TRUE(pipe != nullptr && pclose(pipe) == 0) << output;
    return output;
  }

  // The time since the last call looked for idle series. The layout is LastUse of
  // evict.cc.
  void LetTimePass(uint64_t seconds) {
    const UniqueFd map(bpf_obj_get(Pin("idle").c_str()));
    if (!map.ok()) return;  // no call took note
    for (uint32_t slot = 0; slot < config_.max_series; slot++) {
      uint64_t use[4];  // head, total, ns, user
      ASSERT_EQ(bpf_map_lookup_elem(map.get(), &slot, use), 0);
      use[2] -= seconds * 1000000000;
      ASSERT_EQ(bpf_map_update_elem(map.get(), &slot, use, BPF_ANY), 0);
    }
  }

  // One byte under each of these names, from sockets that are closed then.
  int Churn(const std::string& prefix, int count) {
    return InChild([&] {
      std::ofstream(cgroup_ + "/cgroup.procs") << getpid();
      for (int i = 0; i < count; i++) {
        const UniqueFd fd = SocketOf(absl::StrCat(prefix, i));
        if (!fd.ok() || !Send(fd.get(), 1)) return 1;
      }
      return 0;
    });
  }

  // A process in the cgroup that runs `body` until the test kills it, or to its
  // end.
  pid_t Start(const std::function<int()>& body) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(600);  // a busy machine takes minutes
      std::ofstream(cgroup_ + "/cgroup.procs") << getpid();
      _exit(body());
    }
    return child;
  }
  static int Wait(pid_t child) {
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return status;
  }

  std::vector<Sample> Read() {
    MeterOptions options;
    options.pin_dir = config_.pin_dir;
    auto meter = Meter::Open(options);
    if (!meter.ok()) {
      ADD_FAILURE() << meter.status();
      return {};
    }
    auto samples = (*meter)->ReadHost();
    EXPECT_TRUE(samples.ok()) << samples.status();
    return samples.ok() ? *samples : std::vector<Sample>();
  }
  // Bytes of payload by "kind name".
  std::map<std::string, uint64_t> Payload() {
    std::map<std::string, uint64_t> sums;
    for (const Sample& sample : Read()) {
      sums[absl::StrCat(KindName(sample.kind), " ", sample.name)] +=
          sample.tx_payload_bytes;
    }
    return sums;
  }
  Health MustReadHealth() {
    MeterOptions options;
    options.pin_dir = config_.pin_dir;
    auto meter = Meter::Open(options);
    EXPECT_TRUE(meter.ok()) << meter.status();
    if (!meter.ok()) return Health();
    auto health = (*meter)->ReadHealth();
    EXPECT_TRUE(health.ok());
    return health.ok() ? *health : Health();
  }

  Shared* shared_ = nullptr;
  EvictResult last_;  // of MustEvict()
};

// --- Many names --------------------------------------------------------------

// Reads again and again. Each sum must lie between what had been sent before the
// read and what had begun to be sent after it, each byte in it once; and a series
// may be less than before, or gone, only if the meter says that some were evicted.
class Watcher {
 public:
  Watcher(const std::string& pin_dir, bool keeps, Shared* shared)
      : keeps_(keeps), shared_(shared) {
    options_.pin_dir = pin_dir;
    thread_ = std::thread([this] { Run(); });
  }
  void Join() { thread_.join(); }

  uint64_t reads = 0, resets = 0;
  std::string error;

 private:
  using Key = std::tuple<Kind, std::string, std::string, Transport, Path>;

  void Run() {
    std::unique_ptr<Meter> meter;
    while (!shared_->stop && error.empty()) {
      if (meter == nullptr || !keeps_) {
        auto opened = Meter::Open(options_);
        if (!opened.ok()) {
          error = opened.status().ToString();
          return;
        }
        meter = *std::move(opened);
      }
      Check(*meter);
    }
  }

  void Check(const Meter& meter) {
    const uint64_t least = shared_->sent;
    const absl::Status status = meter.ReadHost(&samples_);
    const uint64_t most = shared_->begun;
    const auto health = meter.ReadHealth();
    if (!status.ok() || !health.ok()) {
      error = status.ToString();
      return;
    }
    uint64_t sum = 0, bytes = 0;
    std::map<Key, uint64_t> now;
    for (const Sample& s : samples_) {
      sum += s.tx_payload_bytes;
      bytes += s.tx_bytes;
      if (s.kind == Kind::kOverflow) error = "something is in overflow";
      if (!now.emplace(Key(s.kind, s.name, s.destination, s.transport, s.path),
                       s.tx_bytes)
               .second) {
        error = "a series appears twice";
      }
    }
    if (sum < least || sum > most || sum < last_sum_) {
      error = absl::StrCat("the sum is ", sum, ", was ", last_sum_,
                           ", and must be from ", least, " to ", most);
    }
    // IP and UDP have 28 bytes.
    if (bytes < 29 * least || bytes > 29 * most) {
      error = absl::StrCat(bytes, " bytes of ", least, " to ", most);
    }
    bool less = false;
    for (const auto& before : last_) {
      const auto found = now.find(before.first);
      less |= found == now.end() || found->second < before.second;
    }
    if (less) {
      ++resets;
      if (health->evicted_series == last_evicted_) {
        error = "a series went back, and nobody said so";
      }
    }
    // Not more than what is known by now: a reset that the next read shows must be
    // told by a number that is more than this one.
    last_evicted_ = evicted_before_read_;
    evicted_before_read_ = health->evicted_series;
    last_ = std::move(now);
    last_sum_ = sum;
    ++reads;
  }

  const bool keeps_;
  Shared* const shared_;
  MeterOptions options_;
  std::vector<Sample> samples_;
  std::map<Key, uint64_t> last_;
  uint64_t last_sum_ = 0, last_evicted_ = 0, evicted_before_read_ = 0;
  std::thread thread_;
};

// 40,000 names in 4,096 slots ended in overflow, for good.
TEST_F(EvictRootTest, NamesWithoutEndPassThroughTheTables) {
  constexpr uint64_t kNames = 12000, kRoom = 3000;
  MustLoad();
  const pid_t child = Start([&] {
    for (uint64_t i = 0; i < kNames; i++) {
      // As many names as there is room for, whoever takes how long.
      while (i >= shared_->evicted + kRoom) usleep(100);
      const UniqueFd fd = SocketOf(absl::StrCat("name-", i));
      if (!fd.ok()) return 1;
      shared_->begun++;
      if (!Send(fd.get(), 1)) return 2;
      shared_->sent++;
    }
    return 0;
  });
  Watcher one(config_.pin_dir, /*keeps=*/true, shared_);
  Watcher two(config_.pin_dir, /*keeps=*/true, shared_);
  Watcher three(config_.pin_dir, /*keeps=*/false, shared_);
  const auto begin = std::chrono::steady_clock::now();
  int sweeps = 0, status = 0;
  uint64_t names = 0;
  for (bool ended = false; !ended; sweeps++) {
    ended = waitpid(child, &status, WNOHANG) == child;
    const EvictResult result = MustEvict();
    shared_->evicted += std::min(result.series, result.names);
    names += result.names;
    if (HasFailure()) kill(child, SIGKILL);
  }
  const std::chrono::duration<double> took =
      std::chrono::steady_clock::now() - begin;
  shared_->stop = true;
  for (Watcher* watcher : {&one, &two, &three}) {
    watcher->Join();
    EXPECT_EQ(watcher->error, "");
    EXPECT_GT(watcher->reads, 20u);
  }
  EXPECT_EQ(status, 0);
  EXPECT_EQ(shared_->sent, kNames);
  EXPECT_GT(one.resets, 2u);
  printf("%d sweeps in %.1f s; reads %llu, %llu, %llu\n", sweeps, took.count(),
         static_cast<unsigned long long>(one.reads),
         static_cast<unsigned long long>(two.reads),
         static_cast<unsigned long long>(three.reads));
  EXPECT_EQ(PayloadSent(), kNames);
  const auto payload = Payload();
  EXPECT_EQ(payload.at("evicted service"), kNames);
  EXPECT_EQ(payload.size(), 1u);
  const Health health = MustReadHealth();
  EXPECT_EQ(Misattributed(health, "packets", "series_full"), 0u);
  EXPECT_EQ(Misattributed(health, "names", "full"), 0u);
  EXPECT_EQ(health.evicted_series, kNames);
  EXPECT_EQ(health.evicted_names, names);
  EXPECT_EQ(health.series, 1u);
}

// --- At once -----------------------------------------------------------------

// Two evictions run under traffic while the tables grow, programs are replaced, and
// finally the meter is unloaded.
TEST_F(EvictRootTest, EvictionsLoadsAndAnUnloadMayMeet) {
  config_.max_series = config_.max_names = 300;
  MustLoad();
  const pid_t churn = Start([&] {
    for (uint64_t i = 0; !shared_->stop;) {
      const UniqueFd fd = SocketOf(absl::StrCat("name-", i));
      if (!fd.ok()) {  // a growth, or full: the name is refused
        usleep(500);
        continue;
      }
      shared_->begun++;
      if (!Send(fd.get(), 1)) return 2;
      shared_->sent++;
      i++;
    }
    return 0;
  });
  std::vector<pid_t> sweepers;
  for (int i = 0; i < 2; i++) {
    sweepers.push_back(Start([&] {
      while (!shared_->stop) {
        usleep(30000);  // others want the lock, too, and no queue is kept
        const absl::StatusOr<EvictResult> result = TryEvict();
        if (result.ok()) {
          shared_->evicted += result->series;
          continue;
        }
        const std::string error(result.status().message());
        if (absl::StrContains(error, "has held it for"))
          continue;  // waited long
        fprintf(stderr, "evict: %s\n", error.c_str());
        return 1;
      }
      return 0;
    }));
  }
  for (uint16_t i = 0; i < 6; i++) {
    if (i % 2 == 0) config_.max_series += 20;
    if (i % 2 == 0) config_.max_names += 20;
    config_.sni_ports = {443, static_cast<uint16_t>(1000 + i)};
    EXPECT_EQ(MustLoad(), Action::kUpgraded);
    usleep(100000);
  }
  Await([&] { return shared_->evicted > 300; });
  shared_->stop = true;
  EXPECT_EQ(Wait(churn), 0);
  for (const pid_t child : sweepers) EXPECT_EQ(Wait(child), 0);
  EXPECT_GT(shared_->evicted, 300u);
  EvictUntilSeriesAreAtMost(2);
  EXPECT_EQ(shared_->begun, shared_->sent);
  const auto payload = Payload();
  uint64_t sum = 0;
  for (const auto& kind : payload) sum += kind.second;
  EXPECT_EQ(sum, shared_->sent);
  EXPECT_LE(payload.size(), 2u) << "evicted, and overflow while it grew";
  EXPECT_EQ(MustStatus().state, MeterState::kLoaded);

  shared_->stop = false;
  const pid_t sweeper = Start([&] {
    for (;; usleep(30000)) {
      const absl::Status status = TryEvict().status();
      if (!status.ok()) return absl::IsNotFound(status) ? 0 : 1;
    }
  });
  usleep(50000);
  EXPECT_EQ(InChild([&] {
              bool was_loaded = false;
              return Unload(config_.pin_dir, &was_loaded).ok() ? 0 : 1;
            }),
            0);
  EXPECT_EQ(Wait(sweeper), 0);
  EXPECT_EQ(MustStatus().state, MeterState::kNotLoaded);
}

// --- What is not idle --------------------------------------------------------

TEST_F(EvictRootTest, WhatAProcessOrASocketHasStays) {
  MustLoad();
  int ready[2];
  ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
  const pid_t holder = Start([&] {
    // A service that no process belongs to.
    const UniqueFd held = SocketOf("held");
    if (!Send(held.get(), 10)) return 1;
    // A process of that name, which has no socket any more.
    const UniqueFd control(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (setsockopt(control.get(), NM_SOL, NM_REGISTER, "running", 7) != 0) {
      return 2;
    }
    if (!Send(SocketOf("").get(), 20)) return 3;
    if (!Send(SocketOf("gone").get(), 40)) return 4;
    if (write(ready[1], "x", 1) != 1) return 5;
    pause();
    return 0;
  });
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_EQ(EvictUntil(1), 1u);
  EXPECT_EQ(last_.names, 1u);
  auto payload = Payload();
  EXPECT_EQ(payload["service held"], 10u);
  EXPECT_EQ(payload["service running"], 20u);
  EXPECT_EQ(payload["evicted service"], 40u);
  EXPECT_EQ(payload.count("service gone"), 0u);
  kill(holder, SIGKILL);
  Wait(holder);
  EXPECT_EQ(EvictUntil(2), 2u);
  payload = Payload();
  EXPECT_EQ(payload.size(), 1u);
  EXPECT_EQ(payload["evicted service"], 70u);
  close(ready[0]);
  close(ready[1]);
}

// Only their entries of the socket table say whose these sockets are.
TEST_F(EvictRootTest, WhatATcpSocketHasStaysUntilTheSocketIsClosed) {
  MustLoad();
  UniqueFd listener = ListenOutside();
  int ready[2], go[2];
  ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
  ASSERT_EQ(pipe2(go, O_CLOEXEC), 0);
  const pid_t holder = Start([&] {
    listener = UniqueFd();
    UniqueFd fresh = TaggedSocketOf("fresh");
    UniqueFd refused = TaggedSocketOf("refused");
    if (Connect(refused, 1) || errno != ECONNREFUSED) return 1;
    UniqueFd closed = TaggedSocketOf("closed");
    UniqueFd aborted = TaggedSocketOf("aborted");
    for (const UniqueFd* fd : {&closed, &aborted}) {
      if (!Connect(*fd, 8443) || write(fd->get(), "0123456789", 10) != 10) {
        return 2;
      }
    }
    char byte;
    if (write(ready[1], "x", 1) != 1 || read(go[0], &byte, 1) != 1) return 3;
    const linger at_once = {1, 0};
    setsockopt(aborted.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    for (UniqueFd* fd : {&fresh, &refused, &closed, &aborted}) {
      *fd = UniqueFd();
    }
    if (write(ready[1], "x", 1) != 1) return 4;
    pause();
    return 0;
  });
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  // Four services, four destinations, and this program.
  EXPECT_EQ(MustReadHealth().names, 9u);
  for (int i = 0; i < 2; i++) {
    MustEvict();
    EXPECT_EQ(last_.series, 0u);
    EXPECT_EQ(last_.names, 0u);
  }
  EXPECT_EQ(Payload()["service closed"], 10u);
  EXPECT_EQ(Payload()["service aborted"], 10u);
  ASSERT_EQ(write(go[1], "x", 1), 1);
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  for (int i = 0; i < 2; i++) {
    const UniqueFd peer(
        accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }
  EXPECT_EQ(EvictUntil(2), 2u);
  EXPECT_TRUE(Await([&] {
    MustEvict();
    return MustReadHealth().names == 1;  // this program's
  })) << MustReadHealth().names;
  EXPECT_EQ(Payload().at("evicted service"), 20u);
  kill(holder, SIGKILL);
  Wait(holder);
  for (const int fd : {ready[0], ready[1], go[0], go[1]}) close(fd);
}

TEST_F(EvictRootTest, WhatHasCountedSomethingSinceIsNotIdle) {
  MustLoad();
  ASSERT_EQ(Churn("a", 2), 0);
  EXPECT_EQ(MustEvict(1000).series, 0u);  // takes note
  usleep(1200000);
  EXPECT_EQ(MustEvict(1000).series, 0u);  // idle since the call before
  usleep(1200000);
  ASSERT_EQ(Churn("a", 1), 0);  // a0, and not a1
  EXPECT_EQ(MustEvict(2).series, 1u);
  EXPECT_EQ(Payload()["service a0"], 2u);
  usleep(2200000);
  EXPECT_EQ(MustEvict(2).series, 1u);
  EXPECT_EQ(Payload()["evicted service"], 3u);
}

// A name that comes back begins anew.
TEST_F(EvictRootTest, ASeriesThatComesBackBeginsAtNothing) {
  MustLoad();
  for (uint64_t round = 1; round <= 3; round++) {
    ASSERT_EQ(Churn("again", 1), 0);
    EXPECT_EQ(Payload()["service again0"], 1u);
    EXPECT_EQ(EvictUntil(1), 1u);
    EXPECT_EQ(Payload()["evicted service"], round);
    EXPECT_EQ(Payload().size(), 1u);
  }
  // Kinds have series of their own.
  SendFromCgroup(5);
  EXPECT_EQ(Payload()["binary evict_root_test"], 5u);
}

TEST_F(EvictRootTest, TablesThatAreEmptierThanAskedForStay) {
  config_.max_series = NM_SLOT_FIRST + 10;
  MustLoad();
  ASSERT_EQ(Churn("a", 4), 0);
  EvictOptions options;
  options.pin_dir = config_.pin_dir;
  options.idle_seconds = 0;
  options.full_percent = 50;
  absl::StatusOr<EvictResult> result = Evict(options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_FALSE(result->needed);
  ASSERT_EQ(Churn("b", 1), 0);
  result = Evict(options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->needed);
  EXPECT_EQ(EvictUntil(5, result->series), 5u);
}

// The first slot of a kind that is folded becomes the series `evicted`, so that
// tables which are full can be emptied.
TEST_F(EvictRootTest, FullTablesAreEmptied) {
  config_.max_series = NM_SLOT_FIRST + 10;
  config_.max_names = NM_NAME_FIRST + 11;  // and that of this program
  MustLoad();
  for (int round = 0; round < 5; round++) {
    ASSERT_EQ(Churn(absl::StrCat("r", round, "-"), round == 0 ? 10 : 9), 0);
    EXPECT_EQ(MustReadHealth().series, 10u);
    EXPECT_EQ(EvictUntil(round == 0 ? 10 : 9), round == 0 ? 10u : 9u);
  }
  EXPECT_EQ(Payload()["evicted service"], 46u);
  EXPECT_EQ(Misattributed(MustReadHealth(), "packets", "series_full"), 0u);
}

// Names that had gone used a user's quota forever.
TEST_F(EvictRootTest, AUserGetsItsQuotaBack) {
  config_.max_series = 400;
  config_.max_names = 400;  // an eighth: 50
  MustLoad();
  for (int round = 0; round < 4; round++) {
    EXPECT_EQ(InChild([&] {
                std::ofstream(cgroup_ + "/cgroup.procs") << getpid();
                if (!BecomeUser(kGid)) return 1;
                for (int i = 0; i < 40; i++) {
                  const UniqueFd fd = SocketOf(absl::StrCat("u", round, i));
                  if (!fd.ok()) return 2;
                  if (!Send(fd.get(), 1)) return 3;
                }
                return 0;
              }),
              0)
        << round;
    EXPECT_EQ(EvictUntil(40), 40u);
  }
  EXPECT_EQ(Payload()["evicted service"], 160u);
  EXPECT_EQ(Misattributed(MustReadHealth(), "names", "over_quota"), 0u);
  EXPECT_EQ(Misattributed(MustReadHealth(), "packets", "series_over_quota"),
            0u);
}

// Nobody has to call evict on a host where load is called again.
TEST_F(EvictRootTest, ALoadTakesBackWhatIsIdleIfTablesAreHalfFull) {
  config_.max_series = NM_SLOT_FIRST + 10;
  MustLoad();
  ASSERT_EQ(Churn("a", 4), 0);
  EXPECT_THAT(LoadByProgram(), Not(HasSubstr("full")));
  LetTimePass(4000);
  EXPECT_THAT(LoadByProgram(), Not(HasSubstr("full")));
  ASSERT_EQ(Churn("b", 2), 0);
  // It only takes note of them.
  EXPECT_THAT(LoadByProgram(),
              HasSubstr("half full: evicted 0 idle series and 0 idle names"));
  LetTimePass(3500);
  EXPECT_THAT(LoadByProgram(), HasSubstr("half full: evicted 0 idle series"));
  LetTimePass(101);
  ASSERT_EQ(Churn("b", 1), 0);  // b0, and not b1
  EXPECT_THAT(LoadByProgram(),
              HasSubstr("half full: evicted 5 idle series and 5 idle names"));
  auto payload = Payload();
  EXPECT_EQ(payload["evicted service"], 5u);
  EXPECT_EQ(payload["service b0"], 2u);
  EXPECT_THAT(LoadByProgram(), Not(HasSubstr("full")));
}

// Another program can keep ours from that hook. Then connections are not counted and
// their map is missing, but evict read it.
TEST_F(EvictRootTest, WithoutATableOfSocketsSeriesAreEvictedAsWell) {
  const bpf_insn pass[] = {{BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, 1},
                           {BPF_JMP | BPF_EXIT, 0, 0, 0, 0}};
  const UniqueFd program(bpf_prog_load(BPF_PROG_TYPE_SOCK_OPS, "foreign", "GPL",
                                       pass, 2, nullptr));
  ASSERT_TRUE(program.ok()) << strerror(errno);
  const UniqueFd cgroup(open(cgroup_.c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(bpf_prog_attach(program.get(), cgroup.get(), BPF_CGROUP_SOCK_OPS,
                            0 /* no other beside it */),
            0);
  MustLoad();
  ASSERT_EQ(Churn("a", 4), 0);
  EXPECT_EQ(EvictUntil(4), 4u);
  EXPECT_EQ(Payload().at("evicted service"), 4u);
  // No hook tells when these end.
  {
    const UniqueFd listener = ListenOutside();
    EXPECT_EQ(InChild([&] {
                std::ofstream(cgroup_ + "/cgroup.procs") << getpid();
                const UniqueFd fresh = TaggedSocketOf("fresh");
                const UniqueFd connected = TaggedSocketOf("connected");
                return fresh.ok() && Connect(connected, 8443) &&
                               write(connected.get(), "12345", 5) == 5
                           ? 0
                           : 1;
              }),
              0);
  }
  EXPECT_EQ(EvictUntil(1), 1u);
  EXPECT_EQ(Payload().at("evicted service"), 9u);
  EXPECT_TRUE(Await([&] {
    MustEvict();
    return MustReadHealth().names == 1;  // this program's
  })) << MustReadHealth().names;
  EXPECT_EQ(bpf_prog_detach2(program.get(), cgroup.get(), BPF_CGROUP_SOCK_OPS),
            0);
}

// --- Kills -------------------------------------------------------------------

// What it leaves counts, is read, and is not given away: not by the next
// eviction, nor by a growth.
TEST_F(EvictRootTest, AnEvictionMayBeKilledBetweenAnyTwoSteps) {
  config_.max_series = 100;
  config_.max_names = 100;
  MustLoad();
  MeterOptions options;
  options.pin_dir = config_.pin_dir;
  auto reader = Meter::Open(options);
  ASSERT_TRUE(reader.ok()) << reader.status();
  const auto sum = [&] {
    auto samples = (*reader)->ReadHost();
    EXPECT_TRUE(samples.ok()) << samples.status();
    uint64_t bytes = 0;
    for (const Sample& sample : *samples) {
      EXPECT_NE(sample.kind, Kind::kOverflow);
      bytes += sample.tx_payload_bytes;
    }
    return bytes;
  };
  uint64_t expected = 0;
  int steps = 1;
  for (std::string last = "x"; !last.empty(); steps++) {
    ASSERT_EQ(Churn("same-", 3), 0);
    ASSERT_EQ(Churn(absl::StrCat("new-", steps, "-"), 4), 0);
    expected += 7;
    last = EvictKilledAfter(steps);
    SCOPED_TRACE(absl::StrCat("killed after step ", steps, ": ", last));
    EXPECT_EQ(sum(), expected);
    ASSERT_EQ(Churn("same-", 3), 0);
    expected += 3;
    EXPECT_EQ(sum(), expected);
    if (steps % 3 == 0) {
      config_.max_series += 2;
      config_.max_names += 2;
      EXPECT_EQ(MustLoad(), Action::kUpgraded);
      EXPECT_EQ(sum(), expected);
      ASSERT_EQ(Churn("grown-", 5), 0);
      expected += 5;
    }
    EXPECT_EQ(MustStatus().state, MeterState::kLoaded);
    EvictUntilSeriesAre(1);
    EXPECT_EQ(sum(), expected);
    EXPECT_EQ(Payload().at("evicted service"), expected);
    EXPECT_EQ(MustReadHealth().series, 1u);
    EXPECT_LE(MustReadHealth().names, 1u);
  }
  EXPECT_GT(steps, 8);
}

// It said that nothing was loaded.
TEST_F(EvictRootTest, WhoMayNotLookIsToldSo) {
  MustLoad();
  for (const gid_t gid : {kGid, gid_t{65534}}) {
    EXPECT_EQ(InChild([&] {
                if (!BecomeUser(gid)) return 1;
                const absl::Status status = TryEvict().status();
                return absl::IsPermissionDenied(status) &&
                               absl::EndsWith(status.message(), "(run as root)")
                           ? 0
                           : 2;
              }),
              0)
        << gid;
  }
}

// All that it opens has a pin.
TEST_F(EvictRootTest, NeedsNoCapSysAdmin) {
  MustLoad();
  EXPECT_EQ(InChild([&] {
              const absl::Status dropped = DropPrivileges(
                  {CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON, CAP_SYS_PTRACE,
                   CAP_SYS_RESOURCE, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH,
                   CAP_CHOWN, CAP_FOWNER});
              EXPECT_TRUE(dropped.ok()) << dropped;
              const absl::Status evicted = TryEvict().status();
              EXPECT_TRUE(evicted.ok()) << evicted;
              return HasFailure() ? 1 : 0;
            }),
            0);
}

// The line stayed in stdio's buffer, and the exit status was 0.
TEST_F(EvictRootTest, WhatCannotBeSaidIsAnError) {
  MustLoad();
  const ShellResult full = RunShell(
      absl::StrCat("lib/netmeter_loader/netmeter-loader evict --pin-dir ",
                   config_.pin_dir, " 2>&1 >/dev/full"));
  EXPECT_EQ(full.exit_status, 1);
  EXPECT_EQ(full.output,
            "netmeter-loader: write to standard output: No space left on "
            "device (it has evicted what it could)\n");
}

TEST_F(EvictRootTest, WithoutAMeterThereIsNothingToEvict) {
  const absl::StatusOr<EvictResult> result = TryEvict();
  EXPECT_TRUE(absl::IsNotFound(result.status())) << result.status();
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("not loaded"));
}

// It slept for 200 ms, which is no wait for a program that was preempted, and then gave
// the slots away.
TEST_F(EvictRootTest, WithoutAWaitForRunningProgramsNothingIsEvicted) {
  MustLoad();
  EXPECT_EQ(InChild([this] {
              if (!RefuseCall(SYS_membarrier, EINVAL) ||
                  !RefuseCall(SYS_bpf, ENOMEM, BPF_MAP_CREATE)) {
                return 2;  // no seccomp filter
              }
              return TryEvict().status().message() ==
                             "wait for running programs: Cannot allocate memory"
                         ? 0
                         : 1;
            }),
            0);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
