// SPDX-License-Identifier: BSD-3-Clause
#include "lib/base/loader_command.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lib/base/text.h"

namespace netmeter {
namespace internal {

std::string PinDirOption(absl::string_view pin_dir) {
  if (pin_dir == kDefaultPinDir) return "";
  return absl::StrCat(" --pin-dir ", ShellWord(pin_dir));
}

std::string LoaderCommand(absl::string_view command,
                          absl::string_view pin_dir) {
  return absl::StrCat("netmeter-loader ", command, PinDirOption(pin_dir));
}

}  // namespace internal
}  // namespace netmeter
