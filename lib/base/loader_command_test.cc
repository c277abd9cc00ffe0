// SPDX-License-Identifier: BSD-3-Clause
#include "lib/base/loader_command.h"

#include <gtest/gtest.h>

namespace netmeter {
namespace internal {
namespace {

// The bug: the advice of an error was pasted into a shell, which interpreted the
// directory's name.
TEST(LoaderCommand, IsReadByAShellAsItIsMeant) {
  EXPECT_EQ(LoaderCommand("load", "/run/netmeter"), "netmeter-loader load");
  EXPECT_EQ(LoaderCommand("load", "/run/a b"),
            "netmeter-loader load --pin-dir '/run/a b'");
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
