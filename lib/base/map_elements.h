// SPDX-License-Identifier: BSD-3-Clause
// Reads a hash map, element by element.
//
//   NETMETER_RETURN_IF_ERROR((ForEachElement<uint32_t, nm_process>(
//       fd, [](uint32_t tgid, const nm_process& process) { ... })));
//
// Threads: any.

#ifndef NETMETER_LIB_BASE_MAP_ELEMENTS_H_
#define NETMETER_LIB_BASE_MAP_ELEMENTS_H_

#include <bpf/bpf.h>

#include <cerrno>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lib/base/kernel_object.h"
#include "lib/base/status_util.h"

namespace netmeter {
namespace internal {

// Calls body(key, value) for every element of a hash map, until one call fails. Elements
// that are added or removed meanwhile may be seen or not.
template <typename Key, typename Value, typename Body>
absl::Status ForEachElement(int fd, Body body) {
  // The kernel writes a whole key and a whole value.
  bpf_map_info map = {};
  if (!GetInfo(fd, &map)) return ErrnoStatus(errno, "read a map");
  if (map.key_size != sizeof(Key) || map.value_size != sizeof(Value)) {
    return absl::FailedPreconditionError(
        absl::StrCat(Describe(fd), " has another layout"));
  }
  Key key = {}, next = {};
  const Key* from = nullptr;
  int end;
  while ((end = bpf_map_get_next_key(fd, from, &next)) == 0) {
    key = next;
    from = &key;
    Value value = {};
    const int error = bpf_map_lookup_elem(fd, &key, &value);
    if (error == -ENOENT) continue;
    if (error != 0) return ErrnoStatus(error, "read a map");
    absl::Status status = body(key, value);
    if (!status.ok()) return status;
  }
  // Any other error must be reported: otherwise the rest of the map would be missing.
  return end == -ENOENT ? absl::OkStatus() : ErrnoStatus(end, "read a map");
}

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_BASE_MAP_ELEMENTS_H_
