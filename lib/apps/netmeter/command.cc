// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/netmeter/command.h"

#include <poll.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>

#include "lib/base/standard_output.h"
#include "lib/base/text.h"
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
  const absl::Status written = WriteToStandardOutput(text);
  if (written.ok()) return 0;
  return absl::IsCancelled(written) ? kExitError : Fail(written.message());
}

bool WaitForLostReader(std::chrono::nanoseconds time) {
  const int64_t ns = std::max<int64_t>(time.count(), 0);
  const timespec left = {static_cast<time_t>(ns / 1000000000),
                         static_cast<long>(ns % 1000000000)};
  pollfd output = {STDOUT_FILENO, 0, 0};
  return ppoll(&output, 1, &left, nullptr) > 0;
}

}  // namespace internal
}  // namespace netmeter
