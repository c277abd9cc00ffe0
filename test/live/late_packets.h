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

// Two packets of one peer's that acknowledge the same came together, to two CPUs. One
// ended the socket or found it, the other found none. Which was which the capture does
// not tell: it saw both before either was looked at.
struct LatePair {
  size_t named, other;
};
// One with a name and one without, where the first has `bytes` more, none of them
// payload: to be taken for each other. False if there is no such pair.
bool FindLateInstead(const std::vector<Packet>& packets,
                     const std::vector<const char*>& names,
                     bool sent_is_outgoing, int64_t bytes, LatePair* pair);

// An acknowledgement of so many bytes with the name "time-wait", right behind one that
// says the same, which ended the socket: where a process had that just then, as close(2)
// has it, both waited for it, and the hook saw both. A FIN that did so is lost, and comes
// again. False if there is none.
bool FindStillOpen(const std::vector<Packet>& packets,
                   const std::vector<const char*>& names, bool sent_is_outgoing,
                   int64_t bytes, size_t* named);

// A FIN of so many bytes and the acknowledgement of it, of so many, both with the name
// "time-wait": where what acknowledged our FIN came while close(2) gave the socket back,
// it stays one in FIN_WAIT2, for tcp_fin_timeout, and no TIME_WAIT one takes its place
// (sock_owned_by_user() in tcp_rcv_state_process()). The hook saw both. False if there is
// no such pair.
struct AnsweredFin {
  size_t fin, answer;
};
bool FindAnsweredFin(const std::vector<Packet>& packets,
                     const std::vector<const char*>& names,
                     bool sent_is_outgoing, int64_t fin_bytes,
                     int64_t answer_bytes, AnsweredFin* found);

// The opposite: a FIN and the acknowledgement of it, of so many bytes, both without a
// name, after the peer acknowledged our FIN. An acknowledgement without a FIN makes an
// orphan in FIN_WAIT2 a TIME_WAIT socket at once (tcp_rcv_state_process()), which takes
// the FIN and answers it: the hook saw neither. A FIN that acknowledges ours itself finds
// a whole socket. False if there is no such pair.
bool FindUnseenFin(const std::vector<Packet>& packets,
                   const std::vector<const char*>& names, bool sent_is_outgoing,
                   int64_t fin_bytes, int64_t answer_bytes, AnsweredFin* found);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_TEST_LIVE_LATE_PACKETS_H_
