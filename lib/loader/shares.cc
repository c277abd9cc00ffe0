// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/shares.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "lib/core/pins.h"
#include "lib/core/shared_maps.h"
#include "lib/core/status_util.h"
#include "lib/core/unique_fd.h"
#include "lib/loader/kernel_object.h"
#include "lib/loader/step.h"

namespace netmeter {
namespace internal {
namespace {

constexpr const char* kMaps[] = {"nm_users", "nm_wire_names"};

// The map of this name that the program of a link uses; no descriptor if there is none.
// PermissionDenied without CAP_SYS_ADMIN, which the kernel asks of who opens by an id.
absl::StatusOr<UniqueFd> FindMapOfLink(const std::string& link_pin,
                                       const std::string& name) {
  UniqueFd link(bpf_obj_get(link_pin.c_str()));
  bpf_link_info about_link = {};
  if (!link.ok() || !GetInfo(link.get(), &about_link)) return UniqueFd();
  UniqueFd program(bpf_prog_get_fd_by_id(about_link.prog_id));
  if (!program.ok() && errno == EPERM) {
    return ErrnoStatus(EPERM, absl::StrCat("open the program of ", link_pin),
                       "needs CAP_SYS_ADMIN");
  }
  std::vector<uint32_t> ids(64);
  bpf_prog_info about = {};
  about.nr_map_ids = static_cast<uint32_t>(ids.size());
  about.map_ids = reinterpret_cast<uint64_t>(ids.data());
  if (!program.ok() || !GetInfo(program.get(), &about)) return UniqueFd();
  ids.resize(std::min<size_t>(ids.size(), about.nr_map_ids));
  for (const uint32_t id : ids) {
    UniqueFd map(bpf_map_get_fd_by_id(id));
    bpf_map_info about_map = {};
    if (map.ok() && GetInfo(map.get(), &about_map) &&
        TextOf(about_map.name) == name) {
      return map;
    }
  }
  return UniqueFd();
}

// The packet programs have both; a link that somebody removed is attached anew.
absl::StatusOr<UniqueFd> FindMap(const PinDir& pins, const std::string& name) {
  for (auto link = LinkPins().rbegin(); link != LinkPins().rend(); ++link) {
    absl::StatusOr<UniqueFd> map = FindMapOfLink(pins.PathOf(link->pin), name);
    if (!map.ok() || map->ok()) return map;
  }
  return UniqueFd();
}

bool HasSameLayout(const bpf_map_info& theirs, const bpf_map* ours) {
  return theirs.type == bpf_map__type(ours) &&
         theirs.key_size == bpf_map__key_size(ours) &&
         theirs.value_size == bpf_map__value_size(ours);
}

}  // namespace

absl::Status ReuseShares(const PinDir& pins, bool required,
                         MeterObject* object) {
  for (const char* name : kMaps) {
    const bpf_map* const ours =
        bpf_object__find_map_by_name(object->bpf(), name);
    const absl::StatusOr<UniqueFd> found = FindMap(pins, name);
    if (!found.ok()) return found.status();
    const UniqueFd& fd = *found;
    bpf_map_info theirs = {};
    if (fd.ok() && GetInfo(fd.get(), &theirs) && HasSameLayout(theirs, ours) &&
        theirs.max_entries == bpf_map__max_entries(ours)) {
      NETMETER_RETURN_IF_ERROR(object->ReuseUnpinned(name, fd.get()));
    } else if (required) {
      return absl::FailedPreconditionError(absl::StrCat(
          pins.PathOf("link_egress"), ": its program has no map ", name,
          " (run: ", LoaderCommand("load", pins.path()), ")"));
    }
  }
  return absl::OkStatus();
}

absl::Status CopyShares(const PinDir& pins, const MeterObject& object) {
  const char* const name = "nm_wire_names";
  const bpf_map* const map = bpf_object__find_map_by_name(object.bpf(), name);
  const absl::StatusOr<UniqueFd> found = FindMap(pins, name);
  if (!found.ok()) return found.status();
  const UniqueFd& from = *found;
  bpf_map_info theirs = {}, ours = {};
  if (!from.ok() || !GetInfo(from.get(), &theirs)) return absl::OkStatus();
  if (!GetInfo(bpf_map__fd(map), &ours)) {
    return ErrnoStatus(errno, absl::StrCat("read ", name));
  }
  if (theirs.id == ours.id || !HasSameLayout(theirs, map)) {
    return absl::OkStatus();
  }
  const uint32_t entries = std::min(theirs.max_entries, ours.max_entries);
  for (uint32_t id = 0; id < entries; id++) {
    uint32_t count = 0;
    int error = bpf_map_lookup_elem(from.get(), &id, &count);
    if (error == 0 && count != 0) {
      error = bpf_map_update_elem(bpf_map__fd(map), &id, &count, BPF_ANY);
    }
    if (error != 0) return ErrnoStatus(error, absl::StrCat("copy ", name));
  }
  Step("copied ", Describe(from.get()));
  return absl::OkStatus();
}

}  // namespace internal
}  // namespace netmeter
