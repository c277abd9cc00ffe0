// SPDX-License-Identifier: BSD-3-Clause
#include "lib/tools/uplink_maps.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <string.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/kernel_object.h"
#include "lib/base/map_elements.h"
#include "lib/base/status_util.h"
#include "lib/base/unique_fd.h"
#include "lib/reader/pins.h"
#include "lib/reader/series_reader.h"
#include "lib/reader/shared_maps.h"
#include "netmeter/meter.h"

namespace netmeter {
namespace internal {
namespace {

absl::StatusOr<UniqueFd> OpenMap(const std::string& pin_dir, const char* pin,
                                 size_t key_size, size_t value_size) {
  const std::string path = absl::StrCat(pin_dir, "/", pin);
  UniqueFd fd(bpf_obj_get(path.c_str()));
  bpf_map_info about = {};
  if (!fd.ok() || !GetInfo(fd.get(), &about)) {
    return ErrnoStatus(errno, absl::StrCat("open ", path),
                       errno == ENOENT ? "" : "run as root");
  }
  if (about.key_size != key_size || about.value_size != value_size) {
    return absl::FailedPreconditionError(
        absl::StrCat(path,
                     " is of another version (run the netmeter of the same "
                     "version as netmeter-loader)"));
  }
  return fd;
}

// Calls body(key, sum over CPUs) for each element.
template <typename Key, typename Body>
absl::Status ForEachSum(const std::string& pin_dir, const char* pin,
                        const Body& body) {
  const auto fd = OpenMap(pin_dir, pin, sizeof(Key), sizeof(nm_forwarded));
  if (!fd.ok()) return fd.status();
  const int cpus = libbpf_num_possible_cpus();
  if (cpus < 1) return ErrnoStatus(cpus, "count the possible CPUs");
  std::vector<nm_forwarded> of_cpus(static_cast<size_t>(cpus));
  Key key = {}, next = {};
  const Key* from = nullptr;
  int end;
  while ((end = bpf_map_get_next_key(fd->get(), from, &next)) == 0) {
    key = next;
    from = &key;
    const int error = bpf_map_lookup_elem(fd->get(), &key, of_cpus.data());
    if (error != 0) return ErrnoStatus(error, absl::StrCat("read ", pin));
    nm_forwarded sum = {};
    for (const nm_forwarded& one : of_cpus) {
      sum.bytes += one.bytes;
      sum.packets += one.packets;
    }
    if (sum.packets != 0) body(key, sum);
  }
  if (end != -ENOENT) return ErrnoStatus(end, absl::StrCat("read ", pin));
  return absl::OkStatus();
}

template <typename Key, typename Value, typename Body>
absl::Status ForEachIn(const std::string& pin_dir, const char* pin,
                       const Body& body) {
  const auto fd = OpenMap(pin_dir, pin, sizeof(Key), sizeof(Value));
  if (absl::IsNotFound(fd.status())) return HasNoUplinks(pin_dir);
  if (!fd.ok()) return fd.status();
  return ForEachElement<Key, Value>(
      fd->get(), [&body](const Key& key, const Value& value) {
        body(key, value);
        return absl::OkStatus();
      });
}

// The uplinks that have counted since the load, and `other`, by their numbers.
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

}  // namespace

absl::Status HasNoUplinks(const std::string& pin_dir) {
  // The default file is the default meter's alone.
  const bool has_file = pin_dir == MeterOptions().pin_dir;
  return absl::NotFoundError(absl::StrCat(
      "the meter has no uplinks (write uplinks into ",
      has_file ? "/etc/netmeter.yml" : "FILE", ", and run: ",
      LoaderCommand(has_file ? "load" : "load --config FILE", pin_dir), ")"));
}

absl::StatusOr<ForwardedPairs> ReadForwarded(const std::string& pin_dir) {
  ForwardedPairs pairs;
  NETMETER_RETURN_IF_ERROR(ForEachSum<uint32_t>(
      pin_dir, kForwardedPin, [&](uint32_t index, const nm_forwarded& sum) {
        pairs.push_back({{0, 0, index}, sum});
      }));
  const absl::Status status = ForEachSum<nm_forwarded_key>(
      pin_dir, kForwardedByPin,
      [&](const nm_forwarded_key& key, const nm_forwarded& sum) {
        pairs.push_back({key, sum});
      });
  // A meter of an earlier version does not have this map.
  if (!status.ok() && !absl::IsNotFound(status)) return status;
  return pairs;
}

Forwarded SumByUplink(const ForwardedPairs& pairs) {
  Forwarded sums;
  for (const ForwardedPair& pair : pairs) {
    const uint32_t in = pair.key.uplinks >> 4, out = pair.key.uplinks & 0xf;
    if (in != NM_UPLINK_NONE) {
      sums[in].rx_bytes += pair.sum.bytes;
      sums[in].rx_packets += pair.sum.packets;
    }
    if (out != NM_UPLINK_NONE) {
      sums[out].tx_bytes += pair.sum.bytes;
      sums[out].tx_packets += pair.sum.packets;
    }
  }
  return sums;
}

ForwardedSamples NameForwarded(const ForwardedPairs& pairs,
                               const LinkReading& links) {
  std::map<uint32_t, std::string> names;
  for (const Interface& interface : links.interfaces) {
    names[interface.index] = interface.name;
  }
  // The meter keeps the names of interfaces that have gone.
  for (const InterfaceEntry& entry : links.entries) {
    const char* name = entry.second.name;
    names[entry.first.ifindex] =
        std::string(name, strnlen(name, sizeof(entry.second.name)));
  }
  ForwardedSamples samples;
  const auto add = [&](uint32_t uplink, uint32_t interface, size_t direction,
                       const nm_forwarded& sum) {
    const auto to = links.names.find(uplink);
    if (to == links.names.end()) return;
    const auto name = names.find(interface);
    Counters& counters = samples[{
        to->second, name == names.end() ? kForwardedKind : name->second}];
    counters.value[direction] += static_cast<int64_t>(sum.bytes);
    counters.value[2 + direction] += static_cast<int64_t>(sum.packets);
  };
  for (const ForwardedPair& pair : pairs) {
    add(pair.key.uplinks & 0xf, pair.key.in, 0, pair.sum);
    add(pair.key.uplinks >> 4, pair.key.out, 1, pair.sum);
  }
  return samples;
}

absl::StatusOr<MeterLinks> ReadLinks(const std::string& pin_dir) {
  const auto maps = SharedMaps::Open(pin_dir);
  if (!maps.ok()) return maps.status();
  MeterLinks links;
  uint64_t network = 0;
  links.names = ReadUplinkNames(**maps);
  NETMETER_RETURN_IF_ERROR((ForEachIn<nm_uplink_key, uint32_t>(
      pin_dir, "uplink_names", [&](const nm_uplink_key& key, uint32_t number) {
        links.patterns[links.names[number]].push_back(PatternOf(key));
      })));
  NETMETER_RETURN_IF_ERROR((ForEachIn<nm_interface_key, nm_interface>(
      pin_dir, "interfaces",
      [&](const nm_interface_key& key, const nm_interface& value) {
        if (key.ifindex == 0) {
          network = value.base.tx_bytes;
          links.late = value.base.rx_bytes != 0;
        } else {
          links.entries.emplace_back(key, value);
        }
      })));
  const auto own = OwnNetwork(/*by_inode=*/true);
  if (!own.ok()) return own.status();
  if (network != 0 && network != *own) {
    return absl::FailedPreconditionError(
        "the uplinks are those of another network namespace (run it there: ip "
        "netns exec, nsenter --net)");
  }
  auto interfaces = ListInterfaces();
  if (!interfaces.ok()) return interfaces.status();
  links.interfaces = *std::move(interfaces);
  return links;
}

std::string PatternOf(const nm_uplink_key& key) {
  const size_t size = std::min<size_t>(key.bits / 8, NM_INTERFACE_BYTES);
  const size_t length = strnlen(key.name, size);
  return absl::StrCat(std::string(key.name, length), length < size ? "" : "*");
}

}  // namespace internal
}  // namespace netmeter
