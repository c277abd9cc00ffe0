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

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "netmeter/sample.h"

namespace netmeter {

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
  // handed to this process (LISTEN_PID and LISTEN_FDS, which sd_listen_fds(1)
  // removes: call it later): they, and what they accept, are counted under
  // the first name that the process registers, until SetSocketService(). Three
  // system calls (socket, setsockopt, close; see setsockopt(2)), and three for
  // each such socket; no privilege needed. A second call renames. While
  // netmeter-loader grows the tables, names that are new are refused, usually
  // for some 30 ms: this waits for it, up to 1 second.
  //   InvalidArgument   empty, longer than 64 bytes, or with a NUL
  //   NotFound          no meter is loaded for this process's cgroup
  //   PermissionDenied  the meter refused: its tables are full, or this user's
  //                     share of them
  //   ResourceExhausted no descriptor was left for the call
  // With wait_for_loader the name is kept, and registered by the first read that
  // finds the meter: sockets opened before keep the executable's name, so load
  // before services start. Only InvalidArgument is returned then.
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
// InvalidArgument where fd is no socket, or not one of IP; never waits, so that
// while the tables grow it may be PermissionDenied for a moment. Needs no Meter.
absl::Status TagSocket(int fd, absl::string_view destination);

// Counts one socket under another service than its process: for several
// services in one process. Takes effect with the socket's next packet, and for
// the sockets that accept(2) returns from it. Errors as TagSocket(), and
// cost, but for one call more in a process that socket activation started.
absl::Status SetSocketService(int fd, absl::string_view service);

}  // namespace netmeter

#endif  // NETMETER_METER_H_
