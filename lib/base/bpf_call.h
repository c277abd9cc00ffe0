// SPDX-License-Identifier: BSD-3-Clause
// The two calls of bpf(2) that a reader needs. The library makes them itself, because
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

// A descriptor, with O_CLOEXEC, or -1 with errno.
inline int OpenPinnedMap(const char* path) {
  bpf_attr attributes;
  // The kernel wants zeros in the whole union, padding included.
  memset(&attributes, 0, sizeof(attributes));
  attributes.pathname = reinterpret_cast<uintptr_t>(path);
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

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_BASE_BPF_CALL_H_
