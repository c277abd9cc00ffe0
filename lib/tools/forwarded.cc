// SPDX-License-Identifier: BSD-3-Clause
#include "lib/tools/forwarded.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>

#include "absl/strings/str_cat.h"
#include "lib/base/status_util.h"
#include "lib/base/unique_fd.h"
#include "lib/netlink/uplink_names.h"
#include "lib/reader/pins.h"
#include "lib/reader/series_reader.h"

namespace netmeter {
namespace internal {

Forwarded SumByUplink(const std::vector<nm_forwarded>& pairs) {
  Forwarded sums;
  for (uint32_t index = 0; index < pairs.size(); ++index) {
    const nm_forwarded& pair = pairs[index];
    if (pair.packets == 0) continue;
    const uint32_t in = index >> 4, out = index & 0xf;
    if (in != NM_UPLINK_NONE) {
      sums[in].rx_bytes += pair.bytes;
      sums[in].rx_packets += pair.packets;
    }
    if (out != NM_UPLINK_NONE) {
      sums[out].tx_bytes += pair.bytes;
      sums[out].tx_packets += pair.packets;
    }
  }
  return sums;
}

absl::StatusOr<Forwarded> ReadForwarded(const std::string& pin_dir) {
  const std::string path = absl::StrCat(pin_dir, "/", kForwardedPin);
  const UniqueFd fd(bpf_obj_get(path.c_str()));
  if (!fd.ok()) {
    return ErrnoStatus(errno, absl::StrCat("open ", path),
                       errno == EACCES ? "run as root" : "");
  }
  bpf_map_info about = {};
  uint32_t size = sizeof(about);
  if (bpf_obj_get_info_by_fd(fd.get(), &about, &size) != 0) {
    return ErrnoStatus(errno, absl::StrCat("look at ", path));
  }
  if (about.type != BPF_MAP_TYPE_PERCPU_ARRAY ||
      about.value_size != sizeof(nm_forwarded)) {
    return absl::FailedPreconditionError(
        absl::StrCat(path,
                     " is of another version (run the netmeter of the same "
                     "version as netmeter-loader)"));
  }
  const int cpus = libbpf_num_possible_cpus();
  if (cpus < 1) return ErrnoStatus(cpus, "count the possible CPUs");
  std::vector<nm_forwarded> of_cpus(static_cast<size_t>(cpus));
  std::vector<nm_forwarded> pairs(about.max_entries);
  for (uint32_t index = 0; index < pairs.size(); ++index) {
    if (bpf_map_lookup_elem(fd.get(), &index, of_cpus.data()) != 0) {
      return ErrnoStatus(errno, absl::StrCat("read ", path));
    }
    for (const nm_forwarded& one : of_cpus) {
      pairs[index].bytes += one.bytes;
      pairs[index].packets += one.packets;
    }
  }
  return SumByUplink(pairs);
}

std::map<uint32_t, std::string> ReadUplinkNames(const SharedMaps& maps) {
  const SeriesReader reader(maps.view());
  std::map<uint32_t, std::string> names;
  for (uint32_t i = 0; i < NM_MAX_UPLINKS; ++i) {
    const uint32_t id = maps.view().info->uplinks[i];
    std::string name;
    if (id != 0 && reader.ReadName(id, &name)) names[i + 1] = name;
  }
  names[NM_UPLINK_OTHER] = kOtherUplink;
  return names;
}

}  // namespace internal
}  // namespace netmeter
