// SPDX-License-Identifier: BSD-3-Clause
#include "test/live/wire.h"

#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <poll.h>
#include <sys/socket.h>

namespace netmeter {
namespace internal {
namespace {

#ifndef PACKET_IGNORE_OUTGOING
#define PACKET_IGNORE_OUTGOING 23
#endif

UniqueFd OpenEnd(const NetNamespace& where, const std::string& link) {
  UniqueFd fd;
  where.Run([&] {
    fd = UniqueFd(
        Check(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0), "packet socket"));
  });
  const int one = 1;
  Check(setsockopt(fd.get(), SOL_PACKET, PACKET_IGNORE_OUTGOING, &one,
                   sizeof(one)),
        "PACKET_IGNORE_OUTGOING");
  const int bytes = 32 << 20;
  for (int option : {SO_RCVBUFFORCE, SO_SNDBUFFORCE})
    Check(setsockopt(fd.get(), SOL_SOCKET, option, &bytes, sizeof(bytes)),
          "packet socket buffer");
  sockaddr_ll address = {};
  address.sll_family = AF_PACKET;
  address.sll_protocol = __builtin_bswap16(ETH_P_ALL);
  address.sll_ifindex = where.Index(link);
  Check(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)),
        "bind packet socket to " + link);
  return fd;
}

void Send(int fd, const std::vector<uint8_t>& frame) {
  Check(send(fd, frame.data(), frame.size(), 0), "the wire sends");
}

}  // namespace

Wire::Wire(const NetNamespace& where, const std::string& left,
           const std::string& right)
    : left_(OpenEnd(where, left)), right_(OpenEnd(where, right)) {
  directions_[0].from = directions_[1].to = left_.get();
  directions_[0].to = directions_[1].from = right_.get();
  thread_ = std::thread([this] { Loop(); });
}

Wire::~Wire() {
  stop_ = true;
  thread_.join();
}

void Wire::Impair(const Impairment& to_the_right,
                  const Impairment& to_the_left) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (Direction& direction : directions_) {
    SendDelayed(&direction);
    direction.seen = 0;
  }
  directions_[0].impairment = to_the_right;
  directions_[1].impairment = to_the_left;
  impaired_ = 0;
}

void Wire::Loop() {
  Frame frame;
  while (!stop_) {
    pollfd ready[2] = {{left_.get(), POLLIN, 0}, {right_.get(), POLLIN, 0}};
    const int count = poll(ready, 2, 10);
    std::lock_guard<std::mutex> lock(mutex_);
    for (Direction& direction : directions_) {
      if (count == 0) SendDelayed(&direction);
      for (int i = 0; i < 64; ++i) {
        frame.resize(16384);
        const ssize_t size = recv(direction.from, frame.data(), frame.size(),
                                  MSG_DONTWAIT | MSG_TRUNC);
        if (size < 0) break;
        if (static_cast<size_t>(size) > frame.size()) {
          errno = EMSGSIZE;
          DieWithErrno("the wire received a GSO packet");
        }
        frame.resize(size);
        Carry(&direction, frame);
      }
    }
  }
}

void Wire::Carry(Direction* direction, const Frame& frame) {
  const auto hit = [&](uint32_t every) {
    if (every == 0 || direction->seen % every != 0) return false;
    ++impaired_;
    return true;
  };
  if (frame.size() > 200) {
    ++direction->seen;
    if (hit(direction->impairment.drop_every)) return;
    if (hit(direction->impairment.duplicate_every)) Send(direction->to, frame);
    if (hit(direction->impairment.delay_every)) {
      direction->delayed.push_back(frame);
      direction->behind = 0;
      return;
    }
  }
  Send(direction->to, frame);
  if (!direction->delayed.empty() && ++direction->behind >= 5)
    SendDelayed(direction);
}

void Wire::SendDelayed(Direction* direction) {
  for (const Frame& frame : direction->delayed) Send(direction->to, frame);
  direction->delayed.clear();
}

}  // namespace internal
}  // namespace netmeter
