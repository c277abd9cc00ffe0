// SPDX-License-Identifier: BSD-3-Clause
// Looks up sockets in the meter's socket table (bpf/owner.h), which only root may open.
//
//   const SocketTable table(bpf_obj_get("/run/netmeter/sockets"));
//   nm_entry entry;
//   if (table.Find(cookie, &entry)) ...
//
// Threads: any.

#ifndef NETMETER_LIB_BASE_SOCKET_TABLE_H_
#define NETMETER_LIB_BASE_SOCKET_TABLE_H_

#include <cstdint>

#include "bpf/owner.h"

namespace netmeter {
namespace internal {

class SocketTable {
 public:
  // Does not own `fd`, the map nm_sockets. A table that cannot be inspected is empty.
  explicit SocketTable(int fd);

  // The entry of the socket with this cookie. Returns false if it has none, or if the
  // socket is over: in TIME_WAIT it still has its cookie, and what the entry names may be
  // evicted. *entry is of one moment: while the copy is made, no other socket gets it.
  bool Find(uint64_t cookie, nm_entry* entry) const;

 private:
  const int fd_;
  uint32_t entries_ = 0;  // a power of two
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_BASE_SOCKET_TABLE_H_
