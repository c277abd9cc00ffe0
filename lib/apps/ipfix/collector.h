// SPDX-License-Identifier: BSD-3-Clause
// The connection to a collector of IPFIX, over UDP or TCP.
//
//   auto collector = Collector::Make("[2001:db8::1]:4739", Collector::kUdp);
//   if ((*collector)->Connect()) BeginSession();
//   (*collector)->Send(message, 3);
//
// If a collector is away or takes nothing for a second, data records are lost and
// counted. One line on stderr says so, and one when it works again. UDP only knows that a
// collector is away if its host refuses a message.
//
// Threads: one.

#ifndef NETMETER_LIB_APPS_IPFIX_COLLECTOR_H_
#define NETMETER_LIB_APPS_IPFIX_COLLECTOR_H_

#include <netdb.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/base/unique_fd.h"

namespace netmeter {
namespace internal {

class Collector {
 public:
  enum Protocol { kUdp, kTcp };

  // InvalidArgument if the address is not HOST:PORT. Does not look up the host.
  static absl::StatusOr<std::unique_ptr<Collector>> Make(
      const std::string& address, Protocol protocol);

  // Looks up the host, once: a resolver may take its time, and flows do not wait.
  // Unavailable if it finds none.
  absl::Status Resolve();

  // Connects if there is no connection, or if it has failed, but not within a second
  // after the last try. True if there is a new one. It is a new session, which begins
  // with templates. Waits up to a second for each address of the host.
  bool Connect();

  // Learns whether the connection has failed since the last message. Does not wait.
  void Check();

  // Sends a message with its data records, or counts these as not sent. Waits for a
  // second at most.
  void Send(absl::string_view message, size_t records);

  // Data records that were not sent, as far as is known.
  uint64_t not_sent() const { return not_sent_; }

 private:
  using Clock = std::chrono::steady_clock;

  Collector(std::string name, std::string host, std::string port,
            Protocol protocol);
  absl::Status TryToConnect();
  int PendingError() const;
  void Failed(absl::string_view why);

  const std::string name_, host_, port_;
  const Protocol protocol_;
  std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses_{nullptr,
                                                                freeaddrinfo};
  UniqueFd socket_;
  Clock::time_point next_try_;
  bool failing_ = false;  // as the last line on stderr said
  Clock::time_point last_failure_;
  unsigned messages_ = 0;
  size_t last_records_ = 0;  // of the message before
  uint64_t not_sent_ = 0;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_IPFIX_COLLECTOR_H_
