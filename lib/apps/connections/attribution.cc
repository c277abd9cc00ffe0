// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/connections/attribution.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/kernel_object.h"
#include "lib/base/proc.h"
#include "lib/base/status_util.h"
#include "netmeter/sample.h"

namespace netmeter {
namespace internal {
namespace {

absl::StatusOr<UniqueFd> OpenMap(const std::string& pin_dir, const char* name,
                                 uint32_t value_size) {
  const std::string path = absl::StrCat(pin_dir, "/", name);
  UniqueFd fd(bpf_obj_get(path.c_str()));
  if (!fd.ok()) {
    return ErrnoStatus(errno, absl::StrCat("open ", path), "run as root");
  }
  bpf_map_info about = {};
  if (!GetInfo(fd.get(), &about)) {
    return ErrnoStatus(errno, absl::StrCat("look at ", path));
  }
  if (about.value_size != value_size) {
    return absl::FailedPreconditionError(absl::StrCat(
        path,
        " is of another version (run the netmeter of the same version "
        "as netmeter-loader)"));
  }
  return fd;
}

}  // namespace

Attribution::Attribution(std::shared_ptr<const SharedMaps> maps)
    : maps_(std::move(maps)) {
  reader_.emplace(maps_->view());
}

absl::StatusOr<std::unique_ptr<Attribution>> Attribution::Open(
    const std::string& pin_dir) {
  auto maps = SharedMaps::Open(pin_dir);
  if (!maps.ok()) return maps.status();
  std::unique_ptr<Attribution> attribution(new Attribution(std::move(*maps)));
  NETMETER_ASSIGN_OR_RETURN(
      attribution->owners_,
      OpenMap(pin_dir, "owners", sizeof(nm_stored_owner)));
  NETMETER_ASSIGN_OR_RETURN(attribution->sockets_,
                            OpenMap(pin_dir, "sockets", sizeof(nm_entry)));
  attribution->table_.emplace(attribution->sockets_.get());
  return attribution;
}

bool Attribution::has_uplinks() const {
  const nm_u16* const uplinks = maps_->view().info->uplinks;
  return std::any_of(uplinks, uplinks + NM_MAX_UPLINKS,
                     [](nm_u16 name) { return name != NM_NAME_EMPTY; });
}

// Series may have been evicted, and a load may have changed the labels of names on the
// wire.
void Attribution::ForgetAfterMoves() {
  const nm_u64 moves =
      __atomic_load_n(&maps_->view().stats->moves, __ATOMIC_ACQUIRE);
  if (moves == moves_ && moves % 2 == 0) return;
  by_slot_.clear();
  reader_.emplace(maps_->view());
  moves_ = moves;
}

const SocketOwner& Attribution::OfSlot(uint32_t slot) {
  static const SocketOwner* const kNobody = new SocketOwner();
  const auto known = by_slot_.find(slot);
  if (known != by_slot_.end()) return known->second;
  Sample key;
  if (!reader_->ReadKey(slot, &key)) return *kNobody;
  SocketOwner& owner = by_slot_[slot];
  owner.kind = KindName(key.kind);
  owner.service = std::move(key.name);
  owner.destination = std::move(key.destination);
  owner.uplink = std::move(key.uplink);
  return owner;
}

// Reads the socket's value through a copy of the descriptor, made by this process.
bool Attribution::OwnerByDescriptor(const Holder& holder, uint64_t cookie,
                                    nm_stored_owner* owner) {
  if (holder.tid != thread_id_) {
    thread_ = OpenThread(holder.pid, holder.tid);
    thread_id_ = holder.tid;
  }
  const UniqueFd copy(
      static_cast<int>(syscall(SYS_pidfd_getfd, thread_.get(), holder.fd, 0)));
  uint64_t found = 0;
  socklen_t size = sizeof(found);
  // This number may belong to another file by now.
  if (!copy.ok() ||
      getsockopt(copy.get(), SOL_SOCKET, SO_COOKIE, &found, &size) != 0 ||
      found != cookie) {
    return false;
  }
  const int key = copy.get();
  return bpf_map_lookup_elem(owners_.get(), &key, owner) == 0;
}

const SocketOwner& Attribution::Find(const DiagSocket& socket,
                                     const Holders& holders) {
  found_ = SocketOwner();
  ForgetAfterMoves();
  nm_stored_owner stored = {};
  bool known = socket.owner.size() >= sizeof(stored);
  if (known) memcpy(&stored, socket.owner.data(), sizeof(stored));
  nm_entry entry;
  const bool in_table = table_->Find(socket.cookie, &entry);
  if (in_table && (entry.socket.life & NM_LIFE_OWNED) != 0) {
    known = true;
    stored.owner = entry.owner;
    stored.start = entry.start;
  }
  const nm_u64 word = in_table ? entry.socket.word : stored.socket.word;
  const uint32_t slot = NM_WORD_SLOT(word);
  if (slot != 0 && NM_WORD_COOKIE(word) == NM_COOKIE(socket.cookie)) {
    found_ = OfSlot(slot);
  }
  if (!known && found_.kind.empty() && socket.protocol != IPPROTO_TCP) {
    holders.ForEach(socket.inode, [&](const Holder& holder) {
      known = known || OwnerByDescriptor(holder, socket.cookie, &stored);
    });
  }
  const nm_owner& owner = stored.owner;
  if (known && found_.kind.empty()) {
    // The socket had no packet yet. Only these parts of its series are known.
    std::string name;
    const nm_attribution& whose = owner.attribution;
    if (whose.service != NM_NAME_EMPTY &&
        reader_->ReadName(whose.service, &name)) {
      found_.kind = KindName(static_cast<Kind>(whose.kind));
      found_.service = std::move(name);
      const uint16_t destination =
          owner.tag != 0 ? owner.tag : owner.wire_destination;
      if (reader_->ReadName(destination, &name)) {
        found_.destination = std::move(name);
      }
    }
  }
  if (names_.Find(owner.tgid, stored.start).has_value()) {
    found_.pid = owner.tgid;
  }
  return found_;
}

}  // namespace internal
}  // namespace netmeter
