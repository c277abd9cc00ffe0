// SPDX-License-Identifier: BSD-3-Clause
// The calls of bpf(2) that a reader needs. The library makes them itself, because
// libbpf would bring libelf and zlib into every service that reads its counters.
//
//   UniqueFd fd(OpenPinnedMap("/run/netmeter/info"));
//   if (!fd.ok()) return ErrnoStatus(errno, "open ...");
//
// Threads: any.

#ifndef NETMETER_LIB_BASE_BPF_CALL_H_
#define NETMETER_LIB_BASE_BPF_CALL_H_

#include <linux/bpf.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace netmeter {
namespace internal {

// A descriptor, with O_CLOEXEC, or -1 with errno. `flags`: BPF_F_RDONLY, or 0.
inline int OpenPinnedMap(const char* path, uint32_t flags = 0) {
  bpf_attr attributes;
  // The kernel wants zeros in the whole union, padding included.
  memset(&attributes, 0, sizeof(attributes));
  attributes.pathname = reinterpret_cast<uintptr_t>(path);
  attributes.file_flags = flags;
  return static_cast<int>(
      syscall(__NR_bpf, BPF_OBJ_GET, &attributes, sizeof(attributes)));
}

// 0, or -1 with errno. `info` is zeroed by the caller.
inline int DescribeMap(int fd, bpf_map_info* info) {
  bpf_attr attributes;
  memset(&attributes, 0, sizeof(attributes));
  attributes.info.bpf_fd = static_cast<__u32>(fd);
  attributes.info.info_len = sizeof(*info);
  attributes.info.info = reinterpret_cast<uintptr_t>(info);
  return static_cast<int>(syscall(__NR_bpf, BPF_OBJ_GET_INFO_BY_FD, &attributes,
                                  sizeof(attributes)));
}

// Writes the key that follows `key` (null: the first one) to *next. 0, or -1 with errno:
// ENOENT after the last one.
inline int NextKey(int fd, const void* key, void* next) {
  bpf_attr attributes;
  memset(&attributes, 0, sizeof(attributes));
  attributes.map_fd = static_cast<__u32>(fd);
  attributes.key = reinterpret_cast<uintptr_t>(key);
  attributes.next_key = reinterpret_cast<uintptr_t>(next);
  return static_cast<int>(
      syscall(__NR_bpf, BPF_MAP_GET_NEXT_KEY, &attributes, sizeof(attributes)));
}

// 0, or -1 with errno.
inline int LookUpElement(int fd, const void* key, void* value) {
  bpf_attr attributes;
  memset(&attributes, 0, sizeof(attributes));
  attributes.map_fd = static_cast<__u32>(fd);
  attributes.key = reinterpret_cast<uintptr_t>(key);
  attributes.value = reinterpret_cast<uintptr_t>(value);
  return static_cast<int>(
      syscall(__NR_bpf, BPF_MAP_LOOKUP_ELEM, &attributes, sizeof(attributes)));
}

// Reads up to *count elements after position `from` (null: the first ones), and writes
// their number to *count and their position to *to. Both positions have room for a key.
// For a map with values for each CPU, writes those of all possible CPUs. 0, or -1 with
// errno: ENOENT if these are the last ones. A hash map with such values has this since
// 5.6, an array since 5.13.
inline int LookUpElements(int fd, const void* from, void* to, void* keys,
                          void* values, uint32_t* count) {
  bpf_attr attributes;
  memset(&attributes, 0, sizeof(attributes));
  attributes.batch.map_fd = static_cast<__u32>(fd);
  attributes.batch.in_batch = reinterpret_cast<uintptr_t>(from);
  attributes.batch.out_batch = reinterpret_cast<uintptr_t>(to);
  attributes.batch.keys = reinterpret_cast<uintptr_t>(keys);
  attributes.batch.values = reinterpret_cast<uintptr_t>(values);
  attributes.batch.count = *count;
  const long result =
      syscall(__NR_bpf, BPF_MAP_LOOKUP_BATCH, &attributes, sizeof(attributes));
  *count = attributes.batch.count;
  return static_cast<int>(result);
}

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_BASE_BPF_CALL_H_
