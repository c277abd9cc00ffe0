// SPDX-License-Identifier: BSD-3-Clause
#include "lib/base/libbpf_log.h"

#include <bpf/libbpf.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdarg>
#include <string>

#include "absl/status/status.h"

namespace netmeter {
namespace internal {
namespace {

libbpf_print_fn_t g_log;

void Say(enum libbpf_print_level level, const char* format, ...) {
  va_list args;
  va_start(args, format);
  g_log(level, format, args);
  va_end(args);
}

// The messages of several versions: the installed library prints only one of them.
class LibbpfLogTest : public testing::Test {
 protected:
  void SetUp() override {
    CaptureLibbpfMessages();
    g_log = libbpf_set_print(nullptr);
  }

  std::string MessageOf(int error) {
    return std::string(ObjectStatus(error, "load", "see --verbose").message());
  }
};

TEST_F(LibbpfLogTest, NoMemoryForTheTypesIsToldByAnyVersion) {
  const char* const why =
      "load: read the kernel's types: Cannot allocate memory";
  const char* const file = "/sys/kernel/btf/vmlinux";
  // Versions before 1.4, which go on to other files.
  Say(LIBBPF_DEBUG, "libbpf: loading kernel BTF '%s': %d\n", file, -ENOMEM);
  Say(LIBBPF_DEBUG, "libbpf: loading kernel BTF '%s': %d\n", "/boot/x",
      -ENOENT);
  EXPECT_EQ(MessageOf(-ESRCH), why);
  // Versions 1.4 and 1.6: with the hint about the tables' memory.
  CaptureLibbpfMessages();
  Say(LIBBPF_WARN, "libbpf: failed to read kernel BTF from '%s': %d\n", file,
      -ENOMEM);
  EXPECT_EQ(MessageOf(-ENOMEM), why);
  CaptureLibbpfMessages();
  Say(LIBBPF_WARN, "libbpf: failed to read kernel BTF from '%s': %s\n", file,
      "-ENOMEM");
  EXPECT_EQ(MessageOf(-ENOMEM), why);
  EXPECT_TRUE(absl::IsResourceExhausted(ObjectStatus(-ENOMEM, "load")));
}

TEST_F(LibbpfLogTest, OtherErrorsAreTheirOwn) {
  EXPECT_TRUE(ObjectStatus(0, "load").ok());
  const char* const text = "libbpf: loading kernel BTF '%s': %d\n";
  Say(LIBBPF_DEBUG, text, "/sys/kernel/btf/vmlinux", -ENOMEM);
  EXPECT_EQ(MessageOf(-EPERM), "load: Operation not permitted (see --verbose)");
  Say(LIBBPF_DEBUG, text, "/sys/kernel/btf/vmlinux", 0);
  Say(LIBBPF_WARN, "libbpf: prog '%s': BPF program load failed\n", "nm_exec");
  EXPECT_EQ(MessageOf(-ESRCH),
            "load: nm_exec: No such process (see --verbose)");
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
