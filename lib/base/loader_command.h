// SPDX-License-Identifier: BSD-3-Clause
// What a message asks the reader to run.
//
//   absl::NotFoundError(absl::StrCat("no meter at ", pin_dir, " (run: ",
//                                    LoaderCommand("load", pin_dir), ")"));
//
// Threads: any.

#ifndef NETMETER_LIB_BASE_LOADER_COMMAND_H_
#define NETMETER_LIB_BASE_LOADER_COMMAND_H_

#include <string>

#include "absl/strings/string_view.h"

namespace netmeter {
namespace internal {

constexpr char kDefaultPinDir[] = "/run/netmeter";  // as in netmeter/meter.h

// " --pin-dir DIR", as a shell reads it; "" for the default.
std::string PinDirOption(absl::string_view pin_dir);

// "netmeter-loader load", with PinDirOption().
std::string LoaderCommand(absl::string_view command, absl::string_view pin_dir);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_BASE_LOADER_COMMAND_H_
