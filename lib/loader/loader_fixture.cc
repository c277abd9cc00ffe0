// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/loader_fixture.h"

#include <bpf/bpf.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/cgroup.h"
#include "lib/base/pins.h"
#include "lib/base/unique_fd.h"
#include "lib/loader/status.h"
#include "lib/loader/system.h"
#include "lib/loader/trace.h"
#include "lib/loader/unload.h"
#include "netmeter/meter.h"

namespace netmeter {
namespace internal {

std::string CgroupRoot() {
  absl::StatusOr<std::string> root = FindCgroupRoot();
  if (root.ok()) return *root;
  ADD_FAILURE() << root.status();
  return "/nonexistent";
}

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

// Makes the process dumpable, as after execve(2). Otherwise /proc/self would still belong
// to root, and a reader without bpf(2) inspects its descriptors there.
bool BecomeUser(gid_t gid, uid_t uid) {
  return setgroups(0, nullptr) == 0 && setresgid(gid, gid, gid) == 0 &&
         setresuid(uid, uid, uid) == 0 && prctl(PR_SET_DUMPABLE, 1) == 0;
}

bool RefuseCall(long number, int error, int first) {
  const uint8_t if_not = first == -1 ? 0 : 1;  // statements to the last one
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(number), 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(first), 0,
               if_not),
      BPF_STMT(BPF_RET | BPF_K,
               SECCOMP_RET_ERRNO | static_cast<uint32_t>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter = {6, code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

void LoaderRootTest::SetUp() {
  ASSERT_EQ(geteuid(), 0u) << "needs root";
  cgroup_ = absl::StrCat(CgroupRoot(), "/netmeter-loader-test-", getpid());
  ASSERT_EQ(mkdir(cgroup_.c_str(), 0755), 0) << strerror(errno);
  config_.cgroup = cgroup_;
  config_.pin_dir = absl::StrCat("/run/netmeter-loader-test-", getpid());
  config_.group = kGroup;
}

void LoaderRootTest::TearDown() {
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

Action LoaderRootTest::MustLoad() {
  absl::StatusOr<LoadResult> result = Load(config_);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? result->action : Action::kUnchanged;
}

std::string LoaderRootTest::ReadError() {
  MeterOptions options;
  options.pin_dir = config_.pin_dir;
  const auto meter = Meter::Open(options);
  return meter.ok() ? "" : std::string(meter.status().message());
}

std::string LoaderRootTest::LoadError() {
  absl::StatusOr<LoadResult> result = Load(config_);
  if (result.ok()) return "loaded";
  const std::string message(result.status().message());
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  return message;
}

bool LoaderRootTest::LoadKilledAt(const std::string& step) {
  const pid_t child = fork();
  if (child == 0) {
    TraceObserver() = [&](const std::string& done) {
      if (done.find(step) != std::string::npos) raise(SIGKILL);
    };
    _exit(Load(config_).ok() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

std::string LoaderRootTest::LoadKilledAfter(const std::string& from,
                                            int steps) {
  return KilledAfter(from, steps, [this] { return Load(config_).ok(); });
}

std::string LoaderRootTest::KilledAfter(const std::string& from, int steps,
                                        const std::function<bool()>& call) {
  int fds[2];
  EXPECT_EQ(pipe2(fds, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    int count = -1;
    TraceObserver() = [&](const std::string& done) {
      if (count < 0 && done.find(from) == std::string::npos) return;
      if (++count < steps) return;
      if (write(fds[1], done.data(), done.size()) < 0) _exit(3);
      raise(SIGKILL);
    };
    _exit(call() ? 0 : 1);
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

void LoaderRootTest::ExpectModes() {
  struct stat about;
  ASSERT_EQ(stat(config_.pin_dir.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0750u);
  EXPECT_EQ(about.st_gid, kGid);
  for (const MapPin& map : MapPins()) {
    ASSERT_EQ(stat(Pin(map.pin).c_str(), &about), 0) << map.pin;
    EXPECT_EQ(about.st_mode & 0777, map.shared()       ? 0660u
                                    : map.is_uplinks() ? 0640u
                                                       : 0600u)
        << map.pin;
    if (!map.shared()) continue;
    EXPECT_EQ(about.st_gid, kGid) << map.pin;
  }
}

absl::StatusOr<LoaderRootTest::Report> LoaderRootTest::TryStatus() {
  absl::StatusOr<MeterStatus> status = GetStatus(config_.pin_dir);
  if (!status.ok()) return status.status();
  return Report{status->state, StatusAsText(*status), StatusAsJson(*status)};
}

LoaderRootTest::Report LoaderRootTest::MustStatus() {
  absl::StatusOr<Report> report = TryStatus();
  EXPECT_TRUE(report.ok()) << report.status();
  return report.ok() ? *report : Report();
}

std::string LoaderRootTest::Pin(const std::string& name) {
  return absl::StrCat(config_.pin_dir, "/", name);
}

uint32_t LoaderRootTest::LinkId(const std::string& pin, uint32_t* program) {
  UniqueFd fd(bpf_obj_get(Pin(pin).c_str()));
  bpf_link_info about = {};
  uint32_t size = sizeof(about);
  EXPECT_TRUE(fd.ok()) << pin;
  EXPECT_EQ(bpf_obj_get_info_by_fd(fd.get(), &about, &size), 0);
  if (program != nullptr) *program = about.prog_id;
  return about.id;
}

std::vector<uint32_t> LoaderRootTest::LinkedPrograms() {
  std::vector<uint32_t> ids;
  for (const LinkPin& link : LinkPins()) {
    if (access(Pin(link.pin).c_str(), F_OK) != 0) continue;
    ids.push_back(0);
    LinkId(link.pin, &ids.back());
  }
  return ids;
}

void LoaderRootTest::SendFromCgroup(size_t bytes) {
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

void LoaderRootTest::SendTagged(int first, int count) {
  EXPECT_EQ(
      InChild([&] {
        std::ofstream(cgroup_ + "/cgroup.procs") << getpid();
        sockaddr_in to = {};
        to.sin_family = AF_INET;
        to.sin_port = htons(8443);
        to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        for (int i = first; i < first + count; i++) {
          const UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
          const std::string tag = absl::StrCat("tag", i), data(10, 'x');
          if (setsockopt(fd.get(), NM_SOL, NM_TAG, tag.data(),
                         static_cast<socklen_t>(tag.size())) != 0) {
            return 1;
          }
          if (sendto(fd.get(), data.data(), data.size(), 0,
                     reinterpret_cast<sockaddr*>(&to), sizeof(to)) != 10) {
            return 2;
          }
        }
        return 0;
      }),
      0);
}

void LoaderRootTest::AwaitListener(const std::string& path) {
  // proc_net_unix(5): the flags are the fourth column, the path is the last one.
  const std::string accepts = " 00010000 ";  // __SO_ACCEPTCON
  for (int i = 0; i < 3000; i++) {
    std::ifstream sockets("/proc/net/unix");
    for (std::string line; std::getline(sockets, line);) {
      if (absl::EndsWith(line, " " + path) && absl::StrContains(line, accepts))
        return;
    }
    usleep(10000);
  }
  ADD_FAILURE() << "nobody listens at " << path;
}

uint64_t LoaderRootTest::PayloadSent() {
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

}  // namespace internal
}  // namespace netmeter
