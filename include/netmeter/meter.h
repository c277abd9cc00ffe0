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
// Threads: every method of Meter may be called from any thread at any time. After
// fork(2) the child may use a Meter, unless another thread was calling it at that
// moment. The library never throws, aborts, prints, forks, starts a thread or
// installs a process-wide hook. Where there is no memory, every function here
// returns ResourceExhausted.

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
NETMETER_NAMESPACE_BEGIN
namespace internal {
class MeterAccess;
}

struct MeterOptions {
  // Where netmeter-loader pinned the maps (its --pin-dir).
  std::string pin_dir = "/run/netmeter";

  // If not empty, Open() registers this process under this name, as
  // Register() does; 1 to 64 bytes without NUL.
  std::string service;

  // If true, Open() succeeds without a loaded meter, too. Reads return Unavailable
  // while there is none, also after an unload, and look for one at most once a
  // second. A look costs a few system calls, and up to 0.1 seconds where
  // `netmeter-fds` does not answer.
  // If false, reads return FailedPrecondition for good once the meter was unloaded:
  // open again. Where the maps come from netmeter-fds and no pins are to be seen, as in a
  // container, an unload is not told from a server without an answer: Unavailable, and
  // reads go on to look.
  // Both follow an upgrade and the growth of tables, which keep the maps. The service is
  // registered again with each meter that is opened.
  bool wait_for_loader = false;
};

class Meter {
 public:
  // Maps the pinned maps of options.pin_dir into memory. Where the kernel refuses
  // bpf(2) to this user (before 5.19, with kernel.unprivileged_bpf_disabled set), it
  // takes the descriptors that `netmeter-fds` hands out. Costs some 20
  // system calls, and up to 2 seconds where netmeter-fds does not answer.
  //   NotFound            the loader has not run, or pins of its meter are missing
  //   PermissionDenied    not root and not in the group of the pins; or
  //                       options.service was refused, as Register() tells
  //   FailedPrecondition  the maps are of another ABI version
  //   Unavailable         `netmeter-fds` does not answer, or has no maps
  //   InvalidArgument     options.service is no valid name, or pin_dir no path
  // With wait_for_loader only InvalidArgument is returned.
  static absl::StatusOr<std::unique_ptr<Meter>> Open(
      const MeterOptions& options = MeterOptions());

  ~Meter();
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  // Names this process: sockets that it opens from now on, and those of the
  // processes that it forks, are counted under `service`. The name ends at exec. A
  // second call renames. Needs no privilege, and costs three system calls: socket,
  // setsockopt, close.
  //
  // Sockets that are open already keep their name. Those that socket activation
  // handed to this process are the exception: they, and what they accept, are
  // counted under the first name that the process registers, until
  // SetSocketService(). Each costs three system calls more. They are found by
  // LISTEN_PID and LISTEN_FDS, which sd_listen_fds(1) removes: call that later.
  //
  //   InvalidArgument   empty, longer than 64 bytes, or with a NUL
  //   NotFound          no meter is loaded for this process's cgroup
  //   PermissionDenied  the meter refused: its tables are full, or this user's
  //                     share of them; or the name is another user's by
  //                     `register_by` of the configuration
  //   ResourceExhausted no descriptor was left for the call
  // With wait_for_loader the name is kept, and the first read that finds the meter
  // registers it. Sockets that were opened before keep the executable's name, so
  // load before services start. Only InvalidArgument is returned then. A refusal is
  // what ReadService() returns, and is tried again once a second.
  absl::Status Register(absl::string_view service);

  // The series of the service that this Meter registered, in no particular order;
  // empty until the first packet. Costs time in proportion to the series of the
  // service; the first call, to all series.
  //   FailedPrecondition  Register() has not been called; or unloaded since
  //   PermissionDenied    wait_for_loader, and the meter that is loaded refuses the
  //                       name (Register()): its series are those of others
  //   Unavailable         wait_for_loader, and no meter is loaded yet; or netmeter-fds
  //                       has no answer just now: the next read looks again, at
  //                       most once a second
  absl::StatusOr<std::vector<Sample>> ReadService() const;

  // The series of one service by name, whoever registered it.
  //   FailedPrecondition  unloaded since
  //   Unavailable         as above
  absl::StatusOr<std::vector<Sample>> ReadService(
      absl::string_view service) const;

  // All series of the meter. Errors as of one service by name.
  absl::StatusOr<std::vector<Sample>> ReadHost() const;

  // The same into a vector of the caller's, for one who reads often: what it holds
  // is overwritten, and its memory used again, with that of its strings. A read
  // that finds no more series, and no longer names, than one before allocates
  // nothing. *samples is unchanged after an error; after ResourceExhausted it may
  // be empty.
  absl::Status ReadService(std::vector<Sample>* samples) const;
  absl::Status ReadService(absl::string_view service,
                           std::vector<Sample>* samples) const;
  absl::Status ReadHost(std::vector<Sample>* samples) const;

  absl::StatusOr<Health> ReadHealth() const;

 private:
  friend class internal::MeterAccess;
  class Impl;
  explicit Meter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Names this process as Meter::Register() does, without a Meter and so without the
// right to read: for a service that leaves publishing to netmeter-exporter. It is not
// registered again with a meter that is loaded later. Errors as Meter::Register()
// without wait_for_loader.
absl::Status RegisterProcess(absl::string_view service);

// Names the destination of the traffic of one socket: TagSocket(fd, "streamer"). The
// tag comes before every rule, and takes effect with the socket's next packet. A tag
// counts where the kind of the socket's owner has destinations: all kinds, unless
// `destinations_of` of the configuration says otherwise. Costs one system call, and
// needs no Meter. Errors as Meter::Register(), and InvalidArgument where fd is no
// socket of IP.
absl::Status TagSocket(int fd, absl::string_view destination);

// Counts one socket under another service than its process, for several services in
// one process. Takes effect with the socket's next packet, and for the sockets that
// accept(2) returns from it. Errors and cost as TagSocket(); one system call more in
// a process that socket activation started.
absl::Status SetSocketService(int fd, absl::string_view service);

NETMETER_NAMESPACE_END
}  // namespace netmeter

// What Bazel builds with //:netmeter is compiled from our sources. All others link an
// installed libnetmeter, through its C API (docs/embedding.md tells more).
#ifndef NETMETER_FROM_SOURCE
#include "netmeter/meter_inline.h"
#endif

#endif  // NETMETER_METER_H_
