// SPDX-License-Identifier: BSD-3-Clause
// What a Meter (meter.h) reads: plain values, copied from the kernel's counters.
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

#ifndef NETMETER_FROM_SOURCE
#include "absl/base/options.h"
#include "netmeter/netmeter.h"
#endif

// With an installed libnetmeter each program and each shared library compiles these
// headers for itself: with the abseil that it has, and maybe of another version. The
// dynamic linker joins in one process what has one name. So the names of all that these
// headers define have both in them. In source: netmeter::Meter, as ever.
#if defined(NETMETER_FROM_SOURCE) || defined(NETMETER_BESIDE_SOURCE)  // tests
#define NETMETER_NAMESPACE_BEGIN
#define NETMETER_NAMESPACE_END
#else
#define NETMETER_NAMESPACE_BEGIN                       \
  inline namespace ABSL_OPTION_INLINE_NAMESPACE_NAME { \
  inline namespace v1_0_0 {
#define NETMETER_NAMESPACE_END \
  }                            \
  }
#endif

namespace netmeter {
NETMETER_NAMESPACE_BEGIN

// kPending is traffic on connections that have not named their destination yet,
// by the name of the service or program. When one has named it, its traffic moves
// to the kind of that: so the counters of a kPending sample may shrink. A read that
// overlaps such a move may see the moved amount in both or in neither; the next read
// is exact. ReadHost() has one sample of what is pending under a name, whoever is called
// so, a service and a program; ReadService() has the service's own.
//
// kRetired is what idle series had counted when their room was taken back
// (`netmeter-loader retire`). Its name is the word for the kind that they had.
enum class Kind {
  kService = 1,
  kBinary,
  kUnattributed,
  kOverflow,
  kPending = 6,
  kUnit = 8,
  kContainer,
  kRetired
};
enum class Transport { kOther = 0, kTcp, kUdp, kSctp, kIcmp };
enum class Path { kDirect = 0, kProxy };

// The words for them: the values of `kind`, `transport` and `path` in `netmeter
// list --json`, and of the labels `kind` and `transport` of the metrics. Such as
// "service", "tcp", "direct". Never null.
const char* KindName(Kind kind);
const char* TransportName(Transport transport);
const char* PathName(Path path);

// The connections of one TCP series: totals, as those of Sample. Those that
// were open before the load are not among them.
struct TcpConnections {
  // Upper bounds of rtt_buckets in microseconds; the last bucket has none.
  static constexpr std::array<uint32_t, 9> RttBoundsUs() {
    return {
        {1000, 5000, 20000, 50000, 100000, 250000, 500000, 750000, 1500000}};
  }

  bool known = false;     // false: not TCP, pending, or the meter counts none
  uint64_t opened = 0;    // by this host, the handshake done
  uint64_t accepted = 0;  // opened by a peer, the handshake done
  uint64_t closed = 0;    // of these; open now: opened + accepted - closed
  uint64_t failed = 0;    // connect(2) without a handshake: refused, timed out
  // A sample of the kernel's smoothed round-trip times (RFC 6298, section 2), of path
  // direct only: that of the connection with about each 64th packet with payload
  // that a CPU sends for the series, and that of each connection at its end. How many
  // fell into each bucket, and the sum of all, in microseconds.
  std::array<uint64_t, 10> rtt_buckets = {};
  uint64_t rtt_us = 0;
  // Of `closed`: those that a RST ended, which the socket sent, or which the peer
  // did. A refused connection is in `failed`. Where the kernel has no types of its own
  // (docs/kernels.md), nobody knows of the latter.
  uint64_t resets_sent = 0;
  uint64_t resets_received = 0;
  // How often the retransmission timer expired, and how many segments were sent
  // again for any reason; both with SYNs. TCP_INFO has them as tcpi_total_rto and
  // tcpi_total_retrans.
  uint64_t timeouts = 0;
  uint64_t retransmitted_segments = 0;
};

// One series. Counters are totals since the maps were made (first `load`, or
// the `load` after an `unload`), in bytes and packets. Counters only grow, with two
// exceptions. Those of Kind::kPending shrink. A series that is retired is in no further
// read; its totals are in the sample of Kind::kRetired, and if its name comes back it
// begins at 0. Health::retired_series counts such series. The sum over all samples of
// one read has every byte, always. `netmeter list --json` prints these fields under
// these names.
struct Sample {
  Kind kind = Kind::kUnattributed;
  std::string name;         // of the service, binary, ...; any bytes but NUL
  std::string destination;  // empty: not known
  Transport transport = Transport::kOther;
  Path path = Path::kDirect;
  // By the configuration's name of it; "other": by an interface that is in none.
  // Empty: the configuration has no uplinks, path proxy, or a socket in another
  // network namespace than that of the uplinks.
  std::string uplink;
  // The service called Register(): it promises to publish; nothing checks.
  bool registered = false;

  // Wire bytes, as on the link: IP header, transport header, payload; each
  // segment of a GSO or GRO packet with its own headers, retransmissions
  // included. Without link headers: add 14 bytes a packet for Ethernet.
  uint64_t tx_bytes = 0;
  uint64_t rx_bytes = 0;
  uint64_t tx_packets = 0;
  uint64_t rx_packets = 0;
  // Transport payload. Of TCP: each byte once, however often it was sent; and what
  // arrived in order, as of our last acknowledgement.
  uint64_t tx_payload_bytes = 0;
  uint64_t rx_payload_bytes = 0;
  uint64_t tx_retransmit_bytes = 0;  // TCP payload that was sent again
  TcpConnections tcp;
};

// The meter's own state.
//
// The fields lost_UNIT_REASON count what was not counted under its own name, and
// why. Nothing of it is missing in the sum over all series. They are
// netmeter_lost_UNIT_total{reason="REASON"} in the metrics, and lost.UNIT.REASON
// in `netmeter-loader status --json`.
struct Health {
  std::string version;  // of the loader that loaded the programs
  std::string abi;      // of the maps (abi.h): "1.0"
  std::string kernel;   // on which it was loaded, as uname -r prints it
  std::string cgroup;   // whose traffic is counted
  // CLOCK_BOOTTIME at which counting began, and of the last load or upgrade. These
  // stay as they are when somebody sets the clock. Unix time, by the clock of now, is
  // CLOCK_REALTIME - CLOCK_BOOTTIME + this.
  uint64_t start_time_ns = 0;
  uint64_t load_time_ns = 0;
  uint32_t series = 0;      // in use, without the 21 reserved slots
  uint32_t max_series = 0;  // slots, the reserved ones included
  uint32_t names = 0;       // in use, without the 3 reserved ones
  uint32_t max_names = 0;   // the reserved ones included
  // Totals: idle series that went into Kind::kRetired, and names that were
  // forgotten, as nothing had them any more. A counter that is less than it was
  // read before is one of a series that was retired if retired_series is more.
  uint64_t retired_series = 0;
  uint64_t retired_names = 0;
  // Packets in "overflow", as no slot was free for another series ...
  uint64_t lost_packets_series_full = 0;
  // ... or as one user, not root, has too many series.
  uint64_t lost_packets_series_capped = 0;
  // Packets in "unattributed": the kernel had no memory for socket storage.
  uint64_t lost_packets_storage_failed = 0;
  // Packets with a header that is cut short: of Transport::kOther if it is
  // IP's, else of the transport that IP names.
  uint64_t lost_packets_header_errors = 0;
  // Names that became "overflow" or were refused, each try: no room for another
  // one ...
  uint64_t lost_names_full = 0;
  // ... or one user, not root, has too many.
  uint64_t lost_names_capped = 0;
  // Processes that got their name late, or none: the table was full. Each try
  // counts.
  uint64_t lost_processes_full = 0;
  // Sockets without an owner: the kernel had no memory when they were made.
  uint64_t lost_sockets_storage_failed = 0;
};

#ifndef NETMETER_FROM_SOURCE  // see the end of meter.h
inline const char* KindName(Kind kind) {
  return netmeter_kind_name(static_cast<int>(kind));
}
inline const char* TransportName(Transport transport) {
  return netmeter_transport_name(static_cast<int>(transport));
}
inline const char* PathName(Path path) {
  return netmeter_path_name(static_cast<int>(path));
}
#endif

NETMETER_NAMESPACE_END
}  // namespace netmeter

#endif  // NETMETER_SAMPLE_H_
