// SPDX-License-Identifier: BSD-3-Clause
// The links, which make the programs run. A pinned link keeps its program attached after
// the loader has exited. The work has two halves:
//
//   Attach()  can fail: makes the missing links, and new links for tracing programs,
//             which cannot be replaced in place (EINVAL). Only this process holds them,
//             so they go when it ends.
//   Put()     cannot fail: gives each link of the cgroup its new program
//             (bpf_link_update() needs no memory), and pins the new links over the old.
//
// Each packet runs either the old program or the new one, never both. Both versions of a
// tracing program run for a moment. Their handlers tolerate this because they write the
// same values twice. Both halves can be repeated after a kill at any point.
//
// Threads: one at a time.

#ifndef NETMETER_LIB_LOADER_LINKS_H_
#define NETMETER_LIB_LOADER_LINKS_H_

#include <bpf/libbpf.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lib/base/unique_fd.h"
#include "lib/loader/features.h"
#include "lib/loader/meter_object.h"
#include "lib/loader/pin_dir.h"
#include "lib/reader/pins.h"

namespace netmeter {
namespace internal {

struct Cgroup {
  std::string path;
  UniqueFd fd;
  uint64_t id = 0;
};
absl::Status OpenCgroup(const std::string& path, Cgroup* cgroup);

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

  // Updates all stages, and removes links of features that are off. After an error the
  // first *done links have their new program.
  absl::Status Put(const FeatureSet& features, size_t* done);

  // The pins that had no link, or a dead one.
  const std::vector<std::string>& attached_anew() const { return anew_; }

 private:
  absl::Status AttachOne(const LinkPin& pin);
  absl::Status PutOne(const LinkPin& pin);

  const Cgroup& cgroup_;
  const PinDir& pins_;
  const MeterObject& object_;
  std::map<std::string, bpf_link*> made_;     // by pin
  std::map<std::string, UniqueFd> in_place_;  // pinned, to be updated
  std::vector<std::string> anew_;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_LINKS_H_
