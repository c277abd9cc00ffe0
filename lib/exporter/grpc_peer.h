// SPDX-License-Identifier: BSD-3-Clause
// A connection to netmeter-exporter's Service303: waits for HTTP/2's preface,
// then carries bytes between the socket and a GrpcSession. What begins with
// anything but the preface, such as HTTP/1 or TLS, is closed without a word, at
// its first wrong byte.
//
// Two things keep a peer from making us work without end. One that does not take
// its output is not read from either: what it makes us answer waits in its own
// buffers. And one that sends more than kInputBytesPerSecond is read no faster
// than that: a flood of frames costs us little CPU, and its sender has to wait. A
// client of gRPC sends some 200 bytes for a call.
//
// Threads: one.

#ifndef NETMETER_LIB_EXPORTER_GRPC_PEER_H_
#define NETMETER_LIB_EXPORTER_GRPC_PEER_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "lib/exporter/grpc_session.h"
#include "lib/exporter/server.h"

namespace netmeter {
namespace internal {

class GrpcPeer : public Peer {
 public:
  static constexpr std::chrono::seconds kPrefaceTimeout{5};
  // For a peer that takes nothing of what there is for it.
  static constexpr std::chrono::seconds kOutputTimeout{30};
  // What is read from one peer: so much at once, and so much a second.
  static constexpr int64_t kInputBurstBytes = 64 * 1024;
  static constexpr int64_t kInputBytesPerSecond = 128 * 1024;
  // From then on a call makes a connection one of kGrpcKnown.
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
  std::string preface_;                   // as much as is there of it
  std::unique_ptr<GrpcSession> session_;  // null until it is all there
  Clock::time_point output_moved_at_;
  bool writable_ = true;  // the socket took all, or a turn was over
  int64_t input_left_ = kInputBurstBytes;  // negative while it pauses
  Clock::time_point input_counted_at_;
  Clock::time_point resume_at_ = Clock::time_point::max();  // if it pauses
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_EXPORTER_GRPC_PEER_H_
