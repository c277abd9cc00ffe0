// SPDX-License-Identifier: BSD-3-Clause
#include "lib/base/socket_table.h"

#include <bpf/bpf.h>

#include "lib/base/kernel_object.h"

namespace netmeter {
namespace internal {

SocketTable::SocketTable(int fd) : fd_(fd) {
  bpf_map_info about = {};
  if (GetInfo(fd, &about) && about.value_size == sizeof(nm_entry)) {
    entries_ = about.max_entries;
  }
}

bool SocketTable::Find(uint64_t cookie, nm_entry* entry) const {
  if (entries_ == 0) return false;
  const uint32_t first = static_cast<uint32_t>(cookie) & (entries_ - 1);
  for (const uint32_t index : {first, first ^ entries_ / 2}) {
    if (bpf_map_lookup_elem_flags(fd_, &index, entry, BPF_F_LOCK) == 0 &&
        NM_WORD_COOKIE(entry->socket.word) == NM_COOKIE(cookie)) {
      return (entry->socket.life & NM_LIFE_OVER) != NM_LIFE_OVER;
    }
  }
  return false;
}

}  // namespace internal
}  // namespace netmeter
