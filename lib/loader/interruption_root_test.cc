// SPDX-License-Identifier: BSD-3-Clause
// netmeter-loader's calls, interrupted at each of their system calls: killed before
// it, or with an error from it. Meanwhile a process of the meter's cgroup sends, and
// another one reads: from a meter that it opened before, and from one that it opens
// anew each time. Whatever happens,
//
//   - both can read at every instant while there is a meter, and see no total go
//     back;
//   - a call that ends with an error leaves a whole meter: the old one, or, of a
//     first load, none, and `status` says nothing of damage;
//   - the next load works, and after it every byte that was sent has been counted;
//   - after `unload` nothing is attached, pinned or mounted.
//
// Usually a sample of the calls; NETMETER_EVERY_CALL=1 is for all of them, which
// takes an hour: NETMETER_SECONDS ends a case earlier, and NETMETER_FROM_CALL goes on
// where that has ended. NETMETER_SAMPLE is how many calls of each case a sample has:
// in a virtual machine without KVM each takes half a minute.

#include <bpf/bpf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/core/unique_fd.h"
#include "lib/loader/interruption.h"
#include "lib/loader/kernel_object.h"
#include "lib/loader/load.h"
#include "lib/loader/loader_fixture.h"
#include "lib/loader/status.h"
#include "lib/loader/step.h"
#include "lib/loader/system.h"
#include "lib/loader/unload.h"
#include "netmeter/abi.h"
#include "netmeter/meter.h"

namespace netmeter {
namespace internal {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

// How many calls of each command and interruption a sample has.
constexpr int kSampledKills = 8, kSampledErrors = 4;
// Between them tables grow, by two a time.
constexpr uint32_t kFewestSeries = 24, kMostSeries = 224;

enum class Command { kFirstLoad, kNoOp, kChange, kGrowth, kUnload };

const char* NameOf(Command command) {
  switch (command) {
    case Command::kFirstLoad:
      return "FirstLoad";
    case Command::kNoOp:
      return "NothingToDo";
    case Command::kChange:
      return "ChangedConfiguration";
    case Command::kGrowth:
      return "Growth";
    case Command::kUnload:
      return "Unload";
  }
  return "";
}

const char* NameOf(int error) {
  switch (error) {
    case 0:
      return "Kill";
    case ENOMEM:
      return "ENOMEM";
    case EPERM:
      return "EPERM";
    case ENOSPC:
      return "ENOSPC";
    case EINTR:
      return "EINTR";
  }
  return "";
}

// --- Who sends and who reads -------------------------------------------------

// Shared by three processes. A wish and what was done about it are numbers that
// are equal in the end.
struct Shared {
  int stop;
  int send, sends;     // 1: sends
  uint64_t sent;       // bytes of payload
  int watch, watches;  // not 0: there is a meter, the how manieth
  uint64_t reads, opens, gaps, backwards;
  int64_t longest_open_us;
  char error[300];
};

template <typename Value>
Value Get(const Value& value) {
  return __atomic_load_n(&value, __ATOMIC_ACQUIRE);
}

template <typename Value>
void Set(Value* value, Value to) {
  __atomic_store_n(value, to, __ATOMIC_RELEASE);
}

[[noreturn]] void Send(const std::string& cgroup, Shared* shared) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::ofstream(cgroup + "/cgroup.procs") << getpid();
  const UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(8443);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const auto* address = reinterpret_cast<sockaddr*>(&to);
  while (!Get(shared->stop)) {
    const int send = Get(shared->send);
    Set(&shared->sends, send);
    if (send != 0 &&
        sendto(fd.get(), "1234567", 7, 0, address, sizeof(to)) == 7) {
      Set(&shared->sent, shared->sent + 7);
    }
    usleep(1000);
  }
  _exit(0);
}

// Adds up one read. False: it failed.
bool ReadSum(const Meter& meter, Shared* shared, uint64_t* last) {
  const auto samples = meter.ReadHost();
  if (!samples.ok()) {
    snprintf(shared->error, sizeof(shared->error), "read: %s",
             samples.status().ToString().c_str());
    return false;
  }
  uint64_t sum = 0;
  for (const Sample& sample : *samples) sum += sample.tx_payload_bytes;
  if (sum < *last) shared->backwards++;
  *last = sum;
  shared->reads++;
  return true;
}

[[noreturn]] void Watch(const std::string& pin_dir, Shared* shared) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  MeterOptions options;
  options.pin_dir = pin_dir;
  std::unique_ptr<Meter> held;
  uint64_t last_held = 0, last_opened = 0;
  while (!Get(shared->stop)) {
    const int watch = Get(shared->watch);
    if (watch != shared->watches || watch == 0) {
      held.reset();
      last_held = last_opened = 0;
      if (watch == 0) {
        Set(&shared->watches, 0);
        usleep(200);
        continue;
      }
    }
    const auto begin = Clock::now();
    auto opened = Meter::Open(options);
    const int64_t took = std::chrono::duration_cast<std::chrono::microseconds>(
                             Clock::now() - begin)
                             .count();
    shared->longest_open_us = std::max(shared->longest_open_us, took);
    shared->opens++;
    if (!opened.ok()) {
      snprintf(shared->error, sizeof(shared->error), "open: %s",
               opened.status().ToString().c_str());
      shared->gaps++;
    } else {
      if (!ReadSum(**opened, shared, &last_opened)) shared->gaps++;
      if (held == nullptr) held = *std::move(opened);
    }
    if (held != nullptr && !ReadSum(*held, shared, &last_held)) shared->gaps++;
    Set(&shared->watches, watch);
    // An emulated machine's only CPU is not the reader's alone.
    usleep(static_cast<useconds_t>(std::max<int64_t>(1000, 8 * took)));
  }
  _exit(0);
}

// --- The test ----------------------------------------------------------------

struct Row {
  size_t calls = 0;  // interruptions
  size_t errors = 0, damaged = 0, wrong_sums = 0, not_again = 0, left = 0;
};

class InterruptionTest
    : public LoaderRootTest,
      public ::testing::WithParamInterface<std::tuple<Command, int>> {
 protected:
  void SetUp() override {
    LoaderRootTest::SetUp();
    config_.max_series = kFewestSeries;
    config_.max_names = 12;
    config_.max_processes = 256;
    config_.max_sockets = 256;
    // With uplinks there are more maps, and the programs of netfilter.
    config_.uplinks = {{"satellite", {"sat*"}}};
    shared_ = static_cast<Shared*>(mmap(nullptr, sizeof(Shared),
                                        PROT_READ | PROT_WRITE,
                                        MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(shared_, MAP_FAILED);
    sender_ = fork();
    if (sender_ == 0) Send(cgroup_, shared_);
    reader_ = fork();
    if (reader_ == 0) Watch(config_.pin_dir, shared_);
  }

  void TearDown() override {
    Set(&shared_->stop, 1);
    for (const pid_t child : {sender_, reader_}) {
      int status = 0;
      EXPECT_EQ(waitpid(child, &status, 0), child);
      EXPECT_EQ(status, 0);
    }
    munmap(shared_, sizeof(Shared));
    LoaderRootTest::TearDown();
  }

  Command command() const { return std::get<0>(GetParam()); }
  int error() const { return std::get<1>(GetParam()); }
  bool kills() const { return error() == 0; }
  // Whether there is a meter before and after.
  bool keeps_meter() const {
    return command() == Command::kNoOp || command() == Command::kChange ||
           command() == Command::kGrowth;
  }

  // Waits for one of the two processes.
  void Await(const int& done, int wish) {
    for (int i = 0; i < 20000 && Get(done) != wish; i++) usleep(500);
    EXPECT_EQ(Get(done), wish);
  }
  void SetSending(bool on) {
    Set(&shared_->send, on ? 1 : 0);
    Await(shared_->sends, on ? 1 : 0);
  }
  void SetWatching(bool on) {
    Set(&shared_->watch, on ? ++watched_ : 0);
    Await(shared_->watches, on ? watched_ : 0);
  }

  // What it takes for the command to have all to do. A meter that has grown grows on,
  // until its tables are large enough to make the test longer.
  void Prepare() {
    if (command() == Command::kFirstLoad) return;
    bool was_loaded = access(Pin("info").c_str(), F_OK) == 0;
    if (config_.max_series > kMostSeries) {
      MustUnload();
      was_loaded = false;
      config_.max_series = kFewestSeries;
    }
    if (!was_loaded || command() != Command::kGrowth) MustLoad();
    if (!was_loaded) before_ = shared_->sent;
    if (command() == Command::kChange) {
      config_.proxy_ports = {8443, config_.proxy_ports.size() == 1
                                       ? uint16_t{9443}
                                       : uint16_t{8443}};
      if (config_.proxy_ports[1] == 8443) config_.proxy_ports.pop_back();
    }
    if (command() == Command::kGrowth) config_.max_series += 2;
    if (!keeps_meter()) return;
    SetWatching(true);
    SetSending(true);
  }

  void MustUnload() {
    bool was_loaded = false;
    EXPECT_TRUE(Unload(config_.pin_dir, &was_loaded).ok());
  }

  absl::Status Call() {
    bool was_loaded = false;
    return command() == Command::kUnload ? Unload(config_.pin_dir, &was_loaded)
                                         : Load(config_).status();
  }

  // All that was sent, and nothing else. The sender rests.
  bool SumIsRight() {
    const uint64_t sum = PayloadSent();
    if (sum == shared_->sent - before_) return true;
    printf("  counted %llu, sent %llu\n", static_cast<unsigned long long>(sum),
           static_cast<unsigned long long>(shared_->sent - before_));
    return false;
  }

  // What a call that ended has left. `interrupted` ended by an error, or well.
  void CheckWhatStands(const Interrupted& interrupted, Row* row) {
    const absl::StatusOr<Report> report = TryStatus();
    const MeterState expected =
        keeps_meter() || (command() == Command::kFirstLoad && interrupted.ok)
            ? MeterState::kLoaded
            : MeterState::kNotLoaded;
    // What an unload has not come to is the next one's, and status says so.
    if (command() == Command::kUnload && !interrupted.ok) {
      const std::string text = TextOf(report);
      if (report.ok() && report->state == MeterState::kDamaged &&
          text.find("(run: ") == std::string::npos) {
        row->damaged++;
        printf("  status has no advice: %s\n", text.c_str());
      }
      return;
    }
    if (!report.ok() || report->state != expected) {
      row->damaged++;
      printf("  status: %s\n", TextOf(report).c_str());
    }
    if (expected == MeterState::kNotLoaded &&
        access(config_.pin_dir.c_str(), F_OK) == 0) {
      row->left++;
      printf("  %s is left\n", config_.pin_dir.c_str());
    }
    if (!keeps_meter()) return;
    SetSending(false);
    if (!SumIsRight()) row->wrong_sums++;
    // Its queues have what is free: a name that is new is taken.
    if (!NewNameIsTaken()) {
      row->damaged++;
      printf("  a new name was refused\n");
    }
    SetSending(true);
  }

  static std::string TextOf(const absl::StatusOr<Report>& report) {
    return report.ok() ? report->text.substr(0, report->text.find("optional"))
                       : report.status().ToString();
  }

  bool NewNameIsTaken() {
    return InChild([&] {
             std::ofstream(cgroup_ + "/cgroup.procs") << getpid();
             const UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
             return setsockopt(fd.get(), NM_SOL, NM_TAG, "fresh", 5) == 0 ? 0
                                                                          : 1;
           }) == 0;
  }

  // The next call, of the same kind, is not interrupted.
  void CheckNextCall(Row* row) {
    absl::Status status = Call();
    if (!status.ok()) {
      row->not_again++;
      printf("  the next call: %s\n", status.ToString().c_str());
    }
    if (command() == Command::kUnload) {
      if (access(config_.pin_dir.c_str(), F_OK) == 0 ||
          access(LockFile(config_.pin_dir).c_str(), F_OK) == 0) {
        row->left++;
        printf("  the unloaded meter's files are left\n");
      }
      return;
    }
    const absl::StatusOr<Report> report = TryStatus();
    if (!report.ok() || report->state != MeterState::kLoaded) {
      row->not_again++;
      printf("  status after the next call: %s\n", TextOf(report).c_str());
    }
    if (command() == Command::kFirstLoad) {
      before_ = shared_->sent;
      SetSending(true);
      usleep(1000);
    }
    SetSending(false);
    if (!SumIsRight()) row->wrong_sums++;
    if (keeps_meter()) SetWatching(false);
  }

  // Nothing is attached: what the programs of the meter were is freed.
  void CheckNothingIsLeft(const std::vector<uint32_t>& programs, Row* row) {
    if (keeps_meter()) return;
    if (command() == Command::kFirstLoad) MustUnload();
    // Those of a process that was killed the kernel frees a moment later.
    WaitUntilProgramsAreFreed(programs);
    for (const uint32_t id : programs) {
      if (!UniqueFd(bpf_prog_get_fd_by_id(id)).ok()) continue;
      row->left++;
      printf("  program %u is left\n", id);
    }
    if (access(config_.pin_dir.c_str(), F_OK) == 0) row->left++;
  }

  // One interruption. False: the command made no such call.
  bool Interrupt(int call, Row* row) {
    Prepare();
    const std::vector<uint32_t> programs = LinkedPrograms();
    const Interrupted interrupted =
        RunInterrupted({call, error(), ""}, [this] { return Call(); });
    const Row before = *row;
    if (interrupted.reached) row->calls++;
    if (!interrupted.ok) row->errors++;
    const uint64_t gaps = shared_->gaps, backwards = shared_->backwards;
    if (!interrupted.killed) CheckWhatStands(interrupted, row);
    CheckNextCall(row);
    CheckNothingIsLeft(
        command() == Command::kUnload ? programs : LinkedPrograms(), row);
    const bool bad = before.damaged != row->damaged ||
                     before.wrong_sums != row->wrong_sums ||
                     before.not_again != row->not_again ||
                     before.left != row->left || gaps != shared_->gaps ||
                     backwards != shared_->backwards;
    const size_t at = std::min(static_cast<size_t>(std::max(call, 0)),
                               interrupted.calls.size() - 1);
    if (bad || (!kills() && !interrupted.ok)) {
      printf("%s %s at call %d, %s: %s\n", bad ? "BAD" : "  ok",
             NameOf(error()), call, interrupted.calls[at].c_str(),
             interrupted.message.c_str());
    }
    if (gaps != shared_->gaps) printf("  a reader: %s\n", shared_->error);
    return interrupted.reached;
  }

  // All of them, of a command that is not interrupted.
  std::vector<std::string> CallsOfCommand() {
    Prepare();
    const std::vector<std::string> calls =
        RunInterrupted({-1, error(), ""}, [this] { return Call(); }).calls;
    if (keeps_meter()) {
      SetSending(false);
      SetWatching(false);
    }
    if (command() == Command::kFirstLoad) MustUnload();
    return calls;
  }

  Shared* shared_ = nullptr;

 private:
  pid_t sender_ = 0, reader_ = 0;
  int watched_ = 0;
  uint64_t before_ = 0;  // was sent before the meter
};

// A number of the environment.
int NumberOf(const char* name, int otherwise) {
  const char* const text = getenv(name);
  return text == nullptr ? otherwise : atoi(text);
}

TEST_P(InterruptionTest, LeavesAWholeMeter) {
  Row row;
  if (NumberOf("NETMETER_EVERY_CALL", 0) != 0) {
    const std::vector<std::string> calls = CallsOfCommand();
    const auto end = Clock::now() + std::chrono::seconds(NumberOf(
                                        "NETMETER_SECONDS", 365 * 86400));
    int call = NumberOf("NETMETER_FROM_CALL", 0);
    while (Clock::now() < end && Interrupt(call, &row)) call++;
    printf("  up to before call %d of %zu\n", call, calls.size());
  } else {
    const int most =
        NumberOf("NETMETER_SAMPLE", kills() ? kSampledKills : kSampledErrors);
    EXPECT_TRUE(InterruptSample(
        static_cast<size_t>(most), [this] { return CallsOfCommand(); },
        [&](int call) { return Interrupt(call, &row); }));
  }
  printf(
      "@@interrupted | %s | %s | %zu | %zu | %zu | %zu | %zu | %zu | %llu | "
      "%llu | %llu | %lld\n",
      NameOf(command()), NameOf(error()), row.calls, row.errors, row.damaged,
      row.wrong_sums, row.not_again, row.left,
      static_cast<unsigned long long>(shared_->gaps),
      static_cast<unsigned long long>(shared_->backwards),
      static_cast<unsigned long long>(shared_->reads + shared_->opens),
      static_cast<long long>(shared_->longest_open_us / 1000));
  EXPECT_GT(row.calls, 0u);
  EXPECT_EQ(row.damaged, 0u);
  EXPECT_EQ(row.wrong_sums, 0u);
  EXPECT_EQ(row.not_again, 0u);
  EXPECT_EQ(row.left, 0u);
  EXPECT_EQ(shared_->gaps, 0u) << shared_->error;
  EXPECT_EQ(shared_->backwards, 0u);
}

// What an error undoes, the configuration that the next load starts from is a part
// of.
TEST_F(LoaderRootTest, AnUpgradeThatFailsSaysThatTheMeterGoesOnAsBefore) {
  config_.max_series = 100;
  MustLoad();
  SendFromCgroup(100);
  const absl::StatusOr<std::string> before = LoadedConfig(config_.pin_dir);
  ASSERT_TRUE(before.ok()) << before.status();
  for (const char* call : {"bpf(6)", "bpf(10)"}) {
    Config wanted = config_;
    wanted.max_series = 200;
    wanted.proxy_ports = {8443, 9443};
    // The kernel pins no map, or does not let the loader say that it has begun.
    const Interrupted interrupted = RunInterrupted(
        {-1, ENOMEM, call}, [&] { return Load(wanted).status(); });
    EXPECT_FALSE(interrupted.ok);
    EXPECT_THAT(interrupted.message,
                EndsWith("Cannot allocate memory; nothing was changed"));
    EXPECT_EQ(MustStatus().state, MeterState::kLoaded);
    const absl::StatusOr<std::string> after = LoadedConfig(config_.pin_dir);
    ASSERT_TRUE(after.ok()) << after.status();
    EXPECT_EQ(*after, *before);
    EXPECT_EQ(MustLoad(), Action::kUnchanged);
    EXPECT_EQ(PayloadSent(), 100u);
  }
}

// The object that counts forwarded packets is the last to be loaded. When access(2) found
// no memory, its pins were taken for there.
TEST_F(LoaderRootTest, NoMemoryForWhatIsForwardedChangesNothing) {
  config_.max_series = 100;
  config_.uplinks = {{"satellite", {"sat*"}}};
  const auto load = [&] { return Load(config_).status(); };
  const auto unload = [&] {
    bool was_loaded = false;
    ASSERT_TRUE(Unload(config_.pin_dir, &was_loaded).ok());
  };
  const auto last_program = [](const std::vector<std::string>& calls) {
    return static_cast<int>(
        std::find(calls.rbegin(), calls.rend(), "bpf(5)").base() -
        calls.begin() - 1);
  };
  std::vector<std::string> calls = RunInterrupted({-1, ENOMEM, ""}, load).calls;
  unload();
  for (size_t i = last_program(calls); i < calls.size(); ++i) {
    if (calls[i] != "access") continue;
    if (RunInterrupted({static_cast<int>(i), ENOMEM, ""}, load).ok) {
      EXPECT_EQ(MustStatus().state, MeterState::kLoaded) << "at call " << i;
      unload();
    }
  }

  // The last programs of an upgrade. A moment without memory is tried again.
  MustLoad();
  if (MustStatus().text.find("Linux 6.4") != std::string::npos) return;
  SendFromCgroup(100);
  config_.max_series = 200;
  calls = RunInterrupted({-1, ENOMEM, ""}, load).calls;
  const int last =
      static_cast<int>(std::count(calls.begin(), calls.end(), "bpf(5)")) - 1;
  config_.max_series = 300;
  Interrupted interrupted =
      RunInterrupted({-1, ENOMEM, "bpf(5)", last, 2}, load);
  EXPECT_TRUE(interrupted.ok) << interrupted.message;
  config_.max_series = 400;
  interrupted = RunInterrupted({-1, ENOMEM, "bpf(5)", last}, load);
  EXPECT_FALSE(interrupted.ok);
  EXPECT_THAT(interrupted.message, EndsWith("nothing was changed"));
  EXPECT_EQ(MustStatus().state, MeterState::kLoaded);
  EXPECT_EQ(PayloadSent(), 100u);
}

INSTANTIATE_TEST_SUITE_P(
    Calls, InterruptionTest,
    ::testing::Combine(::testing::Values(Command::kFirstLoad, Command::kNoOp,
                                         Command::kChange, Command::kGrowth,
                                         Command::kUnload),
                       ::testing::Values(0, ENOMEM, EPERM, ENOSPC, EINTR)),
    [](const ::testing::TestParamInfo<std::tuple<Command, int>>& test) {
      return absl::StrCat(NameOf(std::get<0>(test.param)), "_",
                          NameOf(std::get<1>(test.param)));
    });

}  // namespace
}  // namespace internal
}  // namespace netmeter
