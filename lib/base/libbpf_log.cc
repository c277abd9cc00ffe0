// SPDX-License-Identifier: BSD-3-Clause
#include "lib/base/libbpf_log.h"

#include <bpf/libbpf.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "lib/base/status_util.h"

namespace netmeter {
namespace internal {
namespace {

constexpr size_t kMostBytes = 1 << 20;  // a verifier's log may be endless

bool g_print = false;
std::string* g_warnings = nullptr;  // never freed: a callback uses it
int g_types_error = 0;              // from reading the kernel's types; negative

// If no types could be read, btf__load_vmlinux_btf() returns ESRCH for any reason, and
// logs the reason at debug level. From libbpf 1.4 on it warns and returns the reason. The
// reason is a number, and a name from 1.6 on.
void NoteTypesError(absl::string_view line) {
  constexpr absl::string_view kFile = " '/sys/kernel/btf/vmlinux': ";
  if (!absl::ConsumePrefix(&line, "libbpf: loading kernel BTF") &&
      !absl::ConsumePrefix(&line, "libbpf: failed to read kernel BTF from")) {
    return;
  }
  if (!absl::ConsumePrefix(&line, kFile)) return;
  absl::ConsumeSuffix(&line, "\n");
  if (line == "-ENOMEM") {
    g_types_error = -ENOMEM;
  } else if (!absl::SimpleAtoi(line, &g_types_error)) {
    g_types_error = 0;
  }
}

int Log(enum libbpf_print_level level, const char* format, va_list args) {
  char line[1024];
  va_list copy;
  va_copy(copy, args);
  vsnprintf(line, sizeof(line), format, copy);
  va_end(copy);
  NoteTypesError(line);
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
  if (g_types_error != 0 && (error == -ESRCH || error == g_types_error)) {
    return ErrnoStatus(g_types_error,
                       absl::StrCat(what, ": read the kernel's types"));
  }
  const std::string program = ProgramThatLibbpfRefused();
  return ErrnoStatus(
      error, absl::StrCat(what, program.empty() ? "" : ": ", program), hint);
}

}  // namespace internal
}  // namespace netmeter
