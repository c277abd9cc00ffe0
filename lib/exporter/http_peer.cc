// SPDX-License-Identifier: BSD-3-Clause
#include "lib/exporter/http_peer.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <new>

namespace netmeter {
namespace internal {
namespace {

constexpr size_t kSendBytes = 256 * 1024;  // in a turn

}  // namespace

HttpPeer::HttpPeer(UniqueFd fd, const Handler* handler,
                   const Timeouts& timeouts)
    : Peer(std::move(fd), Pool::kHttpRequest),
      handler_(handler),
      timeouts_(timeouts),
      since_(Clock::now()) {}

Peer::Clock::time_point HttpPeer::Deadline() const {
  switch (pool()) {
    case Pool::kHttpRequest:  // for all of it: a slow sender gains nothing
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
      reply.body = "This is no request of HTTP/1.\n";
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
    // There is room again in a buffer that was full: somebody reads.
    if (blocked_) set_pool(Pool::kHttpTaking);
  }
  if (result == OutputQueue::Sent::kFailed) return false;
  blocked_ = result == OutputQueue::Sent::kBlocked;
  if (result != OutputQueue::Sent::kAll) return true;
  // close(2) with unread bytes would send a reset, and with it the peer may
  // lose what it has not read yet. It fails if the peer is gone already.
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
