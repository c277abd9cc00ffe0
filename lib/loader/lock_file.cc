// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/lock_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "lib/base/status_util.h"

namespace netmeter {
namespace internal {
namespace {

// The file that WriteState() renames over the lock file.
std::string NextLockFile(const std::string& file) { return file + ".new"; }

// Whether `fd` is still the file at `file`. The previous holder of the lock may
// have removed or replaced the file.
absl::StatusOr<bool> IsTheFile(const UniqueFd& fd, const std::string& file) {
  struct stat mine = {}, there = {};
  if (fstat(fd.get(), &mine) != 0 ||
      (stat(file.c_str(), &there) != 0 && errno != ENOENT)) {
    return ErrnoStatus(errno, absl::StrCat("look at ", file));
  }
  return mine.st_ino == there.st_ino;
}

absl::Status CannotOpen(const std::string& file) {
  return ErrnoStatus(errno, absl::StrCat("open ", file),
                     errno == EACCES || errno == EPERM ? "run as root" : "");
}

}  // namespace

absl::StatusOr<UniqueFd> LockDirectory(const std::string& path, int how,
                                       std::chrono::milliseconds most) {
  // Only root can open this file. Any user could take a lock on the directory,
  // and keep it.
  const std::string file = LockFile(path);
  const int flags = how == LOCK_EX ? O_RDWR | O_CREAT : O_RDONLY;
  // Polls, because flock(2) has no time limit, and an alarm would affect the
  // whole process.
  const auto deadline = std::chrono::steady_clock::now() + most;
  for (;;) {
    UniqueFd fd(open(file.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd.ok() && errno == ENOENT && how == LOCK_SH) return fd;
    if (!fd.ok()) return CannotOpen(file);
    if (flock(fd.get(), how | LOCK_NB) == 0) {
      NETMETER_ASSIGN_OR_RETURN(const bool found, IsTheFile(fd, file));
      if (found) return fd;
      continue;
    }
    if (errno != EWOULDBLOCK && errno != EINTR) {
      return ErrnoStatus(errno, absl::StrCat("lock ", file));
    }
    // Signals are blocked so that a load can finish (SignalsBlocked), but nothing has
    // begun yet.
    sigset_t pending;
    if (sigpending(&pending) == 0 && sigisemptyset(&pending) == 0) {
      return absl::CancelledError(absl::StrCat(
          "lock ", file,
          ": interrupted by a signal while another netmeter-loader held it"));
    }
    if (std::chrono::steady_clock::now() > deadline) {
      return absl::DeadlineExceededError(absl::StrCat(
          "lock ", file, ": another netmeter-loader has held it for ",
          most.count() / 1000, " s: try again later"));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

std::string LockFile(const std::string& path) {
  // Escapes as systemd-escape(1) does, so that no two paths share a name.
  // CheckConfig() refuses a path whose file name would be too long.
  const std::string name =
      absl::StrReplaceAll(path, {{"-", "\\x2d"}, {"/", "-"}});
  return absl::StrCat("/run/.netmeter", name, ".lock");
}

// The file has lines "cgroup PATH" and "config YAML", escaped as in C.
absl::StatusOr<LoaderState> ReadState(int lock_fd, const std::string& file) {
  LoaderState state;
  std::string text;
  char buffer[4096];
  for (;;) {
    const ssize_t got =
        pread(lock_fd, buffer, sizeof(buffer), static_cast<off_t>(text.size()));
    if (got == 0) break;
    if (got > 0) {
      text.append(buffer, static_cast<size_t>(got));
    } else if (errno != EINTR) {
      return ErrnoStatus(errno, absl::StrCat("read ", file));
    }
  }
  // A last line without a newline was cut off, as on a full /run. Half a
  // configuration is worse than none.
  const size_t end = text.rfind('\n');
  text.resize(end == std::string::npos ? 0 : end);
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    std::string value;
    if (absl::ConsumePrefix(&line, "config ")) {
      if (absl::CUnescape(line, &value)) state.config = value;
    } else if (absl::ConsumePrefix(&line, "cgroup ")) {
      if (absl::CUnescape(line, &value)) state.cgroup = value;
    }
  }
  return state;
}

namespace {

std::string TextOf(const LoaderState& state) {
  std::string text;
  if (!state.cgroup.empty()) {
    absl::StrAppend(&text, "cgroup ", absl::CEscape(state.cgroup), "\n");
  }
  if (!state.config.empty()) {
    absl::StrAppend(&text, "config ", absl::CEscape(state.config), "\n");
  }
  return text;
}

// Writes all of `text`, or returns an errno.
int WriteWhole(int fd, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t written = write(fd, text.data() + done, text.size() - done);
    if (written < 0) return errno;
    if (written == 0) return ENOSPC;
    done += static_cast<size_t>(written);
  }
  return 0;
}

}  // namespace

absl::Status WriteState(const std::string& file, const LoaderState& state,
                        UniqueFd* lock) {
  const std::string text = TextOf(state);
  const std::string next = NextLockFile(file);
  UniqueFd fd(open(next.c_str(),
                   O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.ok()) return ErrnoStatus(errno, absl::StrCat("open ", next));
  int error = WriteWhole(fd.get(), text);
  // Lock the file before the rename makes it visible to other processes.
  if (error == 0 && flock(fd.get(), LOCK_EX | LOCK_NB) != 0) error = errno;
  if (error == 0 && rename(next.c_str(), file.c_str()) != 0) error = errno;
  if (error != 0) {
    unlink(next.c_str());
    return ErrnoStatus(error, absl::StrCat("write ", file));
  }
  *lock = std::move(fd);
  return absl::OkStatus();
}

absl::StatusOr<LoaderState> PeekState(const std::string& path) {
  const std::string file = LockFile(path);
  const UniqueFd fd(open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.ok() && errno == ENOENT) return LoaderState();
  if (!fd.ok()) return CannotOpen(file);
  return ReadState(fd.get(), file);
}

void RemoveLockFile(const std::string& path) {
  const std::string file = LockFile(path);
  unlink(NextLockFile(file).c_str());
  unlink(file.c_str());
}

}  // namespace internal
}  // namespace netmeter
