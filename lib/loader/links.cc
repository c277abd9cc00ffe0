// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/links.h"

#include <bpf/bpf.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/kernel_object.h"
#include "lib/base/status_util.h"
#include "lib/loader/retry.h"
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

Links::~Links() {
  for (const auto& made : made_) bpf_link__destroy(made.second);
}

absl::Status Links::Attach(LinkStage stage, uint64_t had,
                           FeatureSet* features) {
  for (const LinkPin& pin : LinkPins()) {
    if (pin.stage != stage) continue;
    if (pin.feature != 0 && !features->has(pin.feature)) continue;
    const absl::Status status = AttachOne(pin);
    if (status.ok()) continue;
    if (pin.feature == 0 || pin.tracing() ||
        ((had & pin.feature) != 0 && IsTransient(status))) {
      return status;
    }
    features->TurnOffForNow(pin.feature, status.message());
  }
  return absl::OkStatus();
}

absl::Status Links::AttachOne(const LinkPin& pin) {
  const std::string path = pins_.PathOf(pin.pin);
  UniqueFd pinned(bpf_obj_get(path.c_str()));
  if (!pinned.ok() && errno != ENOENT) {
    return ErrnoStatus(errno, absl::StrCat("open ", path));
  }
  if (pinned.ok()) {
    // A link that cannot be inspected may still count. A second link beside it would
    // count each packet twice.
    const KernelObject link = IdentifyObject(pinned.get());
    if (link.kind != KernelObject::kLink) {
      return absl::UnavailableError(absl::StrCat("look at ", path));
    }
    if (!pin.tracing() && link.cgroup_id == cgroup_.id) {
      in_place_[pin.pin] = std::move(pinned);
      return absl::OkStatus();
    }
  }
  bpf_program* const program = object_.program(pin.pin);
  bpf_link* const link =
      pin.tracing() ? bpf_program__attach(program)
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
  made_[pin.pin] = link;
  if (!pin.tracing() || !pinned.ok()) anew_.push_back(pin.pin);
  Step("attached ", Describe(bpf_link__fd(link)));
  return absl::OkStatus();
}

absl::Status Links::Put(const FeatureSet& features, size_t* done) {
  size_t count = 0;
  for (const LinkPin& pin : LinkPins()) {
    if (pin.feature != 0 && !features.has(pin.feature)) continue;
    NETMETER_RETURN_IF_ERROR(PutOne(pin));
    *done = std::max(*done, ++count);
  }
  for (const LinkPin& pin : LinkPins()) {
    if (pin.feature == 0 || features.has(pin.feature)) continue;
    NETMETER_RETURN_IF_ERROR(pins_.Remove(pin.pin));
  }
  return absl::OkStatus();
}

absl::Status Links::PutOne(const LinkPin& pin) {
  const std::string path = pins_.PathOf(pin.pin);
  const auto in_place = in_place_.find(pin.pin);
  if (in_place != in_place_.end()) {
    const bpf_program* const program = object_.program(pin.pin);
    if (int error = bpf_link_update(in_place->second.get(),
                                    bpf_program__fd(program), nullptr)) {
      return ErrnoStatus(error,
                         absl::StrCat("replace ", bpf_program__name(program)));
    }
    Step("replaced the program at ", path, ": ",
         Describe(in_place->second.get()));
    return absl::OkStatus();
  }
  const int fd = bpf_link__fd(made_.at(pin.pin));
  if (pin.tracing()) return pins_.Replace(fd, pin.pin);
  // A dead link may be pinned here. It counts nothing.
  NETMETER_RETURN_IF_ERROR(pins_.Remove(pin.pin));
  return pins_.Pin(fd, pin.pin);
}

}  // namespace internal
}  // namespace netmeter
