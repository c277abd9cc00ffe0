// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/uplinks.h"

#include <bpf/bpf.h>
#include <string.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/clock.h"
#include "lib/base/kernel_object.h"
#include "lib/base/map_elements.h"
#include "lib/base/pins.h"
#include "lib/base/status_util.h"
#include "lib/base/unique_fd.h"
#include "lib/loader/trace.h"

namespace netmeter {
namespace internal {
namespace {

using Numbers = std::map<std::string, uint32_t>;

constexpr char kPin[] = "interfaces";

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
  auto& ids = object->uplink_info()->ids;
  std::copy(std::begin(existing.uplinks), std::end(existing.uplinks),
            ids.begin());
  NETMETER_ASSIGN_OR_RETURN(*numbers,
                            KnownNumbers(existing, object->MapFd("names")));
  for (const auto& uplink : uplinks) {
    if (numbers->count(uplink.first) != 0) continue;
    const auto free = std::find(ids.begin(), ids.end(), NM_NAME_EMPTY);
    if (free == ids.end()) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "uplinks: no room for ", uplink.first, ": ", NM_MAX_UPLINKS,
          " others have counted since the meter was loaded (",
          RestartCommand(pin_dir), ")"));
    }
    NETMETER_ASSIGN_OR_RETURN(const uint32_t id,
                              object->NameId(NM_KIND_UPLINK, uplink.first));
    *free = static_cast<uint16_t>(id);
    (*numbers)[uplink.first] = static_cast<uint32_t>(free - ids.begin()) + 1;
  }
  (*numbers)[kOtherUplink] = NM_UPLINK_OTHER;
  return absl::OkStatus();
}

// Whether the loader must tell the programs this interface's uplink: they know only one
// of its names.
bool NeedsItsName(const Uplinks& uplinks, const Interface& interface) {
  return FindUplink(uplinks, interface.name, interface.alternatives) !=
         FindUplink(uplinks, interface.name);
}

// The patterns of the configuration, and the interfaces that match one only by an
// alternative name.
absl::Status FillNames(const Uplinks& uplinks, const Numbers& numbers,
                       const std::vector<Interface>& interfaces, int fd) {
  const auto fill = [&](const std::string& name, const std::string& uplink) {
    const nm_uplink_key key = UplinkKey(name);
    return ErrnoStatus(
        bpf_map_update_elem(fd, &key, &numbers.at(uplink), BPF_ANY),
        "fill uplink_names");
  };
  for (const auto& uplink : uplinks) {
    for (const std::string& pattern : uplink.second) {
      if (!FitsInterfaceName(pattern)) continue;
      NETMETER_RETURN_IF_ERROR(fill(pattern, uplink.first));
    }
  }
  for (const Interface& interface : interfaces) {
    if (!NeedsItsName(uplinks, interface)) continue;
    NETMETER_RETURN_IF_ERROR(
        fill(interface.name,
             FindUplink(uplinks, interface.name, interface.alternatives)));
  }
  return absl::OkStatus();
}

// The stays of the meter that is upgraded; none if their map is missing.
absl::StatusOr<std::vector<InterfaceEntry>> ReadStays(const PinDir& pins) {
  std::vector<InterfaceEntry> entries;
  const std::string path = pins.PathOf(kPin);
  NETMETER_ASSIGN_OR_RETURN(const UniqueFd fd, pins.OpenIfPinned(kPin));
  if (!fd.ok()) return entries;
  bpf_map_info about = {};
  if (!GetInfo(fd.get(), &about)) {
    return ErrnoStatus(errno, absl::StrCat("read ", path));
  }
  if (about.key_size != sizeof(nm_interface_key) ||
      about.value_size != sizeof(nm_interface)) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " has another layout than this version's (",
                     RestartCommand(pins.path()), ")"));
  }
  const absl::Status status = ForEachElement<nm_interface_key, nm_interface>(
      fd.get(), [&](const nm_interface_key& key, const nm_interface& value) {
        entries.emplace_back(key, value);
        return absl::OkStatus();
      });
  if (!status.ok()) return status;
  return entries;
}

InterfaceEntry NewStay(const Interface& interface, uint32_t uplink,
                       uint32_t stay, const nm_interface_counts& begin) {
  InterfaceEntry entry = {};
  entry.first = {interface.index, static_cast<nm_u16>(uplink),
                 static_cast<nm_u16>(stay)};
  memcpy(entry.second.name, interface.name.data(),
         std::min(interface.name.size(), sizeof(entry.second.name) - 1));
  entry.second.begin = begin;
  entry.second.began_ns = ClockNs(CLOCK_BOOTTIME);
  return entry;
}

// Adds a stay for each interface that appeared since the last load and that no program
// has seen. It counted from 0, and a stay that began now would take that back.
absl::Status AddUnseen(const PinDir& pins,
                       const std::vector<Interface>& interfaces,
                       std::vector<InterfaceEntry>* stays) {
  NETMETER_ASSIGN_OR_RETURN(const UniqueFd names,
                            pins.OpenIfPinned("uplink_names"));
  nm_uplink_key first = {};
  // Without uplinks it counted for none.
  if (!names.ok() || bpf_map_get_next_key(names.get(), nullptr, &first) != 0) {
    return absl::OkStatus();
  }
  std::set<uint32_t> seen = {kLoopbackIndex};
  for (const InterfaceEntry& stay : *stays) seen.insert(stay.first.ifindex);
  for (const Interface& interface : interfaces) {
    if (seen.count(interface.index) != 0) continue;
    const nm_uplink_key key = UplinkKey(interface.name);
    uint32_t uplink = 0;
    if (bpf_map_lookup_elem(names.get(), &key, &uplink) != 0) {
      uplink = NM_UPLINK_OTHER;
    }
    stays->push_back(NewStay(interface, uplink, 0, {}));
  }
  return absl::OkStatus();
}

// From now on the interface counts for uplink `number`, or for none if it is 0. Adds its
// new stay, and to *leaving those that end when the programs know it.
void BeginInterface(const Interface& interface, uint32_t number,
                    std::vector<InterfaceEntry>* stays,
                    std::vector<InterfaceEntry>* leaving) {
  bool is_there = number == NM_UPLINK_NONE;
  uint32_t next = 0;
  std::vector<InterfaceEntry> open;
  for (const InterfaceEntry& stay : *stays) {
    if (stay.first.ifindex != interface.index) continue;
    const bool is_open = stay.second.ended_ns == 0;
    if (is_open) open.push_back(stay);
    if (stay.first.uplink != number) continue;
    is_there |= is_open;
    next = std::max(next, stay.first.stay + 1U);
  }
  // If it was renamed from one uplink into another one, the split is unknown: both stays
  // go on, and `netmeter uplinks` says so. A load that was killed left two that end now.
  const bool is_renamed =
      open.size() > 1 &&
      std::any_of(open.begin(), open.end(), [&](const InterfaceEntry& stay) {
        return TextOf(stay.second.name) != interface.name;
      });
  // Until now some of the programs may have counted for one uplink, and some for the
  // other.
  const bool is_split =
      !is_renamed && open.size() > 1 &&
      std::all_of(open.begin(), open.end(), [&](const InterfaceEntry& stay) {
        return memcmp(&stay.second.begin, &interface.counts,
                      sizeof(interface.counts)) != 0;
      });
  for (InterfaceEntry& stay : *stays) {
    if (stay.first.ifindex != interface.index || stay.second.ended_ns != 0) {
      continue;
    }
    stay.second.interrupted |= is_split ? 1 : 0;
    if (!is_renamed && stay.first.uplink != number) leaving->push_back(stay);
  }
  if (is_there) return;
  stays->push_back(NewStay(interface, number, next, interface.counts));
}

}  // namespace

absl::Status CheckNetworkOfUplinks(const Uplinks& uplinks, const nm_info& info,
                                   const std::string& pin_dir) {
  if (uplinks.empty() || info.uplinks_network == 0) return absl::OkStatus();
  NETMETER_ASSIGN_OR_RETURN(const uint32_t own, OwnNetworkInode());
  if (info.uplinks_network == own) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the meter's uplinks are those of another network namespace (load it "
      "there: ip netns exec, nsenter --net; or ",
      RestartCommand(pin_dir), ")"));
}

absl::StatusOr<std::string> FingerprintOfUplinks(const Uplinks& uplinks) {
  if (uplinks.empty()) return "";
  NETMETER_ASSIGN_OR_RETURN(const uint32_t network, OwnNetworkInode());
  std::string fingerprint = absl::StrCat(network);
  NETMETER_ASSIGN_OR_RETURN(const auto interfaces, ListInterfaces());
  for (const Interface& interface : interfaces) {
    if (NeedsItsName(uplinks, interface)) {
      absl::StrAppend(
          &fingerprint, "|", interface.name, " is in ",
          FindUplink(uplinks, interface.name, interface.alternatives));
    }
  }
  return fingerprint;
}

absl::Status UplinkMaps::Fill(const Uplinks& uplinks, const nm_info& existing,
                              const PinDir& pins, MeterObject* object) {
  uplinks_ = uplinks;
  fd_ = object->MapFd("interfaces");
  pin_dir_ = pins.path();
  NETMETER_RETURN_IF_ERROR(
      NumberUplinks(uplinks, existing, pin_dir_, object, &numbers_));
  UplinkInfo* const info = object->uplink_info();
  info->network = network_ = existing.uplinks_network;
  // 0 with a link: a load was killed before it wrote the time.
  const bool counts =
      pins.Has(kForwardLinks[0]) && existing.forwarded_since_ns != 0;
  info->forwarded_since_ns =
      counts ? existing.forwarded_since_ns : ClockNs(CLOCK_BOOTTIME);
  if (uplinks.empty()) return absl::OkStatus();
  NETMETER_ASSIGN_OR_RETURN(network_, OwnNetworkInode());
  info->network = network_;
  NETMETER_ASSIGN_OR_RETURN(const auto interfaces, ListInterfaces());
  NETMETER_RETURN_IF_ERROR(
      FillNames(uplinks, numbers_, interfaces, object->MapFd("uplink_names")));
  // Refuses while nothing has changed.
  std::vector<InterfaceEntry> stays, leaving;
  return Plan(pins, &stays, &leaving);
}

uint32_t UplinkMaps::NumberOf(const Interface& interface) const {
  if (uplinks_.empty()) return NM_UPLINK_NONE;
  return numbers_.at(
      FindUplink(uplinks_, interface.name, interface.alternatives));
}

uint32_t UplinkMaps::BitsOf(const std::vector<std::string>& uplinks) const {
  uint32_t bits = 0;
  for (const std::string& name : uplinks) {
    const auto number = numbers_.find(name);
    if (number != numbers_.end()) bits |= 1U << number->second;
  }
  return bits;
}

// Decides all stays from now on, those first that must have room, and those that end.
absl::Status UplinkMaps::Plan(const PinDir& pins,
                              std::vector<InterfaceEntry>* stays,
                              std::vector<InterfaceEntry>* leaving) const {
  NETMETER_ASSIGN_OR_RETURN(*stays, ReadStays(pins));
  if (uplinks_.empty() && stays->empty()) return absl::OkStatus();
  NETMETER_ASSIGN_OR_RETURN(const uint32_t own, OwnNetworkInode());
  // Those of another namespace stay as they are.
  if (network_ != own) return absl::OkStatus();
  NETMETER_ASSIGN_OR_RETURN(const auto interfaces, ListInterfaces());
  // A damaged meter tells nothing about them.
  if (!stays->empty()) {
    NETMETER_RETURN_IF_ERROR(AddUnseen(pins, interfaces, stays));
  }
  std::set<uint32_t> here;
  for (const Interface& interface : interfaces) {
    // loopback has no traffic of path direct
    if (interface.index == kLoopbackIndex) continue;
    here.insert(interface.index);
    BeginInterface(interface, NumberOf(interface), stays, leaving);
  }
  // What counted nothing needs no room. But the programs add a first stay that is not
  // there.
  const auto counted_none = [](const InterfaceEntry& stay) {
    return stay.first.stay != 0 && stay.second.ended_ns != 0 &&
           memcmp(&stay.second.begin, &stay.second.end,
                  sizeof(stay.second.begin)) == 0;
  };
  stays->erase(std::remove_if(stays->begin(), stays->end(), counted_none),
               stays->end());
  const auto others = std::stable_partition(
      stays->begin(), stays->end(), [](const InterfaceEntry& stay) {
        return stay.first.uplink != NM_UPLINK_OTHER;
      });
  if (others - stays->begin() > NM_MAX_INTERFACES) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "uplinks: there are more than ", NM_MAX_INTERFACES,
        " interfaces, or they have moved between uplinks as often (",
        RestartCommand(pin_dir_), ")"));
  }
  // Hosts with containers have thousands of stays in `other` whose interfaces have gone.
  // One tells that the total of `other` is not known, and the names of more are good to
  // have, but interfaces that appear later need room, too.
  const auto gone = std::stable_partition(
      others, stays->end(), [&](const InterfaceEntry& stay) {
        return stay.second.ended_ns != 0 || here.count(stay.first.ifindex) != 0;
      });
  const auto most =
      std::max<ptrdiff_t>(1, NM_MAX_INTERFACES / 2 - (gone - stays->begin()));
  if (stays->end() - gone > most) stays->erase(gone + most, stays->end());
  return absl::OkStatus();
}

absl::Status UplinkMaps::Begin(const PinDir& pins) {
  if (begun_) return absl::OkStatus();
  std::vector<InterfaceEntry> stays;
  leaving_.clear();
  NETMETER_RETURN_IF_ERROR(Plan(pins, &stays, &leaving_));
  for (const InterfaceEntry& stay : stays) {
    const int error =
        bpf_map_update_elem(fd_, &stay.first, &stay.second, BPF_ANY);
    if (error == -E2BIG) break;  // only `other` is left: on no bill
    NETMETER_RETURN_IF_ERROR(ErrnoStatus(error, "fill interfaces"));
  }
  begun_ = true;
  Trace("began to count for uplinks, with ", stays.size(), " stays");
  return absl::OkStatus();
}

absl::Status UplinkMaps::End() {
  if (leaving_.empty()) return absl::OkStatus();
  NETMETER_ASSIGN_OR_RETURN(const auto interfaces, ListInterfaces());
  for (const Interface& interface : interfaces) {
    for (InterfaceEntry& entry : leaving_) {
      if (entry.first.ifindex != interface.index) continue;
      entry.second.end = interface.counts;
      entry.second.ended_ns = ClockNs(CLOCK_BOOTTIME);
      SetHeader(interface.header, &entry.second);
      const int error =
          bpf_map_update_elem(fd_, &entry.first, &entry.second, BPF_ANY);
      if (error == -E2BIG) continue;  // Begin() had no room for it
      NETMETER_RETURN_IF_ERROR(ErrnoStatus(error, "fill interfaces"));
      Trace("interface ", interface.name, " has left an uplink");
    }
  }
  return absl::OkStatus();
}

}  // namespace internal
}  // namespace netmeter
