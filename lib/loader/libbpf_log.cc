// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/libbpf_log.h"

#include <bpf/libbpf.h>

#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace netmeter {
namespace internal {
namespace {

constexpr size_t kMostBytes = 1 << 20;  // a verifier's log may be endless

bool g_print = false;
std::string* g_warnings = nullptr;  // never freed: a callback uses it

int Log(enum libbpf_print_level level, const char* format, va_list args) {
  char line[1024];
  va_list copy;
  va_copy(copy, args);
  vsnprintf(line, sizeof(line), format, copy);
  va_end(copy);
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

}  // namespace internal
}  // namespace netmeter
