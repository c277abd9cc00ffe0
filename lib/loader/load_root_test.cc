// SPDX-License-Identifier: BSD-3-Clause
// Load, upgrade and unload on the real kernel: what they leave, what a kill or
// a signal in between does, and what `status` says of it.

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/kernel_object.h"
#include "lib/base/pins.h"
#include "lib/base/unique_fd.h"
#include "lib/loader/load.h"
#include "lib/loader/loader_fixture.h"
#include "lib/loader/object.h"
#include "lib/loader/processes.h"
#include "lib/loader/status.h"
#include "lib/loader/system.h"
#include "lib/loader/trace.h"
#include "lib/loader/unload.h"
#include "lib/testing/interruption.h"
#include "netmeter/abi.h"
#include "netmeter/meter.h"
#include "nlohmann/json.hpp"

namespace netmeter {
namespace internal {
namespace {

using ::testing::Contains;
using ::testing::EndsWith;
using ::testing::HasSubstr;

// A process in a cgroup that works step by step.
class Stepper {
 public:
  Stepper(const std::string& cgroup,
          const std::function<void(const Stepper&)>& work) {
    EXPECT_EQ(pipe2(told_, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(go_, O_CLOEXEC), 0);
    child_ = fork();
    if (child_ != 0) return;
    alarm(60);
    std::ofstream(cgroup + "/cgroup.procs") << getpid();
    work(*this);
    _exit(0);
  }
  ~Stepper() {
    for (int fd : {told_[0], told_[1], go_[0], go_[1]}) close(fd);
  }

  // In the child: tells a number, and waits for GoOn().
  void Wait(uint16_t number = 0) const {
    char byte;
    if (write(told_[1], &number, 2) != 2 || read(go_[0], &byte, 1) != 1) {
      _exit(2);
    }
  }

  // Until the child waits: what it tells.
  uint16_t Await() const {
    uint16_t number = 0;
    EXPECT_EQ(read(told_[0], &number, 2), 2);
    return number;
  }
  void GoOn() const { EXPECT_EQ(write(go_[1], "x", 1), 1); }
  void Join() const {
    int status = 0;
    waitpid(child_, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }

 private:
  int told_[2], go_[2];
  pid_t child_;
};

UniqueFd Tcp() {
  return UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

bool ListenAt(const UniqueFd& fd, uint16_t port) {
  const sockaddr_in here = Loopback(port);
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  return bind(fd.get(), reinterpret_cast<const sockaddr*>(&here),
              sizeof(here)) == 0 &&
         listen(fd.get(), 5) == 0;
}

bool ConnectTo(const UniqueFd& fd, uint16_t port) {
  const sockaddr_in to = Loopback(port);
  return connect(fd.get(), reinterpret_cast<const sockaddr*>(&to),
                 sizeof(to)) == 0;
}

std::vector<Sample> ReadHost(const Config& config) {
  MeterOptions options;
  options.pin_dir = config.pin_dir;
  auto meter = Meter::Open(options);
  EXPECT_TRUE(meter.ok()) << meter.status();
  if (!meter.ok()) return {};
  auto samples = (*meter)->ReadHost();
  EXPECT_TRUE(samples.ok()) << samples.status();
  return samples.ok() ? *samples : std::vector<Sample>();
}

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
  const Stepper child(cgroup_, [](const Stepper& self) {
    const UniqueFd udp(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const UniqueFd listener = Tcp();
    sockaddr_in here;
    socklen_t size = sizeof(here);
    auto* const address = reinterpret_cast<sockaddr*>(&here);
    if (!ListenAt(listener, 0) ||
        getsockname(listener.get(), address, &size) != 0) {
      _exit(1);
    }
    self.Wait(ntohs(here.sin_port));
    here = Loopback(8443);
    if (sendto(udp.get(), "12345", 5, 0, address, sizeof(here)) != 5) _exit(3);
    const UniqueFd accepted(accept(listener.get(), nullptr, nullptr));
    char byte;
    if (write(accepted.get(), "1234567", 7) != 7) _exit(4);
    if (read(accepted.get(), &byte, 1) != 0) _exit(5);
  });
  const uint16_t port = child.Await();
  config_.proxy_ports = {8443, port};
  MustLoad();
  child.GoOn();
  {
    // The other end is outside of the cgroup.
    const UniqueFd client = Tcp();
    ASSERT_TRUE(ConnectTo(client, port));
    char text[16];
    EXPECT_EQ(read(client.get(), text, sizeof(text)), 7);
  }
  child.Join();
  uint64_t payload = 0;
  for (const Sample& sample : ReadHost(config_)) {
    EXPECT_EQ(sample.kind, Kind::kBinary) << sample.name;
    EXPECT_EQ(sample.name, "loader_root_test");
    payload += sample.tx_payload_bytes;
  }
  EXPECT_EQ(payload, 12u);
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

// Whether the owner is in the socket table or in socket storage.
TEST_F(LoaderRootTest, AnUpgradeKeepsTheNamesOfOpenSockets) {
  config_.proxy_ports = {8443, 8444};
  MustLoad();
  const UniqueFd outside = Tcp();
  ASSERT_TRUE(ListenAt(outside, 8443));
  const Stepper child(cgroup_, [](const Stepper& self) {
    const auto tcp = [](const char* tag) {
      UniqueFd fd = Tcp();
      if (setsockopt(fd.get(), NM_SOL, NM_TAG, tag, 4) != 0) _exit(1);
      return fd;
    };
    const auto send = [](const UniqueFd& fd, size_t bytes) {
      const std::string data(bytes, 'x');
      if (write(fd.get(), data.data(), bytes) != static_cast<ssize_t>(bytes)) {
        _exit(3);
      }
    };
    // Its owner is in the table, except that of the listener and of what it accepts.
    const UniqueFd listener = tcp("in-1"), fresh = tcp("out1"),
                   connected = tcp("out2");
    if (!ListenAt(listener, 8444) || !ConnectTo(connected, 8443)) _exit(4);
    self.Wait();
    const UniqueFd accepted(
        accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    send(accepted, 100);
    send(connected, 1000);
    self.Wait();
    send(accepted, 200);
    send(connected, 2000);
    if (!ConnectTo(fresh, 8443)) _exit(5);
    send(fresh, 4000);
    self.Wait();
  });
  child.Await();
  const UniqueFd client = Tcp();
  ASSERT_TRUE(ConnectTo(client, 8444));
  child.GoOn();
  child.Await();
  config_.sni_ports = {444};
  EXPECT_EQ(MustLoad(), Action::kUpgraded);
  child.GoOn();
  child.Await();
  std::map<std::string, uint64_t> sent;
  uint64_t opened = 0, accepted = 0;
  for (const Sample& sample : ReadHost(config_)) {
    EXPECT_EQ(sample.name, "loader_root_test");
    sent[sample.destination] += sample.tx_payload_bytes;
    opened += sample.tcp.opened;
    accepted += sample.tcp.accepted;
  }
  EXPECT_EQ(sent, (std::map<std::string, uint64_t>{
                      {"in-1", 300}, {"out1", 4000}, {"out2", 3000}}));
  EXPECT_EQ(opened, 2u);
  EXPECT_EQ(accepted, 1u);
  child.GoOn();
  child.Join();
}

// The bug: such a connection counted as accepted, but no hook told its end.
TEST_F(LoaderRootTest, AConnectionWhosePortBecomesAProxysIsNotLeftOpen) {
  MustLoad();
  const Stepper child(cgroup_, [](const Stepper& self) {
    const UniqueFd listener = Tcp(), client = Tcp();
    if (!ListenAt(listener, 8445) || !ConnectTo(client, 8445)) _exit(1);
    const UniqueFd server(
        accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    self.Wait();
    char byte;
    if (write(client.get(), "x", 1) != 1) _exit(3);
    if (read(server.get(), &byte, 1) != 1) _exit(4);
  });
  child.Await();
  config_.proxy_ports = {8445};
  EXPECT_EQ(MustLoad(), Action::kUpgraded);
  child.GoOn();
  child.Join();
  uint64_t payload = 0, open = 0;
  for (const Sample& sample : ReadHost(config_)) {
    payload += sample.tx_payload_bytes;
    open += sample.tcp.opened + sample.tcp.accepted - sample.tcp.closed;
  }
  EXPECT_EQ(payload, 1u);
  EXPECT_EQ(open, 0u);
}

// Pinned is not attached: BPF_LINK_DETACH left a meter that counted nothing,
// was reported as loaded and could not be repaired.
TEST_F(LoaderRootTest, ALinkThatWasDetachedIsSeenAndAttachedAgain) {
  MustLoad();
  {
    UniqueFd link(bpf_obj_get(Pin("link_egress").c_str()));
    ASSERT_EQ(bpf_link_detach(link.get()), 0);
  }
  absl::StatusOr<Report> status = TryStatus();
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->state, MeterState::kDamaged);
  const absl::StatusOr<LoadResult> result = Load(config_);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->action, Action::kUpgraded);
  SendFromCgroup(9);
  EXPECT_EQ(PayloadSent(), 9u);
}

// Whoever could open the file that is locked could block the loader.
TEST_F(LoaderRootTest, AUserCannotHoldTheLock) {
  MustLoad();
  const std::string file = LockFile(config_.pin_dir);
  EXPECT_EQ(InChild([&] {
              if (!BecomeUser(kGid)) return 2;
              const UniqueFd fd(open(file.c_str(), O_RDONLY | O_CLOEXEC));
              return !fd.ok() && errno == EACCES ? 0 : 3;
            }),
            0);
}

// An ordinary directory was deleted, and unload said "nothing to do".
TEST_F(LoaderRootTest, UnloadLeavesADirectoryThatIsNotOurs) {
  ASSERT_EQ(mkdir(config_.pin_dir.c_str(), 0755), 0);
  bool was_loaded = true;
  EXPECT_TRUE(Unload(config_.pin_dir, &was_loaded).ok());
  EXPECT_FALSE(was_loaded);
  EXPECT_EQ(rmdir(config_.pin_dir.c_str()), 0);
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

// The ids of `info` are those of the configuration that is loaded again, and all links
// are attached: it was "already loaded", while one direction went on with the programs
// of the other configuration.
TEST_F(LoaderRootTest, AnUpgradeThatWasKilledIsNeverUpToDate) {
  MustLoad();
  const Config first = config_;
  config_.proxy_ports = {9443};
  const std::string last = LoadKilledAfter("replaced the program at", 0);
  ASSERT_THAT(last, testing::HasSubstr("link_"));
  config_ = first;
  EXPECT_EQ(MustLoad(), Action::kUpgraded);
  EXPECT_EQ(MustLoad(), Action::kUnchanged);
}

// A load accepted a service "a/b". The next load could not read the saved configuration,
// and used the defaults and the default group.
TEST_F(LoaderRootTest, WhatTheNextLoadCouldNotReadIsRefused) {
  config_.services = {"a/b"};
  const auto loaded = Load(config_);
  EXPECT_TRUE(absl::IsInvalidArgument(loaded.status())) << loaded.status();
  EXPECT_THAT(loaded.status().message(), HasSubstr("a/b"));
  EXPECT_NE(access(config_.pin_dir.c_str(), F_OK), 0);
}

// Interfaces of another network namespace have the same numbers. Their counts were once
// kept for those of the load.
TEST_F(LoaderRootTest, ALoadInAnotherNetworkNamespaceKeepsNoUplinks) {
  config_.uplinks = {{"satellite", {"sat*"}}};
  MustLoad();
  EXPECT_EQ(MustLoad(), Action::kUnchanged);
  EXPECT_EQ(InChild([&] {
              if (unshare(CLONE_NEWNET) != 0) return 1;
              const absl::Status refused = Load(config_).status();
              const std::string why(refused.message());
              if (!absl::IsFailedPrecondition(refused)) return 2;
              if (!absl::StrContains(why, "of another network namespace") ||
                  !absl::EndsWith(why, "; nothing was changed")) {
                return 3;
              }
              config_.uplinks.clear();
              return Load(config_).ok() ? 0 : 4;
            }),
            0);
  EXPECT_EQ(MustLoad(), Action::kUpgraded);
}

// More room is further maps: a reader that has the meter open maps them, and nothing that
// was counted moves.
TEST_F(LoaderRootTest, TablesGrowByExtentsThatReadersFollow) {
  config_.max_series = config_.max_names = 64;
  MustLoad();
  MeterOptions options;
  options.pin_dir = config_.pin_dir;
  auto meter = Meter::Open(options);
  ASSERT_TRUE(meter.ok()) << meter.status();
  const auto tagged = [&](uint64_t* bytes) {
    const auto samples = (*meter)->ReadHost();
    EXPECT_TRUE(samples.ok()) << samples.status();
    size_t count = 0;
    *bytes = 0;
    if (!samples.ok()) return count;
    for (const netmeter::Sample& sample : *samples) {
      if (sample.destination.compare(0, 3, "tag") != 0) continue;
      *bytes += sample.tx_payload_bytes;
      count++;
    }
    return count;
  };
  int sent = 0;
  for (const uint32_t size : {64u, 100u, 300u, 512u}) {
    SCOPED_TRACE(size);
    if (size != 64) {
      config_.max_series = config_.max_names = size;
      EXPECT_EQ(MustLoad(), Action::kUpgraded);
    }
    const int more = static_cast<int>(size) * 3 / 4 - 30 - sent;
    SendTagged(sent, more);
    sent += more;
    uint64_t bytes;
    EXPECT_EQ(tagged(&bytes), static_cast<size_t>(sent));
    EXPECT_EQ(bytes, static_cast<uint64_t>(sent) * 10);
  }
  EXPECT_EQ(access(Pin("counters_3").c_str(), F_OK), 0);
  EXPECT_EQ(MustStatus().state, MeterState::kLoaded);
  // Eight times what the first load made is the end.
  config_.max_series = 513;
  EXPECT_THAT(LoadError(),
              HasSubstr("max_series: tables made for 64 grow to 512 at most "
                        "(run: netmeter-loader load --restart "));
}

// Replaces a pinned record by one of another size, with its content.
void Resize(const std::string& path, const char* name, uint32_t size) {
  const uint32_t zero = 0;
  std::vector<char> value;
  {
    const UniqueFd old(bpf_obj_get(path.c_str()));
    ASSERT_TRUE(old.ok() && ReadWholeValue(old.get(), &value)) << path;
  }
  value.resize(size);
  LIBBPF_OPTS(bpf_map_create_opts, options, .map_flags = BPF_F_MMAPABLE);
  const UniqueFd fd(bpf_map_create(BPF_MAP_TYPE_ARRAY, name, sizeof(zero), size,
                                   1, &options));
  ASSERT_TRUE(fd.ok());
  ASSERT_EQ(bpf_map_update_elem(fd.get(), &zero, value.data(), BPF_ANY), 0);
  ASSERT_EQ(bpf_map_freeze(fd.get()), 0);
  ASSERT_EQ(unlink(path.c_str()), 0);
  ASSERT_EQ(bpf_obj_pin(fd.get(), path.c_str()), 0);
}

// Versions of one major ABI take over each other's meters, and read them: their records
// are shorter or longer. Every addition beyond the spare bytes cost the counters.
TEST_F(LoaderRootTest, RecordsOfOtherVersionsKeepCounting) {
  MustLoad();
  const auto total = [&] {
    MeterOptions options;
    options.pin_dir = config_.pin_dir;
    const auto meter = Meter::Open(options);
    EXPECT_TRUE(meter.ok()) << meter.status();
    uint64_t bytes = 0;
    std::vector<netmeter::Sample> samples;
    if (!meter.ok()) return bytes;
    EXPECT_TRUE((*meter)->ReadHost(&samples).ok());
    for (const auto& sample : samples) bytes += sample.tx_payload_bytes;
    return bytes;
  };
  uint64_t sent = 0;
  const auto send = [&] {
    SendFromCgroup(100);
    sent += 100;
    EXPECT_EQ(total(), sent);
  };
  send();
  const struct {
    uint32_t info, stats, info_used, stats_used;
  } records[] = {
      {NM_INFO_LEAST_BYTES, NM_STATS_LEAST_BYTES, NM_INFO_LEAST_BYTES,
       NM_STATS_LEAST_BYTES},
      {sizeof(nm_info) + 64, sizeof(nm_stats) + 64, sizeof(nm_info),
       sizeof(nm_stats)},
  };
  for (const auto& record : records) {
    Resize(Pin("info"), "nm_info", record.info);
    Resize(Pin("stats"), "nm_stats", record.stats);
    EXPECT_EQ(total(), sent);  // the reader of another version
    config_.decimal_sizes = !config_.decimal_sizes;
    EXPECT_EQ(MustLoad(), Action::kUpgraded);
    EXPECT_EQ(MustLoad(), Action::kUnchanged);
    EXPECT_EQ(total(), sent);
    send();
    const UniqueFd fd(bpf_obj_get(Pin("info").c_str()));
    nm_info info = {};
    ASSERT_TRUE(ReadOnlyValue(fd.get(), &info));
    EXPECT_EQ(info.info_size, record.info_used);
    EXPECT_EQ(info.stats_size, record.stats_used);
    EXPECT_EQ(MustStatus().state, MeterState::kLoaded);
    SendTagged(static_cast<int>(sent), 3);  // new names and series
    sent += 3 * 10;
    EXPECT_EQ(total(), sent);
  }
  // No version of this ABI made these.
  Resize(Pin("stats"), "nm_stats", NM_STATS_LEAST_BYTES - 8);
  config_.decimal_sizes = !config_.decimal_sizes;
  EXPECT_THAT(
      LoadError(),
      HasSubstr("/stats has another layout than this version's (run: "));
}

TEST_F(LoaderRootTest, ARestartUnloadsAndLoadsInOneStep) {
  config_.max_series = 100;
  config_.services = {"mme"};
  MustLoad();
  SendFromCgroup(100);
  MeterOptions options;
  options.pin_dir = config_.pin_dir;
  const auto reader = Meter::Open(options);
  ASSERT_TRUE(reader.ok()) << reader.status();
  const ConfigChange change = [](Config* config) { config->max_series = 1000; };
  const std::string refused(Load(config_.pin_dir, change).status().message());
  EXPECT_THAT(refused,
              EndsWith("max_series: tables made for 100 grow to 800 at most "
                       "(run: netmeter-loader load --restart --pin-dir " +
                       config_.pin_dir +
                       ": counters start again); nothing was changed"));
  // It is no load that was refused if another option is wrong.
  EXPECT_FALSE(Load(
                   config_.pin_dir,
                   [](Config* config) {
                     config->group = "no-such-group";
                     config->group_required = true;
                   },
                   /*replaces=*/false, /*restart=*/true)
                   .ok());
  EXPECT_EQ(PayloadSent(), 100u);
  const absl::StatusOr<LoadResult> result =
      Load(config_.pin_dir, change, /*replaces=*/false, /*restart=*/true);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->action, Action::kLoaded);
  EXPECT_EQ(result->cgroup, cgroup_);
  EXPECT_THAT(result->notes,
              Contains("loaded a new meter, then unloaded the old "
                       "one, with its configuration, counters "
                       "start again"));
  const absl::StatusOr<std::string> loaded = LoadedConfig(config_.pin_dir);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_THAT(*loaded, HasSubstr("services: [\"mme\"]"));
  EXPECT_EQ(MustStatus().state, MeterState::kLoaded);
  SendFromCgroup(7);
  EXPECT_EQ(PayloadSent(), 7u);
  // It was told.
  const absl::StatusOr<Health> health = (*reader)->ReadHealth();
  ASSERT_TRUE(health.ok()) << health.status();
  EXPECT_EQ(health->max_series, 1000u);
}

// Such a kernel refuses a helper that every program with uplinks, and others, need.
TEST_F(LoaderRootTest, AKernelInConfidentialityModeIsRefused) {
  Interruption refused = {-1, EINVAL, "bpf(5)"};
  refused.most = 1;
  const Interrupted load =
      RunInterrupted(refused, [&] { return Load(config_).status(); });
  EXPECT_EQ(load.message,
            "UNIMPLEMENTED: the kernel lets no program read its memory "
            "(lockdown=confidentiality: boot with lockdown=integrity); nothing "
            "was changed");
}

// Ctrl-C in the middle left a half-attached meter.
TEST_F(LoaderRootTest, ASignalWaitsUntilTheLoadIsDone) {
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const pid_t child = fork();
    if (child == 0) {
      execl("lib/netmeter_loader/netmeter-loader", "netmeter-loader", "load",
            "--quiet", "--cgroup", cgroup_.c_str(), "--pin-dir",
            config_.pin_dir.c_str(), "--group", kGroup, nullptr);
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

// Both found nothing, and both made the directory and mounted.
TEST_F(LoaderRootTest, TwoLoadsAtOnceMakeOneMeter) {
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
}

// With a removed cgroup its programs go, and the meter counted nothing. status
// said that nine links were missing, and load asked for an unload.
TEST_F(LoaderRootTest, ACgroupThatWasMadeAgainIsCountedAgain) {
  MustLoad();
  SendFromCgroup(100);
  ASSERT_EQ(rmdir(cgroup_.c_str()), 0);
  Report report = MustStatus();
  EXPECT_EQ(report.state, MeterState::kDamaged);
  EXPECT_THAT(
      report.text,
      HasSubstr("the cgroup was removed: nothing is counted until it is "
                "created again (run: netmeter-loader load --pin-dir "));
  EXPECT_THAT(report.text, ::testing::Not(HasSubstr("MISSING")));
  EXPECT_TRUE(nlohmann::json::parse(report.json)["cgroup_gone"]);
  EXPECT_THAT(LoadError(), HasSubstr("No such file or directory"));
  ASSERT_EQ(mkdir(cgroup_.c_str(), 0755), 0);
  EXPECT_EQ(MustStatus().state, MeterState::kDamaged);
  absl::StatusOr<LoadResult> result = Load(config_);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->action, Action::kUpgraded);
  ASSERT_EQ(result->notes.size(), 1u);
  EXPECT_THAT(result->notes[0], HasSubstr("removed and created again"));
  report = MustStatus();
  EXPECT_EQ(report.state, MeterState::kLoaded);
  EXPECT_FALSE(nlohmann::json::parse(report.json)["cgroup_gone"]);
  EXPECT_EQ(PayloadSent(), 100u);
  SendFromCgroup(11);
  EXPECT_EQ(PayloadSent(), 111u);
  EXPECT_EQ(MustLoad(), Action::kUnchanged);
}

// A process may show a command line of megabytes. The loader kept all of it, a hundred
// times for a hundred processes.
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

TEST_F(LoaderRootTest, StatusSaysWhatIsTrue) {
  absl::StatusOr<Report> report = TryStatus();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->state, MeterState::kNotLoaded);
  EXPECT_FALSE(nlohmann::json::parse(report->json)["loaded"]);
  MustLoad();
  SendFromCgroup(1);
  report = TryStatus();
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
  const Adds adds = ChooseAdds(ReadPreemption().value());
  EXPECT_EQ(json["adds"]["received"], NameOf(adds.ingress));
  EXPECT_EQ(json["adds"]["sent"], NameOf(adds.egress));
  EXPECT_THAT(report->text,
              HasSubstr(absl::StrCat("received ", NameOf(adds.ingress),
                                     ", sent ", NameOf(adds.egress))));
  EXPECT_EQ(json["misattributed"]["packets"]["series_full"], 0);
  for (const char* name : {"connections_named", "connections_unnamed",
                           "destinations_over_quota"}) {
    EXPECT_EQ(json["seen"][name], 0) << name;
    EXPECT_THAT(report->text, HasSubstr(name));
  }
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
