// SPDX-License-Identifier: BSD-3-Clause
// What the host forwards, by uplink, at a load (bpf/forward.bpf.c): programs of
// netfilter in the network namespace of this process, where the configuration has
// uplinks and the kernel has the hook.
//
// Its pins are no part of the table in lib/reader/pins.h, as a meter without uplinks has
// none of them:
//
//   link_forward4, link_forward6   the links, which stay as long as there are uplinks
//   forwarders                     the program that they call
//   forwarded                      what it has counted, which stays until unload
//
// A pinned link of netfilter keeps its network namespace, until unload.
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
  bool had = false;  // and so had the meter: it is not to lose it for a moment
                     // without memory
  std::string types_file;  // as in MeterObjectOptions
};

// As Links (links.h): what can fail comes first, and only this process has it.
class Forwarding {
 public:
  // `pins` must outlive this.
  explicit Forwarding(const PinDir& pins) : pins_(pins) {}
  ~Forwarding();
  Forwarding(const Forwarding&) = delete;
  Forwarding& operator=(const Forwarding&) = delete;

  // Loads the programs, and attaches the links that are missing. If the kernel lacks the
  // hook, the feature is off.
  absl::Status Attach(const ForwardingPlan& plan, const MeterObject& meter,
                      FeatureSet* features);

  // Pins what is new, and each packet runs the new program; or nothing counts any more.
  absl::Status Put() const;

 private:
  absl::Status Load(const ForwardingPlan& plan, const MeterObject& meter);
  absl::Status AttachHooks();

  const PinDir& pins_;
  forward_bpf* skeleton_ = nullptr;  // null: nothing is to count
  // Of kForwardLinks; no descriptor: pinned already.
  std::array<UniqueFd, kForwardLinks.size()> links_;
};

// Of the object that this program carries.
uint64_t ForwardingBuildId();

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_FORWARDING_H_
