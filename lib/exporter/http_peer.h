// SPDX-License-Identifier: BSD-3-Clause
// A connection of HTTP/1 to netmeter-exporter: one request, one reply, end.
//
//   reading the request's head -> sending the reply -> waiting for the peer to
//   close, so that closing does not throw away what it has not read yet
//
// Threads: one.

#ifndef NETMETER_LIB_EXPORTER_HTTP_PEER_H_
#define NETMETER_LIB_EXPORTER_HTTP_PEER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "lib/exporter/http_request.h"
#include "lib/exporter/output_queue.h"
#include "lib/exporter/peer.h"
#include "lib/exporter/reply_cache.h"

namespace netmeter {
namespace internal {

struct HttpAnswer {
  HttpReply reply;
  SharedReply body;  // in place of reply.body, unless it is null
};

class HttpPeer : public Peer {
 public:
  // Answers one request. What throws std::bad_alloc is answered with 503.
  using Handler = std::function<HttpAnswer(const HttpRequest& request)>;

  // How long a peer may take, from first to last: to send its request; to take
  // the reply; to close.
  struct Timeouts {
    std::chrono::milliseconds request{5000};
    std::chrono::milliseconds reply{30000};
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

  const Handler* const handler_;
  const Timeouts timeouts_;
  Clock::time_point since_;  // when it came into its present pool
  std::string received_;
  OutputQueue output_;
  bool blocked_ = false;  // the socket's buffer was full
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_EXPORTER_HTTP_PEER_H_
