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

}  // namespace
}  // namespace internal
}  // namespace netmeter
