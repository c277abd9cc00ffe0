// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/forwarding.h"

#include <bpf/bpf.h>
#include <limits.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lib/base/kernel_object.h"
#include "lib/base/libbpf_log.h"
#include "lib/base/status_util.h"
#include "lib/base/unique_fd.h"
#include "lib/loader/config.h"
#include "lib/loader/pin_dir.h"
#include "lib/loader/retry.h"
#include "lib/loader/step.h"
#include "lib/reader/pins.h"
// After the types that it names.
#include "forward.skel.h"

namespace netmeter {
namespace internal {
namespace {

// From linux/bpf.h of 6.4 and linux/netfilter.h. The headers and the libbpf of the build
// machine may be older.
constexpr auto kNetfilterProgram = static_cast<bpf_prog_type>(32);
constexpr auto kNetfilterAttach = static_cast<bpf_attach_type>(45);
constexpr uint32_t kForwardHook = 2;  // NF_INET_FORWARD
constexpr uint32_t kIpv4 = 2, kIpv6 = 10;
// The kernel refuses the last priority to programs, and any priority that is in use.
constexpr int kLastPriority = INT_MAX - 1;
constexpr int kPriorities = 64;
constexpr uint32_t kZero = 0;

struct LinkCreate {  // union bpf_attr of BPF_LINK_CREATE
  uint32_t program;
  uint32_t target;
  uint32_t attach_type;
  uint32_t flags;
  uint32_t family;
  uint32_t hook;
  int32_t priority;
  uint32_t netfilter_flags;
};

bool KernelHasHook() {
  const bpf_insn code[] = {
      {BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, 1},
      {BPF_JMP | BPF_EXIT, 0, 0, 0, 0},
  };
  LIBBPF_OPTS(bpf_prog_load_opts, options);
  options.expected_attach_type = kNetfilterAttach;
  return UniqueFd(bpf_prog_load(kNetfilterProgram, "nm_probe", "GPL", code,
                                sizeof(code) / sizeof(code[0]), &options))
      .ok();
}

absl::Status Use(bpf_map* map, int fd) {
  return ErrnoStatus(bpf_map__reuse_fd(map, fd),
                     absl::StrCat("use ", bpf_map__name(map)));
}

// *fd stays empty if there is no such pin. All other errors are returned: a pin that
// wrongly counts as existing would never be created.
absl::Status OpenPin(const PinDir& pins, const char* pin, UniqueFd* fd) {
  const std::string path = pins.PathOf(pin);
  *fd = UniqueFd(bpf_obj_get(path.c_str()));
  if (fd->ok() || errno == ENOENT) return absl::OkStatus();
  return ErrnoStatus(errno, absl::StrCat("open ", path));
}

absl::Status UsePinned(const PinDir& pins, bpf_map* map, const char* pin) {
  UniqueFd fd;
  NETMETER_RETURN_IF_ERROR(OpenPin(pins, pin, &fd));
  return fd.ok() ? Use(map, fd.get()) : absl::OkStatus();
}

absl::Status CreateLink(const char* pin, uint32_t family, int program,
                        UniqueFd* link) {
  LinkCreate create = {};
  create.program = static_cast<uint32_t>(program);
  create.attach_type = kNetfilterAttach;
  create.family = family;
  create.hook = kForwardHook;
  int error = EBUSY;  // such as another meter's link
  for (int i = 0; i < kPriorities && error == EBUSY; i++) {
    create.priority = kLastPriority - i;
    *link = UniqueFd(static_cast<int>(
        syscall(SYS_bpf, BPF_LINK_CREATE, &create, sizeof(create))));
    if (link->ok()) return absl::OkStatus();
    error = errno;
  }
  return ErrnoStatus(
      error, absl::StrCat("attach ", ObjectNameOf(pin), " to netfilter"));
}

}  // namespace

Forwarding::~Forwarding() { forward_bpf__destroy(skeleton_); }

absl::Status Forwarding::Load(const ForwardingPlan& plan,
                              const MeterObject& meter) {
  LIBBPF_OPTS(bpf_object_open_opts, options);
  if (!plan.types_file.empty()) {
    options.btf_custom_path = plan.types_file.c_str();
  }
  skeleton_ = forward_bpf__open_opts(&options);
  if (skeleton_ == nullptr) return ErrnoStatus(errno, "open the BPF object");
  const auto& maps = skeleton_->maps;
  bpf_program* program;
  bpf_object__for_each_program(program, skeleton_->obj) {
    bpf_program__set_type(program, kNetfilterProgram);
    bpf_program__set_expected_attach_type(program, kNetfilterAttach);
  }
  NETMETER_RETURN_IF_ERROR(
      Use(maps.nm_uplink_names, meter.MapFd("uplink_names")));
  NETMETER_RETURN_IF_ERROR(Use(maps.nm_interfaces, meter.MapFd("interfaces")));
  NETMETER_RETURN_IF_ERROR(UsePinned(pins_, maps.nm_forwarded, kForwardedPin));
  NETMETER_RETURN_IF_ERROR(
      UsePinned(pins_, maps.nm_forwarders, kForwardersPin));
  return ObjectStatus(forward_bpf__load(skeleton_),
                      "load the programs that count what is forwarded");
}

absl::Status Forwarding::AttachHooks() {
  constexpr uint32_t kFamilies[] = {kIpv4, kIpv6};
  for (size_t i = 0; i < kForwardLinks.size(); i++) {
    const char* const pin = kForwardLinks[i];
    UniqueFd pinned;
    NETMETER_RETURN_IF_ERROR(OpenPin(pins_, pin, &pinned));
    if (pinned.ok()) continue;
    const bpf_program* const program = bpf_object__find_program_by_name(
        skeleton_->obj, ObjectNameOf(pin).c_str());
    NETMETER_RETURN_IF_ERROR(
        CreateLink(pin, kFamilies[i], bpf_program__fd(program), &links_[i]));
    Step("attached ", Describe(links_[i].get()));
  }
  return absl::OkStatus();
}

absl::Status Forwarding::Attach(const ForwardingPlan& plan,
                                const MeterObject& meter,
                                FeatureSet* features) {
  if (!plan.wanted) return absl::OkStatus();
  features->TurnOn(NM_FEATURE_FORWARDED);
  absl::Status status = Load(plan, meter);
  std::string lack;
  if (!status.ok() && !MayReadKernelMemory()) {
    lack = "lockdown=confidentiality";
  } else if (!status.ok() && !IsTransient(status)) {
    // A netfilter program reads a packet by types that only the kernel's own BTF has.
    if (!plan.types_file.empty()) {
      lack = "the kernel has no BTF of its own";
    } else if (!KernelHasHook()) {
      lack = "the kernel has no programs of netfilter (Linux 6.4 has)";
    }
  }
  if (status.ok()) status = AttachHooks();
  if (status.ok() || (plan.had && IsTransient(status))) return status;
  forward_bpf__destroy(skeleton_);
  skeleton_ = nullptr;
  for (UniqueFd& link : links_) link = UniqueFd();
  if (!lack.empty()) {
    features->TurnOff(NM_FEATURE_FORWARDED,
                      absl::StrCat(lack, ": not told from what is uncounted"));
    return absl::OkStatus();
  }
  Step(status.message());
  features->TurnOffForNow(NM_FEATURE_FORWARDED, status.message());
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
  const int forwarded = bpf_map__fd(skeleton_->maps.nm_forwarded);
  if (!pins_.Has(kForwardedPin)) {
    NETMETER_RETURN_IF_ERROR(pins_.Pin(forwarded, kForwardedPin));
  }
  if (!pins_.Has(kForwardersPin)) {
    NETMETER_RETURN_IF_ERROR(pins_.Pin(forwarders, kForwardersPin));
  }
  const int program = bpf_program__fd(skeleton_->progs.nm_forward);
  NETMETER_RETURN_IF_ERROR(
      ErrnoStatus(bpf_map_update_elem(forwarders, &kZero, &program, BPF_ANY),
                  "fill forwarders"));
  Step("replaced the program that counts what is forwarded");
  for (size_t i = 0; i < links_.size(); i++) {
    if (!links_[i].ok() || pins_.Has(kForwardLinks[i])) continue;
    NETMETER_RETURN_IF_ERROR(pins_.Pin(links_[i].get(), kForwardLinks[i]));
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
