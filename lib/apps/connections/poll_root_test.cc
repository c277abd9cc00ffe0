// SPDX-License-Identifier: BSD-3-Clause
// Whose sockets are, while meters come and go.

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>

#include "absl/status/status.h"
#include "lib/apps/connections/poll.h"
#include "lib/base/unique_fd.h"
#include "lib/loader/load.h"
#include "lib/loader/loader_fixture.h"
#include "lib/loader/unload.h"
#include "netmeter/abi.h"

namespace netmeter {
namespace internal {
namespace {

// `netmeter top` opened the meter once: after an unload and a load it showed no socket
// of any service, and no reason.
TEST_F(LoaderRootTest, APollOfSocketsFollowsTheMeter) {
  MustLoad();
  SocketPoll poll(config_.pin_dir);
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    std::ofstream(cgroup_ + "/cgroup.procs") << getpid();
    const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    listen(fd.get(), 1);
    close(ready[1]);
    pause();
  }
  close(ready[1]);
  char byte;
  EXPECT_EQ(read(ready[0], &byte, 1), 0);
  close(ready[0]);
  const auto sockets_of_child = [&] {
    int count = 0;
    PollOptions options;
    options.protocols = {IPPROTO_TCP};
    const absl::Status status = poll.Run(options, [&](const SocketRow& row) {
      if (row.owner->pid == static_cast<uint32_t>(child)) count++;
    });
    EXPECT_TRUE(status.ok()) << status;
    return count;
  };
  EXPECT_EQ(sockets_of_child(), 1);
  bool was_loaded = false;
  ASSERT_TRUE(Unload(config_.pin_dir, &was_loaded).ok());
  EXPECT_EQ(sockets_of_child(), 0);
  EXPECT_FALSE(poll.attribution().ok());
  MustLoad();
  EXPECT_EQ(sockets_of_child(), 1);
  EXPECT_TRUE(poll.attribution().ok());
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

// The owner of a TCP socket is in the socket table, until its series is known there.
TEST_F(LoaderRootTest, ATcpSocketIsItsCreatorsBeforeAndAfterItsFirstPacket) {
  MustLoad();
  // Nothing counts over loopback but what goes to the proxy port.
  UniqueFd listeners[2];
  sockaddr_in addresses[2] = {};
  for (int i = 0; i < 2; i++) {
    listeners[i] = UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    setsockopt(listeners[i].get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    sockaddr_in& here = addresses[i];
    here.sin_family = AF_INET;
    here.sin_port = htons(i == 0 ? 0 : 8443);
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* const address = reinterpret_cast<sockaddr*>(&here);
    socklen_t size = sizeof(here);
    ASSERT_EQ(bind(listeners[i].get(), address, size), 0);
    ASSERT_EQ(listen(listeners[i].get(), 1), 0);
    ASSERT_EQ(getsockname(listeners[i].get(), address, &size), 0);
  }
  int ready[2], hold[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(hold), 0);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    close(ready[0]);
    close(hold[1]);
    std::ofstream(cgroup_ + "/cgroup.procs") << getpid();
    UniqueFd fds[2];
    for (int i = 0; i < 2; i++) {
      fds[i] = UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      const int fd = fds[i].get();
      if (setsockopt(fd, NM_SOL, NM_SERVICE, "mine", 4) != 0 ||
          setsockopt(fd, NM_SOL, NM_TAG, "there", 5) != 0 ||
          connect(fd, reinterpret_cast<sockaddr*>(&addresses[i]),
                  sizeof(addresses[i])) != 0) {
        _exit(1);
      }
    }
    // The heir has both, too, and keeps them.
    if (fork() != 0) {
      close(ready[1]);
      pause();
    }
    alarm(60);
    close(ready[1]);
    char byte;
    _exit(static_cast<int>(read(hold[0], &byte, 1)));
  }
  close(ready[1]);
  close(hold[0]);
  char byte;
  EXPECT_EQ(read(ready[0], &byte, 1), 0);
  close(ready[0]);
  const auto expect = [&](uint32_t pid) {
    SocketPoll poll(config_.pin_dir);  // keeps names of processes for a while
    PollOptions options;
    options.protocols = {IPPROTO_TCP};
    int seen = 0;
    const absl::Status status = poll.Run(options, [&](const SocketRow& row) {
      if (row.owner->service != "mine") return;
      seen++;
      EXPECT_EQ(row.owner->kind, "service");
      EXPECT_EQ(row.owner->destination, "there");
      EXPECT_EQ(row.owner->pid, pid);
    });
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(seen, 2);
  };
  expect(static_cast<uint32_t>(child));
  // An upgrade keeps them.
  config_.sni_ports = {444};
  EXPECT_EQ(MustLoad(), Action::kUpgraded);
  expect(static_cast<uint32_t>(child));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  expect(0);
  close(hold[1]);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
