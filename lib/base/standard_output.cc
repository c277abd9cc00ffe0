// SPDX-License-Identifier: BSD-3-Clause
#include "lib/base/standard_output.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include "lib/base/status_util.h"

namespace netmeter {
namespace internal {

absl::Status WriteToStandardOutput(absl::string_view text,
                                   absl::string_view hint) {
  while (!text.empty()) {
    const ssize_t count = write(STDOUT_FILENO, text.data(), text.size());
    if (count >= 0) {
      text.remove_prefix(static_cast<size_t>(count));
    } else if (errno == EPIPE || errno == EBADF) {
      return absl::CancelledError("the reader of standard output has gone");
    } else if (errno == EAGAIN) {
      // The output is non-blocking: another process that shares the description may set
      // that.
      pollfd output = {STDOUT_FILENO, POLLOUT, 0};
      poll(&output, 1, -1);
    } else if (errno != EINTR) {
      return ErrnoStatus(errno, "write to standard output", hint);
    }
  }
  return absl::OkStatus();
}

}  // namespace internal
}  // namespace netmeter
