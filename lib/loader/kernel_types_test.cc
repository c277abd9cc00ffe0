// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/kernel_types.h"

#include <bpf/btf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>

namespace netmeter {
namespace internal {
namespace {

using testing::HasSubstr;

class KernelTypesTest : public testing::Test {
 protected:
  void SetUp() override { unlink(path_.c_str()); }
  void TearDown() override { unlink(path_.c_str()); }

  void Write(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary) << bytes;
  }
  // "" if the file can serve.
  std::string Error(const std::string& path) const {
    return std::string(CheckTypesFile(path).message());
  }
  std::string Error() const { return Error(path_); }

  // Types as a kernel's, with this one structure.
  static std::string TypesWith(const char* structure) {
    const std::unique_ptr<btf, decltype(&btf__free)> types(btf__new_empty(),
                                                           btf__free);
    btf__add_int(types.get(), "unsigned long", 8, 0);
    btf__add_struct(types.get(), structure, 8);
    uint32_t size = 0;
    const void* bytes = btf__raw_data(types.get(), &size);
    return std::string(static_cast<const char*>(bytes), size);
  }

  const std::string path_ = std::string(std::getenv("TEST_TMPDIR")) + "/types";
};

TEST_F(KernelTypesTest, AKernelsTypesServe) {
  Write(TypesWith("task_struct"));
  EXPECT_EQ(Error(), "");
  EXPECT_TRUE(CheckTypesFile(path_).ok());
}

TEST_F(KernelTypesTest, AFileThatIsMissingIsSaidToBe) {
  EXPECT_EQ(Error(), "btf: read " + path_ + ": No such file or directory");
}

TEST_F(KernelTypesTest, AFileThatIsCutShortIsSaidToBe) {
  const std::string whole = TypesWith("task_struct");
  for (size_t size = 8; size < whole.size(); ++size) {
    Write(whole.substr(0, size));
    EXPECT_THAT(Error(), HasSubstr(": is cut short: it has " +
                                   std::to_string(size) + " bytes of "));
  }
  for (size_t size = 0; size < 8; ++size) {
    Write(whole.substr(0, size));
    EXPECT_NE(Error(), "") << size;
  }
}

TEST_F(KernelTypesTest, WhatIsNoBtfIsSaidToBe) {
  for (const char* bytes : {"", "#", "services: [mme]\n"}) {
    Write(bytes);
    EXPECT_EQ(Error(),
              "btf: " + path_ + ": is neither BTF nor an ELF file with BTF");
  }
  EXPECT_EQ(Error("/proc/self/exe"),
            "btf: /proc/self/exe: is an ELF file without BTF");
}

TEST_F(KernelTypesTest, TypesOfSomethingElseAreSaidToBe) {
  Write(TypesWith("tcphdr"));
  EXPECT_THAT(Error(), HasSubstr("not of a kernel: no struct task_struct"));
  std::string swapped = TypesWith("task_struct");
  std::swap(swapped[0], swapped[1]);
  Write(swapped);
  EXPECT_THAT(Error(), HasSubstr("another byte order"));
}

// Each byte of the header and of the types, one after the other: an error, or types.
TEST_F(KernelTypesTest, DamagedTypesCrashNothing) {
  const std::string whole = TypesWith("task_struct");
  for (size_t i = 0; i < whole.size(); ++i) {
    for (const char value : {'\0', '\xff', '\x7f'}) {
      std::string damaged = whole;
      damaged[i] = value;
      Write(damaged);
      Error();
    }
  }
}

// It is never opened: nobody might ever write into it.
TEST_F(KernelTypesTest, WhatIsNoRegularFileIsRefusedAtOnce) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(Error(), "btf: " + path_ + ": is no regular file");
  EXPECT_EQ(Error("/"), "btf: /: is no regular file");
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
