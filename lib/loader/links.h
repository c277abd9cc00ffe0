// SPDX-License-Identifier: BSD-3-Clause
// The links: what makes the programs run. A pinned link keeps its program attached after
// the loader has exited. Two halves:
//
//   Attach()  what can fail: makes the links that are missing, and those of tracing
//             programs, which cannot be replaced in place (EINVAL). Only this process
//             holds them: they go when it ends.
//   Put()     what cannot: gives each link of the cgroup its new program
//             (bpf_link_update() takes no memory), and pins the new ones over the old.
//
// Each packet runs the old program or the new one, never both. Both tracing programs run
// for a moment, which their handlers bear: they write the same twice. Both halves can be
// repeated after a kill at any point.
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
  // All must outlive this.
  Links(const Cgroup& cgroup, const PinDir& pins, const MeterObject& object)
      : cgroup_(cgroup), pins_(pins), object_(object) {}
  ~Links();
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;

  // One stage. A feature whose program cannot be attached is turned off. If it is a
  // tracing program that is an error: the others were loaded to rely on it.
  // `had`: features that an upgrade must not lose because there was no memory.
  absl::Status Attach(LinkStage stage, uint64_t had, FeatureSet* features);

  // All stages. Links of features that are off go. After an error the first *done links
  // have their new program.
  absl::Status Put(const FeatureSet& features, size_t* done);

  // That had no link, or a dead one.
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
