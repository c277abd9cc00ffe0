// SPDX-License-Identifier: BSD-3-Clause
#include "test/live/connections.h"

#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <numeric>
#include <thread>

#include <gtest/gtest.h>

#include "test/live/sockets.h"

namespace netmeter {
namespace internal {

void Add(const TcpConnections& from, int sign, TcpConnections* to) {
  const auto add = [sign](uint64_t value, uint64_t* sum) {
    *sum += static_cast<uint64_t>(sign) * value;
  };
  add(from.opened, &to->opened);
  add(from.accepted, &to->accepted);
  add(from.closed, &to->closed);
  add(from.failed, &to->failed);
  add(from.rtt_us, &to->rtt_us);
  add(from.resets_sent, &to->resets_sent);
  add(from.resets_received, &to->resets_received);
  add(from.timeouts, &to->timeouts);
  add(from.retransmitted_segments, &to->retransmitted_segments);
  for (size_t i = 0; i < from.rtt_buckets.size(); ++i) {
    add(from.rtt_buckets[i], &to->rtt_buckets[i]);
  }
}

TcpConnections Sum(const MeteredCgroup& meter, const char* destination) {
  TcpConnections sum;
  for (const Sample& sample : meter.Samples()) {
    if (sample.transport != Transport::kTcp) {
      EXPECT_FALSE(sample.tcp.known);
      continue;
    }
    EXPECT_EQ(sample.tcp.known, sample.kind != Kind::kPending);
    if (destination == nullptr || sample.destination == destination) {
      Add(sample.tcp, 1, &sum);
    }
  }
  return sum;
}

uint64_t Count(const TcpConnections& tcp) {
  return std::accumulate(tcp.rtt_buckets.begin(), tcp.rtt_buckets.end(),
                         uint64_t{0});
}

tcp_info TcpInfo(int fd) {
  tcp_info info = {};
  socklen_t size = sizeof(info);
  getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size);
  return info;
}

uint32_t SmoothedRttUs(int fd) { return TcpInfo(fd).tcpi_rtt; }

namespace {

TcpConnections Settled(const MeteredCgroup& meter) {
  TcpConnections now = Sum(meter);
  for (int i = 0; i < 200 && now.closed < now.opened + now.accepted; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    now = Sum(meter);
  }
  return now;
}

}  // namespace

Since::Since(const MeteredCgroup& meter)
    : meter_(meter), before_(Settled(meter)) {}

TcpConnections Since::Now() const {
  TcpConnections now = Sum(meter_);
  Add(before_, -1, &now);
  return now;
}

TcpConnections Since::AfterClosed(uint64_t closed) const {
  TcpConnections now = Now();
  for (int i = 0; i < 500 && now.closed < closed; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    now = Now();
  }
  return now;
}

}  // namespace internal
}  // namespace netmeter
