// SPDX-License-Identifier: BSD-3-Clause
// `netmeter-fds`: descriptors for those whom the kernel refuses
// bpf(2).

#include <fcntl.h>
#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/apps/fds/serve.h"
#include "lib/base/loader_command.h"
#include "lib/base/pins.h"
#include "lib/base/prepare_process.h"
#include "lib/base/privileges.h"
#include "lib/base/unique_fd.h"
#include "lib/loader/loader_fixture.h"
#include "lib/loader/unload.h"
#include "lib/reader/shared_maps.h"
#include "lib/testing/await.h"
#include "netmeter/meter.h"

namespace netmeter {
namespace internal {
namespace {

using ::testing::HasSubstr;

// A server of its own process, with few descriptors, and clients of several users.
class FdsRootTest : public LoaderRootTest {
 protected:
  static constexpr rlim_t kDescriptors = 512;
  static constexpr int kOfAUser = 25;  // a twentieth
  static constexpr uid_t kHolder = 12001;
  static constexpr gid_t kOtherGid = 7002;

  // The kernel counts descriptors in unread messages by user, on the whole host. So two
  // runs of this test take turns.
  void SetUp() override {
    turn_ = UniqueFd(open("/run", O_RDONLY | O_CLOEXEC));
    ASSERT_EQ(flock(turn_.get(), LOCK_EX), 0);
    LoaderRootTest::SetUp();
  }

  void TearDown() override {
    unlink(log_.c_str());
    unlink(address_.sun_path);  // that of a unit
    LoaderRootTest::TearDown();
  }

  void Serve() {
    MustLoad();
    SendFromCgroup(42);
    NamePaths();
    server_ = fork();
    if (server_ == 0) {
      alarm(300);  // with loads in a slow guest
      const int log = open(log_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      const rlimit few = {kDescriptors, kDescriptors};
      if (dup2(log, STDERR_FILENO) < 0 || setrlimit(RLIMIT_NOFILE, &few) != 0) {
        _exit(2);
      }
      PrepareProcess();
      ServeOptions serve;
      serve.pin_dir = config_.pin_dir;
      _exit(ServeDescriptors(serve).ok() ? 0 : 1);
    }
    AwaitListener(address_.sun_path);
    // There is only the socket.
    ASSERT_EQ(chmod(config_.pin_dir.c_str(), 0700), 0);
  }

  void NamePaths() {
    log_ = config_.pin_dir + ".log";
    address_.sun_family = AF_UNIX;
    strcpy(address_.sun_path, (config_.pin_dir + ".sock").c_str());
  }

  // Listens on a socket of its own, to which any user may connect.
  void ServeOfAUnit(const std::string& group, bool unprivileged_bpf = false) {
    MustLoad();
    NamePaths();
    UniqueFd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    unlink(address_.sun_path);
    ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&address_),
                   sizeof(address_)),
              0);
    ASSERT_EQ(chmod(address_.sun_path, 0666), 0);
    ASSERT_EQ(listen(listener.get(), 8), 0);
    server_ = fork();
    if (server_ == 0) {
      alarm(300);  // with loads in a slow guest
      const int log = open(log_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      if (dup2(log, STDERR_FILENO) < 0 ||
          (unprivileged_bpf && !AllowUnprivilegedBpf()) ||
          (listener.get() != 3 && dup2(listener.get(), 3) != 3)) {
        _exit(2);
      }
      setenv("LISTEN_FDS", "1", 1);
      setenv("LISTEN_PID", std::to_string(getpid()).c_str(), 1);
      ServeOptions serve;
      serve.pin_dir = config_.pin_dir;
      serve.group = group;
      _exit(ServeDescriptors(serve).ok() ? 0 : 1);
    }
  }

  // The byte that a user of these groups is answered; 0 without an answer.
  int Ask(gid_t gid, const std::vector<gid_t>& groups, uid_t uid = kNobody) {
    return InChild([&] {
      const UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (setgroups(groups.size(), groups.data()) != 0 ||
          setresgid(gid, gid, gid) != 0 || setresuid(uid, uid, uid) != 0 ||
          connect(fd.get(), reinterpret_cast<sockaddr*>(&address_),
                  sizeof(address_)) != 0) {
        return 100;
      }
      unsigned char byte = 0;
      return recv(fd.get(), &byte, 1, 0) == 1 ? byte : 0;
    });
  }

  // The advice to a user of the group whom the server refuses: once with a view of the
  // pins, and once, as in a container, with the socket alone.
  std::string Told(bool sees_pins) {
    const std::string told = config_.pin_dir + ".told";
    EXPECT_EQ(
        InChild([&] {
          std::ofstream file(told);
          if ((!sees_pins &&
               (unshare(CLONE_NEWNS) != 0 ||
                mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
                umount2(config_.pin_dir.c_str(), MNT_DETACH) != 0)) ||
              !BecomeUser(kGid)) {
            return 2;
          }
          file << ReadError();
          return 0;
        }),
        0);
    std::ifstream file(told);
    const std::string all(std::istreambuf_iterator<char>(file), {});
    unlink(told.c_str());
    const std::string begin = absl::StrCat(
        "receive the maps from ", address_.sun_path, ": Permission denied (");
    if (all.rfind(begin, 0) != 0 || all.back() != ')') return all;
    return all.substr(begin.size(), all.size() - begin.size() - 1);
  }

  // How the server ended: 0 if well.
  int Stop() {
    kill(server_, SIGTERM);
    int status = 0;
    waitpid(server_, &status, 0);
    return status;
  }

  std::string Log() {
    std::ifstream file(log_);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }

  // How many of `times` a user of the group gets the meter.
  int Reads(int times, uid_t uid) {
    return InChild([&] {
      MeterOptions options;
      options.pin_dir = config_.pin_dir;
      int read = 0;
      if (!BecomeUser(kGid, uid)) return 255;
      for (int i = 0; i < times; i++) {
        auto meter = Meter::Open(options);
        if (!meter.ok()) continue;
        auto samples = (*meter)->ReadHost();
        read += samples.ok() && samples->size() == 1;
      }
      return read;
    });
  }

  // A process of `uid` that connects this number of times, and keeps what it gets without
  // reading it. It shuts down every other connection, which leaves the message in the
  // queue.
  struct Holder {
    pid_t pid;
    int answers;
  };
  Holder Hold(uid_t uid, int connections) {
    int fds[2];
    EXPECT_EQ(pipe2(fds, O_CLOEXEC), 0);
    Holder holder = {fork(), -1};
    if (holder.pid == 0) {
      alarm(120);
      std::vector<UniqueFd> clients;
      int answers = BecomeUser(kGid, uid) ? 0 : -2;
      for (int i = 0; i < connections && answers >= 0; i++) {
        clients.emplace_back(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        const int fd = clients.back().get();
        char byte;
        if (connect(fd, reinterpret_cast<sockaddr*>(&address_),
                    sizeof(address_)) != 0) {
          answers = -3;
        } else {
          answers += recv(fd, &byte, 1, MSG_PEEK) == 1;
          if (i % 2 == 0) shutdown(fd, SHUT_RDWR);
        }
      }
      if (write(fds[1], &answers, sizeof(answers)) < 0) _exit(1);
      for (;;) pause();
    }
    close(fds[1]);
    EXPECT_EQ(read(fds[0], &holder.answers, sizeof(holder.answers)),
              static_cast<ssize_t>(sizeof(holder.answers)));
    close(fds[0]);
    return holder;
  }
  static void End(const Holder& holder) {
    kill(holder.pid, SIGKILL);
    waitpid(holder.pid, nullptr, 0);
  }

  UniqueFd turn_;
  pid_t server_ = -1;
  sockaddr_un address_ = {};

 private:
  // As kernel.unprivileged_bpf_disabled=0, in a mount namespace of this process.
  bool AllowUnprivilegedBpf() const {
    const std::string zero = config_.pin_dir + ".zero";
    std::ofstream(zero) << "0\n";
    const char sysctl[] = "/proc/sys/kernel/unprivileged_bpf_disabled";
    const bool allowed =
        unshare(CLONE_NEWNS) == 0 &&
        mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
        mount(zero.c_str(), sysctl, nullptr, MS_BIND, nullptr) == 0 &&
        UnprivilegedBpfDisabled() == 0;
    unlink(zero.c_str());
    return allowed;
  }

  std::string log_;
};

TEST_F(FdsRootTest, ReachesTheGroupWithoutBpf) {
  Serve();
  const auto read = [&](gid_t gid) {
    return InChild([&, gid] {
      if (!BecomeUser(gid)) return 2;
      MeterOptions options;
      options.pin_dir = config_.pin_dir;
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
  EXPECT_EQ(Stop(), 0);
  EXPECT_NE(access(address_.sun_path, F_OK), 0);
}

TEST_F(FdsRootTest, AReaderFollowsTablesThatGrow) {
  config_.max_series = config_.max_names = 64;
  Serve();
  int opened[2], grown[2];
  ASSERT_EQ(pipe2(opened, O_CLOEXEC), 0);
  ASSERT_EQ(pipe2(grown, O_CLOEXEC), 0);
  const pid_t reader = fork();
  if (reader == 0) {
    alarm(120);
    MeterOptions options;
    options.pin_dir = config_.pin_dir;
    if (!BecomeUser(kGid)) _exit(2);
    auto meter = Meter::Open(options);
    char byte = meter.ok() ? 'y' : 'n';
    if (write(opened[1], &byte, 1) != 1 || read(grown[0], &byte, 1) != 1) {
      _exit(3);
    }
    auto samples = (*meter)->ReadHost();
    if (!samples.ok()) _exit(4);
    _exit(samples->size() == 101 ? 0 : 5);
  }
  char byte = 0;
  ASSERT_EQ(read(opened[0], &byte, 1), 1);
  ASSERT_EQ(byte, 'y');
  config_.max_series = config_.max_names = 200;
  EXPECT_EQ(MustLoad(), Action::kUpgraded);
  EXPECT_EQ(chmod(config_.pin_dir.c_str(), 0700), 0);
  SendTagged(0, 100);
  ASSERT_EQ(write(grown[1], &byte, 1), 1);
  int status = 0;
  waitpid(reader, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(Stop(), 0);
}

// The server reads nothing, and a client that reads nothing delays no other. A server
// that closes a socket with unread bytes resets it, so the client gets ECONNRESET.
TEST_F(FdsRootTest, ReadsNothingAndIsFloodedByNobody) {
  MustLoad();
  SendFromCgroup(42);
  ServeOptions serve;
  serve.pin_dir = config_.pin_dir;
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  strcpy(address.sun_path, (config_.pin_dir + ".sock").c_str());
  const pid_t server = fork();
  if (server == 0) {
    alarm(60);
    PrepareProcess();  // as the program: one user's quota is as large as it can be
    _exit(ServeDescriptors(serve).ok() ? 0 : 1);
  }
  AwaitListener(address.sun_path);
  const auto connect_client = [&address] {
    UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address),
                sizeof(address)) != 0) {
      fd = UniqueFd();
    }
    return fd;
  };
  // As many as may wait, while the server does nothing: every other one sends what fits.
  std::vector<UniqueFd> clients;
  const std::string junk(65536, '\xff');
  ASSERT_EQ(kill(server, SIGSTOP), 0);
  for (;;) {
    clients.push_back(connect_client());
    if (!clients.back().ok()) break;
    const UniqueFd& client = clients.back();
    while (clients.size() % 2 == 0 &&
           send(client.get(), junk.data(), junk.size(), MSG_NOSIGNAL) > 0) {
    }
  }
  clients.pop_back();
  EXPECT_GT(clients.size(), 100u);
  ASSERT_EQ(kill(server, SIGCONT), 0);
  EXPECT_EQ(chmod(config_.pin_dir.c_str(), 0700), 0);
  EXPECT_EQ(InChild([&] {
              if (!BecomeUser(kGid)) return 2;
              MeterOptions options;
              options.pin_dir = config_.pin_dir;
              for (int i = 0; i < 20; i++) {
                auto meter = Meter::Open(options);
                if (!meter.ok()) return 3;
                auto samples = (*meter)->ReadHost();
                if (!samples.ok() || samples->size() != 1) return 4;
              }
              return 0;
            }),
            0);
  // The answer, and at once the end.
  size_t served = 0, unread = 0;
  char answer[64];
  for (const UniqueFd& client : clients) {
    pollfd polled = {client.get(), POLLIN, 0};
    ASSERT_EQ(poll(&polled, 1, 10000), 1) << served;
    ASSERT_GE(recv(client.get(), answer, sizeof(answer), 0), 1) << served;
    ASSERT_EQ(poll(&polled, 1, 0), 1) << served;
    EXPECT_NE(polled.revents & POLLHUP, 0) << served;
    served++;
  }
  kill(server, SIGTERM);
  int status = 0;
  waitpid(server, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  // Now all is closed, which tells what the server left unread.
  for (const UniqueFd& client : clients) {
    unread += recv(client.get(), answer, sizeof(answer), 0) < 0 &&
              errno == ECONNRESET;
  }
  EXPECT_EQ(unread, clients.size() / 2);
}

// One member of the group kept the meter from all others. The kernel lets a user without
// capabilities have RLIMIT_NOFILE descriptors in unread messages. The server, which is
// that user, sent as many as one client asked for. The others were told that there is no
// meter.
TEST_F(FdsRootTest, WhoReadsNothingKeepsNoAnswerFromOthers) {
  Serve();
  const Holder holder = Hold(kHolder, kDescriptors / kSharedMaps * 2);
  EXPECT_EQ(Reads(20, kNobody), 20);
  EXPECT_EQ(holder.answers, kOfAUser);
  EXPECT_EQ(Reads(5, kHolder), 0);  // the user has its quota
  End(holder);
  EXPECT_EQ(Reads(20, kHolder), 20);
  EXPECT_EQ(
      Log(),
      absl::StrCat("netmeter-fds: user ", kHolder, " has ", kOfAUser,
                   " unread answers, and gets no more until some are read or "
                   "closed\n"));
  EXPECT_EQ(Stop(), 0);
}

// Other processes of the same user have a part in the kernel's limit. Nothing was said.
TEST_F(FdsRootTest, WhatOtherProcessesSentIsSaid) {
  Serve();
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  for (rlim_t sent = 0; sent <= kDescriptors; sent += kSharedMaps) {
    char byte = 0;
    iovec data = {&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kSharedMaps)] = {};
    msghdr message = {};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * kSharedMaps);
    const std::vector<int> fds(kSharedMaps, STDIN_FILENO);
    memcpy(CMSG_DATA(header), fds.data(), sizeof(int) * kSharedMaps);
    ASSERT_EQ(sendmsg(pair[0], &message, 0), 1) << strerror(errno);
  }
  EXPECT_EQ(Reads(5, kNobody), 0);
  EXPECT_EQ(Log(),
            "netmeter-fds: unread messages from processes of user 0 have more "
            "descriptors than RLIMIT_NOFILE allows: no client gets an answer "
            "until some are read or closed\n");
  close(pair[0]);
  close(pair[1]);
  EXPECT_EQ(Reads(5, kNobody), 5);
  EXPECT_EQ(Stop(), 0);
}

// Descriptors went to whoever could connect. A load may take the pins from the group, or
// give them to another one: the socket stays as it was made, and the group read on.
TEST_F(FdsRootTest, ALoadThatClosesTheMeterClosesTheSocketToo) {
  Serve();
  EXPECT_EQ(Ask(kGid, {}), kDescriptorProtocol);
  config_.group = "";
  MustLoad();
  EXPECT_EQ(Ask(kGid, {}), kDescriptorsRefused);
  EXPECT_EQ(Ask(kOtherGid, {kGid}), kDescriptorsRefused);
  EXPECT_EQ(Ask(0, {}, 0), kDescriptorProtocol);  // root
  for (const bool sees_pins : {true, false}) {
    EXPECT_EQ(
        Told(sees_pins),
        "run as root or as a member of the group that netmeter-fds answers; "
        "its log says which");
  }
  config_.group = std::to_string(kOtherGid);
  MustLoad();
  EXPECT_EQ(Ask(kGid, {}), kDescriptorsRefused);
  EXPECT_EQ(Ask(kGid, {100, 101, kGid}), kDescriptorsRefused);
  EXPECT_EQ(Ask(kGid, {100, kOtherGid, 101}), kDescriptorProtocol);
  EXPECT_EQ(Ask(kOtherGid, {kGid}), kDescriptorProtocol);
  // Each refusal is said once.
  EXPECT_EQ(Ask(kGid, {}), kDescriptorsRefused);
  EXPECT_EQ(
      Log(),
      absl::StrCat(
          "netmeter-fds: no group may read the meter at ", config_.pin_dir,
          ": load it with --group (see: netmeter-loader status --pin-dir ",
          config_.pin_dir, "), or give --group here\n",
          "netmeter-fds: refused user ", kNobody, ": only group ", kOtherGid,
          " may read the meter at ", config_.pin_dir, "\n"));
  config_.group = kGroup;
  MustLoad();
  EXPECT_EQ(Ask(kGid, {}), kDescriptorProtocol);
  EXPECT_EQ(Stop(), 0);
}

// The socket of a unit has the group that the unit names: its members got the
// descriptors of a meter that no group may read. With --group they do, and no others.
TEST_F(FdsRootTest,
       TheSocketOfAUnitGivesNoMoreThanThePinsOrTheGroupOfTheOption) {
  for (const std::string group : {"", kGroup}) {
    SCOPED_TRACE(group);
    config_.group = "";
    ServeOfAUnit(group);
    EXPECT_EQ(Ask(kGid, {}),
              group.empty() ? kDescriptorsRefused : kDescriptorProtocol);
    EXPECT_EQ(Ask(kOtherGid, {}), kDescriptorsRefused);
    EXPECT_EQ(Ask(0, {}, 0), kDescriptorProtocol);
    config_.group = std::to_string(kOtherGid);
    MustLoad();
    EXPECT_EQ(Ask(kOtherGid, {}),
              group.empty() ? kDescriptorProtocol : kDescriptorsRefused);
    EXPECT_EQ(Stop(), 0);
  }
}

// Clients were sent away without a word in the log, whatever the reason: who read
// "its log says which" in the manual found nothing there.
TEST_F(FdsRootTest, WhyNobodyGetsTheMeterIsSaid) {
  Serve();
  EXPECT_EQ(Reads(1, kNobody), 1);
  ASSERT_EQ(unlink((config_.pin_dir + "/tcp").c_str()), 0);
  EXPECT_EQ(Reads(5, kNobody), 0);
  const std::string damaged =
      absl::StrCat("netmeter-fds: the meter at ", config_.pin_dir,
                   " is damaged: these maps are missing: tcp (see: ",
                   LoaderCommand("status", config_.pin_dir), ")\n");
  EXPECT_EQ(Log(), damaged);
  // No descriptor is left: a client waits, and is answered when there is one. accept(2)
  // takes its descriptor before it waits, so one more client is served before.
  // poll(2) wants as many as it looks at.
  const rlimit none = {2, kDescriptors}, few = {kDescriptors, kDescriptors};
  ASSERT_EQ(prlimit(server_, RLIMIT_NOFILE, &none, nullptr), 0);
  EXPECT_EQ(Reads(1, kNobody), 0);
  const UniqueFd client(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(connect(client.get(), reinterpret_cast<sockaddr*>(&address_),
                    sizeof(address_)),
            0);
  const std::string waits = absl::StrCat(
      damaged,
      "netmeter-fds: accept: Too many open files: clients have to wait\n");
  Await([&] { return Log() == waits; });
  pollfd polled = {client.get(), POLLIN, 0};
  EXPECT_EQ(poll(&polled, 1, 0), 0);
  ASSERT_EQ(prlimit(server_, RLIMIT_NOFILE, &few, nullptr), 0);
  EXPECT_EQ(poll(&polled, 1, 10000), 1);
  EXPECT_EQ(Log(), waits);
  EXPECT_EQ(Stop(), 0);
}

// --- The socket: its own, or one that it is given ---

// netmeter-fds replaced any socket that it could not connect to. For instance, it
// unlinked a datagram socket (EPROTOTYPE) under its owner. And it hung if the owner's
// queue was full.
TEST_F(FdsRootTest, LeavesSocketsOfOthersAlone) {
  NamePaths();
  ServeOptions serve;
  serve.pin_dir = config_.pin_dir;
  serve.group = kGroup;
  auto* name = reinterpret_cast<sockaddr*>(&address_);
  const auto refuses = [&] {
    struct stat before, after;
    ASSERT_EQ(stat(address_.sun_path, &before), 0);
    const absl::Status status = ServeDescriptors(serve);
    EXPECT_TRUE(absl::IsAlreadyExists(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(" is in use ("));
    ASSERT_EQ(stat(address_.sun_path, &after), 0) << "unlinked";
    EXPECT_EQ(after.st_ino, before.st_ino);
    unlink(address_.sun_path);
  };
  for (const auto& [type, full] :
       {std::pair(SOCK_DGRAM, false), std::pair(SOCK_SEQPACKET, false),
        std::pair(SOCK_STREAM, false), std::pair(SOCK_STREAM, true)}) {
    SCOPED_TRACE(absl::StrCat(type, full));
    UniqueFd owner(socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
    ASSERT_EQ(bind(owner.get(), name, sizeof(address_)), 0) << strerror(errno);
    if (type != SOCK_DGRAM) {
      ASSERT_EQ(listen(owner.get(), 0), 0);
    }
    std::vector<UniqueFd> clients;
    for (bool more = full; more;) {
      clients.emplace_back(
          socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      more = connect(clients.back().get(), name, sizeof(address_)) == 0;
    }
    refuses();
  }
  std::ofstream(address_.sun_path) << "a file";
  refuses();
  // What a killed server left is replaced.
  {
    UniqueFd killed(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(bind(killed.get(), name, sizeof(address_)), 0);
  }
  Serve();
  EXPECT_EQ(Stop(), 0);
  EXPECT_NE(access(address_.sun_path, F_OK), 0);
}

// It said "bind: Permission denied", and "no group " for an empty one.
TEST_F(FdsRootTest, SaysWhatItNeeds) {
  ServeOptions serve;
  serve.pin_dir = config_.pin_dir;
  serve.group = "no-such-group";
  EXPECT_THAT(std::string(ServeDescriptors(serve).message()),
              HasSubstr("no group no-such-group (groupadd"));
  EXPECT_EQ(InChild([&] {
              if (!BecomeUser(kNobody)) return 2;
              return ServeDescriptors(serve).message() == "run as root" ? 0 : 1;
            }),
            0);
}

// systemd called it again for a client that still waited, until the socket unit failed
// for good: one exporter was enough.
TEST_F(FdsRootTest, AUnitGoesOnWhereAnybodyCouldWrite) {
  ServeOfAUnit("", /*unprivileged_bpf=*/true);
  for (int i = 0; i < 3; i++) EXPECT_EQ(Ask(0, {}, 0), 0);
  EXPECT_EQ(Stop(), 0);
}

// What it says on a closed stderr went to the client who had that number.
TEST_F(FdsRootTest, WithoutStandardStreamsTellsItsClientsNothingElse) {
  const std::string path = config_.pin_dir + ".sock";
  const pid_t server = fork();
  if (server == 0) {
    alarm(30);
    for (int fd = 0; fd < 3; fd++) close(fd);
    execl("lib/apps/fds/netmeter-fds", "netmeter-fds", "--pin-dir",
          config_.pin_dir.c_str(), "--socket", path.c_str(), "--group", kGroup,
          nullptr);
    _exit(2);
  }
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  strcpy(address.sun_path, path.c_str());
  const UniqueFd client(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  int error = -1;
  for (int i = 0; i < 500 && error != 0; i++) {
    usleep(10000);
    error = connect(client.get(), reinterpret_cast<sockaddr*>(&address),
                    sizeof(address));
  }
  ASSERT_EQ(error, 0) << strerror(errno);
  char text[64] = {};
  EXPECT_EQ(recv(client.get(), text, sizeof(text) - 1, 0), 0) << text;
  kill(server, SIGTERM);
  int status = 0;
  waitpid(server, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
