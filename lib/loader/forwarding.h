// SPDX-License-Identifier: BSD-3-Clause
// Counts forwarded traffic by uplink (bpf/forward.bpf.c): netfilter programs in the
// network namespace of this process, if the configuration has uplinks and the kernel has
// the hook.
//
// The pins are not in the table in lib/reader/pins.h, because a meter without uplinks has
// none of them:
//
//   link_forward4, link_forward6   the links, which stay as long as there are uplinks
//   forwarders                     the program that they call
//   forwarded                      the counters, which stay until unload
//
// A pinned netfilter link keeps its network namespace alive until unload.
//
// Threads: one at a time.

#ifndef NETMETER_LIB_LOADER_FORWARDING_H_
#define NETMETER_LIB_LOADER_FORWARDING_H_

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "lib/base/unique_fd.h"
#include "lib/loader/features.h"
#include "lib/loader/meter_object.h"
#include "lib/loader/pin_dir.h"
#include "lib/reader/pins.h"

struct forward_bpf;

namespace netmeter {
namespace internal {

struct ForwardingPlan {
  bool wanted = false;  // the configuration has uplinks
  bool had =
      false;  // the meter had them, so a lack of memory must not end them
  std::string types_file;  // as in MeterObjectOptions
};

// As Links (links.h): everything that can fail comes first, and only this process holds
// it.
class Forwarding {
 public:
  // `pins` must outlive this.
  explicit Forwarding(const PinDir& pins) : pins_(pins) {}
  ~Forwarding();
  Forwarding(const Forwarding&) = delete;
  Forwarding& operator=(const Forwarding&) = delete;

  // Loads the programs, and attaches the missing links. If the kernel lacks the hook, the
  // feature is turned off.
  absl::Status Attach(const ForwardingPlan& plan, const MeterObject& meter,
                      FeatureSet* features);

  // Pins the new objects, so that each packet runs the new program; or stops counting.
  absl::Status Put() const;

 private:
  absl::Status Load(const ForwardingPlan& plan, const MeterObject& meter);
  absl::Status AttachHooks();

  const PinDir& pins_;
  forward_bpf* skeleton_ = nullptr;  // null: nothing is to be counted
  // By index of kForwardLinks; no descriptor: pinned already.
  std::array<UniqueFd, kForwardLinks.size()> links_;
};

// The id of the object embedded in this program.
uint64_t ForwardingBuildId();

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_FORWARDING_H_
