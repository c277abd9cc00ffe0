// SPDX-License-Identifier: BSD-3-Clause
// Packets of a TCP connection that come after the measured socket ended, and
// what the kernel answers: no hook sees either. On a fast machine there are
// none. A slow, emulated machine sends a FIN or an acknowledgement twice now
// and then.

#ifndef NETMETER_TEST_LIVE_LATE_PACKETS_H_
#define NETMETER_TEST_LIVE_LATE_PACKETS_H_

#include <vector>

#include "test/live/sniffer.h"

namespace netmeter {
namespace internal {

// For each packet "time-wait", "late" or nullptr. sent_is_outgoing says which
// packets are the measured side's.
std::vector<const char*> FindLatePackets(const std::vector<Packet>& packets,
                                         bool sent_is_outgoing);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_TEST_LIVE_LATE_PACKETS_H_
