// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/hooks.h"

#include <bpf/bpf.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lib/base/kernel_object.h"
#include "lib/base/libbpf_log.h"
#include "lib/base/netfilter.h"
#include "lib/base/pins.h"
#include "lib/base/status_util.h"
#include "lib/base/unique_fd.h"
#include "lib/loader/pin_dir.h"
#include "lib/loader/trace.h"
// After the types that it names.
#include "forward.skel.h"

namespace netmeter {
namespace internal {

namespace {

const char* NameOf(uint64_t bit) {
  for (const Feature& feature : Features()) {
    if (feature.bit == bit) return feature.name;
  }
  return "unknown";
}

}  // namespace

const std::vector<Feature>& Features() {
  static const auto* const features = new std::vector<Feature>{
      {"process_tracking", NM_FEATURE_PROCESS_TRACKING},
      {"socket_table", NM_FEATURE_SOCKET_TABLE},
      {"control_channel", NM_FEATURE_CONTROL},
      {"group_access", NM_FEATURE_GROUP_ACCESS},
      {"mptcp", NM_FEATURE_MPTCP},
      {"cgroup_names", NM_FEATURE_CGROUP_NAMES},
      {"forwarded", NM_FEATURE_FORWARDED},
  };
  return *features;
}

// Text beyond NM_REASONS_BYTES is cut off in info, not here.
void FeatureSet::TurnOff(uint64_t bit, absl::string_view reason, bool for_now) {
  bits_ &= ~bit;
  any_off_for_now_ |= for_now;
  const char* const next = for_now ? " (the next load tries again)" : "";
  absl::StrAppend(&reasons_, NameOf(bit), ": ", reason, next, "\n");
  notes_.push_back(absl::StrCat(NameOf(bit), " is off: ", reason, next));
}

void FeatureSet::Remark(uint64_t bit, absl::string_view remark) {
  const std::string line = absl::StrCat(NameOf(bit), ": ", remark);
  absl::StrAppend(&reasons_, line, "\n");
  notes_.push_back(line);
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
    features->TurnOff(pin.feature, status.message(), /*for_now=*/true);
  }
  return absl::OkStatus();
}

absl::Status Links::AttachOne(const LinkPin& pin) {
  NETMETER_ASSIGN_OR_RETURN(UniqueFd pinned, pins_.OpenIfPinned(pin.pin));
  if (pinned.ok()) {
    // A link that cannot be inspected may still count. A second link beside it would
    // count each packet twice.
    const KernelObject link = IdentifyObject(pinned.get());
    if (link.kind != KernelObject::kLink) {
      return absl::UnavailableError(
          absl::StrCat("look at ", pins_.PathOf(pin.pin)));
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
  Trace("attached ", Traced{bpf_link__fd(link)});
  return absl::OkStatus();
}

absl::Status Links::Put(LinkStage stage, const FeatureSet& features) {
  for (const LinkPin& pin : LinkPins()) {
    if (pin.stage != stage) continue;
    if (pin.feature != 0 && !features.has(pin.feature)) {
      NETMETER_RETURN_IF_ERROR(pins_.Remove(pin.pin));
      continue;
    }
    NETMETER_RETURN_IF_ERROR(PutOne(pin));
    put_.insert(pin.pin);
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
    Trace("replaced the program at ", path, ": ",
          Traced{in_place->second.get()});
    return absl::OkStatus();
  }
  const int fd = bpf_link__fd(made_.at(pin.pin));
  if (pin.tracing()) return pins_.Replace(fd, pin.pin);
  // A dead link may be pinned here. It counts nothing.
  NETMETER_RETURN_IF_ERROR(pins_.Remove(pin.pin));
  return pins_.Pin(fd, pin.pin);
}

// --- Forwarded packets ---

namespace {

constexpr uint32_t kZero = 0;

absl::Status Use(bpf_map* map, int fd) {
  return ErrnoStatus(bpf_map__reuse_fd(map, fd),
                     absl::StrCat("use ", bpf_map__name(map)));
}

absl::Status UsePinned(const PinDir& pins, bpf_map* map, const char* pin) {
  NETMETER_ASSIGN_OR_RETURN(const UniqueFd fd, pins.OpenIfPinned(pin));
  return fd.ok() ? Use(map, fd.get()) : absl::OkStatus();
}

// What these programs need and this kernel lacks; "": nothing.
absl::StatusOr<std::string> WhatKernelLacks(const std::string& types_file) {
  // A netfilter program reads a packet by types that only the kernel's own BTF has.
  if (!types_file.empty()) return "the kernel has no BTF of its own";
  NETMETER_ASSIGN_OR_RETURN(const bool has_netfilter,
                            MayLoad(kNetfilterProgram, {}, kNetfilterAttach));
  return has_netfilter ? ""
                       : "the kernel has no programs of netfilter (install "
                         "Linux 6.4 or newer)";
}

}  // namespace

Forwarding::~Forwarding() { forward_bpf__destroy(skeleton_); }

absl::Status Forwarding::Load(const std::string& types_file,
                              uint32_t client_uplinks,
                              const MeterObject& meter) {
  LIBBPF_OPTS(bpf_object_open_opts, options);
  if (!types_file.empty()) options.btf_custom_path = types_file.c_str();
  skeleton_ = forward_bpf__open_opts(&options);
  if (skeleton_ == nullptr) return ErrnoStatus(errno, "open the BPF object");
  const auto& maps = skeleton_->maps;
  bpf_program* program;
  bpf_object__for_each_program(program, skeleton_->obj) {
    PrepareForNetfilter(program);
  }
  NETMETER_RETURN_IF_ERROR(
      Use(maps.nm_uplink_names, meter.MapFd("uplink_names")));
  NETMETER_RETURN_IF_ERROR(Use(maps.nm_interfaces, meter.MapFd("interfaces")));
  NETMETER_RETURN_IF_ERROR(UsePinned(pins_, maps.nm_forwarded, kForwardedPin));
  NETMETER_RETURN_IF_ERROR(
      UsePinned(pins_, maps.nm_forwarded_by, kForwardedByPin));
  NETMETER_RETURN_IF_ERROR(
      UsePinned(pins_, maps.nm_forwarders, kForwardersPin));
  // The skeleton declares the section as constant, as the programs see it.
  const_cast<uint32_t&>(skeleton_->rodata->nm_client_uplinks) = client_uplinks;
  if (client_uplinks == 0) bpf_map__set_max_entries(maps.nm_clients, 1);
  NETMETER_RETURN_IF_ERROR(UsePinned(pins_, maps.nm_clients, kClientsPin));
  return ObjectStatus(forward_bpf__load(skeleton_),
                      "load the programs that count what is forwarded");
}

absl::Status Forwarding::AttachHooks() {
  constexpr uint32_t kFamilies[] = {kNetfilterIpv4, kNetfilterIpv6};
  for (size_t i = 0; i < kForwardLinks.size(); i++) {
    const char* const pin = kForwardLinks[i];
    NETMETER_ASSIGN_OR_RETURN(const UniqueFd pinned, pins_.OpenIfPinned(pin));
    // Without its pin the array of the present links is empty for good.
    if (pinned.ok() && pins_.Has(kForwardersPin)) continue;
    const bpf_program* const program = bpf_object__find_program_by_name(
        skeleton_->obj, ObjectNameOf(pin).c_str());
    NETMETER_RETURN_IF_ERROR(
        AttachToForward(bpf_program__fd(program), kFamilies[i], &links_[i]));
    Trace("attached ", Traced{links_[i].get()});
  }
  return absl::OkStatus();
}

absl::Status Forwarding::Attach(bool had, const std::string& types_file,
                                uint32_t client_uplinks,
                                const MeterObject& meter,
                                FeatureSet* features) {
  features->TurnOn(NM_FEATURE_FORWARDED);
  absl::Status status = Load(types_file, client_uplinks, meter);
  std::string lack;
  if (!status.ok() && !IsTransient(status)) {
    lack = WhatKernelLacks(types_file).value_or("");
  }
  if (status.ok()) status = AttachHooks();
  if (status.ok() || (had && lack.empty())) return status;
  forward_bpf__destroy(skeleton_);
  skeleton_ = nullptr;
  for (UniqueFd& link : links_) link = UniqueFd();
  if (!lack.empty()) {
    features->TurnOff(NM_FEATURE_FORWARDED,
                      absl::StrCat(lack,
                                   ": forwarded traffic is in the total of its "
                                   "uplink, and has no row of its own"));
    return absl::OkStatus();
  }
  Trace(status.message());
  features->TurnOff(NM_FEATURE_FORWARDED, status.message(), /*for_now=*/true);
  return absl::OkStatus();
}

// Pin the maps first: the kernel empties a program's map that is neither pinned nor open.
absl::Status Forwarding::Put() const {
  if (skeleton_ == nullptr) {
    // The counters stay, because the uplinks may come back.
    for (const char* pin : kForwardLinks) {
      NETMETER_RETURN_IF_ERROR(pins_.Remove(pin));
    }
    return pins_.Remove(kForwardersPin);
  }
  const int forwarders = bpf_map__fd(skeleton_->maps.nm_forwarders);
  const std::pair<const char*, int> maps[] = {
      {kForwardedPin, bpf_map__fd(skeleton_->maps.nm_forwarded)},
      {kForwardedByPin, bpf_map__fd(skeleton_->maps.nm_forwarded_by)},
      {kForwardersPin, forwarders}};
  for (const auto& map : maps) {
    NETMETER_RETURN_IF_ERROR(pins_.Pin(map.second, map.first));
  }
  if (skeleton_->rodata->nm_client_uplinks != 0) {
    NETMETER_RETURN_IF_ERROR(
        pins_.Pin(bpf_map__fd(skeleton_->maps.nm_clients), kClientsPin));
  }
  const int program = bpf_program__fd(skeleton_->progs.nm_forward);
  NETMETER_RETURN_IF_ERROR(
      ErrnoStatus(bpf_map_update_elem(forwarders, &kZero, &program, BPF_ANY),
                  "fill forwarders"));
  Trace("replaced the program that counts what is forwarded");
  for (size_t i = 0; i < links_.size(); i++) {
    if (!links_[i].ok()) continue;
    NETMETER_RETURN_IF_ERROR(pins_.Replace(links_[i].get(), kForwardLinks[i]));
  }
  return absl::OkStatus();
}

uint64_t ForwardingBuildId() {
  size_t size = 0;
  const void* const bytes = forward_bpf__elf_bytes(&size);
  return HashOf(absl::string_view(static_cast<const char*>(bytes), size));
}

}  // namespace internal
}  // namespace netmeter
