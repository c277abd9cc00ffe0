// SPDX-License-Identifier: BSD-3-Clause
// Packets of a TCP connection that come after the measured socket ended, and
// what the kernel answers: no hook sees either. On a fast machine there are
// none. A slow, emulated machine sends a FIN or an acknowledgement twice now
// and then.

#ifndef NETMETER_TEST_LIVE_LATE_PACKETS_H_
#define NETMETER_TEST_LIVE_LATE_PACKETS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "test/live/sniffer.h"

namespace netmeter {
namespace internal {

// For each packet "time-wait", "late" or nullptr. sent_is_outgoing says which
// packets are the measured side's.
std::vector<const char*> FindLatePackets(const std::vector<Packet>& packets,
                                         bool sent_is_outgoing);

// The capture does not tell which of two packets that came together ended a socket, and
// which found none. So the hook may have seen a packet without payload or not, from the
// first FIN or RST of its connection on, whatever its name is. True if at most three of
// them in one direction are the difference between the link and the meter: the link has
// `bytes` and `count` packets more, or less if they are below zero.
bool ExplainLate(const std::vector<Packet>& packets,
                 const std::vector<const char*>& names, bool outgoing,
                 int64_t bytes, int64_t count);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_TEST_LIVE_LATE_PACKETS_H_
