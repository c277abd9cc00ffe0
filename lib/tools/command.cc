// SPDX-License-Identifier: BSD-3-Clause
#include "lib/tools/command.h"

#include <errno.h>
#include <unistd.h>

#include <iostream>

#include "lib/core/status_util.h"
#include "lib/core/text.h"
#include "netmeter/meter.h"

namespace netmeter {
namespace internal {

void AddPinDir(Flags* flags, std::string* pin_dir) {
  *pin_dir = MeterOptions().pin_dir;
  flags
      ->AddOption("--pin-dir", pin_dir,
                  "Where netmeter-loader pinned the meter's maps")
      .Type("DIR")
      .ShowDefault();
}

absl::Status CheckPinDir(const std::string& pin_dir) {
  if (!pin_dir.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError("--pin-dir: expected a path, not ''");
}

int Fail(absl::string_view message, int exit_status) {
  std::cerr << "netmeter: " << ToTerminal(message) << "\n";
  return exit_status;
}

int Print(absl::string_view text) {
  while (!text.empty()) {
    const ssize_t count = write(STDOUT_FILENO, text.data(), text.size());
    if (count >= 0) {
      text.remove_prefix(static_cast<size_t>(count));
    } else if (errno == EPIPE || errno == EBADF) {
      return kExitError;
    } else if (errno != EINTR) {
      return Fail(ErrnoStatus(errno, "write to standard output").message());
    }
  }
  return 0;
}

}  // namespace internal
}  // namespace netmeter
