// SPDX-License-Identifier: BSD-3-Clause
// What a Meter reads (meter.h): plain values, copied from the kernel's counters.
//
//   for (const netmeter::Sample& s : samples)
//     std::cout << netmeter::PathName(s.path) << " " << s.tx_bytes << "\n";
//
// Threads: as any plain struct.

#ifndef NETMETER_SAMPLE_H_
#define NETMETER_SAMPLE_H_

#include <array>
#include <cstdint>
#include <string>

namespace netmeter {

// kPending is a service's traffic on connections that have not named their
// destination yet; it moves to kService when they have, so it may shrink.
enum class Kind {
  kService = 1,
  kBinary,
  kUnattributed,
  kOverflow,
  kPending = 6
};
enum class Transport { kOther = 0, kTcp, kUdp, kSctp, kIcmp };
enum class Path { kDirect = 0, kProxy };

// The words of `netmeter list --json` and of the metric labels, such as
// "service", "tcp", "direct". Never null.
const char* KindName(Kind kind);
const char* TransportName(Transport transport);
const char* PathName(Path path);

// The connections of one TCP series: totals, as those of Sample. Those that
// were open before the load are not among them.
struct TcpConnections {
  // Upper bounds of rtt_buckets in microseconds; the last bucket has none.
  static constexpr std::array<uint32_t, 9> RttBoundsUs() {
    return {{1000, 5000, 20000, 50000, 100000, 250000, 500000, 750000,
             1500000}};
  }

  bool known = false;  // false: not TCP, pending, or the meter counts none
  uint64_t opened = 0;    // by this host, the handshake done
  uint64_t accepted = 0;  // opened by a peer, the handshake done
  uint64_t closed = 0;    // of these; open now: opened + accepted - closed
  uint64_t failed = 0;    // connect(2) without a handshake: refused, timed out
  // Smoothed round-trip times (RFC 6298, section 2), path direct only: one for
  // each round trip in which data was acknowledged, one at the end. How many
  // fell into each bucket, and the sum of all in microseconds.
  std::array<uint64_t, 10> rtt_buckets = {};
  uint64_t rtt_us = 0;
};

// One series. Counters are totals since the maps were made (first `load`, or
// the `load` after an `unload`), in bytes and packets; they never decrease.
struct Sample {
  Kind kind = Kind::kUnattributed;
  std::string name;         // of the service or binary; any bytes but NUL
  std::string destination;  // empty: not known
  Transport transport = Transport::kOther;
  Path path = Path::kDirect;
  bool registered = false;  // the service called Register(): it publishes

  // Network-layer bytes as on the link: IP header, transport header, payload;
  // each segment of a GSO or GRO packet with its own headers, retransmissions
  // included. Without link headers: add 14 bytes a packet for Ethernet.
  uint64_t tx_bytes = 0;
  uint64_t rx_bytes = 0;
  uint64_t tx_packets = 0;
  uint64_t rx_packets = 0;
  // Transport payload. TCP: each byte once, however often it was sent; what
  // arrived in order, as of our last acknowledgement.
  uint64_t tx_payload_bytes = 0;
  uint64_t rx_payload_bytes = 0;
  uint64_t tx_retransmit_bytes = 0;  // TCP payload that was sent again
  TcpConnections tcp;
};

// The meter's own state, see abi.h for the counters' exact meaning.
struct Health {
  std::string version;      // of the loader that loaded the programs
  std::string cgroup;       // whose traffic is counted
  uint64_t created_ns = 0;  // CLOCK_REALTIME at which counting began
  uint64_t loaded_ns = 0;   // ... of the last load or upgrade
  uint32_t series = 0;      // in use, without the 21 reserved slots
  uint32_t max_series = 0;  // slots, the reserved ones included
  uint32_t names = 0;       // in use, without the 3 reserved ones
  uint32_t max_names = 0;   // the reserved ones included
  // What was not attributed as it should have been, by reason. Nothing of it
  // is missing in the sum over all series.
  uint64_t series_full_packets = 0;
  uint64_t names_full = 0;
  uint64_t processes_full = 0;
  uint64_t storage_failed_packets = 0;
  uint64_t header_error_packets = 0;
  uint64_t names_capped = 0;  // refused: one user, not root, has too many
  uint64_t series_capped_packets = 0;  // overflow for the same reason
};

}  // namespace netmeter

#endif  // NETMETER_SAMPLE_H_
