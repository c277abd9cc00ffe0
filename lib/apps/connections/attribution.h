// SPDX-License-Identifier: BSD-3-Clause
// Finds the service of a socket, and its destination, as the meter counts it.
//
// A dump of sock_diag has the cookie of each socket. The socket table has the socket's
// entry: the slot of its series and, for most TCP sockets, its owner. The kernel itself
// adds the other owners of TCP and MPTCP sockets to the dump: their values in our map of
// socket storage (struct nm_stored_owner). Neither can belong to another socket. A join
// by address or by inode could be wrong, if a socket has closed and another has opened.
//
// For other sockets the kernel does not dump the storage (inet_sk_diag_fill() ends before
// it for those without struct inet_connection_sock). The socket table has the series of
// those that had a packet. The others are read through a copy of the descriptor
// (pidfd_getfd(2)), as the loader does for pre-existing sockets; of a thread other than
// the main one, on Linux 6.9 and newer. The copy's cookie must be that of the dump.
//
//   auto attribution = Attribution::Open("/run/netmeter");
//   request.owners = (*attribution)->owners();
//   ... (*attribution)->Find(socket, holders) ...
//
// Threads: one at a time.

#ifndef NETMETER_LIB_APPS_CONNECTIONS_ATTRIBUTION_H_
#define NETMETER_LIB_APPS_CONNECTIONS_ATTRIBUTION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "absl/status/statusor.h"
#include "bpf/owner.h"
#include "lib/apps/connections/owner_names.h"
#include "lib/base/socket_table.h"
#include "lib/base/unique_fd.h"
#include "lib/netlink/diag_message.h"
#include "lib/netlink/holders.h"
#include "lib/reader/series_reader.h"
#include "lib/reader/shared_maps.h"

namespace netmeter {
namespace internal {

// Empty if nothing is known, as for a socket in TIME_WAIT.
struct SocketOwner {
  std::string kind;  // as KindName()
  std::string service;
  std::string destination;
  std::string uplink;  // of the last packet
  // The process that made the socket; 0: not known, or it has ended.
  uint32_t pid = 0;
};

class Attribution {
 public:
  // NotFound without a meter. PermissionDenied for every user except root, because
  // readers have no access to these maps.
  static absl::StatusOr<std::unique_ptr<Attribution>> Open(
      const std::string& pin_dir);

  // Whether the meter was unloaded, or has larger tables. Then open it again.
  bool closed() const { return maps_->closed(); }

  // For DumpRequest::owners.
  int owners() const { return owners_.get(); }

  // Whether the meter counts by uplink.
  bool has_uplinks() const;

  // Costs one lookup in a map of the kernel, about half a microsecond, and five more
  // system calls for a UDP or raw socket without a packet yet. The reference is valid
  // until the next call.
  const SocketOwner& Find(const DiagSocket& socket, const Holders& holders);

 private:
  explicit Attribution(std::shared_ptr<const SharedMaps> maps);

  bool OwnerByDescriptor(const Holder& holder, uint64_t cookie,
                         nm_stored_owner* owner);
  void ForgetAfterMoves();
  const SocketOwner& OfSlot(uint32_t slot);

  const std::shared_ptr<const SharedMaps> maps_;
  std::optional<SeriesReader> reader_;  // a new one after each move
  UniqueFd owners_;
  UniqueFd sockets_;
  std::optional<SocketTable> table_;  // of sockets_
  UniqueFd thread_;                   // a pidfd of thread_id_
  uint32_t thread_id_ = 0;
  nm_u64 moves_ = 0;  // valid for by_slot_ and reader_
  std::unordered_map<uint32_t, SocketOwner> by_slot_;
  OwnerNames names_;
  SocketOwner found_;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_CONNECTIONS_ATTRIBUTION_H_
