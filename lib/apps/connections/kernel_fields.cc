// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/connections/kernel_fields.h"

#include <bpf/btf.h>
#include <linux/btf.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>

#include "lib/base/libbpf_log.h"
#include "lib/base/unique_fd.h"

namespace netmeter {
namespace internal {

std::vector<KernelField> KernelFieldsFrom(const char* structure,
                                          size_t offset) {
  std::vector<KernelField> fields;
  CaptureLibbpfMessages();
  const std::unique_ptr<btf, decltype(&btf__free)> types(
      btf__load_vmlinux_btf(), btf__free);
  const int id =
      types ? btf__find_by_name_kind(types.get(), structure, BTF_KIND_STRUCT)
            : -1;
  if (id <= 0) return fields;
  const btf_type* const type =
      btf__type_by_id(types.get(), static_cast<uint32_t>(id));
  for (uint32_t i = 0; i < btf_vlen(type); i++) {
    const btf_member& member = btf_members(type)[i];
    const uint32_t bit = btf_member_bit_offset(type, i);
    const int64_t size = btf__resolve_size(types.get(), member.type);
    if (bit < 8 * offset || size < 1 || size > 8) continue;
    KernelField field = {};
    field.name = btf__name_by_offset(types.get(), member.name_off);
    const uint32_t unit = 8 * static_cast<uint32_t>(size);
    field.place.size = static_cast<uint8_t>(size);
    field.place.offset = static_cast<uint16_t>(bit / unit * unit / 8);
    field.place.shift = static_cast<uint8_t>(bit % unit);
    field.place.bits = static_cast<uint8_t>(btf_member_bitfield_size(type, i));
    fields.push_back(std::move(field));
  }
  return fields;
}

size_t TcpInfoSize() {
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  char info[4096];
  socklen_t size = sizeof(info);
  return getsockopt(fd.get(), IPPROTO_TCP, TCP_INFO, info, &size) == 0 ? size
                                                                       : 0;
}

}  // namespace internal
}  // namespace netmeter
