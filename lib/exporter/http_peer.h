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
