// SPDX-License-Identifier: BSD-3-Clause
// A connection of HTTP/1 to netmeter-exporter: a request, its reply, the next one.
//
//   reading the request's head -> sending the reply -> idle, until the peer asks
//   again or closes
//
// A reply with "Connection: close" is the last one. Then the connection waits for the
// peer to close, so that closing does not throw away what it has not read yet. That is
// so if the peer asked for it, if a body may follow the request, if it is no request,
// and if the next one is there before the reply: its sender makes it again (RFC 9112,
// 9.3.2).
//
// Threads: one.

#ifndef NETMETER_LIB_EXPORTER_HTTP_PEER_H_
#define NETMETER_LIB_EXPORTER_HTTP_PEER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "lib/exporter/output_queue.h"
#include "lib/exporter/reply_cache.h"
#include "lib/exporter/server.h"

namespace netmeter {
namespace internal {

// As much of HTTP/1.1 as a server of one page needs (RFC 9112).
//
//   HttpRequest request;
//   switch (ParseHttpRequest(received, &request)) { ... }
//
// Threads: any.

struct HttpRequest {
  std::string method;
  std::string path;             // without the query
  std::string accept;           // all Accept headers, joined by commas
  std::string accept_encoding;  // the same of Accept-Encoding
  // Whether the connection may stay open for another request (RFC 9112, 9.3): it is
  // of HTTP/1.1, no "Connection: close" forbids it, and no body follows.
  bool keep_alive = false;
  size_t bytes = 0;  // of the head, with the empty line after it
};

enum class HttpParse { kIncomplete, kComplete, kBad, kTooLarge };

constexpr size_t kMaxHttpHeadBytes = 8192;

// What the bytes received so far are. *request is set if kComplete only. Nothing after
// the head is looked at.
HttpParse ParseHttpRequest(absl::string_view received, HttpRequest* request);

struct HttpReply {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string extra_header;  // such as "Allow: GET, HEAD\r\n"
  std::string body;
};

// The reply's bytes up to its body, which has content_length bytes. Says whether the
// connection stays open.
std::string FormatHttpHead(const HttpReply& reply, size_t content_length,
                           bool keep_alive);

struct HttpAnswer {
  HttpReply reply;
  SharedReply body;  // in place of reply.body, unless it is null
};

class HttpPeer : public Peer {
 public:
  // Answers one request. What throws std::bad_alloc is answered with 503.
  using Handler = std::function<HttpAnswer(const HttpRequest& request)>;

  // How long a peer may take, from first to last: to send its request; to take
  // the reply; to ask again; to close. A client that scrapes each minute keeps its
  // connection. For one that comes less often a new one is cheaper on the link than
  // TCP's probes of the old one, which Go's programs send each 15 seconds.
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
  Clock::time_point since_;  // when it came into its present pool
  std::string received_;
  OutputQueue output_;
  bool blocked_ = false;  // the socket's buffer was full
  bool ending_ = false;   // this reply is the last one
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_EXPORTER_HTTP_PEER_H_
