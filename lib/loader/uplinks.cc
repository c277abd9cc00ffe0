// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/uplinks.h"

#include <bpf/bpf.h>
#include <string.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/clock.h"
#include "lib/base/kernel_object.h"
#include "lib/base/map_elements.h"
#include "lib/base/status_util.h"
#include "lib/base/unique_fd.h"
#include "lib/loader/trace.h"
#include "lib/reader/pins.h"

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

// The entries of the meter that is upgraded; none if their map is missing.
absl::StatusOr<std::vector<InterfaceEntry>> ReadEntries(const PinDir& pins) {
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

// Adds to *leaving the stays that end when the programs know that the interface counts
// for uplink `number`, or for none if it is 0. Returns the number of the stay that begins
// there, or nothing if it has begun.
std::optional<uint16_t> NextStay(const Interface& interface, uint32_t number,
                                 const std::vector<InterfaceEntry>& entries,
                                 std::vector<InterfaceEntry>* leaving) {
  const auto open = std::count_if(
      entries.begin(), entries.end(), [&](const InterfaceEntry& entry) {
        return entry.first.ifindex == interface.index &&
               entry.second.ended_ns == 0;
      });
  bool begun = number == NM_UPLINK_NONE;
  int next = 0;
  for (const InterfaceEntry& entry : entries) {
    const bool ended = entry.second.ended_ns != 0;
    if (entry.first.ifindex != interface.index) continue;
    if (entry.first.uplink == number) {
      begun |= !ended;
      next = std::max(next, entry.first.stay + 1);
    } else if (!ended && open == 1) {
      // If the interface has counted for two uplinks, the split is unknown: both stays
      // go on, and `netmeter uplinks` says so.
      leaving->push_back(entry);
    }
  }
  if (begun) return std::nullopt;
  return static_cast<uint16_t>(next);
}

bool IsPresent(uint32_t ifindex, const std::vector<Interface>& interfaces) {
  return std::any_of(
      interfaces.begin(), interfaces.end(),
      [&](const Interface& one) { return one.index == ifindex; });
}

}  // namespace

absl::Status CheckNetworkOfUplinks(const Uplinks& uplinks, const nm_info& info,
                                   const std::string& pin_dir) {
  if (uplinks.empty() || info.uplinks_network == 0) return absl::OkStatus();
  NETMETER_ASSIGN_OR_RETURN(const uint32_t own, OwnNetwork(/*by_inode=*/true));
  if (info.uplinks_network == own) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the meter's uplinks are those of another network namespace (load it "
      "there: ip netns exec, nsenter --net; or ",
      RestartCommand(pin_dir), ")"));
}

absl::StatusOr<std::string> FingerprintOfUplinks(const Uplinks& uplinks) {
  if (uplinks.empty()) return "";
  NETMETER_ASSIGN_OR_RETURN(const uint32_t network,
                            OwnNetwork(/*by_inode=*/true));
  std::string fingerprint = absl::StrCat(network);
  NETMETER_ASSIGN_OR_RETURN(const auto interfaces, ListInterfaces());
  NETMETER_ASSIGN_OR_RETURN(const bool reads_kernel, MayReadKernelMemory());
  for (const Interface& interface : interfaces) {
    if (!reads_kernel) {
      absl::StrAppend(&fingerprint, "|", interface.index, "=", interface.name);
    }
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
  info->forwarded_since_ns = pins.Has(kForwardLinks[0])
                                 ? existing.forwarded_since_ns
                                 : ClockNs(CLOCK_BOOTTIME);
  if (uplinks.empty()) return absl::OkStatus();
  NETMETER_ASSIGN_OR_RETURN(network_, OwnNetwork(/*by_inode=*/true));
  info->network = network_;
  NETMETER_ASSIGN_OR_RETURN(const auto interfaces, ListInterfaces());
  NETMETER_RETURN_IF_ERROR(
      FillNames(uplinks, numbers_, interfaces, object->MapFd("uplink_names")));
  for (const Interface& interface : interfaces) {
    if (interface.index == kLoopbackIndex) continue;
    object->SetUplinkWord(interface.index, NumberOf(interface));
  }
  return absl::OkStatus();
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

absl::Status UplinkMaps::Begin(const PinDir& pins) {
  if (begun_) return absl::OkStatus();
  leaving_.clear();
  NETMETER_ASSIGN_OR_RETURN(const auto entries, ReadEntries(pins));
  begun_ = uplinks_.empty() && entries.empty();
  if (begun_) return absl::OkStatus();
  NETMETER_ASSIGN_OR_RETURN(const uint32_t own, OwnNetwork(/*by_inode=*/true));
  NETMETER_ASSIGN_OR_RETURN(const auto interfaces, ListInterfaces());
  const bool is_own = network_ == own;
  for (const InterfaceEntry& entry : entries) {
    // Containers come and go, and nobody asks for what they had counted.
    if (is_own && entry.first.uplink == NM_UPLINK_OTHER &&
        !IsPresent(entry.first.ifindex, interfaces)) {
      continue;
    }
    NETMETER_RETURN_IF_ERROR(Write(entry));
  }
  if (!is_own) return absl::OkStatus();
  for (const Interface& interface : interfaces) {
    // loopback has no traffic of path direct
    if (interface.index == kLoopbackIndex) continue;
    const uint32_t number = NumberOf(interface);
    const auto stay = NextStay(interface, number, entries, &leaving_);
    if (!stay.has_value()) continue;
    InterfaceEntry entry = {};
    entry.first = {interface.index, static_cast<nm_u16>(number), *stay};
    memcpy(entry.second.name, interface.name.data(),
           std::min(interface.name.size(), sizeof(entry.second.name) - 1));
    entry.second.begin = interface.counts;
    entry.second.began_ns = ClockNs(CLOCK_BOOTTIME);
    NETMETER_RETURN_IF_ERROR(Write(entry));
  }
  begun_ = true;
  Trace("began to count ", interfaces.size(), " interfaces for their uplinks");
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
      NETMETER_RETURN_IF_ERROR(Write(entry));
      Trace("interface ", interface.name, " has left an uplink");
    }
  }
  return absl::OkStatus();
}

absl::Status UplinkMaps::Write(const InterfaceEntry& entry) const {
  const int error =
      bpf_map_update_elem(fd_, &entry.first, &entry.second, BPF_ANY);
  if (error == -E2BIG && entry.first.uplink == NM_UPLINK_OTHER) {
    return absl::OkStatus();  // on no bill
  }
  if (error == -E2BIG) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "interfaces: no room: there are more than ", NM_MAX_INTERFACES,
        ", or they have moved between uplinks as often (",
        RestartCommand(pin_dir_), ")"));
  }
  return ErrnoStatus(error, "fill interfaces");
}

}  // namespace internal
}  // namespace netmeter
