// SPDX-License-Identifier: BSD-3-Clause
// An HTTP/1 connection to netmeter-exporter: a request, its reply, the next request.
//
//   reading the request's head -> sending the reply -> idle, until the peer asks
//   again or closes
//
// A reply with "Connection: close" is the last one. Then the connection waits for the
// peer to close, because a close by the server could make the peer lose bytes that it
// has
// not read yet. A reply is the last one if the peer asked for that, if a body may
// follow
// the request, if the request is malformed, or if the next request arrived before the
// reply: the peer then repeats that request (RFC 9112, 9.3.2).
//
// Threads: one.

#ifndef NETMETER_LIB_APPS_EXPORTER_HTTP_PEER_H_
#define NETMETER_LIB_APPS_EXPORTER_HTTP_PEER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "lib/apps/exporter/output_queue.h"
#include "lib/apps/exporter/reply_cache.h"
#include "lib/apps/exporter/server.h"

namespace netmeter {
namespace internal {

// The part of HTTP/1.1 that a server of one page needs (RFC 9112).
//
//   HttpRequest request;
//   switch (ParseHttpRequest(received, &request)) { ... }
//
// Threads: any.

struct HttpRequest {
  std::string method;
  std::string path;             // without the query
  std::string accept;           // all Accept headers, joined by commas
  std::string accept_encoding;  // all Accept-Encoding headers
  // Whether the connection may stay open for another request (RFC 9112, 9.3): the
  // request is HTTP/1.1 without "Connection: close", and no body follows.
  bool keep_alive = false;
  size_t bytes = 0;  // of the head, with the empty line after it
};

enum class HttpParse { kIncomplete, kComplete, kBad, kTooLarge };

constexpr size_t kMaxHttpHeadBytes = 8192;

// Parses the bytes received so far. Sets *request only if kComplete. Ignores bytes
// after the head.
HttpParse ParseHttpRequest(absl::string_view received, HttpRequest* request);

struct HttpReply {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string extra_header;  // such as "Allow: GET, HEAD\r\n"
  std::string body;
};

// The reply's bytes before its body, which has content_length bytes. keep_alive tells
// the peer whether the connection stays open.
std::string FormatHttpHead(const HttpReply& reply, size_t content_length,
                           bool keep_alive);

struct HttpAnswer {
  HttpReply reply;
  SharedReply body;  // replaces reply.body, unless it is null
};

class HttpPeer : public Peer {
 public:
  // Answers one request. std::bad_alloc becomes a reply with status 503.
  using Handler = std::function<HttpAnswer(const HttpRequest& request)>;

  // How long a peer may take for its whole request, to take the reply, to ask again,
  // and to close. A client that scrapes each minute keeps its connection. For a less
  // frequent client a new connection costs less on the link than TCP's probes of the
  // old one, which Go's programs send every 15 seconds.
  struct Timeouts {
    std::chrono::milliseconds request{5000};
    std::chrono::milliseconds reply{30000};
    std::chrono::milliseconds idle{75000};
    std::chrono::milliseconds ending{2000};
  };

  // `handler` must outlive the peer.
  HttpPeer(UniqueFd fd, const Handler* handler)
      : HttpPeer(std::move(fd), handler, Timeouts()) {}
  HttpPeer(UniqueFd fd, const Handler* handler, const Timeouts& timeouts);

  bool TakeTurn(uint32_t events) override;
  Clock::time_point Deadline() const override;
  bool OnDeadline() override { return false; }
  uint32_t WantedEvents() const override;
  bool HoldsReply() const override { return output_.holds_reply(); }

 private:
  bool ReadRequest();
  void QueueReply(HttpParse parsed, const HttpRequest& request);
  void Queue(const HttpAnswer& answer, bool with_body);
  bool SendReply();
  bool AwaitClose();
  void Enter(Pool pool);

  const Handler* const handler_;
  const Timeouts timeouts_;
  Clock::time_point since_;  // when it entered its present pool
  std::string received_;
  OutputQueue output_;
  bool blocked_ = false;  // the socket's buffer was full
  bool ending_ = false;   // this reply is the last one
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_EXPORTER_HTTP_PEER_H_
