// SPDX-License-Identifier: BSD-3-Clause
#include "lib/exporter/http_request.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace netmeter {
namespace internal {
namespace {

constexpr size_t kMaxMethodBytes = 32;

// RFC 9110, 5.6.2: the characters of methods and of names of headers.
bool IsToken(absl::string_view text) {
  if (text.empty()) return false;
  for (const char c : text) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) &&
        !absl::StrContains("!#$%&'*+-.^_`|~", absl::string_view(&c, 1))) {
      return false;
    }
  }
  return true;
}

bool IsVersion(absl::string_view text) {
  return text == "HTTP/1.1" || text == "HTTP/1.0";
}

// The path of a request's target, without the query. A server takes the form that
// clients use for a proxy, too: "http://host/path" (RFC 9112, 3.2.2).
absl::string_view PathOf(absl::string_view target) {
  constexpr absl::string_view kScheme = "http://";
  if (absl::StartsWithIgnoreCase(target, kScheme)) {
    target.remove_prefix(kScheme.size());
    target.remove_prefix(std::min(target.find_first_of("/?"), target.size()));
    if (!absl::StartsWith(target, "/")) return "/";
  }
  return target.substr(0, target.find('?'));
}

// Length of the head and of the empty line after it; 0 if it is not all there.
size_t HeadLength(absl::string_view received) {
  size_t line = 0;
  while (true) {
    const size_t end = received.find('\n', line);
    if (end == absl::string_view::npos) return 0;
    const absl::string_view text = received.substr(line, end - line);
    if (line > 0 && (text.empty() || text == "\r")) return end + 1;
    line = end + 1;
  }
}

void AppendToList(absl::string_view value, std::string* list) {
  if (!list->empty()) list->push_back(',');
  absl::StrAppend(list, value);
}

const char* Reason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
  }
  return "Error";
}

}  // namespace

HttpParse ParseHttpRequest(absl::string_view received, HttpRequest* request) {
  const size_t length = HeadLength(received.substr(0, kMaxHttpHeadBytes));
  if (length == 0) {
    // What cannot become a request need not be waited for.
    const absl::string_view method =
        received.substr(0, received.find_first_of(" \r\n"));
    if (!received.empty() &&
        (!IsToken(method) || method.size() > kMaxMethodBytes)) {
      return HttpParse::kBad;
    }
    return received.size() >= kMaxHttpHeadBytes ? HttpParse::kTooLarge
                                                : HttpParse::kIncomplete;
  }
  std::vector<absl::string_view> lines =
      absl::StrSplit(received.substr(0, length), '\n');
  for (absl::string_view& line : lines) line = absl::StripSuffix(line, "\r");

  const std::vector<absl::string_view> words = absl::StrSplit(lines[0], ' ');
  // The same whether the head has come as a whole or in pieces.
  if (words.size() != 3 || !IsToken(words[0]) ||
      words[0].size() > kMaxMethodBytes || words[1].empty() ||
      !IsVersion(words[2])) {
    return HttpParse::kBad;
  }
  HttpRequest result;
  result.method = std::string(words[0]);
  result.path = std::string(PathOf(words[1]));
  result.keep_alive = words[2] == "HTTP/1.1";
  result.bytes = length;
  for (size_t i = 1; i < lines.size() && !lines[i].empty(); ++i) {
    const size_t colon = lines[i].find(':');
    if (colon == absl::string_view::npos ||
        !IsToken(lines[i].substr(0, colon))) {
      return HttpParse::kBad;
    }
    const absl::string_view name = lines[i].substr(0, colon);
    const absl::string_view value =
        absl::StripAsciiWhitespace(lines[i].substr(colon + 1));
    if (absl::EqualsIgnoreCase(name, "accept")) {
      AppendToList(value, &result.accept);
    } else if (absl::EqualsIgnoreCase(name, "accept-encoding")) {
      AppendToList(value, &result.accept_encoding);
    } else if (absl::EqualsIgnoreCase(name, "transfer-encoding") ||
               (absl::EqualsIgnoreCase(name, "content-length") &&
                value != "0")) {
      result.keep_alive = false;  // nobody reads a body
    } else if (absl::EqualsIgnoreCase(name, "connection")) {
      for (const absl::string_view option : absl::StrSplit(value, ',')) {
        if (absl::EqualsIgnoreCase(absl::StripAsciiWhitespace(option),
                                   "close")) {
          result.keep_alive = false;
        }
      }
    }
  }
  *request = std::move(result);
  return HttpParse::kComplete;
}

std::string FormatHttpHead(const HttpReply& reply, size_t content_length,
                           bool keep_alive) {
  return absl::StrCat("HTTP/1.1 ", reply.status, " ", Reason(reply.status),
                      "\r\nContent-Type: ", reply.content_type,
                      "\r\nContent-Length: ", content_length, "\r\n",
                      reply.extra_header,
                      keep_alive ? "" : "Connection: close\r\n", "\r\n");
}

}  // namespace internal
}  // namespace netmeter
