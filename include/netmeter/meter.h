// SPDX-License-Identifier: BSD-3-Clause
// Start here. netmeter::Meter reads how many bytes each service of this host
// sent and received, to which destination, from the maps that netmeter-loader
// pinned. Reading is plain memory loads: after Open() no call here makes a
// system call, except those that say so.
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
// A Meter follows the loader. Upgrades and resizes keep the maps. After an unload, reads
// return Unavailable and look for a meter at most once a second, until the next load. A
// look costs a few system calls, and up to 0.1 seconds if `netmeter-fds` does not
// answer. The counters of the next load begin at 0, and Health::start_time_ns changes.
// The Meter registers its service again with each meter that it opens.
//
// Frozen for 1.x: what compiles with 1.0 compiles with every 1.x.
//
// Threads: every method of Meter may be called from any thread at any time. After
// fork(2) the child may use a Meter, unless another thread was calling it at that
// moment. The library never throws, aborts, prints, forks, starts a thread or
// installs a process-wide hook. Every function here returns ResourceExhausted if
// memory runs out.

#ifndef NETMETER_METER_H_
#define NETMETER_METER_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "netmeter/netmeter.h"
#include "netmeter/sample.h"
#include "netmeter/uplinks.h"

namespace netmeter {
NETMETER_NAMESPACE_BEGIN
namespace internal {
class MeterAccess;
}

struct MeterOptions {
  // The directory of the pinned maps: --pin-dir of netmeter-loader.
  std::string pin_dir = "/run/netmeter";

  // If not empty, Open() registers this process under this name, as
  // Register() does; 1 to 64 bytes without NUL.
  std::string service;

  // If true, Open() succeeds even if no meter is loaded, and Register() even if none
  // counts this process.
  bool wait_for_loader = false;
};

// The result of a read as structs of the C API (netmeter.h). A netmeter_sample has what a
// Sample has, and its kind, transport and path are the numbers of the enums. Its texts
// belong to the library, so a read copies none: for frequent reads.
//
//   netmeter::Rows rows;  // kept from read to read
//   if (meter->ReadHost(&rows).ok())
//     for (const netmeter_sample& row : rows)
//       Add(absl::string_view(row.name, row.name_length), row.tx_bytes);
//
// Rows and their texts are valid until the next read into the same object, or its end,
// even after the Meter.
//
// Threads: one at a time for each object.
class Rows {
 public:
  class Iterator {
   public:
    const netmeter_sample& operator*() const { return (*rows_)[index_]; }
    const netmeter_sample* operator->() const { return &(*rows_)[index_]; }
    Iterator& operator++() {
      ++index_;
      return *this;
    }
    bool operator==(const Iterator& other) const {
      return index_ == other.index_;
    }
    bool operator!=(const Iterator& other) const {
      return index_ != other.index_;
    }

   private:
    friend class Rows;
    Iterator(const Rows* rows, size_t index) : rows_(rows), index_(index) {}
    const Rows* rows_;
    size_t index_;
  };

  Rows();
  ~Rows();
  Rows(const Rows&) = delete;
  Rows& operator=(const Rows&) = delete;

  size_t size() const;
  const netmeter_sample& operator[](size_t index) const;  // below size()
  Iterator begin() const { return Iterator(this, 0); }
  Iterator end() const { return Iterator(this, size()); }

 private:
  friend class Meter;
  class Impl;
  std::unique_ptr<Impl> impl_;  // null before the first read
};

class Meter {
 public:
  // Maps the pinned maps of options.pin_dir into memory. If the kernel refuses
  // bpf(2) to this user (before 5.19, with kernel.unprivileged_bpf_disabled set), it
  // takes the descriptors that `netmeter-fds` hands out. Costs about 20 system
  // calls, and up to 2 seconds if netmeter-fds does not answer.
  //   NotFound            the loader has not run, or pins of its meter are missing
  //   PermissionDenied    this user is neither root nor in the group of the pins; or
  //                       the meter refused options.service: see Register()
  //   FailedPrecondition  the maps are of another ABI version
  //   Unavailable         `netmeter-fds` does not answer, or has no maps
  //   InvalidArgument     options.service is no valid name, or pin_dir no path
  // With wait_for_loader, InvalidArgument is the only error.
  static absl::StatusOr<std::unique_ptr<Meter>> Open(
      const MeterOptions& options = MeterOptions());

  ~Meter();
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  // Names this process. Sockets that it opens from now on, and those of the
  // processes that it forks, are counted under `service`. The name ends at exec. A
  // second call renames. Needs no privilege, and costs three system calls: socket,
  // setsockopt, close.
  //
  // Sockets that are already open keep their name. The exception is sockets that
  // socket activation passed to this process: they, and the sockets that they
  // accept, are counted under the first name that the process registers, until
  // SetSocketService(). Each costs three more system calls. They are found by
  // LISTEN_PID and LISTEN_FDS. sd_listen_fds(1) removes both, so call it after
  // Register().
  //
  //   InvalidArgument   empty, longer than 64 bytes, or with a NUL
  //   NotFound          no meter is loaded for this process's cgroup
  //   PermissionDenied  the meter refused: its tables are full, or this user's
  //                     quota is used up; or `register_by` of the configuration
  //                     reserves the name for another user
  //   ResourceExhausted no descriptor was left for the call
  // With wait_for_loader, InvalidArgument is the only error. The name is kept, and
  // the first read that finds the meter registers it. Sockets that were opened
  // before that keep the executable's name, so load before services start. If the
  // meter refuses the name, ReadService() returns the refusal, and reads try again
  // once a second.
  absl::Status Register(absl::string_view service);

  // Returns the series of the service that this Meter registered, in no particular
  // order; empty until the first packet. Takes time in proportion to the series of
  // the service; the first call, in proportion to all series.
  //   FailedPrecondition  Register() has not been called
  //   PermissionDenied    the meter that is loaded now refuses the name (see
  //                       Register()), so its series belong to other processes
  //   Unavailable         there is no meter that this process can read at the moment;
  //                       the message says why
  absl::StatusOr<std::vector<Sample>> ReadService() const;

  // Returns the series of one service by name, whichever process registered it.
  //   Unavailable         as above
  absl::StatusOr<std::vector<Sample>> ReadService(
      absl::string_view service) const;

  // Returns all series of the meter. Errors as ReadService(service).
  absl::StatusOr<std::vector<Sample>> ReadHost() const;

  // Read into the caller's vector, for frequent reads. They overwrite its elements
  // and reuse its memory, including that of the strings. A read that finds no more
  // series and no longer names than an earlier one allocates nothing. After an error
  // *samples is unchanged, except that it may be empty after ResourceExhausted.
  absl::Status ReadService(std::vector<Sample>* samples) const;
  absl::Status ReadService(absl::string_view service,
                           std::vector<Sample>* samples) const;
  absl::Status ReadHost(std::vector<Sample>* samples) const;

  // Read into rows: as into a vector, and without a copy of the texts.
  absl::Status ReadService(Rows* rows) const;
  absl::Status ReadService(absl::string_view service, Rows* rows) const;
  absl::Status ReadHost(Rows* rows) const;

  // Returns the meter's own state. Errors as ReadService(service).
  absl::StatusOr<Health> ReadHealth() const;

  // Returns the uplinks of the configuration, and those that it had before, in the order
  // in which a load first saw them. "other" is the last one, and missing if no interface
  // counted for it. Needs no privilege beyond that of Open(), but must be called in the
  // network namespace of the uplinks. Reads the series first and the interfaces last, so
  // an interface has no less than its parts.
  //
  // Unlike other reads it makes system calls each time. It opens the pins of five maps,
  // makes two calls of bpf(2) for each interface and pattern and one for 32 pairs of
  // interfaces or clients, and asks the kernel for all interfaces (rtnetlink(7)). That
  // takes less than a millisecond on a host with a few interfaces, and more with
  // `forwarded_clients`, which adds up to 16,384 rows.
  //   NotFound            the meter never had uplinks; the message says what to do
  //   FailedPrecondition  the uplinks are those of another network namespace; or the maps
  //                       are of another version
  //   PermissionDenied    this user is neither root nor in the group of the pins; or the
  //                       kernel refuses bpf(2) to it (see Open()): `netmeter-fds` does
  //                       not help here
  //   Unavailable         as above; or interfaces changed all the time
  absl::StatusOr<std::vector<Uplink>> ReadUplinks() const;

 private:
  friend class internal::MeterAccess;
  class Impl;
  explicit Meter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Names this process as Meter::Register() does. Needs no Meter, and so no right to
// read: for a service that leaves publishing to netmeter-exporter. The name is not
// registered again with a meter that is loaded later. Errors as Meter::Register()
// without wait_for_loader.
absl::Status RegisterProcess(absl::string_view service);

// Names the destination of the traffic of one socket: TagSocket(fd, "streamer"). The
// tag has precedence over every rule, and takes effect with the socket's next packet.
// It counts if destinations are counted for the kind of the socket's owner: for all
// kinds, unless `destinations_of` of the configuration says otherwise. Costs one
// system call, and needs no Meter. Errors as Meter::Register(); also InvalidArgument
// if fd is not an IP socket.
absl::Status TagSocket(int fd, absl::string_view destination);

// Counts one socket under another service than its process, for several services in
// one process. Takes effect with the socket's next packet, and also for the sockets
// that accept(2) returns from it. Errors and cost as TagSocket(), and one more system
// call in a process that socket activation started.
absl::Status SetSocketService(int fd, absl::string_view service);

NETMETER_NAMESPACE_END
}  // namespace netmeter

// Programs that Bazel builds with //:netmeter compile the library's sources. All other
// programs link an installed libnetmeter through its C API (see docs/embedding.md).
#ifndef NETMETER_FROM_SOURCE
#include "netmeter/meter_inline.h"
#endif

#endif  // NETMETER_METER_H_
