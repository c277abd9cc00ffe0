// SPDX-License-Identifier: BSD-3-Clause
// What the host forwards, by uplink, at a load (bpf/forward.bpf.c): programs of
// netfilter in the network namespace of this process, where the configuration has
// uplinks and the kernel has the hook.
//
// Its pins are no part of the table in lib/core/pins.h, as a meter without uplinks has
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

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "lib/loader/features.h"
#include "lib/loader/meter_object.h"
#include "lib/loader/transaction.h"

namespace netmeter {
namespace internal {

struct ForwardingPlan {
  bool wanted = false;         // the configuration has uplinks
  bool upgrade = false;        // there may be pins
  bool other_network = false;  // they are of another network namespace
  std::string types_file;      // as in MeterObjectOptions
};

// Begins to count, goes on with the programs of this load, or ends it. Where the kernel
// lacks it, the feature is off. The transaction is told how to undo it.
absl::Status AttachForwarding(const ForwardingPlan& plan,
                              const MeterObject& meter,
                              Transaction* transaction, FeatureSet* features);

// Of the object that this program carries.
uint64_t ForwardingBuildId();

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_FORWARDING_H_
