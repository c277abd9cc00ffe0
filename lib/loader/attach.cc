// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/attach.h"

#include <bpf/bpf.h>
#include <stdio.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "lib/core/status_util.h"
#include "lib/loader/kernel_object.h"
#include "lib/loader/step.h"

namespace netmeter {
namespace internal {

Linker::~Linker() {
  for (bpf_link* link : links_) bpf_link__destroy(link);
}

absl::Status Linker::Attach(LinkStage stage, const MeterObject& object,
                            FeatureSet* features) {
  for (const LinkPin& pin : LinkPins()) {
    if (pin.stage != stage) continue;
    // Off by now, as its programs were not loaded: an older load may have had
    // it.
    if (pin.feature != 0 && !features->has(pin.feature)) {
      transaction_->pins().Remove(pin.pin);
      continue;
    }
    absl::Status status = AttachOne(pin, object.program(pin.pin));
    if (status.ok()) continue;
    Step(status.message());
    if (pin.feature == 0) return status;
    features->TurnOff(pin.feature, status.message());
  }
  return absl::OkStatus();
}

// Replaces the program of a pinned link, or attaches and pins a new link. The
// pin of a cgroup link stays as it is: what changes is inside of the link.
absl::Status Linker::AttachOne(const LinkPin& pin, bpf_program* program) {
  const std::string path = transaction_->pins().PathOf(pin.pin);
  UniqueFd pinned(upgrade_ ? bpf_obj_get(path.c_str()) : -1);
  if (pinned.ok() && !pin.tracing()) {
    const int error =
        IsAttached(path, cgroup_.id)
            ? bpf_link_update(pinned.get(), bpf_program__fd(program), nullptr)
            : -ENOLINK;
    if (error == 0) {
      Step("replaced the program at ", path, ": ", Describe(pinned.get()));
      return absl::OkStatus();
    }
    // ENOLINK is also the kernel's word, for a cgroup that goes just now.
    if (error != -ENOLINK) {
      return ErrnoStatus(error,
                         absl::StrCat("replace ", bpf_program__name(program)));
    }
  }
  return AttachNew(pin, program, pinned.ok());
}

// `replaces`: something is pinned there, which goes when the new link is
// pinned.
absl::Status Linker::AttachNew(const LinkPin& pin, bpf_program* program,
                               bool replaces) {
  const PinDir& pins = transaction_->pins();
  bpf_link* link = pin.tracing()
                       ? bpf_program__attach(program)
                       : bpf_program__attach_cgroup(program, cgroup_.fd.get());
  if (link == nullptr) {
    const int error = errno;
    return ErrnoStatus(
        error,
        absl::StrCat(
            "attach ", bpf_program__name(program),
            pin.tracing() ? std::string() : absl::StrCat(" to ", cgroup_.path)),
        error != EPERM ? ""
        : pin.tracing()
            ? "lockdown or missing CAP_PERFMON"
            : "a foreign program is attached to this cgroup, or one above, "
              "without the multi flag (see: bpftool cgroup tree), or "
              "CAP_NET_ADMIN is missing");
  }
  // Its descriptor keeps it attached until it is pinned.
  links_.push_back(link);
  if (!(replaces && pin.tracing())) attached_anew_.push_back(&pin);

  const std::string path = pins.PathOf(pin.pin);
  const std::string pin_at = replaces ? pins.PathOf(NewPin(pin.pin)) : path;
  unlink(pin_at.c_str());
  if (int error = bpf_link__pin(link, pin_at.c_str())) {
    return ErrnoStatus(error, absl::StrCat("pin ", pin_at));
  }
  transaction_->UnpinOnFailure(pin_at);
  if (replaces && rename(pin_at.c_str(), path.c_str()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("rename ", pin_at));
  }
  Step("attached ", Describe(bpf_link__fd(link)), ", pinned at ", path);
  return absl::OkStatus();
}

}  // namespace internal
}  // namespace netmeter
