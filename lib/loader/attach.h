// SPDX-License-Identifier: BSD-3-Clause
// The links: what makes the programs run. A pinned link keeps its program
// attached after the loader has exited.
//
// An upgrade never leaves a hook without a program. The program of a cgroup
// link is replaced in place (bpf_link_update(), Linux 5.7): each packet runs
// the old one or the new one, and none runs both. A tracing link refuses that
// (EINVAL), so the new one is attached beside the old, and its pin renamed over
// the old pin, whose link the kernel then drops. For a moment both run, which
// their handlers bear: they write the same twice.
//
// A link that somebody detached (BPF_LINK_DETACH), or whose cgroup was removed,
// is still pinned, but its program does not run: a new link takes its place.
//
// Each link is tried more than once, as a meter is not to lose a feature because the
// kernel had no memory at that moment. What an upgrade replaces, it can put back: the
// transaction is told how.
//
// Threads: one at a time.

#ifndef NETMETER_LIB_LOADER_ATTACH_H_
#define NETMETER_LIB_LOADER_ATTACH_H_

#include <bpf/libbpf.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lib/core/pins.h"
#include "lib/core/unique_fd.h"
#include "lib/loader/features.h"
#include "lib/loader/meter_object.h"
#include "lib/loader/transaction.h"

namespace netmeter {
namespace internal {

struct Cgroup {
  std::string path;
  UniqueFd fd;
  uint64_t id = 0;
};
absl::Status OpenCgroup(const std::string& path, Cgroup* cgroup);

class Linker {
 public:
  // `upgrade`: there may be links, to be replaced. All must outlive this.
  Linker(const Cgroup& cgroup, bool upgrade, Transaction* transaction)
      : cgroup_(cgroup), upgrade_(upgrade), transaction_(transaction) {}
  // Closes the descriptors; what is pinned stays attached.
  ~Linker();
  Linker(const Linker&) = delete;
  Linker& operator=(const Linker&) = delete;

  // Attaches the programs of one stage. A feature whose program cannot be attached
  // is turned off, but for that of the tracing programs, which is an error: the other
  // programs were loaded to rely on them.
  absl::Status Attach(LinkStage stage, const MeterObject& object,
                      FeatureSet* features);

  // Removes the links of features that are off, after the last stage: an older load
  // may have had them.
  absl::Status RemoveUnwanted();

  // The pins that had no link, of those that were attached.
  const std::vector<const LinkPin*>& attached_anew() const {
    return attached_anew_;
  }

 private:
  absl::Status AttachOne(const LinkPin& pin, bpf_program* program);
  absl::Status AttachNew(const LinkPin& pin, bpf_program* program,
                         const std::shared_ptr<UniqueFd>& old);
  absl::Status PinNew(const LinkPin& pin, bpf_link* link,
                      const std::shared_ptr<UniqueFd>& old);

  const Cgroup& cgroup_;
  const bool upgrade_;
  Transaction* const transaction_;
  std::vector<bpf_link*> links_;
  std::vector<const LinkPin*> attached_anew_;
  std::vector<const LinkPin*> unwanted_;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_ATTACH_H_
