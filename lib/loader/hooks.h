// SPDX-License-Identifier: BSD-3-Clause
// The hooks: links, which make the programs run, and the optional features of a meter
// that depend on them. A pinned link keeps its program attached after the loader has
// exited. The work has two halves:
//
//   Attach()  can fail: makes the missing links, and new links for tracing programs,
//             which cannot be replaced in place (EINVAL). Only this process holds them,
//             so they go when it ends.
//   Put()     gives each link of the cgroup its new program (bpf_link_update() needs no
//             memory), and pins the new links over the old.
//
// Each packet runs either the old program or the new one, never both. Both versions of a
// tracing program run for a moment, the new one second, so its values stay. Both halves
// can be repeated after a kill at any point.
//
// Threads: one at a time.

#ifndef NETMETER_LIB_LOADER_HOOKS_H_
#define NETMETER_LIB_LOADER_HOOKS_H_

#include <bpf/libbpf.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lib/base/cgroup.h"
#include "lib/base/pins.h"
#include "lib/base/unique_fd.h"
#include "lib/loader/object.h"
#include "lib/loader/pin_dir.h"
#include "netmeter/abi.h"

struct forward_bpf;

namespace netmeter {
namespace internal {

// In the order of their NM_FEATURE_ bits.
struct Feature {
  const char* name;
  uint64_t bit;
};
const std::vector<Feature>& Features();

// Which features are on, and why the others are off. A meter without one of them still
// counts, but with less detail. `status` shows the reason as long as the meter is loaded
// (nm_info.features and reasons).
class FeatureSet {
 public:
  explicit FeatureSet(uint64_t bits) : bits_(bits) {}

  bool has(uint64_t bit) const { return (bits_ & bit) != 0; }
  uint64_t bits() const { return bits_; }
  // One line each, "process_tracking: not on this kernel".
  const std::string& reasons() const { return reasons_; }
  // These lines for the user of this load.
  const std::vector<std::string>& notes() const { return notes_; }

  void TurnOn(uint64_t bit) { bits_ |= bit; }
  // `for_now`: the next load tries the feature again, even if nothing else changed, and
  // the reason says so.
  void TurnOff(uint64_t bit, absl::string_view reason, bool for_now = false);
  bool any_off_for_now() const { return any_off_for_now_; }
  // The feature is on, but with a remark for the user.
  void Remark(uint64_t bit, absl::string_view remark);

 private:
  uint64_t bits_;
  bool any_off_for_now_ = false;
  std::string reasons_;
  std::vector<std::string> notes_;
};

class Links {
 public:
  // The arguments must outlive this.
  Links(const Cgroup& cgroup, const PinDir& pins, const MeterObject& object)
      : cgroup_(cgroup), pins_(pins), object_(object) {}
  ~Links();
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;

  // Attaches one stage. If a program cannot be attached, its feature is turned off. For a
  // tracing program this is an error, because the other programs were loaded to rely on
  // it. `had`: features that an upgrade must not lose for lack of memory.
  absl::Status Attach(LinkStage stage, uint64_t had, FeatureSet* features);

  // Puts the new programs into one stage, and removes links of features that are off. If
  // a program has been put, a repeated call puts it again.
  absl::Status Put(LinkStage stage, const FeatureSet& features);

  // The number of links that have their new program.
  size_t count_put() const { return put_.size(); }

 private:
  absl::Status AttachOne(const LinkPin& pin);
  absl::Status PutOne(const LinkPin& pin);

  const Cgroup& cgroup_;
  const PinDir& pins_;
  const MeterObject& object_;
  std::map<std::string, bpf_link*> made_;     // by pin
  std::map<std::string, UniqueFd> in_place_;  // pinned, to be updated
  std::set<std::string> put_;
};

// --- Forwarded packets ---
//
// Counts forwarded traffic by uplink (bpf/forward.bpf.c): netfilter programs in the
// network namespace of this process, if the configuration has uplinks and the kernel has
// the hook. The pins are not in the table in lib/base/pins.h, because a meter without
// uplinks has none of them:
//
//   link_forward4, link_forward6   the links, which stay as long as there are uplinks
//   forwarders                     the program that they call
//   forwarded_by, forwarded        the counters, which stay until unload
//   clients                        those by client, once forwarded_clients was set
//
// A pinned netfilter link keeps its network namespace alive until unload.

// As Links: everything that can fail comes first, and only this process holds it.
class Forwarding {
 public:
  // `pins` must outlive this.
  explicit Forwarding(const PinDir& pins) : pins_(pins) {}
  ~Forwarding();
  Forwarding(const Forwarding&) = delete;
  Forwarding& operator=(const Forwarding&) = delete;

  // Loads the programs, and attaches the missing links. If the kernel lacks the hook, the
  // feature is turned off. `had`: the meter counts forwarded packets, so only such a
  // kernel may end that. `types_file` is that of ObjectOptions. `client_uplinks` has a
  // bit 1 << number for each uplink of forwarded_clients.
  absl::Status Attach(bool had, const std::string& types_file,
                      uint32_t client_uplinks, const MeterObject& meter,
                      FeatureSet* features);

  // Pins the new objects, so that each packet runs the new program; or stops counting.
  absl::Status Put() const;

 private:
  absl::Status Load(const std::string& types_file, uint32_t client_uplinks,
                    const MeterObject& meter);
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

#endif  // NETMETER_LIB_LOADER_HOOKS_H_
