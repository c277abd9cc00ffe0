// SPDX-License-Identifier: BSD-3-Clause
// The loader on the real kernel: a cgroup and a pin directory of the test's
// own, so that the host's meter, if any, is not disturbed.

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/core/unique_fd.h"
#include "lib/loader/cost.h"
#include "lib/loader/loader.h"
#include "lib/loader/serve.h"
#include "lib/loader/status.h"
#include "lib/loader/system.h"
#include "netmeter/abi.h"
#include "netmeter/meter.h"
#include "nlohmann/json.hpp"

namespace netmeter {
namespace internal {
namespace {

using ::testing::HasSubstr;
using Action = LoadResult::Action;

constexpr char kGroup[] = "daemon";  // on every Debian, gid 1
constexpr gid_t kGid = 1;
constexpr uid_t kNobody = 65534;

std::string CgroupRoot() {
  absl::StatusOr<std::string> root = FindCgroupRoot();
  if (root.ok()) return *root;
  ADD_FAILURE() << root.status();
  return "/nonexistent";
}

// Runs in a child of its own; its exit status.
int InChild(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    _exit(body());
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

bool BecomeUser(gid_t gid) {
  return setgroups(0, nullptr) == 0 && setresgid(gid, gid, gid) == 0 &&
         setresuid(kNobody, kNobody, kNobody) == 0;
}

class LoaderRootTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(geteuid(), 0u) << "needs root";
    cgroup_ = absl::StrCat(CgroupRoot(), "/netmeter-loader-test-", getpid());
    ASSERT_EQ(mkdir(cgroup_.c_str(), 0755), 0) << strerror(errno);
    config_.cgroup = cgroup_;
    config_.pin_dir = absl::StrCat("/run/netmeter-loader-test-", getpid());
    config_.group = kGroup;
  }

  void TearDown() override {
    const std::vector<uint32_t> programs = LinkedPrograms();
    bool was_loaded;
    EXPECT_TRUE(Unload(config_.pin_dir, &was_loaded).ok());
    EXPECT_NE(access(config_.pin_dir.c_str(), F_OK), 0);
    EXPECT_FALSE(IsOwnMount(config_.pin_dir));
    EXPECT_EQ(rmdir(cgroup_.c_str()), 0) << strerror(errno);
    for (uint32_t id : programs) {
      EXPECT_FALSE(UniqueFd(bpf_prog_get_fd_by_id(id)).ok())
          << "program " << id << " is left";
    }
  }

  Action MustLoad() {
    absl::StatusOr<LoadResult> result = Load(config_);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? result->action : Action::kUnchanged;
  }

  std::string LoadError() {
    absl::StatusOr<LoadResult> result = Load(config_);
    if (result.ok()) return "loaded";
    const std::string message(result.status().message());
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    return message;
  }

  // Loads in a child that is killed at the first step that says `step`. Whether
  // it was.
  bool LoadKilledAt(const std::string& step) {
    const pid_t child = fork();
    if (child == 0) {
      SetStepObserver([&](const std::string& done) {
        if (done.find(step) != std::string::npos) raise(SIGKILL);
      });
      _exit(Load(config_).ok() ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  }

  // As above, so many steps after the first that says `from`; what it had done
  // last, or "".
  std::string LoadKilledAfter(const std::string& from, int steps) {
    int fds[2];
    EXPECT_EQ(pipe2(fds, O_CLOEXEC), 0);
    const pid_t child = fork();
    if (child == 0) {
      int count = -1;
      SetStepObserver([&](const std::string& done) {
        if (count < 0 && done.find(from) == std::string::npos) return;
        if (++count < steps) return;
        if (write(fds[1], done.data(), done.size()) < 0) _exit(3);
        raise(SIGKILL);
      });
      _exit(Load(config_).ok() ? 0 : 1);
    }
    close(fds[1]);
    char text[512];
    const ssize_t length = read(fds[0], text, sizeof(text));
    close(fds[0]);
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(length > 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 0))
        << status;
    return std::string(text, length > 0 ? static_cast<size_t>(length) : 0);
  }

  void ExpectModes() {
    struct stat about;
    ASSERT_EQ(stat(config_.pin_dir.c_str(), &about), 0);
    EXPECT_EQ(about.st_mode & 0777, 0750u);
    EXPECT_EQ(about.st_gid, kGid);
    for (const char* pin : {"counters", "names", "info", "stats"}) {
      ASSERT_EQ(stat(Pin(pin).c_str(), &about), 0);
      EXPECT_EQ(about.st_mode & 0777, 0660u) << pin;
      EXPECT_EQ(about.st_gid, kGid) << pin;
    }
    ASSERT_EQ(stat(Pin("series").c_str(), &about), 0);
    EXPECT_EQ(about.st_mode & 0777, 0600u);
  }

  StatusReport MustStatus() {
    absl::StatusOr<StatusReport> report = GetStatus(config_.pin_dir);
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? *report : StatusReport();
  }

  std::string Pin(const std::string& name) {
    return absl::StrCat(config_.pin_dir, "/", name);
  }

  uint32_t LinkId(const std::string& pin, uint32_t* program = nullptr) {
    UniqueFd fd(bpf_obj_get(Pin(pin).c_str()));
    bpf_link_info about = {};
    uint32_t size = sizeof(about);
    EXPECT_TRUE(fd.ok()) << pin;
    EXPECT_EQ(bpf_obj_get_info_by_fd(fd.get(), &about, &size), 0);
    if (program != nullptr) *program = about.prog_id;
    return about.id;
  }

  std::vector<uint32_t> LinkedPrograms() {
    std::vector<uint32_t> ids;
    for (const std::string& pin : LinkPins()) {
      if (access(Pin(pin).c_str(), F_OK) != 0) continue;
      ids.push_back(0);
      LinkId(pin, &ids.back());
    }
    return ids;
  }

  // One UDP datagram of `bytes` to the proxy port on loopback, from a process
  // of the test's cgroup: it is counted, and leaves nothing behind.
  void SendFromCgroup(size_t bytes) {
    EXPECT_EQ(InChild([&] {
                std::ofstream(cgroup_ + "/cgroup.procs") << getpid();
                UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
                sockaddr_in to = {};
                to.sin_family = AF_INET;
                to.sin_port = htons(8443);
                to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
                const std::string data(bytes, 'x');
                return sendto(fd.get(), data.data(), data.size(), 0,
                              reinterpret_cast<sockaddr*>(&to),
                              sizeof(to)) == static_cast<ssize_t>(bytes)
                           ? 0
                           : 1;
              }),
              0);
  }

  uint64_t PayloadSent() {
    MeterOptions options;
    options.pin_dir = config_.pin_dir;
    auto meter = Meter::Open(options);
    EXPECT_TRUE(meter.ok()) << meter.status();
    if (!meter.ok()) return 0;
    auto samples = (*meter)->ReadHost();
    EXPECT_TRUE(samples.ok()) << samples.status();
    uint64_t sum = 0;
    if (samples.ok()) {
      for (const Sample& sample : *samples) sum += sample.tx_payload_bytes;
    }
    return sum;
  }

  std::string cgroup_;
  Config config_;
};

TEST_F(LoaderRootTest, LoadCountsAndUnloadLeavesNothing) {
  EXPECT_EQ(MustLoad(), Action::kLoaded);
  SendFromCgroup(100);
  EXPECT_EQ(PayloadSent(), 100u);
  bool was_loaded = false;
  EXPECT_TRUE(Unload(config_.pin_dir, &was_loaded).ok());
  EXPECT_TRUE(was_loaded);
  EXPECT_TRUE(Unload(config_.pin_dir, &was_loaded).ok());
  EXPECT_FALSE(was_loaded);
}

TEST_F(LoaderRootTest, SocketsThatWereOpenBeforeAreAdopted) {
  // A child in the cgroup opens sockets, then waits for the load.
  int ready[2], go[2];
  ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
  ASSERT_EQ(pipe2(go, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    std::ofstream(cgroup_ + "/cgroup.procs") << getpid();
    UniqueFd udp(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in here = {};
    here.sin_family = AF_INET;
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(here);
    auto* address = reinterpret_cast<sockaddr*>(&here);
    if (bind(listener.get(), address, sizeof(here)) != 0 ||
        listen(listener.get(), 5) != 0 ||
        getsockname(listener.get(), address, &size) != 0 ||
        write(ready[1], &here.sin_port, 2) != 2) {
      _exit(1);
    }
    char byte;
    if (read(go[0], &byte, 1) != 1) _exit(2);
    here.sin_port = htons(8443);
    if (sendto(udp.get(), "12345", 5, 0, address, sizeof(here)) != 5) _exit(3);
    UniqueFd accepted(accept(listener.get(), nullptr, nullptr));
    if (write(accepted.get(), "1234567", 7) != 7) _exit(4);
    if (read(accepted.get(), &byte, 1) != 0) _exit(5);
    _exit(0);
  }
  uint16_t port = 0;
  ASSERT_EQ(read(ready[0], &port, 2), 2);
  config_.proxy_ports = {8443, ntohs(port)};
  MustLoad();
  ASSERT_EQ(write(go[1], "x", 1), 1);
  {
    // The other end is outside of the cgroup.
    UniqueFd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = port;
    ASSERT_EQ(connect(client.get(), reinterpret_cast<sockaddr*>(&to),
                      sizeof(to)),
              0);
    char text[16];
    EXPECT_EQ(read(client.get(), text, sizeof(text)), 7);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  MeterOptions options;
  options.pin_dir = config_.pin_dir;
  auto meter = Meter::Open(options);
  ASSERT_TRUE(meter.ok()) << meter.status();
  auto samples = (*meter)->ReadHost();
  ASSERT_TRUE(samples.ok()) << samples.status();
  uint64_t payload = 0;
  for (const Sample& sample : *samples) {
    EXPECT_EQ(sample.kind, Kind::kBinary) << sample.name;
    EXPECT_EQ(sample.name, "loader_root_test");
    payload += sample.tx_payload_bytes;
  }
  EXPECT_EQ(payload, 12u);
  for (int fd : {ready[0], ready[1], go[0], go[1]}) close(fd);
}

TEST_F(LoaderRootTest, ASecondLoadChangesNothing) {
  MustLoad();
  uint32_t program = 0, again = 0;
  const uint32_t link = LinkId("link_egress", &program);
  EXPECT_EQ(MustLoad(), Action::kUnchanged);
  EXPECT_EQ(LinkId("link_egress", &again), link);
  EXPECT_EQ(again, program);
}

TEST_F(LoaderRootTest, AnUpgradeReplacesProgramsAndKeepsCounters) {
  MustLoad();
  SendFromCgroup(100);
  uint32_t program = 0, again = 0;
  const uint32_t link = LinkId("link_egress", &program);
  const uint32_t tracing = LinkId("link_exec");
  config_.services = {"mme"};
  EXPECT_EQ(MustLoad(), Action::kUpgraded);
  EXPECT_EQ(LinkId("link_egress", &again), link) << "attached a second time";
  EXPECT_NE(again, program);
  EXPECT_NE(LinkId("link_exec"), tracing);
  EXPECT_EQ(PayloadSent(), 100u);
  SendFromCgroup(11);
  EXPECT_EQ(PayloadSent(), 111u) << "counted by both, or by none";
}

TEST_F(LoaderRootTest, CostIsThatOfOurProgramsAndMaps) {
  EXPECT_TRUE(absl::IsNotFound(ReadCost(config_.pin_dir).status()));
  EXPECT_TRUE(absl::IsNotFound(
      MeasureCost(config_.pin_dir, 1, CostFormat::kText).status()));
  MustLoad();
  std::atomic<bool> stop{false};
  std::thread traffic([&] {
    while (!stop) {
      SendFromCgroup(1);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
  const absl::StatusOr<std::string> text =
      MeasureCost(config_.pin_dir, 1, CostFormat::kJson);
  stop = true;
  traffic.join();
  ASSERT_TRUE(text.ok()) << text.status();
  const auto json = nlohmann::json::parse(*text);
  EXPECT_GE(json["seconds"], 1.0);
  std::map<std::string, uint64_t> runs, bytes;
  for (const auto& program : json["programs"]) {
    runs[program["name"]] = program["runs"];
    if (program["runs"] != 0) {
      EXPECT_GT(program["run_ns"], 0) << program["name"];
      EXPECT_GT(program["ns_per_run"], 0) << program["name"];
    }
  }
  EXPECT_EQ(runs.size(), LinkPins().size());
  EXPECT_GT(runs["nm_egress"], 0u);
  EXPECT_GT(runs["nm_sock_create"], 0u);
  for (const auto& map : json["maps"]) bytes[map["name"]] = map["bytes"];
  const uint64_t cells =
      uint64_t{config_.max_series} *
      static_cast<uint64_t>(libbpf_num_possible_cpus());
  EXPECT_GE(bytes["nm_counters"], cells * sizeof(nm_cell));
  EXPECT_GE(bytes["nm_tcp"], config_.max_series * sizeof(nm_tcp));
  EXPECT_GE(bytes["nm_sockets"], config_.max_sockets * 64);
}

TEST_F(LoaderRootTest, CostAsMetricsHasTheNamesOfTheDesign) {
  MustLoad();
  const absl::StatusOr<Cost> cost = ReadCost(config_.pin_dir);
  ASSERT_TRUE(cost.ok()) << cost.status();
  const std::string text = CostMetrics(*cost);
  EXPECT_THAT(text, HasSubstr("# TYPE netmeter_bpf_run_seconds_total counter\n"
                              "netmeter_bpf_run_seconds_total{program=\"nm_exit\"} "));
  EXPECT_THAT(text, HasSubstr("\nnetmeter_bpf_runs_total{program=\"nm_egress\"} "));
  EXPECT_THAT(text, HasSubstr("\nnetmeter_bpf_map_bytes{map=\"nm_counters\"} "));
}

TEST_F(LoaderRootTest, ALinkThatWasRemovedIsAttachedAgain) {
  MustLoad();
  ASSERT_EQ(unlink(Pin("link_egress").c_str()), 0);
  absl::StatusOr<StatusReport> status = GetStatus(config_.pin_dir);
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->state, MeterState::kDamaged);
  EXPECT_THAT(status->text, HasSubstr("link_egress"));
  absl::StatusOr<LoadResult> result = Load(config_);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->action, Action::kUpgraded);
  EXPECT_THAT(result->notes, ::testing::Contains(
                                 "link_egress was missing: attached anew"));
  SendFromCgroup(7);
  EXPECT_EQ(PayloadSent(), 7u);
}

// Pinned is not attached: BPF_LINK_DETACH left a meter that counted nothing,
// was reported as loaded and could not be repaired.
TEST_F(LoaderRootTest, ALinkThatWasDetachedIsSeenAndAttachedAgain) {
  MustLoad();
  {
    UniqueFd link(bpf_obj_get(Pin("link_egress").c_str()));
    ASSERT_EQ(bpf_link_detach(link.get()), 0);
  }
  absl::StatusOr<StatusReport> status = GetStatus(config_.pin_dir);
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->state, MeterState::kDamaged);
  EXPECT_EQ(MustLoad(), Action::kUpgraded);
  SendFromCgroup(9);
  EXPECT_EQ(PayloadSent(), 9u);
}

// Anybody may flock(2) a directory that he can read: the lock on /run let every
// user block the loader.
TEST_F(LoaderRootTest, AUserCannotHoldTheLock) {
  int ready[2];
  ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    UniqueFd run(open("/run", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const bool locked =
        BecomeUser(kNobody) && flock(run.get(), LOCK_EX | LOCK_NB) == 0;
    if (write(ready[1], locked ? "y" : "n", 1) != 1) _exit(1);
    pause();
  }
  char locked = 0;
  ASSERT_EQ(read(ready[0], &locked, 1), 1);
  EXPECT_EQ(locked, 'y');
  EXPECT_EQ(MustLoad(), Action::kLoaded);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  for (int fd : ready) close(fd);
}

// An ordinary directory was deleted, and unload said "nothing to do".
TEST_F(LoaderRootTest, UnloadLeavesADirectoryThatIsNotOurs) {
  ASSERT_EQ(mkdir(config_.pin_dir.c_str(), 0755), 0);
  bool was_loaded = true;
  EXPECT_TRUE(Unload(config_.pin_dir, &was_loaded).ok());
  EXPECT_FALSE(was_loaded);
  EXPECT_EQ(rmdir(config_.pin_dir.c_str()), 0);
}

TEST_F(LoaderRootTest, AKilledLoadIsFinishedByTheNextOne) {
  // SIGKILL at ever later moments, until a load gets through.
  int killed = 0;
  for (int delay_us = 500; delay_us < 3000000; delay_us += delay_us / 4) {
    const pid_t child = fork();
    if (child == 0) _exit(Load(config_).ok() ? 0 : 1);
    usleep(static_cast<useconds_t>(delay_us));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFEXITED(status)) {
      EXPECT_EQ(WEXITSTATUS(status), 0);
      break;
    }
    killed++;
    absl::StatusOr<StatusReport> report = GetStatus(config_.pin_dir);
    EXPECT_TRUE(report.ok()) << report.status();
    // Half of the time an unload comes next, else another load.
    if (killed % 2 == 0) {
      bool was_loaded;
      ASSERT_TRUE(Unload(config_.pin_dir, &was_loaded).ok());
    }
  }
  EXPECT_GT(killed, 5);
  MustLoad();
  SendFromCgroup(100);
  EXPECT_EQ(PayloadSent(), 100u);
}

TEST_F(LoaderRootTest, AKilledUpgradeIsFinishedByTheNextOne) {
  MustLoad();
  SendFromCgroup(100);
  for (int i = 0; i < 12; i++) {
    config_.services = {absl::StrCat("service", i)};
    const pid_t child = fork();
    if (child == 0) _exit(Load(config_).ok() ? 0 : 1);
    usleep(static_cast<useconds_t>(2000 + 9000 * i));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    SendFromCgroup(1);  // counted once, by whichever program is there
  }
  MustLoad();
  EXPECT_EQ(PayloadSent(), 112u);
}

TEST_F(LoaderRootTest, TablesGrowWithoutLosingAByte) {
  config_.max_series = 22;  // one slot that is not reserved
  config_.max_names = 5;
  MustLoad();
  MeterOptions options;
  options.pin_dir = config_.pin_dir;
  options.wait_for_loader = true;
  auto reader = Meter::Open(options);
  ASSERT_TRUE(reader.ok()) << reader.status();
  SendFromCgroup(100);
  EXPECT_EQ(InChild([&] {
              std::ofstream(cgroup_ + "/cgroup.procs") << getpid();
              UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
              for (const char* name : {"a", "b"}) {
                setsockopt(fd.get(), NM_SOL, NM_TAG, name, 1);
              }
              return 0;
            }),
            0);
  EXPECT_THAT(MustStatus().text,
              HasSubstr("names refused, or counted as overflow: raise "
                        "max_names\n"));
  config_.max_series = 100;
  config_.max_names = 200;
  EXPECT_EQ(MustLoad(), Action::kUpgraded);
  EXPECT_THAT(MustStatus().text,
              HasSubstr("names refused, or counted as overflow: earlier, now "
                        "there is room\n"));
  EXPECT_EQ(PayloadSent(), 100u);
  SendFromCgroup(1);
  EXPECT_EQ(PayloadSent(), 101u);
  sleep(2);  // who waits for the loader looks once a second
  auto health = (*reader)->ReadHealth();
  ASSERT_TRUE(health.ok()) << health.status();
  EXPECT_EQ(health->max_series, 100u);
  // Smaller tables are not made: what is loaded stays.
  config_.max_series = 50;
  absl::StatusOr<LoadResult> result = Load(config_);
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->notes.size(), 1u);
  EXPECT_THAT(result->notes[0], HasSubstr("stays 100"));
  EXPECT_EQ(PayloadSent(), 101u);
}

// While the new tables took over, for some 30 ms, the kernel refused names that
// it did not know: a service that started then did not get its name. And whoever
// opened the meter between two renames found counters and sizes of two meters.
TEST_F(LoaderRootTest, ServicesThatStartWhileTablesGrowGetTheirNames) {
  config_.max_names = 30000;  // a longer window
  MustLoad();
  struct Result {
    int stop, opened, longest_ms;
    char error[200];
  };
  auto* result = static_cast<Result*>(
      mmap(nullptr, sizeof(Result), PROT_READ | PROT_WRITE,
           MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(result, MAP_FAILED);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    std::ofstream(cgroup_ + "/cgroup.procs") << getpid();
    while (!__atomic_load_n(&result->stop, __ATOMIC_RELAXED)) {
      MeterOptions options;
      options.pin_dir = config_.pin_dir;
      options.service = absl::StrCat("service-", result->opened);
      const auto begin = std::chrono::steady_clock::now();
      const auto meter = Meter::Open(options);
      const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(
          std::chrono::steady_clock::now() - begin);
      result->longest_ms =
          std::max(result->longest_ms, static_cast<int>(took.count()));
      if (!meter.ok()) {
        snprintf(result->error, sizeof(result->error), "%s",
                 meter.status().ToString().c_str());
        _exit(1);
      }
      result->opened++;
      usleep(1000);
    }
    _exit(0);
  }
  for (int i = 0; i < 8; ++i) {
    config_.max_series += 64;
    EXPECT_EQ(MustLoad(), Action::kUpgraded);
  }
  __atomic_store_n(&result->stop, 1, __ATOMIC_RELAXED);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << result->error;
  EXPECT_GT(result->opened, 100);
  printf("%d services in 8 growths; the longest start took %d ms\n",
         result->opened, result->longest_ms);
  munmap(result, sizeof(Result));
}

TEST_F(LoaderRootTest, AKilledGrowthIsFinishedByTheNextLoad) {
  config_.max_series = 1000;
  config_.max_names = 1000;
  MustLoad();
  SendFromCgroup(1000);
  uint64_t expected = 1000;
  int killed = 0;
  for (int i = 0; i < 30; i++) {
    config_.max_series += 100;
    config_.max_names += 10;
    const pid_t child = fork();
    if (child == 0) _exit(Load(config_).ok() ? 0 : 1);
    usleep(static_cast<useconds_t>(1000 + 5000 * i));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    killed += WIFSIGNALED(status);
    SendFromCgroup(1);
    expected++;
    if (i % 3 == 2) {
      MustLoad();
      EXPECT_EQ(PayloadSent(), expected) << "after kill " << i;
    }
  }
  EXPECT_GT(killed, 10);
  MustLoad();
  EXPECT_EQ(PayloadSent(), expected);
  absl::StatusOr<StatusReport> report = GetStatus(config_.pin_dir);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->state, MeterState::kLoaded);
  const nlohmann::json json = nlohmann::json::parse(report->json);
  EXPECT_EQ(json["tables"]["series"]["max"],
            config_.max_series - NM_SLOT_FIRST);
}

// The kills above come at any moment. These come between any two steps of a
// growth, among them those at which the old info is linked, renamed over and
// retired: a reader that holds the old maps was never told, and stood still.
TEST_F(LoaderRootTest, AGrowthMayBeKilledBetweenAnyTwoSteps) {
  config_.max_series = 30;
  config_.max_names = 30;
  MustLoad();
  SendFromCgroup(1000);
  uint64_t expected = 1000;
  MeterOptions options;
  options.pin_dir = config_.pin_dir;
  auto reader = Meter::Open(options);
  ASSERT_TRUE(reader.ok()) << reader.status();
  bool unfinished = false, pending = false;
  // Every fifth step until the new maps are renamed over the old, then every.
  std::string from = "drained free_slots";
  int steps = 0, stride = 5;
  for (std::string last = "x"; !last.empty(); steps += stride) {
    config_.max_series += 3;
    config_.max_names += 3;
    last = LoadKilledAfter(from, steps);
    if (stride > 1 && absl::StrContains(last, "_new to ")) {
      from = "linked ";
      stride = 1;
      steps = -1;
    }
    SCOPED_TRACE(absl::StrCat("killed after step ", steps, ": ", last));
    SendFromCgroup(1);
    expected++;
    const StatusReport report = MustStatus();
    if (access(Pin("info_new").c_str(), F_OK) == 0) {
      unfinished = true;
      EXPECT_EQ(report.state, MeterState::kDamaged);
      EXPECT_THAT(report.text, HasSubstr("to grow the tables was killed"));
      EXPECT_TRUE(nlohmann::json::parse(report.json)["unfinished"]);
    }
    pending |= access(Pin("info_old").c_str(), F_OK) == 0;
    MustLoad();
    EXPECT_EQ(MustStatus().state, MeterState::kLoaded);
    EXPECT_NE(access(Pin("info_old").c_str(), F_OK), 0);
    EXPECT_NE(access(Pin("merged").c_str(), F_OK), 0);
    EXPECT_EQ(PayloadSent(), expected);
    ExpectModes();
    // Who has had the maps open all the time is told.
    auto samples = (*reader)->ReadHost();
    ASSERT_TRUE(samples.ok()) << samples.status();
    uint64_t sum = 0;
    for (const Sample& sample : *samples) sum += sample.tx_payload_bytes;
    ASSERT_EQ(sum, expected);
    ASSERT_EQ((*reader)->ReadHealth()->series_full_packets, 0u);
  }
  EXPECT_TRUE(unfinished);
  EXPECT_TRUE(pending);
  EXPECT_EQ(stride, 1);
  EXPECT_GT(steps, 10);
}

TEST_F(LoaderRootTest, AFirstLoadMayBeKilledBetweenAnyTwoSteps) {
  int steps = 0;
  for (std::string last = "x"; !last.empty(); steps += 2) {
    last = LoadKilledAfter("froze map nm_info", steps);
    SCOPED_TRACE(absl::StrCat("killed after step ", steps, ": ", last));
    absl::StatusOr<StatusReport> report = GetStatus(config_.pin_dir);
    EXPECT_TRUE(report.ok()) << report.status();
    if (steps % 8 == 0) {
      MustLoad();
      ExpectModes();
      SendFromCgroup(3);
      EXPECT_EQ(PayloadSent(), 3u);
    }
    bool was_loaded;
    ASSERT_TRUE(Unload(config_.pin_dir, &was_loaded).ok());
    ASSERT_NE(access(config_.pin_dir.c_str(), F_OK), 0);
    ASSERT_NE(access(LockFile(config_.pin_dir).c_str(), F_OK), 0);
  }
  EXPECT_GT(steps, 20);
}

// A load that was killed before it had set the modes was "already loaded,
// nothing to do" for the next one: the group could not read for ever.
TEST_F(LoaderRootTest, ModesAreSetAfterAKill) {
  ASSERT_TRUE(LoadKilledAt("/info: map nm_info"));
  struct stat about;
  ASSERT_EQ(stat(Pin("info").c_str(), &about), 0);
  ASSERT_NE(about.st_gid, kGid);
  EXPECT_EQ(MustLoad(), Action::kUnchanged);
  ExpectModes();
}

// A growth drains the old queues of free ids. One that fails then has to fill
// them again, or no new series would be counted by name until the next load.
TEST_F(LoaderRootTest, AFailedGrowthFillsTheQueuesAgain) {
  config_.max_series = 100;
  MustLoad();
  config_.max_series = 200;
  const uint32_t zero = 0;
  uint32_t id = 0;
  bool blocked = false;
  SetStepObserver([&](const std::string& done) {
    if (blocked || !absl::StartsWith(done, "drained free_names")) return;
    blocked = true;
    UniqueFd slots(bpf_obj_get(Pin("free_slots").c_str()));
    EXPECT_NE(bpf_map_lookup_elem(slots.get(), nullptr, &id), 0);
    // In the way of the next step.
    UniqueFd map(bpf_map_create(BPF_MAP_TYPE_ARRAY, "x", 4, 4, 1, nullptr));
    EXPECT_EQ(bpf_obj_pin(map.get(), Pin("merged").c_str()), 0);
    EXPECT_EQ(bpf_map_update_elem(map.get(), &zero, &zero, BPF_ANY), 0);
  });
  EXPECT_THAT(LoadError(), HasSubstr("File exists"));
  SetStepObserver(nullptr);
  ASSERT_EQ(unlink(Pin("merged").c_str()), 0);
  EXPECT_EQ(MustStatus().state, MeterState::kLoaded);
  SendFromCgroup(5);
  MeterOptions options;
  options.pin_dir = config_.pin_dir;
  auto meter = Meter::Open(options);
  ASSERT_TRUE(meter.ok()) << meter.status();
  auto samples = (*meter)->ReadHost();
  ASSERT_TRUE(samples.ok() && samples->size() == 1);
  EXPECT_EQ((*samples)[0].name, "loader_root_test");
  // Ascending, as readers rely on it, and each once.
  UniqueFd slots(bpf_obj_get(Pin("free_slots").c_str()));
  for (uint32_t expected = NM_SLOT_FIRST + 1; expected < 100; expected++) {
    ASSERT_EQ(bpf_map_lookup_and_delete_elem(slots.get(), nullptr, &id), 0);
    EXPECT_EQ(id, expected);
  }
  EXPECT_NE(bpf_map_lookup_and_delete_elem(slots.get(), nullptr, &id), 0);
}

// Ctrl-C in the middle left a half-attached meter.
TEST_F(LoaderRootTest, ASignalWaitsUntilTheLoadIsDone) {
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const pid_t child = fork();
    if (child == 0) {
      execl("lib/loader/netmeter-loader", "netmeter-loader", "load", "--quiet",
            "--cgroup", cgroup_.c_str(), "--pin-dir", config_.pin_dir.c_str(),
            "--group", kGroup, nullptr);
      _exit(127);
    }
    // It has mounted: now it is at work.
    for (int i = 0; i < 10000 && !IsOwnMount(config_.pin_dir); i++) usleep(500);
    kill(child, signal);
    int status = 0;
    waitpid(child, &status, 0);
    // At the end, or it was done already.
    EXPECT_TRUE((WIFSIGNALED(status) && WTERMSIG(status) == signal) ||
                (WIFEXITED(status) && WEXITSTATUS(status) == 0))
        << status;
    EXPECT_EQ(MustStatus().state, MeterState::kLoaded);
    bool was_loaded;
    ASSERT_TRUE(Unload(config_.pin_dir, &was_loaded).ok());
  }
}

// Both found nothing, and both made the directories and mounted.
TEST_F(LoaderRootTest, TwoLoadsAtOnceMakeOneMeter) {
  const std::string top = config_.pin_dir;
  config_.pin_dir = top + "/nested/pins";
  std::vector<pid_t> children;
  for (int i = 0; i < 2; i++) {
    children.push_back(fork());
    if (children.back() == 0) {
      alarm(60);
      absl::StatusOr<LoadResult> result = Load(config_);
      _exit(!result.ok() ? 1 : static_cast<int>(result->action) + 10);
    }
  }
  std::vector<int> answers;
  for (pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    answers.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : status);
  }
  EXPECT_THAT(answers, ::testing::UnorderedElementsAre(
                           10 + static_cast<int>(Action::kLoaded),
                           10 + static_cast<int>(Action::kUnchanged)));
  SendFromCgroup(8);
  EXPECT_EQ(PayloadSent(), 8u);
  // unload left the directories above the pins.
  bool was_loaded;
  ASSERT_TRUE(Unload(config_.pin_dir, &was_loaded).ok());
  EXPECT_NE(access(top.c_str(), F_OK), 0);
  // Those that load did not make, or that others use, stay.
  ASSERT_EQ(mkdir(top.c_str(), 0755), 0);
  MustLoad();
  ASSERT_TRUE(Unload(config_.pin_dir, &was_loaded).ok());
  EXPECT_NE(access((top + "/nested").c_str(), F_OK), 0);
  EXPECT_EQ(access(top.c_str(), F_OK), 0);
  MustLoad();
  std::ofstream(top + "/nested/precious") << "x";
  ASSERT_TRUE(Unload(config_.pin_dir, &was_loaded).ok());
  EXPECT_EQ(unlink((top + "/nested/precious").c_str()), 0);
  EXPECT_EQ(rmdir((top + "/nested").c_str()), 0);
  EXPECT_EQ(rmdir(top.c_str()), 0);
}

// With a removed cgroup its programs go, and the meter counted nothing. status
// said that nine links were missing, and load asked for an unload.
TEST_F(LoaderRootTest, ACgroupThatWasMadeAgainIsCountedAgain) {
  MustLoad();
  SendFromCgroup(100);
  ASSERT_EQ(rmdir(cgroup_.c_str()), 0);
  StatusReport report = MustStatus();
  EXPECT_EQ(report.state, MeterState::kDamaged);
  EXPECT_THAT(report.text, HasSubstr("the cgroup was removed: nothing is "
                                     "counted (make it again, then run: "
                                     "netmeter-loader load --pin-dir "));
  EXPECT_THAT(report.text, ::testing::Not(HasSubstr("MISSING")));
  EXPECT_TRUE(nlohmann::json::parse(report.json)["cgroup_gone"]);
  EXPECT_THAT(LoadError(), HasSubstr("No such file or directory"));
  ASSERT_EQ(mkdir(cgroup_.c_str(), 0755), 0);
  report = MustStatus();
  EXPECT_EQ(report.state, MeterState::kDamaged);
  EXPECT_THAT(report.text, HasSubstr("was removed and made again"));
  absl::StatusOr<LoadResult> result = Load(config_);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->action, Action::kUpgraded);
  ASSERT_EQ(result->notes.size(), 1u);
  EXPECT_THAT(result->notes[0], HasSubstr("removed and made again"));
  report = MustStatus();
  EXPECT_EQ(report.state, MeterState::kLoaded);
  EXPECT_FALSE(nlohmann::json::parse(report.json)["cgroup_gone"]);
  EXPECT_EQ(PayloadSent(), 100u);
  SendFromCgroup(11);
  EXPECT_EQ(PayloadSent(), 111u);
  EXPECT_EQ(MustLoad(), Action::kUnchanged);
}

// An upgrade without an option that the first load had took that option's
// effect away, and nobody was told.
TEST_F(LoaderRootTest, AnUpgradeSaysWhatItChanges) {
  config_.services = {"mme"};
  MustLoad();
  config_.services.clear();
  config_.max_series = 5000;
  config_.destinations.emplace_back();
  config_.destinations.back().name = "cloud";
  absl::StatusOr<LoadResult> result = Load(config_);
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->notes.size(), 1u);
  EXPECT_EQ(result->notes[0],
            "the configuration changed: max_series 4096 to 5000, services mme "
            "to none, destinations");
  result = Load(config_);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->notes.empty());
}

// A process may show a command line of megabytes; a hundred of them made the
// loader use as much.
TEST_F(LoaderRootTest, OfACommandLineOnlyTheBeginningIsRead) {
  char dir[] = "/tmp/netmeter-cmdline-XXXXXX";
  ASSERT_NE(mkdtemp(dir), nullptr);
  const std::string program = std::string(dir) + "/main.py";
  {
    std::ifstream from("/bin/sh", std::ios::binary);
    std::ofstream(program, std::ios::binary) << from.rdbuf();
  }
  ASSERT_EQ(chmod(program.c_str(), 0755), 0);
  int fds[2];
  ASSERT_EQ(pipe2(fds, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    const std::string longest(100000, 'x');
    std::vector<char*> arguments = {const_cast<char*>(program.c_str()),
                                    const_cast<char*>("-c"),
                                    const_cast<char*>("read line; exit 0")};
    for (int i = 0; i < 15; i++) {
      arguments.push_back(const_cast<char*>(longest.c_str()));
    }
    arguments.push_back(nullptr);
    dup2(fds[0], 0);
    execv(program.c_str(), arguments.data());
    _exit(127);
  }
  size_t length = 0;
  for (int i = 0; i < 1000 && length < 1000; i++) {
    usleep(10000);
    for (const RunningProcess& process : RunningProcesses()) {
      if (process.tgid != static_cast<uint32_t>(child)) continue;
      length = process.arguments.size();
    }
  }
  EXPECT_EQ(length, size_t{80} << 10);
  close(fds[0]);
  close(fds[1]);
  waitpid(child, nullptr, 0);
  unlink(program.c_str());
  rmdir(dir);
}

TEST_F(LoaderRootTest, AnotherCgroupAtTheSamePinsIsRefused) {
  MustLoad();
  const std::string other = absl::StrCat(cgroup_, "/inner");
  ASSERT_EQ(mkdir(other.c_str(), 0755), 0);
  config_.cgroup = other;
  EXPECT_THAT(LoadError(), HasSubstr("choose another --pin-dir"));
  rmdir(other.c_str());
  config_.cgroup = cgroup_;
}

// The command that `status` prints names no cgroup, and was refused.
TEST_F(LoaderRootTest, WithoutACgroupTheLoadedMeterKeepsItsOwn) {
  MustLoad();
  Config config = config_;
  config.cgroup.clear();
  absl::StatusOr<LoadResult> result = Load(config);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->action, Action::kUnchanged);
  EXPECT_EQ(result->cgroup, cgroup_);
  config.max_series++;
  result = Load(config);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->action, Action::kUpgraded);
  SendFromCgroup(12);
  EXPECT_EQ(PayloadSent(), 12u);
}

TEST_F(LoaderRootTest, TwoMetersAreIndependent) {
  MustLoad();
  Config second = config_;
  second.pin_dir += "-2";
  ASSERT_TRUE(Load(second).ok());
  SendFromCgroup(50);
  EXPECT_EQ(PayloadSent(), 50u);
  bool was_loaded;
  EXPECT_TRUE(Unload(second.pin_dir, &was_loaded).ok());
  SendFromCgroup(50);
  EXPECT_EQ(PayloadSent(), 100u);
}

TEST_F(LoaderRootTest, ForeignFilesAreLeftAlone) {
  ASSERT_EQ(mkdir(config_.pin_dir.c_str(), 0755), 0);
  const std::string file = Pin("precious");
  std::ofstream(file) << "data";
  EXPECT_THAT(LoadError(), HasSubstr("foreign files (precious)"));
  EXPECT_EQ(access(file.c_str(), F_OK), 0);
  unlink(file.c_str());
  rmdir(config_.pin_dir.c_str());
}

TEST_F(LoaderRootTest, ForeignPinsAreLeftAlone) {
  bool made, mounted;
  ASSERT_TRUE(PrepareDirectory(config_.pin_dir, &made, &mounted).ok());
  UniqueFd map(
      bpf_map_create(BPF_MAP_TYPE_ARRAY, "foreign", 4, 4, 1, nullptr));
  ASSERT_TRUE(map.ok());
  ASSERT_EQ(bpf_obj_pin(map.get(), Pin("foreign").c_str()), 0);
  EXPECT_THAT(LoadError(), HasSubstr("foreign file"));
  EXPECT_EQ(access(Pin("foreign").c_str(), F_OK), 0);
  // It was left in /run by each load and unload that was refused.
  EXPECT_NE(access(LockFile(config_.pin_dir).c_str(), F_OK), 0);
  unlink(Pin("foreign").c_str());
}

// In a BPF file system that others use, too, unload removed whatever had the
// name of a pin of ours, and load replaced the program of a foreign link.
TEST_F(LoaderRootTest, PinsOfOthersWithOurNamesAreLeftAlone) {
  ASSERT_EQ(mkdir(config_.pin_dir.c_str(), 0755), 0);
  ASSERT_EQ(mount("others", config_.pin_dir.c_str(), "bpf", 0, ""), 0);
  UniqueFd map(bpf_map_create(BPF_MAP_TYPE_ARRAY, "theirs", 4, 4, 1, nullptr));
  const bpf_insn pass[] = {{BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, 1},
                           {BPF_JMP | BPF_EXIT, 0, 0, 0, 0}};
  LIBBPF_OPTS(bpf_prog_load_opts, options);
  options.expected_attach_type = BPF_CGROUP_INET_EGRESS;
  UniqueFd program(bpf_prog_load(BPF_PROG_TYPE_CGROUP_SKB, "theirs", "GPL",
                                 pass, 2, &options));
  UniqueFd cgroup(open(cgroup_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  UniqueFd link(bpf_link_create(program.get(), cgroup.get(),
                                BPF_CGROUP_INET_EGRESS, nullptr));
  ASSERT_TRUE(map.ok() && program.ok() && link.ok()) << strerror(errno);
  const struct {
    const char* pin;
    int fd;
    const char* what;
  } pins[] = {
      {"counters", map.get(), "map theirs"},
      {"names_new", map.get(), "map theirs"},
      {"info_old", map.get(), "map theirs"},
      {"stats", program.get(), "program theirs"},
      {"link_egress", link.get(), "of program theirs"},
      {"link_exit_new", map.get(), "map theirs"},
  };
  for (const bool loaded : {false, true}) {
    for (const auto& pin : pins) {
      SCOPED_TRACE(pin.pin);
      if (loaded && pin.fd == map.get()) continue;  // as above, and slower
      if (loaded) {
        MustLoad();
        unlink(Pin(pin.pin).c_str());
        config_.services = {"changed"};
      }
      ASSERT_EQ(bpf_obj_pin(pin.fd, Pin(pin.pin).c_str()), 0);
      for (const std::string& error : {LoadError(), [&] {
             bool was_loaded;
             return std::string(
                 Unload(config_.pin_dir, &was_loaded).message());
           }()}) {
        EXPECT_THAT(error, HasSubstr(absl::StrCat(Pin(pin.pin), " is not ours")));
        EXPECT_THAT(error, HasSubstr(pin.what));
      }
      UniqueFd still(bpf_obj_get(Pin(pin.pin).c_str()));
      EXPECT_TRUE(still.ok());
      EXPECT_EQ(access(LockFile(config_.pin_dir).c_str(), F_OK) == 0, loaded);
      // Nothing else was touched, either.
      EXPECT_EQ(access(Pin("link_ingress").c_str(), F_OK) == 0, loaded);
      ASSERT_EQ(unlink(Pin(pin.pin).c_str()), 0);
      bool was_loaded;
      EXPECT_TRUE(Unload(config_.pin_dir, &was_loaded).ok());
    }
  }
  bpf_link_info about = {};
  uint32_t size = sizeof(about);
  ASSERT_EQ(bpf_obj_get_info_by_fd(link.get(), &about, &size), 0);
  bpf_prog_info theirs = {};
  size = sizeof(theirs);
  ASSERT_EQ(bpf_obj_get_info_by_fd(program.get(), &theirs, &size), 0);
  EXPECT_EQ(about.prog_id, theirs.id);
  // What a killed load of ours left there is taken away.
  ASSERT_TRUE(LoadKilledAt("link_sock_create"));
  ASSERT_EQ(access(Pin("link_sock_create").c_str(), F_OK), 0);
  bool was_loaded;
  EXPECT_TRUE(Unload(config_.pin_dir, &was_loaded).ok());
  EXPECT_TRUE(was_loaded);
  EXPECT_NE(access(Pin("link_sock_create").c_str(), F_OK), 0);
  EXPECT_EQ(umount2(config_.pin_dir.c_str(), 0), 0);
  EXPECT_EQ(rmdir(config_.pin_dir.c_str()), 0);
}

// A map called nm_names, pinned as `names` by another program, was taken for
// the rest of a meter and removed.
TEST_F(LoaderRootTest, TheNameOfAMapAloneDoesNotMakeItOurs) {
  ASSERT_EQ(mkdir(config_.pin_dir.c_str(), 0755), 0);
  ASSERT_EQ(mount("others", config_.pin_dir.c_str(), "bpf", 0, ""), 0);
  UniqueFd names(
      bpf_map_create(BPF_MAP_TYPE_ARRAY, "nm_names", 4, 4, 1, nullptr));
  UniqueFd info(bpf_map_create(BPF_MAP_TYPE_ARRAY, "nm_info", 4,
                               sizeof(nm_info), 1, nullptr));
  ASSERT_TRUE(names.ok() && info.ok()) << strerror(errno);
  ASSERT_EQ(bpf_obj_pin(names.get(), Pin("names").c_str()), 0);
  bool was_loaded;
  for (const bool with_info : {false, true}) {
    if (with_info) {
      ASSERT_EQ(bpf_obj_pin(info.get(), Pin("info").c_str()), 0);
    }
    const std::string unload(
        Unload(config_.pin_dir, &was_loaded).message());
    for (const std::string& error : {unload, LoadError()}) {
      EXPECT_THAT(error, HasSubstr("names is not ours (map nm_names (id "));
      EXPECT_THAT(error, HasSubstr("without a meter's info beside it"));
    }
    EXPECT_TRUE(UniqueFd(bpf_obj_get(Pin("names").c_str())).ok());
    EXPECT_NE(access(LockFile(config_.pin_dir).c_str(), F_OK), 0);
  }
  unlink(Pin("info").c_str());
  unlink(Pin("names").c_str());
  // What a killed unload of ours leaves: its info is the last to go.
  MustLoad();
  for (const std::string& pin : LinkPins()) unlink(Pin(pin).c_str());
  for (const std::string& pin : MapPins()) {
    if (pin != "names" && pin != "info") unlink(Pin(pin).c_str());
  }
  EXPECT_TRUE(Unload(config_.pin_dir, &was_loaded).ok());
  EXPECT_TRUE(was_loaded);
  EXPECT_NE(access(Pin("names").c_str(), F_OK), 0);
  EXPECT_EQ(umount2(config_.pin_dir.c_str(), 0), 0);
  EXPECT_EQ(rmdir(config_.pin_dir.c_str()), 0);
}

// Where /run was full it said "No space left on device (run as root)", to root.
TEST_F(LoaderRootTest, AFullRunIsNoLackOfPrivilege) {
  EXPECT_EQ(InChild([] {
              if (unshare(CLONE_NEWNS) != 0 ||
                  mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
                  mount("full", "/run", "tmpfs", 0, "nr_inodes=1") != 0) {
                return 2;
              }
              const auto lock = LockDirectory("/run/x", 1);
              return absl::IsResourceExhausted(lock.status()) &&
                             absl::EndsWith(lock.status().message(),
                                            ": No space left on device")
                         ? 0
                         : 1;
            }),
            0);
  EXPECT_EQ(InChild([] {
              if (unshare(CLONE_NEWNS) != 0 ||
                  mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
                  mount("roots", "/run", "tmpfs", 0, "mode=0755") != 0 ||
                  !BecomeUser(kNobody)) {
                return 2;
              }
              const auto lock = LockDirectory("/run/x", 1);
              return absl::EndsWith(lock.status().message(), "(run as root)")
                         ? 0
                         : 1;
            }),
            0);
}

// Linux 5.10 forgets the source of a BPF file system, by which the loader knew
// its own mount: unload left it there. Mounted here as it looks there.
TEST_F(LoaderRootTest, AMountWithoutItsSourceIsKnownByItsDevice) {
  for (const int shift : {0, 1}) {
    ASSERT_EQ(mkdir(config_.pin_dir.c_str(), 0755), 0);
    ASSERT_EQ(mount("none", config_.pin_dir.c_str(), "bpf", 0, ""), 0);
    struct stat about;
    ASSERT_EQ(stat(config_.pin_dir.c_str(), &about), 0);
    {
      absl::StatusOr<UniqueFd> lock = LockDirectory(config_.pin_dir, 1);
      ASSERT_TRUE(lock.ok()) << lock.status();
      LoaderState state;
      state.mounted = true;
      state.device = about.st_dev + static_cast<uint64_t>(shift);
      ASSERT_TRUE(WriteState(lock->get(), state).ok());
    }
    EXPECT_EQ(MustLoad(), Action::kLoaded);
    ASSERT_EQ(stat(config_.pin_dir.c_str(), &about), 0);
    EXPECT_EQ(about.st_gid, shift == 0 ? kGid : 0u);
    bool was_loaded;
    EXPECT_TRUE(Unload(config_.pin_dir, &was_loaded).ok());
    EXPECT_TRUE(was_loaded);
    // That of others stays.
    EXPECT_EQ(access(config_.pin_dir.c_str(), F_OK) == 0, shift != 0);
    if (shift != 0) {
      EXPECT_EQ(umount2(config_.pin_dir.c_str(), 0), 0);
      EXPECT_EQ(rmdir(config_.pin_dir.c_str()), 0);
    }
  }
}

TEST_F(LoaderRootTest, AMapOfAnotherKindAtInfoIsRefused) {
  bool made, mounted;
  ASSERT_TRUE(PrepareDirectory(config_.pin_dir, &made, &mounted).ok());
  UniqueFd map(bpf_map_create(BPF_MAP_TYPE_ARRAY, "nm_info", 4, 8, 1, nullptr));
  ASSERT_TRUE(map.ok());
  ASSERT_EQ(bpf_obj_pin(map.get(), Pin("info").c_str()), 0);
  EXPECT_THAT(LoadError(), HasSubstr("ABI"));
  unlink(Pin("info").c_str());
}

// unload said "open ...: Permission denied (run as root)" to root, and left a
// lock file.
TEST_F(LoaderRootTest, AFileAsPinDirectoryIsAClearError) {
  std::ofstream(config_.pin_dir) << "x";
  const std::string error = absl::StrCat(
      "pin directory ", config_.pin_dir, " is a file, expected a directory");
  bool was_loaded;
  EXPECT_EQ(LoadError(), error);
  EXPECT_EQ(Unload(config_.pin_dir, &was_loaded).message(), error);
  EXPECT_EQ(GetStatus(config_.pin_dir).status().message(), error);
  EXPECT_THAT(std::string(Unload(config_.pin_dir + "/x", &was_loaded).message()),
              HasSubstr(" is a file, expected a directory"));
  for (const char* below : {"", "/x"}) {
    EXPECT_NE(access(LockFile(config_.pin_dir + below).c_str(), F_OK), 0);
  }
  unlink(config_.pin_dir.c_str());
}

TEST_F(LoaderRootTest, ADirectoryThatIsNoCgroupIsRefused) {
  config_.cgroup = "/tmp";
  EXPECT_THAT(LoadError(), HasSubstr("not a cgroup v2 directory"));
  config_.cgroup = "/sys/fs/no-such-cgroup";
  EXPECT_THAT(LoadError(), HasSubstr("No such file or directory"));
}

TEST_F(LoaderRootTest, WithoutPrivilegeItSaysWhatIsMissing) {
  EXPECT_EQ(InChild([&] {
              if (!BecomeUser(kNobody)) return 2;
              absl::StatusOr<LoadResult> result = Load(config_);
              return !result.ok() &&
                             absl::IsPermissionDenied(result.status()) &&
                             result.status().message().find("CAP_BPF") !=
                                 absl::string_view::npos
                         ? 0
                         : 1;
            }),
            0);
}

TEST_F(LoaderRootTest, AForeignExclusiveProgramIsExplained) {
  // attach without the multi flag, as old tools do
  const bpf_insn pass[] = {{BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, 1},
                           {BPF_JMP | BPF_EXIT, 0, 0, 0, 0}};
  LIBBPF_OPTS(bpf_prog_load_opts, options);
  options.expected_attach_type = BPF_CGROUP_INET_EGRESS;
  UniqueFd program(bpf_prog_load(BPF_PROG_TYPE_CGROUP_SKB, "foreign", "GPL",
                                 pass, 2, &options));
  ASSERT_TRUE(program.ok()) << strerror(errno);
  UniqueFd cgroup(open(cgroup_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ASSERT_EQ(
      bpf_prog_attach(program.get(), cgroup.get(), BPF_CGROUP_INET_EGRESS, 0),
      0);
  EXPECT_THAT(LoadError(), HasSubstr("without the multi flag"));
  // Nothing is half attached: ours are gone, the foreign one is there.
  EXPECT_NE(access(config_.pin_dir.c_str(), F_OK), 0);
  EXPECT_EQ(bpf_prog_detach2(program.get(), cgroup.get(),
                             BPF_CGROUP_INET_EGRESS),
            0);
}

TEST_F(LoaderRootTest, OnlyTheGroupReadsAndNobodyWrites) {
  ASSERT_NE(UnprivilegedBpfDisabled(), 0);
  MustLoad();
  SendFromCgroup(42);
  MeterOptions options;
  options.pin_dir = config_.pin_dir;
  const bool direct = UnprivilegedUsersMayUseBpf();
  if (direct) {
    EXPECT_EQ(InChild([&] {
                if (!BecomeUser(kGid)) return 2;
                auto meter = Meter::Open(options);
                if (!meter.ok()) return 3;
                auto samples = (*meter)->ReadHost();
                return samples.ok() && samples->size() == 1 ? 0 : 4;
              }),
              0);
  }
  EXPECT_EQ(InChild([&] {
              if (!BecomeUser(kNobody)) return 2;
              auto meter = Meter::Open(options);
              return absl::IsPermissionDenied(meter.status()) &&
                             meter.status().message().find('\n') ==
                                 absl::string_view::npos
                         ? 0
                         : 3;
            }),
            0);
  for (uid_t user : {uid_t{0}, kNobody}) {
    EXPECT_EQ(InChild([&] {
                UniqueFd fd(bpf_obj_get(Pin("counters").c_str()));
                if (!fd.ok()) return 2;
                if (user != 0 && !BecomeUser(kGid)) return 3;
                nm_cell cell = {};
                uint32_t zero = 0;
                if (bpf_map_update_elem(fd.get(), &zero, &cell, BPF_ANY) == 0) {
                  return 4;
                }
                if (mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED,
                         fd.get(), 0) != MAP_FAILED) {
                  return 5;
                }
                void* readable =
                    mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd.get(), 0);
                if (readable == MAP_FAILED) return 6;
                return mprotect(readable, 4096, PROT_READ | PROT_WRITE) == 0
                           ? 7
                           : 0;
              }),
              0)
        << "uid " << user;
  }
}

TEST_F(LoaderRootTest, ServeFdsReachesTheGroupWithoutBpf) {
  MustLoad();
  SendFromCgroup(42);
  ServeOptions serve;
  serve.pin_dir = config_.pin_dir;
  // Without a group that of the pins, which was netmeter whatever they said.
  const std::string socket_path = config_.pin_dir + ".sock";
  const pid_t server = fork();
  if (server == 0) {
    alarm(30);
    _exit(ServeDescriptors(serve).ok() ? 0 : 1);
  }
  for (int i = 0; i < 500 && access(socket_path.c_str(), F_OK) != 0; i++) {
    usleep(10000);
  }
  usleep(50000);
  // With the pins closed to the group there is only the socket.
  ASSERT_EQ(chmod(config_.pin_dir.c_str(), 0700), 0);
  MeterOptions options;
  options.pin_dir = config_.pin_dir;
  auto read = [&](gid_t gid) {
    return InChild([&, gid] {
      if (!BecomeUser(gid)) return 2;
      auto meter = Meter::Open(options);
      if (!meter.ok()) return absl::IsPermissionDenied(meter.status()) ? 3 : 4;
      auto samples = (*meter)->ReadHost();
      return samples.ok() && samples->size() == 1 &&
                     (*samples)[0].tx_payload_bytes == 42
                 ? 0
                 : 5;
    });
  };
  EXPECT_EQ(read(kGid), 0);
  EXPECT_EQ(read(kNobody), 3);
  kill(server, SIGTERM);
  int status = 0;
  waitpid(server, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_NE(access(socket_path.c_str(), F_OK), 0);
}

// serve-fds took over any socket that it could not connect to: a datagram
// socket (EPROTOTYPE), for instance, was unlinked under its owner. And it hung
// where the owner's queue was full.
TEST_F(LoaderRootTest, ServeFdsLeavesSocketsOfOthersAlone) {
  ServeOptions serve;
  serve.pin_dir = config_.pin_dir;
  serve.group = kGroup;
  serve.idle_seconds = 1;
  serve.socket = config_.pin_dir + ".sock";
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  strcpy(address.sun_path, serve.socket.c_str());
  auto* name = reinterpret_cast<sockaddr*>(&address);
  const struct {
    int type;
    bool full;
    const char* message;
  } cases[] = {
      {SOCK_DGRAM, false, "is a socket of another program"},
      {SOCK_SEQPACKET, false, "is a socket of another program"},
      {SOCK_STREAM, false, "is served already"},
      {SOCK_STREAM, true, "is served already"},
  };
  for (const auto& foreign : cases) {
    UniqueFd owner(socket(AF_UNIX, foreign.type | SOCK_CLOEXEC, 0));
    ASSERT_EQ(bind(owner.get(), name, sizeof(address)), 0) << strerror(errno);
    if (foreign.type != SOCK_DGRAM) {
      ASSERT_EQ(listen(owner.get(), 0), 0);
    }
    std::vector<UniqueFd> clients;
    for (bool more = foreign.full; more;) {
      clients.emplace_back(
          socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      more = connect(clients.back().get(), name, sizeof(address)) == 0;
    }
    struct stat before, after;
    ASSERT_EQ(stat(serve.socket.c_str(), &before), 0);
    const absl::Status status = ServeDescriptors(serve);
    EXPECT_TRUE(absl::IsAlreadyExists(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(foreign.message));
    ASSERT_EQ(stat(serve.socket.c_str(), &after), 0) << "unlinked";
    EXPECT_EQ(after.st_ino, before.st_ino);
    unlink(serve.socket.c_str());
  }
  // A file is not touched, either.
  std::ofstream(serve.socket) << "x";
  EXPECT_TRUE(absl::IsAlreadyExists(ServeDescriptors(serve)));
  EXPECT_EQ(access(serve.socket.c_str(), F_OK), 0);
  unlink(serve.socket.c_str());
  // What a killed server left is replaced.
  {
    UniqueFd killed(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(bind(killed.get(), name, sizeof(address)), 0);
  }
  EXPECT_TRUE(ServeDescriptors(serve).ok());  // until it is idle
  EXPECT_NE(access(serve.socket.c_str(), F_OK), 0);
  EXPECT_NE(access(LockFile(serve.socket).c_str(), F_OK), 0);
}

// It said "bind: Permission denied", and "no group " for an empty one.
TEST_F(LoaderRootTest, ServeFdsSaysWhatItNeeds) {
  ServeOptions serve;
  serve.pin_dir = config_.pin_dir;
  serve.group = "no-such-group";
  EXPECT_THAT(std::string(ServeDescriptors(serve).message()),
              HasSubstr("no group no-such-group (groupadd"));
  EXPECT_EQ(InChild([&] {
              if (!BecomeUser(kNobody)) return 2;
              return ServeDescriptors(serve).message() ==
                             "serve-fds: run as root"
                         ? 0
                         : 1;
            }),
            0);
}

// Socket activation with ListenDatagram= made it spin: accept(2) fails there at
// once, each time, with an errno that was not expected.
TEST_F(LoaderRootTest, ServeFdsRefusesASocketThatDoesNotListen) {
  const struct {
    int domain, type;
    bool listens;
    std::string error;
  } cases[] = {
      {AF_INET, SOCK_DGRAM, false, "is no Unix stream socket that listens"},
      {AF_INET, SOCK_STREAM, true, "is no Unix stream socket that listens"},
      {AF_UNIX, SOCK_DGRAM, false, "is no Unix stream socket that listens"},
      {AF_UNIX, SOCK_SEQPACKET, true, "is no Unix stream socket that listens"},
      {AF_UNIX, SOCK_STREAM, false, "is no Unix stream socket that listens"},
      {AF_UNIX, 0, false, "Socket operation on non-socket"},
      {AF_UNIX, SOCK_STREAM, true, ""},  // until it is idle
  };
  ServeOptions serve;
  serve.pin_dir = config_.pin_dir;
  serve.idle_seconds = 1;
  for (const auto& passed : cases) {
    SCOPED_TRACE(absl::StrCat(passed.domain, " ", passed.type));
    EXPECT_EQ(InChild([&] {
                sockaddr_storage any = {};  // of AF_UNIX: a name of its own
                any.ss_family = static_cast<sa_family_t>(passed.domain);
                const int fd =
                    passed.type == 0
                        ? open("/dev/null", O_RDWR)
                        : socket(passed.domain, passed.type, 0);
                const socklen_t size = passed.domain == AF_UNIX
                                           ? sizeof(sa_family_t)
                                           : sizeof(sockaddr_in);
                if (fd < 0) return 2;
                if (passed.listens &&
                    (bind(fd, reinterpret_cast<sockaddr*>(&any), size) != 0 ||
                     listen(fd, 8) != 0)) {
                  return 2;
                }
                if (fd != 3 && dup2(fd, 3) != 3) return 2;
                setenv("LISTEN_FDS", "1", 1);
                setenv("LISTEN_PID", std::to_string(getpid()).c_str(), 1);
                alarm(5);
                const std::string error(ServeDescriptors(serve).message());
                const bool found = error.find(passed.error) != error.npos;
                return found && error.empty() == passed.error.empty() ? 0 : 1;
              }),
              0);
  }
}

TEST_F(LoaderRootTest, StatusSaysWhatIsTrue) {
  absl::StatusOr<StatusReport> report = GetStatus(config_.pin_dir);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->state, MeterState::kNotLoaded);
  EXPECT_FALSE(nlohmann::json::parse(report->json)["loaded"]);
  MustLoad();
  SendFromCgroup(1);
  report = GetStatus(config_.pin_dir);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->state, MeterState::kLoaded);
  const nlohmann::json json = nlohmann::json::parse(report->json);
  EXPECT_TRUE(json["loaded"]);
  EXPECT_EQ(json["cgroup"], cgroup_);
  EXPECT_EQ(json["kernel"], KernelRelease());
  EXPECT_EQ(json["tables"]["series"]["used"], 1);
  EXPECT_TRUE(json["features"]["process_tracking"]["active"]);
  EXPECT_TRUE(json["features"]["socket_table"]["active"]);
  EXPECT_TRUE(json["features"]["control_channel"]["active"]);
  EXPECT_EQ(json["lost"]["series_full"], 0);
  for (const char* name :
       {"connections_named", "connections_unnamed", "destinations_capped"}) {
    EXPECT_EQ(json["seen"][name], 0) << name;
    EXPECT_THAT(report->text, HasSubstr(name));
  }
}

TEST_F(LoaderRootTest, AMissingGroupLeavesRootAlone) {
  config_.group = "no-such-group";
  absl::StatusOr<LoadResult> result = Load(config_);
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->notes.size(), 1u);
  EXPECT_THAT(result->notes[0], HasSubstr("root only"));
  struct stat about;
  ASSERT_EQ(stat(config_.pin_dir.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0700u);
  ASSERT_EQ(stat(Pin("counters").c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0600u);
  ServeOptions serve;
  serve.pin_dir = config_.pin_dir;
  EXPECT_THAT(std::string(ServeDescriptors(serve).message()),
              HasSubstr("no group may read the meter at "));
}

TEST_F(LoaderRootTest, SetsockoptOfOthersIsUntouched) {
  struct Call {
    int level, option;
    std::vector<char> value;
  };
  const int on = 1;
  auto bytes = [](const void* data, size_t size) {
    return std::vector<char>(static_cast<const char*>(data),
                             static_cast<const char*>(data) + size);
  };
  const std::vector<Call> calls = {
      {SOL_SOCKET, SO_REUSEADDR, bytes(&on, sizeof(on))},
      {SOL_SOCKET, SO_RCVBUF, bytes(&on, sizeof(on))},
      {SOL_SOCKET, SO_RCVBUF, {}},
      {SOL_SOCKET, 9999, bytes(&on, sizeof(on))},
      {IPPROTO_IP, IP_TOS, bytes(&on, sizeof(on))},
      {IPPROTO_IP, IP_OPTIONS, std::vector<char>(40, 1)},
      {IPPROTO_IP, IP_OPTIONS, std::vector<char>(41, 1)},
      {IPPROTO_IP, IP_TOS, std::vector<char>(8192, 1)},
      {IPPROTO_IP, 64, std::vector<char>(16384, 0)},  // IPT_SO_SET_REPLACE
      {NM_SOL + 1, 1, bytes("x", 1)},
  };
  auto run = [&](std::vector<std::pair<int, int>>* results) {
    // Results come back through shared memory: the cgroup is the child's.
    auto* shared = static_cast<int*>(
        mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
             -1, 0));
    ASSERT_EQ(InChild([&] {
                std::ofstream(cgroup_ + "/cgroup.procs") << getpid();
                UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
                for (size_t i = 0; i < calls.size(); i++) {
                  errno = 0;
                  shared[2 * i] = setsockopt(
                      fd.get(), calls[i].level, calls[i].option,
                      calls[i].value.data(),
                      static_cast<socklen_t>(calls[i].value.size()));
                  shared[2 * i + 1] = errno;
                }
                return 0;
              }),
              0);
    for (size_t i = 0; i < calls.size(); i++) {
      results->emplace_back(shared[2 * i], shared[2 * i + 1]);
    }
    munmap(shared, 4096);
  };
  std::vector<std::pair<int, int>> without, with;
  run(&without);
  MustLoad();
  run(&with);
  EXPECT_EQ(with, without);
}

TEST_F(LoaderRootTest, TheControlChannelRegistersAndRefuses) {
  MustLoad();
  auto control = [&](int option, const std::string& name) {
    return InChild([&] {
      std::ofstream(cgroup_ + "/cgroup.procs") << getpid();
      UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
      if (!BecomeUser(kNobody)) return 200;
      return setsockopt(fd.get(), NM_SOL, option, name.data(),
                        static_cast<socklen_t>(name.size())) == 0
                 ? 0
                 : errno;
    });
  };
  EXPECT_EQ(control(NM_REGISTER, "subscriberdb"), 0);
  EXPECT_EQ(control(NM_REGISTER, std::string(64, 'a')), 0);
  EXPECT_EQ(control(NM_REGISTER, std::string("\xff\xfe")), 0);
  EXPECT_EQ(control(NM_TAG, "streamer"), 0);
  EXPECT_EQ(control(NM_SERVICE, "second"), 0);
  EXPECT_EQ(control(NM_REGISTER, ""), EPERM);
  EXPECT_EQ(control(NM_REGISTER, std::string(65, 'a')), EPERM);
  EXPECT_EQ(control(NM_REGISTER, std::string("a\0b", 3)), EPERM);
  EXPECT_EQ(control(NM_REGISTER, std::string(9000, 'a')), EPERM);
  EXPECT_EQ(control(99, "x"), EPERM);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
