// SPDX-License-Identifier: BSD-3-Clause
// A connection to netmeter-exporter's Service303: waits for HTTP/2's preface, then
// carries bytes between the socket and a GrpcSession. If the input differs from the
// preface, as in HTTP/1 or TLS, the connection is closed silently at the first wrong
// byte.
//
// Two limits bound the work that a peer can cause. The server does not read from a peer
// that does not take its output, so the requests wait in the peer's own buffers. And it
// reads at most kInputBytesPerSecond from each peer, so a flood of frames costs little
// CPU and its sender has to wait. A gRPC client sends about 200 bytes for a call.
//
// Threads: one.

#ifndef NETMETER_LIB_APPS_EXPORTER_GRPC_PEER_H_
#define NETMETER_LIB_APPS_EXPORTER_GRPC_PEER_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "lib/apps/exporter/grpc_session.h"
#include "lib/apps/exporter/server.h"

namespace netmeter {
namespace internal {

class GrpcPeer : public Peer {
 public:
  static constexpr std::chrono::seconds kPrefaceTimeout{5};
  // For a peer that takes none of its output.
  static constexpr std::chrono::seconds kOutputTimeout{30};
  // The most that is read from one peer at once, and in a second.
  static constexpr int64_t kInputBurstBytes = 64 * 1024;
  static constexpr int64_t kInputBytesPerSecond = 128 * 1024;
  // A call on a connection of at least this age moves it to Pool::kGrpcKnown.
  static constexpr std::chrono::seconds kKnownAfter{1};

  // `service` must outlive the peer.
  GrpcPeer(UniqueFd fd, const GrpcService* service);

  bool TakeTurn(uint32_t events) override;
  Clock::time_point Deadline() const override;
  bool OnDeadline() override;
  uint32_t WantedEvents() const override;
  bool HoldsReply() const override;
  void SayGoodbye() override;

 private:
  bool Read();
  bool Receive(absl::string_view bytes);
  void CountInput(size_t bytes);
  bool paused() const { return resume_at_ != Clock::time_point::max(); }
  bool Write();

  const GrpcService* const service_;
  const Clock::time_point accepted_at_;
  std::string preface_;                   // the bytes received of it
  std::unique_ptr<GrpcSession> session_;  // null until the preface is complete
  Clock::time_point output_moved_at_;
  bool writable_ =
      true;  // false if output is left and the socket, or the turn, is full
  int64_t input_left_ = kInputBurstBytes;  // negative while it pauses
  Clock::time_point input_counted_at_;
  Clock::time_point resume_at_ = Clock::time_point::max();  // if it pauses
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_EXPORTER_GRPC_PEER_H_
