// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/uplinks.h"

#include <bpf/bpf.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/kernel_object.h"
#include "lib/base/status_util.h"
#include "lib/base/unique_fd.h"
#include "lib/loader/step.h"
#include "lib/netlink/interfaces.h"
#include "lib/reader/pins.h"
#include "lib/reader/shared_maps.h"

namespace netmeter {
namespace internal {
namespace {

using Numbers = std::map<std::string, uint32_t>;  // by name

// The numbers that were given before.
absl::StatusOr<Numbers> KnownNumbers(const nm_info& info, int names) {
  Numbers numbers;
  for (uint32_t i = 0; i < NM_MAX_UPLINKS; i++) {
    const uint32_t id = info.uplinks[i];
    nm_name name = {};
    if (id == NM_NAME_EMPTY) continue;
    if (int error = bpf_map_lookup_elem(names, &id, &name)) {
      return ErrnoStatus(error, "read the name of an uplink");
    }
    const size_t length = std::min<size_t>(name.length, NM_NAME_BYTES);
    numbers[std::string(name.bytes, length)] = i + 1;
  }
  return numbers;
}

absl::Status NumberUplinks(const Uplinks& uplinks, const nm_info& existing,
                           const std::string& pin_dir, MeterObject* object,
                           Numbers* numbers) {
  UplinkIds ids;
  std::copy(std::begin(existing.uplinks), std::end(existing.uplinks),
            ids.begin());
  absl::StatusOr<Numbers> known =
      KnownNumbers(existing, object->MapFd("names"));
  if (!known.ok()) return known.status();
  *numbers = *std::move(known);
  for (const auto& uplink : uplinks) {
    if (numbers->count(uplink.first) != 0) continue;
    const auto free = std::find(ids.begin(), ids.end(), NM_NAME_EMPTY);
    if (free == ids.end()) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "uplinks: no room for ", uplink.first, ": ", NM_MAX_UPLINKS,
          " others have counted since the meter was loaded (",
          RestartCommand(pin_dir), ")"));
    }
    absl::StatusOr<uint32_t> id = object->NameId(NM_KIND_UPLINK, uplink.first);
    if (!id.ok()) return id.status();
    *free = static_cast<uint16_t>(*id);
    (*numbers)[uplink.first] = static_cast<uint32_t>(free - ids.begin()) + 1;
  }
  (*numbers)[kOtherUplink] = NM_UPLINK_OTHER;
  object->SetUplinks(ids);
  return absl::OkStatus();
}

absl::Status FillPatterns(const Uplinks& uplinks, const Numbers& numbers,
                          int fd) {
  for (const auto& uplink : uplinks) {
    const uint32_t number = numbers.at(uplink.first);
    for (const std::string& pattern : uplink.second) {
      if (!FitsInterfaceName(pattern)) continue;
      const nm_uplink_key key = UplinkKey(pattern);
      if (int error = bpf_map_update_elem(fd, &key, &number, BPF_ANY)) {
        return ErrnoStatus(error, "fill uplink_names");
      }
    }
  }
  return absl::OkStatus();
}

// Whether the loader must tell the programs this interface's uplink: they know only one
// of its names.
bool NeedsItsName(const Uplinks& uplinks, const Interface& interface) {
  return FindUplink(uplinks, interface.name, interface.alternatives) !=
         FindUplink(uplinks, interface.name);
}

absl::Status FillAlternatives(const Uplinks& uplinks, const Numbers& numbers,
                              const std::vector<Interface>& interfaces,
                              int fd) {
  for (const Interface& interface : interfaces) {
    if (!NeedsItsName(uplinks, interface)) continue;
    const nm_uplink_key key = UplinkKey(interface.name);
    const uint32_t number =
        numbers.at(FindUplink(uplinks, interface.name, interface.alternatives));
    if (int error = bpf_map_update_elem(fd, &key, &number, BPF_ANY)) {
      return ErrnoStatus(error, "fill uplink_names");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<InterfaceEntry>> ReadEntries(int fd) {
  std::vector<InterfaceEntry> entries;
  const absl::Status status = ForEachElement<nm_interface_key, nm_interface>(
      fd, [&](const nm_interface_key& key, const nm_interface& value) {
        entries.emplace_back(key, value);
        return absl::OkStatus();
      });
  if (!status.ok()) return status;
  return entries;
}

absl::Status Write(int fd, const InterfaceEntry& entry) {
  return ErrnoStatus(
      bpf_map_update_elem(fd, &entry.first, &entry.second, BPF_ANY),
      "fill interfaces");
}

// The packets counted in between are not this uplink's, so they move into the base.
void Resume(const nm_interface_counts& now, nm_interface* entry) {
  entry->base.tx_bytes += now.tx_bytes - entry->end.tx_bytes;
  entry->base.rx_bytes += now.rx_bytes - entry->end.rx_bytes;
  entry->base.tx_packets += now.tx_packets - entry->end.tx_packets;
  entry->base.rx_packets += now.rx_packets - entry->end.rx_packets;
  entry->end = {};
  entry->ended = 0;
}

// From now on the interface counts for uplink `number`, or for none if it is 0.
absl::Status BeginInterface(const Interface& interface, uint32_t number,
                            const std::vector<InterfaceEntry>& entries,
                            int fd) {
  const auto open = std::count_if(
      entries.begin(), entries.end(), [&](const InterfaceEntry& entry) {
        return entry.first.ifindex == interface.index && !entry.second.ended;
      });
  bool begun = number == NM_UPLINK_NONE;
  for (const InterfaceEntry& entry : entries) {
    if (entry.first.ifindex != interface.index) continue;
    InterfaceEntry changed = entry;
    if (entry.first.uplink == number) {
      begun = true;
      if (!entry.second.ended) continue;
      Resume(interface.counts, &changed.second);
    } else {
      // If the interface has counted for two uplinks, the split is unknown: both entries
      // stay open, and `netmeter uplinks` says so.
      if (entry.second.ended || open > 1) continue;
      changed.second.end = interface.counts;
      changed.second.ended = 1;
    }
    NETMETER_RETURN_IF_ERROR(Write(fd, changed));
  }
  if (begun) return absl::OkStatus();
  InterfaceEntry entry = {};
  entry.first.ifindex = interface.index;
  entry.first.uplink = number;
  memcpy(entry.second.name, interface.name.data(),
         std::min(interface.name.size(), sizeof(entry.second.name) - 1));
  entry.second.base = interface.counts;
  const int error =
      bpf_map_update_elem(fd, &entry.first, &entry.second, BPF_ANY);
  // full: treated as an interface that came later
  if (error == -E2BIG) return absl::OkStatus();
  return ErrnoStatus(error, "fill interfaces");
}

// Records whose interfaces these are. Another namespace has the same interface numbers
// but other counters, so entries from there are dropped. `late`: forwarded packets are
// counted from now on, but interfaces were known before.
absl::Status EnterNetwork(const PinDir& pins, int fd,
                          std::vector<InterfaceEntry>* entries) {
  const bool late = !pins.Has(kForwardLinks[0]);
  absl::StatusOr<uint32_t> own = OwnNetwork(/*by_inode=*/true);
  if (!own.ok()) return own.status();
  InterfaceEntry network = {};
  network.second.base.tx_bytes = *own;
  const auto known = std::find_if(
      entries->begin(), entries->end(),
      [](const InterfaceEntry& entry) { return entry.first.ifindex == 0; });
  if (known != entries->end()) {
    const bool other = known->second.base.tx_bytes != *own;
    const bool open = std::any_of(
        entries->begin(), entries->end(), [](const InterfaceEntry& entry) {
          return entry.first.ifindex != 0 && !entry.second.ended;
        });
    network.second.base.rx_bytes =
        !other && (known->second.base.rx_bytes != 0 || (late && open)) ? 1 : 0;
    network.second.ended = other || known->second.ended ? 1 : 0;
    if (other) {
      // This comes first: afterwards nothing shows that the entries were of another
      // namespace.
      for (const char* pin : kForwardLinks) {
        NETMETER_RETURN_IF_ERROR(pins.Remove(pin));
      }
      for (const InterfaceEntry& entry : *entries) {
        const int error = bpf_map_delete_elem(fd, &entry.first);
        if (error != 0 && error != -ENOENT) {
          return ErrnoStatus(error, "empty interfaces");
        }
      }
      entries->clear();
    }
  }
  return Write(fd, network);
}

}  // namespace

absl::StatusOr<std::string> PlaceOfUplinks(const Uplinks& uplinks) {
  if (uplinks.empty()) return "";
  absl::StatusOr<uint32_t> network = OwnNetwork(/*by_inode=*/true);
  if (!network.ok()) return network.status();
  std::string place = absl::StrCat(*network);
  absl::StatusOr<std::vector<Interface>> interfaces = ListInterfaces();
  if (!interfaces.ok()) return interfaces.status();
  const bool by_index = !MayReadKernelMemory();
  for (const Interface& interface : *interfaces) {
    if (by_index) {
      absl::StrAppend(&place, "|", interface.index, "=", interface.name);
    }
    if (NeedsItsName(uplinks, interface)) {
      absl::StrAppend(
          &place, "|", interface.name, " is in ",
          FindUplink(uplinks, interface.name, interface.alternatives));
    }
  }
  return place;
}

absl::Status ReuseInterfaces(const PinDir& pins, MeterObject* object) {
  if (!pins.Has(kInterfacesPin)) return absl::OkStatus();
  absl::StatusOr<UniqueFd> fd = pins.Open(kInterfacesPin);
  if (!fd.ok()) return fd.status();
  return object->ReuseUnpinned(kInterfacesMap, fd->get());
}

absl::Status FillUplinks(const Uplinks& uplinks, const nm_info& existing,
                         const PinDir& pins, MeterObject* object) {
  Numbers numbers;
  NETMETER_RETURN_IF_ERROR(
      NumberUplinks(uplinks, existing, pins.path(), object, &numbers));
  const int fd = object->InterfacesFd();
  absl::StatusOr<std::vector<InterfaceEntry>> entries = ReadEntries(fd);
  if (!entries.ok()) return entries.status();
  if (uplinks.empty() && entries->empty()) return absl::OkStatus();
  NETMETER_RETURN_IF_ERROR(
      FillPatterns(uplinks, numbers, object->MapFd("uplink_names")));
  NETMETER_RETURN_IF_ERROR(EnterNetwork(pins, fd, &*entries));
  absl::StatusOr<std::vector<Interface>> interfaces = ListInterfaces();
  if (!interfaces.ok()) return interfaces.status();
  NETMETER_RETURN_IF_ERROR(FillAlternatives(uplinks, numbers, *interfaces,
                                            object->MapFd("uplink_names")));
  for (const Interface& interface : *interfaces) {
    // loopback has no traffic of path direct
    if (interface.index == kLoopbackIndex) continue;
    const std::string uplink =
        FindUplink(uplinks, interface.name, interface.alternatives);
    const uint32_t number =
        uplinks.empty() ? NM_UPLINK_NONE : numbers.at(uplink);
    NETMETER_RETURN_IF_ERROR(BeginInterface(interface, number, *entries, fd));
    if (uplinks.empty()) continue;
    object->SetUplinkWord(interface.index, number);
    Step("interface ", interface.name, " is in uplink ", uplink);
  }
  return absl::OkStatus();
}

}  // namespace internal
}  // namespace netmeter
