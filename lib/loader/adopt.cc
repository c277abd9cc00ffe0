// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/adopt.h"

#include <bpf/bpf.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "bpf/internal.h"
#include "lib/base/cgroup.h"
#include "lib/base/kernel_object.h"
#include "lib/base/socket_table.h"
#include "lib/base/status_util.h"
#include "lib/loader/processes.h"
#include "lib/loader/trace.h"
#include "lib/netlink/interfaces.h"

namespace netmeter {
namespace internal {
namespace {

// After this many failures for lack of memory there are no more retries.
constexpr int kMostLeftOutPatiently = 5;

// A socket may lack room for good (net.core.optmem_max), and its process decides that.
// Such a process must not delay a load for long.
template <typename Function>
void Try(LeftOut* left_out, const Function& step) {
  const absl::Status status = left_out->count < kMostLeftOutPatiently
                                  ? Retry(step)
                                  : absl::Status(step());
  if (status.ok()) return;
  left_out->count++;
  left_out->why = status;
}

// If memory is too short to check, the process counts as running.
bool HasEnded(uint32_t tgid) {
  return access(absl::StrCat("/proc/", tgid).c_str(), F_OK) != 0 &&
         errno == ENOENT;
}

// Finds the owners of sockets. A process may have many sockets, and many processes may
// share a name, so results are cached.
class Owners {
 public:
  explicit Owners(const MeterObject& object)
      : object_(object), processes_(object.MapFd("processes")) {}

  // The owner of the socket, as nm_sock_create would have written it. False if the
  // process is not known. The sockets of one process must come in sequence.
  absl::StatusOr<bool> Find(const OpenSocket& socket, nm_stored_owner* owner) {
    if (socket.tgid != of_process_.owner.tgid) {
      of_process_ = nm_stored_owner();
      NETMETER_ASSIGN_OR_RETURN(known_, FindProcess(socket.tgid));
      of_process_.owner.tgid = socket.tgid;
      of_process_.start = NM_START(socket.start);
    }
    *owner = of_process_;
    // Connections of a listener are new sockets. Only the listener itself is
    // pre-existing.
    owner->preexisting = static_cast<nm_u32>(socket.cookie);
    if (socket.protocol != IPPROTO_TCP)
      owner->owner.flags = NM_OWNER_END_IS_TOLD;
    return known_;
  }

 private:
  absl::StatusOr<bool> FindProcess(uint32_t tgid) {
    nm_process process;
    if (int error = bpf_map_lookup_elem(processes_, &tgid, &process)) {
      if (error == -ENOENT) return false;
      return ErrnoStatus(error, "look up a process");
    }
    // Once a process has ended, its user is unknown. It must not count as root.
    const std::optional<RealIds> ids = RealIdsOf(tgid);
    if (!ids.has_value() && HasEnded(tgid)) return false;
    if (!ids.has_value()) {
      return absl::UnavailableError(
          absl::StrCat("read who process ", tgid, " is"));
    }
    of_process_.owner.user = nm_user_of_uid(ids->uid);
    NETMETER_ASSIGN_OR_RETURN(const uint32_t id, IdOf(process));
    nm_attribution& attribution = of_process_.owner.attribution;
    attribution.service = static_cast<uint16_t>(id);
    attribution.kind = process.kind;
    attribution.flags = process.flags & NM_FLAG_REGISTERED;
    if (id == 0) {
      attribution.service = NM_NAME_OVERFLOW;
      attribution.kind = NM_KIND_OVERFLOW;
    }
    return true;
  }

  // 0: there is no room for the name, or none in its user's quota. Another user may have
  // room.
  absl::StatusOr<uint32_t> IdOf(const nm_process& process) {
    const char* const bytes = reinterpret_cast<const char*>(process.bytes);
    const std::string name(bytes, strnlen(bytes, sizeof(process.bytes)));
    const auto known = ids_.find({process.kind, name});
    if (known != ids_.end()) return known->second;
    const absl::StatusOr<uint32_t> id = object_.NameId(
        static_cast<nm_kind>(process.kind), name, of_process_.owner.user);
    if (IsNoRoom(id.status())) return 0;
    if (!id.ok()) return id;
    ids_[{process.kind, name}] = *id;
    return *id;
  }

  const MeterObject& object_;
  const int processes_;
  nm_stored_owner of_process_ = {};
  bool known_ = false;
  std::map<std::pair<uint8_t, std::string>, uint32_t> ids_;
};

// Names a process as nm_exec would have. The names of cgroup_name.bpf.h have the rank
// that names_from gives them.
nm_process NameProcess(const RunningProcess& process, const Config& config,
                       const Registrants& registrants,
                       const std::map<std::string, std::string>& services,
                       bool may_read_cgroups) {
  const SourceRanks ranks = RanksOf(config.names_from);
  const bool lists = ranks[NM_SOURCE_SERVICE_LIST] != 0;
  const bool reads = ranks[NM_SOURCE_COMMAND_LINE] != 0;
  const std::map<std::string, std::string> none;
  const auto may_be = [&](const std::string& service) {
    if (registrants.count(service) == 0) return true;
    const std::optional<RealIds> ids = RealIdsOf(process.tgid);
    return ids.has_value() && MayBeService(registrants, service, *ids);
  };
  const std::map<std::string, std::string>& executables =
      lists ? services : none;
  Identity identity =
      IdentifyProcess(process.name, reads ? process.arguments : "", executables,
                      /*scripts=*/services);
  if (identity.service && !may_be(identity.name)) {
    identity = IdentifyProcess(process.name, "", executables, none);
  }
  if (identity.service && !may_be(identity.name)) {
    identity = IdentifyProcess(process.name, "", none, none);
  }
  std::string name = identity.name;
  nm_kind kind = identity.service ? NM_KIND_SERVICE : NM_KIND_BINARY;
  uint32_t rank = identity.by_command_line ? ranks[NM_SOURCE_COMMAND_LINE]
                  : identity.service       ? ranks[NM_SOURCE_SERVICE_LIST]
                                           : UINT32_MAX;
  const auto take = [&](nm_source source, nm_kind new_kind,
                        const std::string& new_name) {
    if (new_name.empty() || ranks[source] == 0 || ranks[source] >= rank) return;
    rank = ranks[source];
    kind = new_kind;
    name = new_name;
  };
  if (may_read_cgroups) {
    const CgroupName named = CgroupNameOf(process.cgroup);
    const std::string service =
        named.is_inside ? "" : ServiceOfUnit(config.units, named.unit);
    if (may_be(service)) take(NM_SOURCE_SERVICE_LIST, NM_KIND_SERVICE, service);
    take(NM_SOURCE_UNIT, NM_KIND_UNIT, NameOfUnit(named));
    take(NM_SOURCE_CONTAINER, NM_KIND_CONTAINER, named.container);
  }
  if (ranks[NM_SOURCE_USER] != 0) {
    const std::optional<RealIds> ids = RealIdsOf(process.tgid);
    if (ids.has_value()) {
      take(NM_SOURCE_USER, NM_KIND_USER, absl::StrCat(ids->uid));
    }
  }
  nm_process value = {};
  value.kind = static_cast<nm_u8>(kind);
  memcpy(value.bytes, name.data(), std::min(name.size(), sizeof(value.bytes)));
  return value;
}

}  // namespace

LeftOut NameRunningProcesses(const Config& config,
                             const Registrants& registrants,
                             const MeterObject& object) {
  const int fd = object.MapFd("processes");
  std::map<std::string, std::string> services = config.aliases;
  for (const std::string& service : config.services) {
    services.emplace(service, service);
  }
  const std::vector<RunningProcess> running = RunningProcesses();
  LeftOut left_out;
  for (const RunningProcess& process : running) {
    const nm_process value = NameProcess(process, config, registrants, services,
                                         object.may_read_cgroups());
    // Entries that tracing programs wrote meanwhile are newer and stay. If there is no
    // room, the process is named when it opens a socket.
    Try(&left_out, [&] {
      const int error =
          bpf_map_update_elem(fd, &process.tgid, &value, BPF_NOEXIST);
      if (error == -EEXIST || error == -E2BIG) return absl::OkStatus();
      return ErrnoStatus(error, "name a running process");
    });
    // nm_exit never removes a process that ended before it was in the table.
    if (HasEnded(process.tgid)) {
      bpf_map_delete_elem(fd, &process.tgid);
    }
  }
  Trace("named ", running.size(), " running processes in ", Traced{fd});
  return left_out;
}

LeftOut AdoptOpenSockets(const std::string& cgroup, const MeterObject& object) {
  const int owners = object.MapFd("owners");
  const SocketTable table(object.MapFd("sockets"));
  Owners find(object);
  int found = 0;
  LeftOut left_out;
  left_out.unreached =
      ForEachOpenSocket(PathInHierarchy(cgroup), [&](const OpenSocket& socket) {
        // nm_sock_create has put its owner there.
        nm_entry entry;
        if (table.Find(socket.cookie, &entry) &&
            (entry.socket.life & NM_LIFE_OWNED) != 0) {
          return;
        }
        Try(&left_out, [&]() -> absl::Status {
          nm_stored_owner owner;
          NETMETER_ASSIGN_OR_RETURN(const bool known,
                                    find.Find(socket, &owner));
          if (!known) return absl::OkStatus();
          const int fd = socket.fd.get();
          owner.owner.network = NetworkOfSocket(fd);
          const int error =
              bpf_map_update_elem(owners, &fd, &owner, BPF_NOEXIST);
          // If several processes hold a socket, the first one is the owner. A socket that
          // nm_sock_create saw has its owner already.
          if (error == -EEXIST) return absl::OkStatus();
          if (error != 0) return ErrnoStatus(error, "give a socket its owner");
          found++;
          return absl::OkStatus();
        });
      });
  Trace("gave ", found, " open sockets to their processes in ", Traced{owners});
  return left_out;
}

}  // namespace internal
}  // namespace netmeter
