// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/attach.h"

#include <bpf/bpf.h>
#include <stdio.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/core/status_util.h"
#include "lib/loader/attempts.h"
#include "lib/loader/kernel_object.h"
#include "lib/loader/step.h"
#include "lib/loader/system.h"

namespace netmeter {
namespace internal {

absl::Status OpenCgroup(const std::string& path, Cgroup* cgroup) {
  cgroup->path = path;
  absl::StatusOr<UniqueFd> fd = OpenCgroup(path, &cgroup->id);
  if (!fd.ok()) return fd.status();
  cgroup->fd = std::move(*fd);
  return absl::OkStatus();
}

Linker::~Linker() {
  for (bpf_link* link : links_) bpf_link__destroy(link);
}

absl::Status Linker::Attach(LinkStage stage, const MeterObject& object,
                            FeatureSet* features) {
  for (const LinkPin& pin : LinkPins()) {
    if (pin.stage != stage) continue;
    // Off by now, as its programs were not loaded.
    if (pin.feature == 0 || features->has(pin.feature)) {
      bpf_program* const program = object.program(pin.pin);
      const auto attach = [&] { return AttachOne(pin, program); };
      absl::Status status = InAttempts(attach);
      // Without what is optional a growth goes on, unless it may pass.
      if (!status.ok() && (pin.feature == 0 || IsTransient(status))) {
        status = InAttempts(attach, transaction_->patience());
      }
      if (status.ok()) continue;
      Step(status.message());
      // What had it is not to lose it because the kernel had no memory for a moment.
      if (pin.feature == 0 || pin.tracing() ||
          (upgrade_ && IsTransient(status))) {
        return status;
      }
      // The kernel may have memory later, and a foreign program may go.
      features->TurnOffForNow(pin.feature, status.message());
    }
    unwanted_.push_back(&pin);
  }
  return absl::OkStatus();
}

absl::Status Linker::RemoveUnwanted() {
  if (!upgrade_) return absl::OkStatus();
  const PinDir& pins = transaction_->pins();
  for (const LinkPin* pin : unwanted_) {
    const auto old =
        std::make_shared<UniqueFd>(bpf_obj_get(pins.PathOf(pin->pin).c_str()));
    if (!old->ok() && errno == ENOENT) continue;
    if (!old->ok()) {
      return ErrnoStatus(errno, absl::StrCat("open ", pins.PathOf(pin->pin)));
    }
    NETMETER_RETURN_IF_ERROR(pins.Remove(pin->pin));
    transaction_->OnFailure([&pins, pin, old] {
      return pins.Has(pin->pin) ? absl::OkStatus()
                                : pins.Pin(old->get(), pin->pin);
    });
  }
  return absl::OkStatus();
}

// Replaces the program of a pinned link, or attaches and pins a new link. The
// pin of a cgroup link stays as it is: what changes is inside of the link.
absl::Status Linker::AttachOne(const LinkPin& pin, bpf_program* program) {
  if (!upgrade_) return AttachNew(pin, program, nullptr);
  const std::string path = transaction_->pins().PathOf(pin.pin);
  const auto pinned = std::make_shared<UniqueFd>(bpf_obj_get(path.c_str()));
  if (!pinned->ok()) {
    if (errno != ENOENT) return ErrnoStatus(errno, absl::StrCat("open ", path));
    return AttachNew(pin, program, nullptr);
  }
  // Of one that is there and cannot be looked at, nobody knows whether it counts:
  // another one beside it would count all packets twice.
  const KernelObject link = IdentifyObject(pinned->get());
  if (link.kind != KernelObject::kLink) {
    return absl::UnavailableError(absl::StrCat("look at ", path));
  }
  if (pin.tracing() || link.cgroup_id != cgroup_.id) {
    return AttachNew(pin, program, pinned);
  }
  const auto old =
      std::make_shared<UniqueFd>(bpf_prog_get_fd_by_id(link.program));
  if (!old->ok()) {
    return ErrnoStatus(errno, absl::StrCat("open the program of ", path));
  }
  const int error =
      bpf_link_update(pinned->get(), bpf_program__fd(program), nullptr);
  // For a cgroup that goes just now.
  if (error == -ENOLINK) return AttachNew(pin, program, pinned);
  if (error != 0) {
    return ErrnoStatus(error,
                       absl::StrCat("replace ", bpf_program__name(program)));
  }
  Step("replaced the program at ", path, ": ", Describe(pinned->get()));
  transaction_->OnFailure([pinned, old, path] {
    return ErrnoStatus(bpf_link_update(pinned->get(), old->get(), nullptr),
                       absl::StrCat("put the old program back at ", path));
  });
  return absl::OkStatus();
}

// `old` is pinned there, and goes when the new link is pinned; or null.
absl::Status Linker::AttachNew(const LinkPin& pin, bpf_program* program,
                               const std::shared_ptr<UniqueFd>& old) {
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
  const absl::Status status = PinNew(pin, link, old);
  if (!status.ok()) {
    // Not one more beside that of the next attempt.
    bpf_link__destroy(link);
    return status;
  }
  // Its descriptor keeps it attached until it is pinned.
  links_.push_back(link);
  if (old == nullptr || !pin.tracing()) attached_anew_.push_back(&pin);
  return absl::OkStatus();
}

absl::Status Linker::PinNew(const LinkPin& pin, bpf_link* link,
                            const std::shared_ptr<UniqueFd>& old) {
  const PinDir& pins = transaction_->pins();
  const std::string path = pins.PathOf(pin.pin);
  const std::string pin_at = old ? pins.PathOf(NewPin(pin.pin)) : path;
  unlink(pin_at.c_str());
  if (int error = bpf_link__pin(link, pin_at.c_str())) {
    return ErrnoStatus(error, absl::StrCat("pin ", pin_at));
  }
  if (old && rename(pin_at.c_str(), path.c_str()) != 0) {
    const int error = errno;
    pins.Remove(NewPin(pin.pin)).IgnoreError();
    return ErrnoStatus(error, absl::StrCat("rename ", pin_at));
  }
  Step("attached ", Describe(bpf_link__fd(link)), ", pinned at ", path);
  if (!upgrade_) {
    transaction_->UnpinOnFailure(path);
    return absl::OkStatus();
  }
  transaction_->OnFailure([&pins, &pin, old] {
    if (old) return pins.Replace(old->get(), pin.pin);
    return pins.Remove(pin.pin);
  });
  return absl::OkStatus();
}

}  // namespace internal
}  // namespace netmeter
