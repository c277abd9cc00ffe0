// SPDX-License-Identifier: BSD-3-Clause
// Whose a socket is, and whom it talks to, as the meter counts it.
//
// The join is the kernel's own. A dump of sock_diag carries, for each socket of
// TCP and MPTCP, its value in our map of socket storage (struct nm_owner): it
// cannot belong to another socket, as a join by address or by inode could after
// one has closed and the next has opened. What the value does not have is the slot
// of the series, for most sockets: that is in the socket table, in the entry of
// the socket's cookie.
//
// Of other sockets the kernel does not dump the storage (inet_sk_diag_fill() ends
// before it for those without struct inet_connection_sock). The socket table tells
// the series of those that had a packet. The rest is asked for through a copy of
// the descriptor, as the loader does when it adopts sockets (pidfd_getfd(2)); the
// copy's cookie must be that of the dump.
//
//   auto attribution = Attribution::Open("/run/netmeter");
//   request.owners = (*attribution)->owners();
//   ... (*attribution)->Find(socket, holders) ...
//
// Threads: one at a time.

#ifndef NETMETER_LIB_CONNECTIONS_ATTRIBUTION_H_
#define NETMETER_LIB_CONNECTIONS_ATTRIBUTION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "absl/status/statusor.h"
#include "bpf/internal.h"
#include "lib/base/unique_fd.h"
#include "lib/netlink/diag_message.h"
#include "lib/netlink/holders.h"
#include "lib/reader/series_reader.h"
#include "lib/reader/shared_maps.h"

namespace netmeter {
namespace internal {

// Empty where nothing is known, as of a socket in TIME_WAIT.
struct SocketOwner {
  std::string kind;  // as KindName()
  std::string service;
  std::string destination;
  std::string uplink;  // of the last packet
  uint32_t pid = 0;    // of the process that made the socket; 0: not known
};

class Attribution {
 public:
  // NotFound without a meter; PermissionDenied for all but root, as the maps
  // that tell it are not the readers'.
  static absl::StatusOr<std::unique_ptr<Attribution>> Open(
      const std::string& pin_dir);

  // Whether the meter was unloaded, or has larger tables: open again.
  bool closed() const { return maps_->closed(); }

  // For DumpRequest.
  int owners() const { return owners_.get(); }

  // Whether the meter counts by uplink.
  bool has_uplinks() const;

  // Costs one lookup in a map of the kernel's, about half a microsecond; five
  // more system calls for a socket of UDP, or a raw one, that had no packet yet.
  // The reference is good until the next call.
  const SocketOwner& Find(const DiagSocket& socket, const Holders& holders);

 private:
  explicit Attribution(std::shared_ptr<const SharedMaps> maps);

  uint32_t SlotOf(uint64_t cookie, uint64_t owners_word) const;
  bool OwnerByDescriptor(const Holder& holder, uint64_t cookie,
                         nm_owner* owner);
  void ForgetAfterMoves();
  const SocketOwner& OfSlot(uint32_t slot);

  const std::shared_ptr<const SharedMaps> maps_;
  std::optional<SeriesReader> reader_;  // a new one after each move
  UniqueFd owners_;
  UniqueFd sockets_;
  uint32_t socket_mask_ = 0;
  UniqueFd process_;  // a descriptor of pid process_id_
  uint32_t process_id_ = 0;
  nm_u64 moves_ = 0;  // of what by_slot_ and reader_ have
  std::unordered_map<uint32_t, SocketOwner> by_slot_;
  SocketOwner found_;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_CONNECTIONS_ATTRIBUTION_H_
