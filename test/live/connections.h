// SPDX-License-Identifier: BSD-3-Clause
// What the meters of a test have counted of TCP connections, and what TCP_INFO says of
// them.

#ifndef NETMETER_TEST_LIVE_CONNECTIONS_H_
#define NETMETER_TEST_LIVE_CONNECTIONS_H_

#include <linux/tcp.h>

#include <cstdint>

#include "netmeter/sample.h"
#include "test/live/lab.h"

namespace netmeter {
namespace internal {

void Add(const TcpConnections& from, int sign, TcpConnections* to);

// Over all series of TCP, or those to one destination.
TcpConnections Sum(const MeteredCgroup& meter,
                   const char* destination = nullptr);

// How many round-trip times there are.
uint64_t Count(const TcpConnections& tcp);

// What was counted since the constructor.
class Since {
 public:
  // Waits until the connections that were there have ended, two seconds at most: those
  // of another test may still close after its end.
  explicit Since(const MeteredCgroup& meter);

  TcpConnections Now() const;
  // Waits until `closed` connections have ended: a socket may close after
  // close(2).
  TcpConnections AfterClosed(uint64_t closed) const;

 private:
  const MeteredCgroup& meter_;
  const TcpConnections before_;
};

tcp_info TcpInfo(int fd);
uint32_t SmoothedRttUs(int fd);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_TEST_LIVE_CONNECTIONS_H_
