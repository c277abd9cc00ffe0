// SPDX-License-Identifier: BSD-3-Clause
// The socket of `netmeter-loader serve-fds`: its own, or one that it is given.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/core/unique_fd.h"
#include "lib/loader/loader_fixture.h"
#include "lib/loader/serve.h"
#include "lib/loader/system.h"

namespace netmeter {
namespace internal {
namespace {

using ::testing::HasSubstr;

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
  // Until it is idle. In a process of its own: it gives up what it does not need.
  EXPECT_EQ(InChild([&] { return ServeDescriptors(serve).ok() ? 0 : 1; }), 0);
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

// systemd called it again for a client that still waited, until the socket unit failed
// for good: one exporter was enough.
TEST_F(LoaderRootTest, ServeFdsOfAUnitGoesOnWhereAnybodyCouldWrite) {
  MustLoad();
  const std::string path = config_.pin_dir + ".sock";
  const std::string zero = config_.pin_dir + ".zero";
  std::ofstream(zero) << "0\n";
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  strcpy(address.sun_path, path.c_str());
  UniqueFd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&address),
                 sizeof(address)),
            0);
  ASSERT_EQ(listen(listener.get(), 8), 0);
  ServeOptions serve;
  serve.pin_dir = config_.pin_dir;
  const pid_t server = fork();
  if (server == 0) {
    alarm(30);
    const char sysctl[] = "/proc/sys/kernel/unprivileged_bpf_disabled";
    if (unshare(CLONE_NEWNS) != 0 ||
        mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount(zero.c_str(), sysctl, nullptr, MS_BIND, nullptr) != 0 ||
        UnprivilegedBpfDisabled() != 0 ||
        (listener.get() != 3 && dup2(listener.get(), 3) != 3)) {
      _exit(2);
    }
    setenv("LISTEN_FDS", "1", 1);
    setenv("LISTEN_PID", std::to_string(getpid()).c_str(), 1);
    _exit(ServeDescriptors(serve).ok() ? 0 : 1);
  }
  for (int i = 0; i < 3; i++) {
    UniqueFd client(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(connect(client.get(), reinterpret_cast<sockaddr*>(&address),
                      sizeof(address)),
              0);
    pollfd polled = {client.get(), POLLIN, 0};
    ASSERT_EQ(poll(&polled, 1, 10000), 1);
    char byte, control[CMSG_SPACE(sizeof(int))];
    iovec data = {&byte, 1};
    msghdr message = {};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    EXPECT_EQ(recvmsg(client.get(), &message, 0), 0);
    EXPECT_EQ(message.msg_controllen, 0u);
  }
  kill(server, SIGTERM);
  int status = 0;
  waitpid(server, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  unlink(path.c_str());
  unlink(zero.c_str());
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
                const int fd = passed.type == 0
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

// What it says on a closed stderr went to the client who had that number.
TEST_F(LoaderRootTest,
       ServeFdsWithoutStandardStreamsTellsItsClientsNothingElse) {
  const std::string path = config_.pin_dir + ".sock";
  const pid_t server = fork();
  if (server == 0) {
    alarm(30);
    for (int fd = 0; fd < 3; fd++) close(fd);
    execl("lib/loader/netmeter-loader", "netmeter-loader", "serve-fds",
          "--pin-dir", config_.pin_dir.c_str(), "--socket", path.c_str(),
          "--group", kGroup, "--idle-seconds", "1", nullptr);
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
  int status = 0;
  waitpid(server, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
