// SPDX-License-Identifier: BSD-3-Clause
// Start here. netmeter::Meter reads how many bytes each service of this host
// sent and received, to which destination, from the maps that netmeter-loader
// pinned. Reading is plain memory loads: after Open() no call here makes a
// system call, except where it says so.
//
//   netmeter::MeterOptions options;
//   options.service = "subscriberdb";
//   auto meter = netmeter::Meter::Open(options);
//   if (!meter.ok()) return meter.status();
//   auto samples = (*meter)->ReadService();
//   if (samples.ok())
//     for (const netmeter::Sample& s : *samples)
//       std::cout << s.destination << " " << s.tx_bytes << "\n";
//
// Threads: every method of Meter may be called from any thread at any time. A
// forked child may go on with a Meter that no other thread was just calling.
// The library never throws, aborts, prints, forks, starts a thread or installs
// a process-wide hook. Where it finds no memory, every function here answers
// ResourceExhausted.

#ifndef NETMETER_METER_H_
#define NETMETER_METER_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

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
};

struct MeterOptions {
  // Where netmeter-loader pinned the maps (its --pin-dir).
  std::string pin_dir = "/run/netmeter";

  // If not empty, Open() registers this process under this name, as
  // Register() does; 1 to 64 bytes without NUL.
  std::string service;

  // If true, Open() succeeds without a loaded meter, too, and reads answer
  // Unavailable while there is none. It is then picked up by the reads, which
  // look for it at most once a second (a few system calls each time; up to
  // 0.1 seconds where `netmeter-loader serve-fds` does not answer), also after
  // an unload. If false, reads answer FailedPrecondition for good once the
  // meter was unloaded: open again.
  // In both modes an upgrade is followed: if it keeps the maps, there is
  // nothing to do; if it replaces them (other sizes), the next read opens the
  // new ones, once. Whatever is opened anew, the service is registered again.
  bool wait_for_loader = false;
};

class Meter {
 public:
  // Maps the pinned maps of options.pin_dir: the pins directly or, where the
  // kernel refuses bpf(2) to this user (before 5.19 with
  // kernel.unprivileged_bpf_disabled set), by the descriptors that
  // `netmeter-loader serve-fds` hands out. Costs some 20 system calls, and up
  // to 2 seconds where that does not answer.
  //   NotFound            the loader has not run
  //   PermissionDenied    not root and not in the group of the pins
  //   FailedPrecondition  the maps are of another ABI version
  //   Unavailable         `netmeter-loader serve-fds` does not answer
  //   InvalidArgument     options.service is no valid name, or pin_dir no path
  // With wait_for_loader only InvalidArgument is returned.
  static absl::StatusOr<std::unique_ptr<Meter>> Open(
      const MeterOptions& options = MeterOptions());

  ~Meter();
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  // Names this process: sockets that it opens from now on, and those of the
  // processes it forks, are counted under `service`. Ends at exec. Sockets
  // that are open already keep their name, but for those that socket activation
  // handed to this process (LISTEN_PID and LISTEN_FDS, sd_listen_fds(3)): they
  // are counted under `service` from now on, and what they accept. Three system
  // calls (socket, setsockopt, close; see setsockopt(2)) and one for each such
  // socket; no privilege needed. A second call renames. While netmeter-loader
  // grows the tables, names that are new are refused, usually for some 30 ms:
  // this waits for it, up to 1 second.
  //   InvalidArgument   empty, longer than 64 bytes, or with a NUL
  //   NotFound          no meter is loaded for this process's cgroup
  //   PermissionDenied  the meter refused: its tables are full
  //   ResourceExhausted no descriptor was left for the call
  // With wait_for_loader the name is kept and registered when the meter
  // appears; only InvalidArgument is returned then.
  absl::Status Register(absl::string_view service);

  // The series of the service that this Meter registered, in no particular
  // order; empty until the first packet. O(series of the service) after the
  // first call.
  //   FailedPrecondition  Register() has not been called; or unloaded since
  //   Unavailable         wait_for_loader, and no meter is loaded yet
  absl::StatusOr<std::vector<Sample>> ReadService() const;

  // The series of one service by name, whoever registered it.
  absl::StatusOr<std::vector<Sample>> ReadService(
      absl::string_view service) const;

  // All series of the meter. Errors as ReadService() but for the first.
  absl::StatusOr<std::vector<Sample>> ReadHost() const;

  absl::StatusOr<Health> ReadHealth() const;

 private:
  class Impl;
  explicit Meter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Names the destination of the traffic of one socket, in front of every rule:
// TagSocket(fd, "streamer"). Takes effect with the socket's next packet; only
// for sockets of services. One system call. Errors as Meter::Register, and
// InvalidArgument where fd is no socket; never waits, so that while the tables
// grow it may be PermissionDenied for a moment. Needs no Meter.
absl::Status TagSocket(int fd, absl::string_view destination);

// Counts one socket under another service than its process: for several
// services in one process. Takes effect with the socket's next packet, and for
// the sockets that accept(2) returns from it. Costs and errors as TagSocket().
absl::Status SetSocketService(int fd, absl::string_view service);

}  // namespace netmeter

#endif  // NETMETER_METER_H_
