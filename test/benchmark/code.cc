// SPDX-License-Identifier: BSD-3-Clause
#include "test/benchmark/code.h"

#include <bpf/bpf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "lib/base/unique_fd.h"
#include "test/benchmark/harness.h"

namespace netmeter {
namespace internal {
namespace {

// A line of objdump that is an instruction: "   1f:\tmov    %rsp,%rbp".
bool IsInstruction(const char* line) {
  while (*line == ' ') ++line;
  const char* end = line;
  while (std::strchr("0123456789abcdef", *end) != nullptr && *end != '\0') {
    ++end;
  }
  return end != line && end[0] == ':' && end[1] == '\t';
}

// 0: there is no objdump, or it fails.
uint64_t CountInstructions(const uint8_t* code, size_t size) {
#if defined(__x86_64__)
  constexpr char kMachine[] = "i386:x86-64";
#else
  constexpr char kMachine[] = "aarch64";
#endif
  // Without MFD_CLOEXEC: objdump opens it by our name for it.
  const UniqueFd file(Check(memfd_create("code", 0), "memfd_create"));
  if (write(file.get(), code, size) != static_cast<ssize_t>(size)) {
    DieWithErrno("write the code");
  }
  const std::string command =
      std::string("objdump -D -b binary --no-show-raw-insn -m ") + kMachine +
      " /proc/self/fd/" + std::to_string(file.get()) + " 2> /dev/null";
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) DieWithErrno("run objdump");
  uint64_t count = 0;
  char line[512];
  while (std::fgets(line, sizeof(line), pipe) != nullptr) {
    count += IsInstruction(line) ? 1 : 0;
  }
  return pclose(pipe) == 0 ? count : 0;
}

}  // namespace

nlohmann::json DescribeCode(int program_fd, std::string* error) {
  bpf_prog_info about = {};
  uint32_t size = sizeof(about);
  Check(bpf_obj_get_info_by_fd(program_fd, &about, &size), "program info");
  std::vector<uint8_t> code(about.jited_prog_len);
  std::vector<uint32_t> lengths(about.nr_jited_func_lens);
  bpf_prog_info wanted = {};
  wanted.jited_prog_insns = reinterpret_cast<uintptr_t>(code.data());
  wanted.jited_prog_len = about.jited_prog_len;
  wanted.jited_func_lens = reinterpret_cast<uintptr_t>(lengths.data());
  wanted.nr_jited_func_lens = about.nr_jited_func_lens;
  size = sizeof(wanted);
  Check(bpf_obj_get_info_by_fd(program_fd, &wanted, &size), "program info");
  // The pointers come back as 0 where kernel.kptr_restrict hides addresses.
  if (code.empty() || lengths.empty() || wanted.jited_prog_insns == 0 ||
      wanted.jited_func_lens == 0) {
    *error = "the kernel does not show the code";
    return nullptr;
  }
  uint64_t all = 0, first = 0;
  size_t at = 0;
  for (const uint32_t length : lengths) {
    if (length > code.size() - at) break;
    const uint64_t count = CountInstructions(code.data() + at, length);
    if (count == 0) {
      *error = "no objdump";
      return nullptr;
    }
    if (at == 0) first = count;
    all += count;
    at += length;
  }
  return {{"JITed instructions, first function", first},
          {"JITed bytes, first function", lengths[0]},
          {"instructions, all functions", all}};
}

double TimeStampMhz() {
#if defined(__x86_64__)
  const double begin_ns = NowNs();
  const uint64_t begin = __builtin_ia32_rdtsc();
  usleep(50000);
  const double ns = NowNs() - begin_ns;
  return static_cast<double>(__builtin_ia32_rdtsc() - begin) / ns * 1e3;
#else
  return 0;
#endif
}

}  // namespace internal
}  // namespace netmeter
