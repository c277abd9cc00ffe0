// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/netmeter/connections/ipfix_child.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lib/apps/netmeter/commands.h"
#include "lib/base/status_util.h"
#include "lib/base/unique_fd.h"

namespace netmeter {
namespace internal {

absl::StatusOr<pid_t> StartIpfix(const std::vector<std::string>& arguments) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe");
  const UniqueFd input(ends[0]);
  const UniqueFd output(ends[1]);
  std::vector<char*> words = {const_cast<char*>("netmeter-ipfix")};
  for (const std::string& argument : arguments) {
    words.push_back(const_cast<char*>(argument.c_str()));
  }
  words.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, input.get(), STDIN_FILENO);
  pid_t child;
  const int spawned =
      posix_spawnp(&child, words[0], &files, nullptr, words.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  if (spawned == ENOENT) {
    return absl::NotFoundError(
        "netmeter-ipfix is not installed (apt install netmeter-ipfix)");
  }
  if (spawned != 0) return ErrnoStatus(spawned, "run netmeter-ipfix");
  if (dup2(output.get(), STDOUT_FILENO) < 0) return ErrnoStatus(errno, "dup2");
  return child;
}

int FinishIpfix(pid_t child) {
  close(STDOUT_FILENO);
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return kExitError;
  }
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  return Fail(
      absl::StrCat("netmeter-ipfix ended by signal ", WTERMSIG(status)));
}

}  // namespace internal
}  // namespace netmeter
