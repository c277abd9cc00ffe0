// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/export/http.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "lib/base/status_util.h"
#include "lib/base/text.h"
#include "lib/base/unique_fd.h"

namespace netmeter {
namespace internal {
namespace {

constexpr size_t kMaxAnswer = 16 * 1024;
constexpr size_t kMaxToken = 16 * 1024;
constexpr size_t kMaxColumns = 200;  // of a message from curl or the receiver
constexpr int kConnectSeconds = 20;
constexpr int kBodyFd = 3;  // in curl

bool IsLoopback(absl::string_view host) {
  for (absl::string_view name : {"localhost", "127.0.0.1", "[::1]"}) {
    absl::string_view port = host;
    if (!absl::ConsumePrefix(&port, name)) continue;
    if (port.empty()) return true;
    uint32_t number;
    if (port[0] == ':' && absl::SimpleAtoi(port.substr(1), &number))
      return true;
  }
  return false;
}

// What stands between the scheme and the path.
absl::string_view AuthorityOf(absl::string_view url) {
  if (!absl::ConsumePrefix(&url, "https://"))
    absl::ConsumePrefix(&url, "http://");
  return url.substr(0, url.find_first_of("/?#"));
}

std::string NameOf(const HttpReceiver& receiver) {
  return ToTerminal(AuthorityOf(receiver.url));
}

absl::StatusOr<std::string> ReadToken(const std::string& path) {
  const std::string what = absl::StrCat("the token ", ToTerminal(path));
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.ok()) return ErrnoStatus(errno, what);
  char bytes[kMaxToken];
  const ssize_t length = read(file.get(), bytes, sizeof(bytes));
  if (length < 0) return ErrnoStatus(errno, what);
  const absl::string_view token = absl::StripAsciiWhitespace(
      absl::string_view(bytes, static_cast<size_t>(length)));
  if (token.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": it is empty"));
  }
  if (static_cast<size_t>(length) == sizeof(bytes) ||
      !std::all_of(token.begin(), token.end(), absl::ascii_isgraph)) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": expected one word of printable ASCII"));
  }
  return std::string(token);
}

absl::StatusOr<std::string> CheckAndReadToken(const HttpReceiver& receiver) {
  const std::string& url = receiver.url;
  const bool plain = absl::StartsWith(url, "http://");
  if ((!plain && !absl::StartsWith(url, "https://")) ||
      AuthorityOf(url).empty()) {
    return absl::InvalidArgumentError("expected a URL https://HOST/...");
  }
  // Also one whose password has a '/', after which the rest looks like a path.
  const absl::string_view authority = AuthorityOf(url);
  const absl::string_view port =
      authority.substr(std::min(authority.rfind(':'), authority.size()));
  const bool is_port =
      absl::EndsWith(authority, "]") || port.empty() ||
      std::all_of(port.begin() + 1, port.end(), absl::ascii_isdigit);
  if (!is_port || absl::StrContains(authority, '@')) {
    return absl::InvalidArgumentError(
        "expected a URL https://HOST:PORT/... (a user and a password belong "
        "into the token's file: others see the command line)");
  }
  if (receiver.token_file.empty()) return "";
  if (plain && !IsLoopback(AuthorityOf(url))) {
    return absl::InvalidArgumentError(
        "a token needs https://, or others on the way could read it");
  }
  return ReadToken(receiver.token_file);
}

// A value for curl's configuration, as curl(1) tells under --config.
std::string Quote(absl::string_view value) {
  std::string quoted = "\"";
  for (const char c : value) {
    if (c == '\n') {
      quoted += "\\n";
    } else if (c == '\r') {
      quoted += "\\r";
    } else {
      if (c == '"' || c == '\\') quoted += '\\';
      quoted += c;
    }
  }
  return quoted + "\"";
}

std::string ConfigurationOf(const HttpReceiver& receiver,
                            const std::string& token) {
  const auto seconds = receiver.timeout.count();
  std::string text = absl::StrCat(
      "url = ", Quote(receiver.url), "\ngloboff\nproto = \"=https,http\"\n",
      "silent\nshow-error\nmax-time = ", seconds,
      "\nconnect-timeout = ", std::min<int64_t>(seconds, kConnectSeconds),
      "\nheader = \"Content-Type: application/x-ndjson\"\n",
      "header = \"Content-Encoding: gzip\"\n",
      // All of the body at once: an answer that comes before its end is reported.
      "data-binary = \"@/proc/self/fd/", kBodyFd, "\"\n",
      // The last line on stderr. Before curl 7.84, %header{} stays as it is.
      "write-out = \"%{stderr}\\n%{http_code}\\t%{redirect_url}\\t",
      "%header{retry-after}\"\n");
  if (!token.empty()) {
    if (absl::StrContains(token, ':')) {
      absl::StrAppend(&text, "user = ", Quote(token), "\n");
    } else {
      absl::StrAppend(&text, "header = ",
                      Quote(absl::StrCat("Authorization: Bearer ", token)),
                      "\n");
    }
    // A proxy of the environment must not read the token.
    if (absl::StartsWith(receiver.url, "http://")) text += "noproxy = \"*\"\n";
  }
  if (!receiver.ca_file.empty()) {
    // The authorities of the host stand in a directory, too.
    absl::StrAppend(&text, "cacert = ", Quote(receiver.ca_file),
                    "\ncapath = \"/dev/null\"\n");
  }
  return text;
}

absl::StatusOr<UniqueFd> NewMemory() {
  UniqueFd memory(memfd_create("netmeter-export", MFD_CLOEXEC));
  if (!memory.ok()) return ErrnoStatus(errno, "memfd_create");
  return memory;
}

absl::Status WriteGzipped(absl::string_view body, const UniqueFd& memory) {
  const int copy = fcntl(memory.get(), F_DUPFD_CLOEXEC, 0);
  gzFile file = copy < 0 ? nullptr : gzdopen(copy, "wb");
  if (file == nullptr) {
    if (copy >= 0) close(copy);
    return absl::ResourceExhaustedError("compress: no memory or descriptor");
  }
  const auto size = static_cast<unsigned>(body.size());
  const bool written = size == 0 || gzwrite(file, body.data(), size) > 0;
  if (gzclose(file) != Z_OK || !written) {
    return absl::ResourceExhaustedError("compress: no memory");
  }
  return absl::OkStatus();
}

// What curl ended with.
struct Answer {
  int exit = 0;
  std::string body;  // at most kMaxAnswer bytes
  bool long_body = false;
  std::string error;  // stderr
};

absl::StatusOr<Answer> RunCurl(const std::string& configuration,
                               const UniqueFd& body) {
  NETMETER_ASSIGN_OR_RETURN(const UniqueFd input, NewMemory());
  NETMETER_ASSIGN_OR_RETURN(const UniqueFd error, NewMemory());
  // Written without moving the offset, which curl shares.
  if (pwrite(input.get(), configuration.data(), configuration.size(), 0) !=
      static_cast<ssize_t>(configuration.size())) {
    return ErrnoStatus(errno, "memfd_create");
  }
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe");
  UniqueFd output(ends[0]);
  UniqueFd writer(ends[1]);

  // Others see the arguments of a process, so all settings come by standard input.
  // --disable must come first.
  const char* const arguments[] = {"curl", "--disable", "--config", "-",
                                   nullptr};
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, input.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, writer.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, error.get(), STDERR_FILENO);
  posix_spawn_file_actions_adddup2(&files, body.get(), kBodyFd);
  pid_t child;
  const int spawned =
      posix_spawnp(&child, arguments[0], &files, nullptr,
                   const_cast<char* const*>(arguments), environ);
  posix_spawn_file_actions_destroy(&files);
  if (spawned == ENOENT) {
    return absl::NotFoundError("curl is not installed (apt install curl)");
  }
  if (spawned != 0) return ErrnoStatus(spawned, "run curl");
  writer = UniqueFd();

  Answer answer;
  char bytes[4096];
  while (!answer.long_body) {
    const ssize_t length = read(output.get(), bytes, sizeof(bytes));
    if (length < 0 && errno == EINTR) continue;
    if (length <= 0) break;
    answer.body.append(bytes, static_cast<size_t>(length));
    answer.long_body = answer.body.size() > kMaxAnswer;
  }
  // curl ends when it can write no more, so an endless answer costs no link.
  output = UniqueFd();
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return ErrnoStatus(errno, "wait for curl");
  }
  answer.exit = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  const ssize_t length = pread(error.get(), bytes, sizeof(bytes), 0);
  answer.error.assign(bytes, static_cast<size_t>(std::max<ssize_t>(length, 0)));
  return answer;
}

// The first line with something on it, in a form for a terminal.
std::string FirstLine(absl::string_view text) {
  for (absl::string_view line : absl::StrSplit(text, absl::ByAnyChar("\r\n"))) {
    line = absl::StripAsciiWhitespace(line);
    if (line.empty()) continue;
    return std::string(
        CutToWidth(ToTerminal(line.substr(0, 4 * kMaxColumns)), kMaxColumns));
  }
  return "";
}

absl::StatusCode CodeOf(int http) {
  switch (http) {
    case 401:
      return absl::StatusCode::kUnauthenticated;
    case 403:
      return absl::StatusCode::kPermissionDenied;
    case 429:
      return absl::StatusCode::kResourceExhausted;
    default:
      return http >= 500 ? absl::StatusCode::kUnavailable
                         : absl::StatusCode::kFailedPrecondition;
  }
}

absl::Status StatusOf(const HttpReceiver& receiver, const Answer& answer) {
  const std::string name = NameOf(receiver);
  const absl::string_view error = answer.error;
  const size_t last = error.rfind('\n');
  const std::vector<absl::string_view> fields = absl::StrSplit(
      error.substr(last == absl::string_view::npos ? 0 : last + 1),
      absl::MaxSplits('\t', 2));
  int http = 0;
  if (fields.size() != 3 || !absl::SimpleAtoi(fields[0], &http)) http = 0;

  if (http >= 200 && http < 300) {
    if (answer.long_body) {
      return absl::FailedPreconditionError(
          absl::StrCat(name, " answered ", http,
                       " with more than 16 kB: does this URL take rows?"));
    }
    if (answer.exit == 0) return absl::OkStatus();
  }
  if (http < 300) {
    // "curl: (6) Could not resolve host: centre"
    absl::string_view why = error.substr(0, last);
    if (absl::ConsumePrefix(&why, "curl: (")) {
      why.remove_prefix(std::min(why.size(), why.find(')') + 1));
    }
    const std::string line = FirstLine(why);
    return absl::UnavailableError(absl::StrCat(
        name, ": ",
        line.empty() ? absl::StrCat("curl ended with ", answer.exit) : line));
  }
  std::string hint;
  const std::string retry = FirstLine(fields[2]);
  if (http < 400) {
    hint = absl::StrCat("redirects are not followed: ", FirstLine(fields[1]));
  } else if (http == 401) {
    hint = receiver.token_file.empty()
               ? "it needs a token"
               : absl::StrCat("the token of ", ToTerminal(receiver.token_file),
                              "?");
  } else if (!retry.empty() && retry[0] != '%') {
    hint = std::all_of(retry.begin(), retry.end(), absl::ascii_isdigit)
               ? absl::StrCat("try again in ", retry, " s")
               : absl::StrCat("try again after ", retry);
  }
  const std::string line = http < 400 ? "" : FirstLine(answer.body);
  return absl::Status(
      CodeOf(http),
      absl::StrCat(name, " answered ", http,
                   hint.empty() ? "" : absl::StrCat(" (", hint, ")"),
                   line.empty() ? "" : absl::StrCat(": ", line)));
}

}  // namespace

absl::Status CheckReceiver(const HttpReceiver& receiver) {
  return CheckAndReadToken(receiver).status();
}

absl::Status Post(const HttpReceiver& receiver, absl::string_view body) {
  NETMETER_ASSIGN_OR_RETURN(const std::string token,
                            CheckAndReadToken(receiver));
  NETMETER_ASSIGN_OR_RETURN(const UniqueFd memory, NewMemory());
  NETMETER_RETURN_IF_ERROR(WriteGzipped(body, memory));
  NETMETER_ASSIGN_OR_RETURN(const Answer answer,
                            RunCurl(ConfigurationOf(receiver, token), memory));
  return StatusOf(receiver, answer);
}

}  // namespace internal
}  // namespace netmeter
