// SPDX-License-Identifier: BSD-3-Clause
// One reading of the host's sockets, with their services and processes.
//
//   SocketPoll poll("/run/netmeter");
//   poll.Run(options, [](const SocketRow& row) { ... });
//
// Memory grows only by 16 bytes for each socket that a process holds.
//
// Threads: one; see networks.h.

#ifndef NETMETER_LIB_APPS_CONNECTIONS_POLL_H_
#define NETMETER_LIB_APPS_CONNECTIONS_POLL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lib/apps/connections/attribution.h"
#include "lib/apps/connections/fields.h"
#include "lib/apps/connections/filter.h"
#include "lib/netlink/networks.h"

namespace netmeter {
namespace internal {

struct PollOptions {
  // IPPROTO_*. Empty: tcp, udp, mptcp, sctp and raw, if the kernel supports them.
  std::vector<uint16_t> protocols;
  bool all_networks = false;
  // Whether rows must have the processes that hold a socket. Without it and without a
  // meter, the scan of all processes is skipped.
  bool holders = true;
  // One in this number of sockets, by a hash of the cookie: the same ones in each Run().
  uint32_t sample = 1;
  ReverseNames* names = nullptr;  // of the rows
  SocketFilter filter;
};

class SocketPoll {
 public:
  // Without a meter, or the right to read it, rows have no service: attribution() has the
  // reason.
  explicit SocketPoll(const std::string& pin_dir);

  const absl::Status& attribution() const { return status_; }
  bool has_uplinks() const {
    return attribution_ != nullptr && attribution_->has_uplinks();
  }

  // Whether the last Run() with all_networks may have missed namespaces, for lack of
  // privileges.
  bool has_hidden_networks() const { return has_hidden_networks_; }

  // Calls body(row) for each socket that passes the filter; the row is valid during the
  // call. Looks for the meter again if there was none, or if it was replaced.
  absl::Status Run(const PollOptions& options,
                   const std::function<void(const SocketRow&)>& body);

 private:
  void OpenMeter();
  absl::Status ReadNetwork(const PollOptions& options, const Network& network,
                           const Holders& holders,
                           const std::function<void(const SocketRow&)>& body);

  const std::string pin_dir_;
  std::unique_ptr<Attribution> attribution_;
  absl::Status status_;
  bool has_run_ = false;
  bool has_hidden_networks_ = false;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_CONNECTIONS_POLL_H_
