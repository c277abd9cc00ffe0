// SPDX-License-Identifier: BSD-3-Clause
// The state of a meter, as its pins tell it: one name, which FindMeter() finds.
//
//   state         what there is                                    load      status evict
//   kNotLoaded    nothing, or pins that count nothing              new       3      3
//   kOtherAbi     `info` of another ABI                            refuses   1      1
//   kWithoutInfo  links, but no `info`                             new       4      1
//   kClosed       `info` turns readers away                        new       4      1
//   kLost         a map that readers need is missing               refuses   4      1
//   kUnfinished   a load was killed, or failed when it had begun   finishes  4      1
//   kDamaged      other pins are missing, or the cgroup is         mends     4      1
//   kLoaded       all of it                                        upgrades  0      0
//
// load      "new": removes all pins and makes a new meter, with the configuration and the
//           cgroup of the lock file. --restart does that in each state. "mends": refuses
//           if only --restart makes the missing pin.
// unload    removes all pins in each state, so it asks for none. It closes `info` first.
// status and evict: the exit status.
//
// Threads: any.

#ifndef NETMETER_LIB_LOADER_METER_STATE_H_
#define NETMETER_LIB_LOADER_METER_STATE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/loader/pin_dir.h"
#include "netmeter/abi.h"

namespace netmeter {
namespace internal {

enum class MeterState {
  kNotLoaded,
  kOtherAbi,
  kWithoutInfo,
  kClosed,
  kLost,
  kUnfinished,
  kDamaged,
  kLoaded,
};

struct FoundMeter {
  MeterState state = MeterState::kNotLoaded;
  nm_info info = {};  // zero if there is none of this ABI
  // From kUnfinished on, also what is wrong besides that.
  bool cgroup_gone = false;  // was removed, and its links with it
  std::vector<std::string> missing_links;
  std::vector<std::string> missing_maps;
  bool needs_restart = false;  // only load --restart creates one of them
  // Whether the caller may look for pins. If not, missing pins are unknown.
  bool sees_pins = true;

  bool has(uint64_t feature) const { return (info.features & feature) != 0; }
  // Whether a load keeps the counters, or refuses.
  bool can_continue() const { return state >= MeterState::kLost; }
  bool can_be_read() const {
    return state == MeterState::kClosed || state > MeterState::kLost;
  }
};

// `seen`: the info, if a reader has opened the meter, from netmeter-fds perhaps. Errors
// are those of reading `info`.
absl::StatusOr<FoundMeter> FindMeter(const PinDir& pins,
                                     const nm_info* seen = nullptr);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_METER_STATE_H_
