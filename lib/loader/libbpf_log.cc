// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/libbpf_log.h"

#include <bpf/libbpf.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "lib/core/status_util.h"

namespace netmeter {
namespace internal {
namespace {

constexpr size_t kMostBytes = 1 << 20;  // a verifier's log may be endless

bool g_print = false;
std::string* g_warnings = nullptr;  // never freed: a callback uses it
int g_types_error = 0;              // of the kernel's own; negative

// btf__load_vmlinux_btf() answers ESRCH where it could read no types, for what reason
// ever. It says the reason: as a number, from libbpf 1.6 on by its name.
void NoteTypesError(const char* line) {
  constexpr char kBegin[] =
      "libbpf: loading kernel BTF '/sys/kernel/btf/vmlinux': ";
  if (strncmp(line, kBegin, strlen(kBegin)) != 0) return;
  const char* const error = line + strlen(kBegin);
  g_types_error = strcmp(error, "-ENOMEM\n") == 0 ? -ENOMEM : atoi(error);
}

int Log(enum libbpf_print_level level, const char* format, va_list args) {
  char line[1024];
  va_list copy;
  va_copy(copy, args);
  vsnprintf(line, sizeof(line), format, copy);
  va_end(copy);
  if (level == LIBBPF_DEBUG) NoteTypesError(line);
  if (level == LIBBPF_WARN && g_warnings->size() < kMostBytes) {
    absl::StrAppend(g_warnings, line);
  }
  if (g_print && level != LIBBPF_DEBUG) vfprintf(stderr, format, args);
  return 0;
}

}  // namespace

void CaptureLibbpfMessages() {
  if (g_warnings == nullptr) g_warnings = new std::string;
  g_warnings->clear();
  g_types_error = 0;
  libbpf_set_print(Log);
}

void PrintLibbpfMessages(bool print) { g_print = print; }

std::string ProgramThatLibbpfRefused() {
  constexpr char kBegin[] = "libbpf: prog '";
  if (g_warnings == nullptr) return "";
  const size_t at = g_warnings->find(kBegin);
  if (at == std::string::npos) return "";
  const size_t from = at + strlen(kBegin);
  return g_warnings->substr(from, g_warnings->find('\'', from) - from);
}

absl::Status ObjectStatus(int error, absl::string_view what,
                          absl::string_view hint) {
  if (error == -ESRCH && g_types_error != 0) {
    return ErrnoStatus(g_types_error,
                       absl::StrCat(what, ": read the kernel's types"));
  }
  const std::string program = ProgramThatLibbpfRefused();
  return ErrnoStatus(
      error, absl::StrCat(what, program.empty() ? "" : ": ", program), hint);
}

}  // namespace internal
}  // namespace netmeter
