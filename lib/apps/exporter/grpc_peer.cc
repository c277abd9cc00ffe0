// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/exporter/grpc_peer.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <new>
#include <utility>

#include "absl/strings/match.h"

namespace netmeter {
namespace internal {
namespace {

// RFC 9113, 3.4.
constexpr absl::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

// Limits of a turn. The first is about 40 calls, or 450 of the smallest frames.
constexpr size_t kReadBytes = 4096;
constexpr size_t kSendBytes = 256 * 1024;

}  // namespace

constexpr std::chrono::seconds GrpcPeer::kPrefaceTimeout;
constexpr std::chrono::seconds GrpcPeer::kOutputTimeout;
constexpr std::chrono::seconds GrpcPeer::kKnownAfter;
constexpr int64_t GrpcPeer::kInputBurstBytes;
constexpr int64_t GrpcPeer::kInputBytesPerSecond;

GrpcPeer::GrpcPeer(UniqueFd fd, const GrpcService* service)
    : Peer(std::move(fd), Pool::kGrpcPreface),
      service_(service),
      accepted_at_(Clock::now()),
      input_counted_at_(accepted_at_) {}

bool GrpcPeer::TakeTurn(uint32_t events) {
  // The peer has gone, so its remaining input is dropped. Otherwise a peer that sends a
  // lot and leaves would stay until all of its input had its turn.
  if (events & (EPOLLERR | EPOLLHUP | EPOLLRDHUP)) return false;
  if (events & EPOLLIN && !Read()) return false;
  return session_ == nullptr || Write();
}

bool GrpcPeer::Read() {
  if (paused() || (session_ != nullptr && session_->output_full())) return true;
  char buffer[kReadBytes];
  const ssize_t count = recv(fd(), buffer, sizeof(buffer), 0);
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  if (count == 0) return false;
  const absl::string_view bytes(buffer, static_cast<size_t>(count));
  CountInput(bytes.size());
  if (session_ != nullptr) return Receive(bytes);

  preface_.append(bytes.data(), bytes.size());
  const size_t known = std::min(preface_.size(), kPreface.size());
  if (absl::string_view(preface_).substr(0, known) !=
      kPreface.substr(0, known)) {
    return false;
  }
  if (known < kPreface.size()) return true;
  session_ = GrpcSession::Create(service_);
  if (session_ == nullptr) return false;
  output_moved_at_ = Clock::now();
  set_pool(Pool::kGrpcNew);
  return Receive(std::exchange(preface_, std::string()));
}

bool GrpcPeer::Receive(absl::string_view bytes) {
  const uint64_t calls = session_->calls_begun();
  if (!session_->Receive(bytes)) return false;
  if (session_->calls_begun() == calls) return true;
  set_used();
  if (Clock::now() - accepted_at_ >= kKnownAfter) set_pool(Pool::kGrpcKnown);
  return true;
}

// The allowance grows with time. When it is used up, the peer pauses until it may send
// a turn's worth again.
void GrpcPeer::CountInput(size_t bytes) {
  using std::chrono::milliseconds;
  const Clock::time_point now = Clock::now();
  const int64_t ms =
      std::chrono::duration_cast<milliseconds>(now - input_counted_at_).count();
  input_counted_at_ += milliseconds(ms);
  // After this time the allowance is full again in any case.
  constexpr int64_t kWholeMs = 60 * 1000;
  input_left_ = std::min(kInputBurstBytes,
                         input_left_ + std::min(ms, kWholeMs) *
                                           kInputBytesPerSecond / 1000) -
                static_cast<int64_t>(bytes);
  if (input_left_ >= 0) return;
  const int64_t missing = static_cast<int64_t>(kReadBytes) - input_left_;
  resume_at_ = now + milliseconds(missing * 1000 / kInputBytesPerSecond);
}

bool GrpcPeer::Write() {
  size_t sent = 0;
  OutputQueue::Sent result = OutputQueue::Sent::kAll;
  const bool reply = HoldsReply();
  if (session_->output().empty()) output_moved_at_ = Clock::now();
  while (result == OutputQueue::Sent::kAll && sent < kSendBytes) {
    if (!session_->FillOutput()) return false;
    if (session_->output().empty()) break;
    result = session_->mutable_output()->Send(fd(), kSendBytes - sent, &sent);
    if (result == OutputQueue::Sent::kFailed) return false;
  }
  // If the turn's limit was reached, nghttp2 or the queue may hold more.
  writable_ = result == OutputQueue::Sent::kAll && sent < kSendBytes;
  if (sent > 0) {
    output_moved_at_ = Clock::now();
    if (reply) set_used();
  }
  return !session_->finished();
}

uint32_t GrpcPeer::WantedEvents() const {
  uint32_t events = EPOLLRDHUP;
  if (!paused() && (session_ == nullptr || !session_->output_full())) {
    events |= EPOLLIN;
  }
  if (!writable_) events |= EPOLLOUT;
  return events;
}

Peer::Clock::time_point GrpcPeer::Deadline() const {
  if (session_ == nullptr) return accepted_at_ + kPrefaceTimeout;
  const Clock::time_point deadline = std::min(session_->Deadline(), resume_at_);
  if (session_->output().empty()) return deadline;
  return std::min(deadline, output_moved_at_ + kOutputTimeout);
}

bool GrpcPeer::OnDeadline() {
  const Clock::time_point now = Clock::now();
  if (session_ == nullptr) return false;
  if (!session_->output().empty() && now >= output_moved_at_ + kOutputTimeout) {
    return false;
  }
  if (now >= resume_at_) resume_at_ = Clock::time_point::max();
  return session_->OnDeadline() && Write();
}

bool GrpcPeer::HoldsReply() const {
  return session_ != nullptr && session_->HoldsReply();
}

void GrpcPeer::SayGoodbye() {
  if (session_ == nullptr) return;
  try {
    session_->GoAway();
    if (!session_->FillOutput()) return;
    size_t sent = 0;
    session_->mutable_output()->Send(fd(), kSendBytes, &sent);
  } catch (const std::bad_alloc&) {  // the peer still sees the connection end
  }
}

Server::MakePeer MakeGrpcPeers(const GrpcService* service) {
  return [service](UniqueFd fd) {
    return std::make_unique<GrpcPeer>(std::move(fd), service);
  };
}

}  // namespace internal
}  // namespace netmeter
