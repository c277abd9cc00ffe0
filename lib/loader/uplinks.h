// SPDX-License-Identifier: BSD-3-Clause
// Uplinks at a load: the number of each name, the uplink of each interface, and the
// counters so far. bpf/uplink.bpf.h explains how a packet finds its uplink.
//
//   NETMETER_RETURN_IF_ERROR(uplinks.Fill(config.uplinks, info, pins, &object));
//   NETMETER_RETURN_IF_ERROR(uplinks.Begin(pins));
//   ...                                   // the programs count under the new uplinks
//   NETMETER_RETURN_IF_ERROR(uplinks.End());
//
// An uplink keeps its number as long as the meter is loaded, because series have the
// number. An interface that changes uplinks counts for both between Begin() and End(), so
// the interfaces of an uplink never count less than its series. After a kill in between,
// `netmeter uplinks` says that the interface counted for two uplinks: for good, if it
// counted anything until the next load, because some programs may have been the new ones.
//
// Threads: one at a time.

#ifndef NETMETER_LIB_LOADER_UPLINKS_H_
#define NETMETER_LIB_LOADER_UPLINKS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/loader/object.h"
#include "lib/loader/pin_dir.h"
#include "lib/netlink/interfaces.h"
#include "lib/netlink/uplink_names.h"
#include "netmeter/abi.h"

namespace netmeter {
namespace internal {

// A text of all that decides, besides the configuration, which packets belong to which
// uplink: the network namespace of this process, and the interfaces that match an uplink
// by an alternative name. "" without uplinks.
absl::StatusOr<std::string> FingerprintOfUplinks(const Uplinks& uplinks);

// FailedPrecondition if the meter of this `info` has uplinks of another network
// namespace: its packets belong to no uplink here.
absl::Status CheckNetworkOfUplinks(const Uplinks& uplinks, const nm_info& info,
                                   const std::string& pin_dir);

// The maps of uplinks, which each load makes anew.
class UplinkMaps {
 public:
  // Call after the object is loaded. `existing` is the info of the meter that is
  // upgraded, or empty. ResourceExhausted: no number is left, or no room for a stay.
  absl::Status Fill(const Uplinks& uplinks, const nm_info& existing,
                    const PinDir& pins, MeterObject* object);

  // A bit 1 << number for each of these uplinks that the configuration has.
  uint32_t BitsOf(const std::vector<std::string>& uplinks) const;

  // Copies the stays of the pinned meter into the new map of interfaces, and adds those
  // that begin. Call right before packets are counted. Can be repeated.
  absl::Status Begin(const PinDir& pins);

  // Ends the stays of interfaces that left an uplink. Call when all packets are counted
  // under the new uplinks. Can be repeated.
  absl::Status End();

 private:
  uint32_t NumberOf(const Interface& interface) const;
  absl::Status Plan(const PinDir& pins, std::vector<InterfaceEntry>* stays,
                    std::vector<InterfaceEntry>* leaving) const;

  Uplinks uplinks_;
  std::map<std::string, uint32_t> numbers_;  // by name
  std::string pin_dir_;
  int fd_ = -1;
  uint64_t network_ = 0;
  bool begun_ = false;
  std::vector<InterfaceEntry> leaving_;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_UPLINKS_H_
