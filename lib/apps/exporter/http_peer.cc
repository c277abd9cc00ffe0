// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/exporter/http_peer.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <new>
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

// The path of a request's target, without the query. A server also accepts the form
// that clients send to a proxy, "http://host/path" (RFC 9112, 3.2.2).
absl::string_view PathOf(absl::string_view target) {
  constexpr absl::string_view kScheme = "http://";
  if (absl::StartsWithIgnoreCase(target, kScheme)) {
    target.remove_prefix(kScheme.size());
    target.remove_prefix(std::min(target.find_first_of("/?"), target.size()));
    if (!absl::StartsWith(target, "/")) return "/";
  }
  return target.substr(0, target.find('?'));
}

// Length of the head with the empty line after it; 0 if it is incomplete.
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
    // Reject early what cannot become a request.
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
  // The limit is that of a partial head, so pieces and a whole head are treated alike.
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
      result.keep_alive = false;  // bodies are not read
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

namespace {

constexpr size_t kSendBytes = 256 * 1024;  // in one turn

}  // namespace

HttpPeer::HttpPeer(UniqueFd fd, const Handler* handler,
                   const Timeouts& timeouts)
    : Peer(std::move(fd), Pool::kHttpRequest),
      handler_(handler),
      timeouts_(timeouts),
      since_(Clock::now()) {}

Peer::Clock::time_point HttpPeer::Deadline() const {
  switch (pool()) {
    case Pool::
        kHttpRequest:  // for the whole request: a slow sender gains nothing
      return since_ + timeouts_.request;
    case Pool::kHttpReply:
    case Pool::kHttpTaking:
      return since_ + timeouts_.reply;
    default:
      return since_ + (ending_ ? timeouts_.ending : timeouts_.idle);
  }
}

uint32_t HttpPeer::WantedEvents() const {
  return output_.empty() ? EPOLLIN : EPOLLOUT;
}

bool HttpPeer::TakeTurn(uint32_t) {
  switch (pool()) {
    case Pool::kHttpRequest:
      return ReadRequest();
    case Pool::kHttpReply:
    case Pool::kHttpTaking:
      return SendReply();
    default:
      return ending_ ? AwaitClose() : ReadRequest();
  }
}

bool HttpPeer::ReadRequest() {
  char buffer[kMaxHttpHeadBytes];
  const ssize_t count =
      recv(fd(), buffer, kMaxHttpHeadBytes - received_.size(), 0);
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  if (count == 0) return false;
  received_.append(buffer, static_cast<size_t>(count));
  HttpRequest request;
  const HttpParse parsed = ParseHttpRequest(received_, &request);
  if (parsed == HttpParse::kIncomplete) {
    if (pool() == Pool::kHttpIdle) Enter(Pool::kHttpRequest);
    return true;
  }
  ending_ = !request.keep_alive || received_.size() > request.bytes;
  received_ = std::string();
  QueueReply(parsed, request);
  Enter(Pool::kHttpReply);
  set_used();
  return SendReply();
}

void HttpPeer::Enter(Pool pool) {
  set_pool(pool);
  since_ = Clock::now();
}

void HttpPeer::QueueReply(HttpParse parsed, const HttpRequest& request) {
  HttpAnswer answer;
  HttpReply& reply = answer.reply;
  const bool with_body = request.method != "HEAD";
  switch (parsed) {
    case HttpParse::kIncomplete:
    case HttpParse::kBad:
      reply.status = 400;
      reply.body = "This is not an HTTP/1 request.\n";
      break;
    case HttpParse::kTooLarge:
      reply.status = 431;
      reply.body = "The request's headers are too large.\n";
      break;
    case HttpParse::kComplete:
      try {
        return Queue((*handler_)(request), with_body);
      } catch (const std::bad_alloc&) {
        reply.status = 503;
        reply.body = "Not enough memory.\n";
        ending_ = true;
      }
      break;
  }
  output_.Clear();
  Queue(answer, with_body);
}

void HttpPeer::Queue(const HttpAnswer& answer, bool with_body) {
  const size_t size = answer.body == nullptr ? answer.reply.body.size()
                                             : answer.body->bytes().size();
  std::string bytes = FormatHttpHead(answer.reply, size, !ending_);
  if (with_body && answer.body == nullptr) bytes += answer.reply.body;
  output_.Append(bytes);
  if (with_body && answer.body != nullptr) output_.Append(answer.body, 0, size);
}

bool HttpPeer::SendReply() {
  size_t sent = 0;
  const OutputQueue::Sent result = output_.Send(fd(), kSendBytes, &sent);
  if (sent > 0) {
    set_used();
    // A full buffer has room again, so the peer reads.
    if (blocked_) set_pool(Pool::kHttpTaking);
  }
  if (result == OutputQueue::Sent::kFailed) return false;
  blocked_ = result == OutputQueue::Sent::kBlocked;
  if (result != OutputQueue::Sent::kAll) return true;
  // close(2) with unread input would send a reset, which may make the peer lose output
  // that it has not read yet. shutdown(2) fails if the peer is gone.
  if (ending_ && shutdown(fd(), SHUT_WR) != 0) return false;
  Enter(Pool::kHttpIdle);
  return true;
}

bool HttpPeer::AwaitClose() {
  char buffer[16 * 1024];
  const ssize_t count = recv(fd(), buffer, sizeof(buffer), 0);
  return count > 0 || (count < 0 && (errno == EAGAIN || errno == EINTR));
}

}  // namespace internal
}  // namespace netmeter
