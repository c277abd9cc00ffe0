// SPDX-License-Identifier: BSD-3-Clause
// The results of a Meter (meter.h): plain values, copied from the kernel's counters.
//
//   for (const netmeter::Sample& s : samples)
//     std::cout << netmeter::PathName(s.path) << " " << s.tx_bytes << "\n";
//
// Frozen for 1.x, as meter.h: structs and enums only grow.
//
// Threads: as any plain struct.

#ifndef NETMETER_SAMPLE_H_
#define NETMETER_SAMPLE_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#ifndef NETMETER_FROM_SOURCE
#include "absl/base/options.h"
#include "netmeter/netmeter.h"
#endif

// Each user of an installed libnetmeter, a program or a shared library, compiles these
// headers with its own abseil. Their versions may differ in one process, where the
// dynamic linker merges symbols with equal names. So the name of everything defined here
// includes both versions. In source code the name is still netmeter::Meter.
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

// A later 1.x may add values to Kind, Transport and Path, and a meter that is newer than
// the library may count under them. KindName() and the others say "unknown" for a value
// that the library does not know. Give a `switch` a default, and count such a series in
// sums like any other.
//
// kPending is traffic on connections that have not named their destination yet, under
// the name of the service or program. When a connection names it, its traffic moves to
// the kind of that service or program, so the counters of a kPending sample may shrink.
// A read that overlaps such a move may see the moved amount in both or in neither; the
// next read is exact. ReadHost() has one kPending sample for each name, even if a
// service and a program share the name; ReadService() has the service's own.
//
// kEvicted has the totals of idle series whose slots were reclaimed
// (`netmeter-loader evict`). Its name is the word for their former kind.
enum class Kind {
  kService = 1,
  kBinary,
  kUnattributed,
  kOverflow,
  kPending = 6,
  kUnit = 8,
  kContainer,
  kEvicted,
  kUser = 12
};
enum class Transport { kOther = 0, kTcp, kUdp, kSctp, kIcmp };
enum class Path { kDirect = 0, kProxy };

// The words for the values above, such as "service", "tcp", "direct". They are the
// values of `kind`, `transport` and `path` in `netmeter list --json`, and of the labels
// `kind` and `transport` of the metrics. Never null.
const char* KindName(Kind kind);
const char* TransportName(Transport transport);
const char* PathName(Path path);

// The connections of one TCP series: totals, like those of Sample. They do not include
// connections that were open before the load.
struct TcpConnections {
  // Upper bounds of rtt_buckets in microseconds; the last bucket has none.
  static constexpr std::array<uint32_t, 9> RttBoundsUs() {
    return {
        {1000, 5000, 20000, 50000, 100000, 250000, 500000, 750000, 1500000}};
  }

  bool known = false;   // false: not TCP, pending, or not counted by this meter
  uint64_t opened = 0;  // by this host; completed handshakes
  uint64_t accepted = 0;  // opened by a peer; completed handshakes
  uint64_t closed = 0;    // of both. Open now: opened + accepted - closed
  uint64_t failed = 0;    // connect(2) without a handshake: refused, timed out
  // Samples of the kernel's smoothed round-trip time (RFC 6298, section 2), path direct
  // only. One is taken with about each 64th packet with payload that a CPU sends for the
  // series, and one at the end of each connection. rtt_buckets has the number of samples
  // in each bucket, and rtt_us the sum of all samples in microseconds.
  std::array<uint64_t, 10> rtt_buckets = {};
  uint64_t rtt_us = 0;
  // Those of `closed` that ended with a RST from the socket, or from the peer. A refused
  // connection is in `failed`. resets_received stays 0 if the kernel has no BTF type
  // information (docs/kernels.md).
  uint64_t resets_sent = 0;
  uint64_t resets_received = 0;
  // How often the retransmission timer expired, and how many segments were
  // retransmitted for any reason. Both include SYNs. TCP_INFO has them as
  // tcpi_total_rto and tcpi_total_retrans.
  uint64_t timeouts = 0;
  uint64_t retransmitted_segments = 0;
};

// One series. Counters are totals in bytes and packets since the maps were made (by the
// first `load`, or the `load` after an `unload`). Counters only grow, with two
// exceptions:
// * Those of Kind::kPending shrink.
// * An evicted series is in no further read. Its totals are in the sample of
//   Kind::kEvicted, and if its name comes back, it begins at 0.
//   Health::evicted_series counts evicted series.
// The sum over all samples of one read always has every byte. `netmeter list --json`
// prints these fields under these names.
struct Sample {
  Kind kind = Kind::kUnattributed;
  std::string name;         // of the service, binary, ...; any bytes except NUL
  std::string destination;  // empty: not known
  Transport transport = Transport::kOther;
  Path path = Path::kDirect;
  // The configuration's name of the uplink. "other": an interface that is in no uplink.
  // Empty: the configuration has no uplinks, the path is proxy, or the socket is in
  // another network namespace than the uplinks.
  std::string uplink;
  // The service called Register(), and should publish its own series. Not verified.
  bool registered = false;

  // Wire bytes, as on the link: IP header, transport header, payload. Each segment of a
  // GSO or GRO packet counts with its own headers. Retransmissions are included,
  // layer-2 headers are not: for Ethernet, add 14 bytes a packet.
  uint64_t tx_bytes = 0;
  uint64_t rx_bytes = 0;
  uint64_t tx_packets = 0;
  uint64_t rx_packets = 0;
  // Transport payload. For TCP, sent bytes count once even if they are retransmitted,
  // and received bytes count when they are in order and acknowledged by this host.
  uint64_t tx_payload_bytes = 0;
  uint64_t rx_payload_bytes = 0;
  uint64_t tx_retransmit_bytes = 0;  // retransmitted TCP payload
  TcpConnections tcp;
};

// Totals of what was not counted under its own name, and why. The sum over all series
// still includes it. The metrics call them netmeter_misattributed_UNIT_total with the
// label `reason`, and `netmeter-loader status --json` calls them
// misattributed.UNIT.REASON. A later version may add rows.
//
//   unit       reason             meaning
//   packets    series_full        in "overflow", because no slot was free for another
//                                 series
//   packets    series_over_quota  in "overflow", because one user, not root, has too
//                                 many series
//   packets    storage_failed     in "unattributed", because the kernel had no memory
//                                 for socket storage
//   packets    header_errors      with a truncated header. They have Transport::kOther
//                                 if it is the IP header, and else the transport that
//                                 the IP header names
//   names      full               attempts to add a name that found no room: the name
//                                 became "overflow", or was refused
//   names      over_quota         the same, because one user, not root, has too many
//   processes  full               attempts to name a process that found the table
//                                 full: it got its name later or never
//   sockets    storage_failed     without an owner, because the kernel had no memory at
//                                 their creation
struct Misattribution {
  const char* unit = "";  // both texts live as long as the process
  const char* reason = "";
  uint64_t count = 0;
};

// The meter's own state.
struct Health {
  std::string version;  // of the loader that loaded the programs
  std::string abi;      // of the maps (abi.h): "1.0"
  std::string kernel;   // at the load, as uname -r prints it
  std::string cgroup;   // whose traffic is counted
  // The hash of the loaded configuration, in 16 hex digits, as `netmeter-loader check`
  // prints it for a file. Empty: a loader that does not know this field.
  std::string config_hash;
  // CLOCK_BOOTTIME when counting began, and of the last load or upgrade. They do not
  // change when the clock is set. Unix time, by the current clock, is
  // CLOCK_REALTIME - CLOCK_BOOTTIME + this.
  uint64_t start_time_ns = 0;
  uint64_t load_time_ns = 0;
  uint32_t series = 0;      // in use, without the 21 reserved slots
  uint32_t max_series = 0;  // slots, including the reserved ones
  uint32_t names = 0;       // in use, without the 3 reserved names
  uint32_t max_names = 0;   // including the reserved ones
  // Totals: idle series whose totals went into Kind::kEvicted, and names that were
  // removed because nothing used them any more. If a counter is smaller than in an
  // earlier read and evicted_series has grown, its series was evicted.
  uint64_t evicted_series = 0;
  uint64_t evicted_names = 0;
  std::vector<Misattribution> misattributed;
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
