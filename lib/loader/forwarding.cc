// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/forwarding.h"

#include <bpf/bpf.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lib/core/pins.h"
#include "lib/core/status_util.h"
#include "lib/core/unique_fd.h"
#include "lib/loader/attempts.h"
#include "lib/loader/kernel_object.h"
#include "lib/loader/libbpf_log.h"
#include "lib/loader/pin_dir.h"
#include "lib/loader/settings.h"
#include "lib/loader/step.h"
// After the types that it names.
#include "forward.skel.h"

namespace netmeter {
namespace internal {
namespace {

// Of linux/bpf.h of 6.4, and of linux/netfilter.h: the headers of the build machine
// may be older, as its libbpf is.
constexpr auto kNetfilterProgram = static_cast<bpf_prog_type>(32);
constexpr auto kNetfilterAttach = static_cast<bpf_attach_type>(45);
constexpr uint32_t kForwardHook = 2;  // NF_INET_FORWARD
constexpr uint32_t kIpv4 = 2, kIpv6 = 10;
// The last priority is refused to programs, and two of them have never the same one.
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

struct Hook {
  const char* pin;
  uint32_t family;
};
constexpr Hook kHooks[] = {{kForwardLinks[0], kIpv4},
                           {kForwardLinks[1], kIpv6}};

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

class Forwarding {
 public:
  Forwarding(const ForwardingPlan& plan, Transaction* transaction)
      : plan_(plan), transaction_(transaction), pins_(transaction->pins()) {}
  ~Forwarding() { forward_bpf__destroy(skeleton_); }
  Forwarding(const Forwarding&) = delete;
  Forwarding& operator=(const Forwarding&) = delete;

  absl::Status Load(const MeterObject& meter) {
    LIBBPF_OPTS(bpf_object_open_opts, options);
    if (!plan_.types_file.empty()) {
      options.btf_custom_path = plan_.types_file.c_str();
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
    NETMETER_RETURN_IF_ERROR(Use(maps.nm_interfaces, meter.InterfacesFd()));
    NETMETER_RETURN_IF_ERROR(UsePinned(maps.nm_forwarded, kForwardedPin));
    NETMETER_RETURN_IF_ERROR(UsePinned(maps.nm_forwarders, kForwardersPin));
    return ObjectStatus(forward_bpf__load(skeleton_),
                        "load the programs that count what is forwarded");
  }

  // The maps first, as the kernel empties one of programs that nobody has pinned or
  // opened.
  absl::Status Attach() {
    NETMETER_RETURN_IF_ERROR(
        PinMap(bpf_map__fd(skeleton_->maps.nm_forwarded), kForwardedPin));
    NETMETER_RETURN_IF_ERROR(
        PinMap(bpf_map__fd(skeleton_->maps.nm_forwarders), kForwardersPin));
    NETMETER_RETURN_IF_ERROR(ReplaceProgram());
    for (const Hook& hook : kHooks) {
      NETMETER_RETURN_IF_ERROR(InAttempts([&] { return AttachHook(hook); }));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Use(bpf_map* map, int fd) const {
    return ErrnoStatus(bpf_map__reuse_fd(map, fd),
                       absl::StrCat("use ", bpf_map__name(map)));
  }

  // None: there is no such pin. An error is neither: a pin that was taken for there
  // is never made.
  absl::Status OpenPin(const char* pin, UniqueFd* fd) const {
    const std::string path = pins_.PathOf(pin);
    *fd = UniqueFd(bpf_obj_get(path.c_str()));
    if (fd->ok() || errno == ENOENT) return absl::OkStatus();
    return ErrnoStatus(errno, absl::StrCat("open ", path));
  }

  absl::Status UsePinned(bpf_map* map, const char* pin) const {
    UniqueFd fd;
    NETMETER_RETURN_IF_ERROR(OpenPin(pin, &fd));
    return fd.ok() ? Use(map, fd.get()) : absl::OkStatus();
  }

  absl::Status PinMap(int fd, const char* pin) {
    UniqueFd pinned;
    NETMETER_RETURN_IF_ERROR(OpenPin(pin, &pinned));
    return pinned.ok() ? absl::OkStatus() : PinNew(fd, pin);
  }

  absl::Status PinNew(int fd, const char* pin) {
    if (!plan_.upgrade) return transaction_->Pin(fd, pin);
    NETMETER_RETURN_IF_ERROR(pins_.Pin(fd, pin));
    const PinDir& pins = pins_;
    transaction_->OnFailure([&pins, pin] { return pins.Remove(pin); });
    return absl::OkStatus();
  }

  // Each packet runs the one or the other.
  absl::Status ReplaceProgram() {
    const int map = bpf_map__fd(skeleton_->maps.nm_forwarders);
    const int program = bpf_program__fd(skeleton_->progs.nm_forward);
    uint32_t id = 0;
    if (bpf_map_lookup_elem(map, &kZero, &id) == 0 && id != 0) {
      const auto kept =
          std::make_shared<UniqueFd>(fcntl(map, F_DUPFD_CLOEXEC, 3));
      const auto old = std::make_shared<UniqueFd>(bpf_prog_get_fd_by_id(id));
      if (!kept->ok() || !old->ok()) {
        return ErrnoStatus(errno, "open the program of forwarders");
      }
      transaction_->OnFailure([kept, old] {
        const int fd = old->get();
        return ErrnoStatus(
            bpf_map_update_elem(kept->get(), &kZero, &fd, BPF_ANY),
            "put the old program back into forwarders");
      });
    }
    return InAttempts([&] {
      return ErrnoStatus(bpf_map_update_elem(map, &kZero, &program, BPF_ANY),
                         "fill forwarders");
    });
  }

  absl::Status AttachHook(const Hook& hook) {
    const std::string path = pins_.PathOf(hook.pin);
    UniqueFd pinned;
    NETMETER_RETURN_IF_ERROR(OpenPin(hook.pin, &pinned));
    if (pinned.ok()) {
      if (!plan_.other_network) return absl::OkStatus();
      // There nobody needs it, and no failure brings it back: what it counts is of
      // no uplink of ours.
      bpf_link_detach(pinned.get());
      NETMETER_RETURN_IF_ERROR(pins_.Remove(hook.pin));
    }
    const bpf_program* program = bpf_object__find_program_by_name(
        skeleton_->obj, ObjectNameOf(hook.pin).c_str());
    UniqueFd link;
    NETMETER_RETURN_IF_ERROR(Create(hook, bpf_program__fd(program), &link));
    Step("attached ", Describe(link.get()), ", pinned at ", path);
    return PinNew(link.get(), hook.pin);
  }

  static absl::Status Create(const Hook& hook, int program, UniqueFd* link) {
    LinkCreate create = {};
    create.program = static_cast<uint32_t>(program);
    create.attach_type = kNetfilterAttach;
    create.family = hook.family;
    create.hook = kForwardHook;
    int error = EBUSY;  // another meter's, say
    for (int i = 0; i < kPriorities && error == EBUSY; i++) {
      create.priority = kLastPriority - i;
      *link = UniqueFd(static_cast<int>(
          syscall(SYS_bpf, BPF_LINK_CREATE, &create, sizeof(create))));
      if (link->ok()) return absl::OkStatus();
      error = errno;
    }
    return ErrnoStatus(error, absl::StrCat("attach ", ObjectNameOf(hook.pin),
                                           " to netfilter"));
  }

  const ForwardingPlan plan_;
  Transaction* const transaction_;
  const PinDir& pins_;
  forward_bpf* skeleton_ = nullptr;
};

// What it has counted stays: the uplinks may come back.
absl::Status Remove(Transaction* transaction) {
  const PinDir& pins = transaction->pins();
  for (const char* pin : {kForwardLinks[0], kForwardLinks[1], kForwardersPin}) {
    const auto old =
        std::make_shared<UniqueFd>(bpf_obj_get(pins.PathOf(pin).c_str()));
    if (!old->ok() && errno == ENOENT) continue;
    // Of one that is there and cannot be opened, nobody knows whether it counts.
    if (!old->ok()) {
      return ErrnoStatus(errno, absl::StrCat("open ", pins.PathOf(pin)));
    }
    NETMETER_RETURN_IF_ERROR(pins.Remove(pin));
    transaction->OnFailure([&pins, pin, old] {
      return pins.Has(pin) ? absl::OkStatus() : pins.Pin(old->get(), pin);
    });
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status AttachForwarding(const ForwardingPlan& plan,
                              const MeterObject& meter,
                              Transaction* transaction, FeatureSet* features) {
  if (!plan.wanted) {
    return plan.upgrade ? Remove(transaction) : absl::OkStatus();
  }
  features->TurnOn(NM_FEATURE_FORWARDED);
  Forwarding forwarding(plan, transaction);
  absl::Status status = forwarding.Load(meter);
  if (!status.ok() && !MayReadKernelMemory()) {
    features->TurnOff(NM_FEATURE_FORWARDED,
                      "lockdown=confidentiality: not told from the remainder");
    return absl::OkStatus();
  }
  // A program of netfilter reads a packet by types that only the kernel has.
  if (!status.ok() && !IsTransient(status) && !plan.types_file.empty()) {
    features->TurnOff(NM_FEATURE_FORWARDED,
                      "the kernel shows no BTF of its own: not told from the "
                      "remainder");
    return absl::OkStatus();
  }
  if (!status.ok() && !IsTransient(status) && !KernelHasHook()) {
    features->TurnOff(NM_FEATURE_FORWARDED,
                      "the kernel has no programs of netfilter (Linux 6.4 "
                      "has): not told from the remainder");
    return absl::OkStatus();
  }
  if (status.ok()) status = forwarding.Attach();
  if (status.ok()) return status;
  // As Linker::Attach() of attach.h.
  if (plan.upgrade && IsTransient(status)) return status;
  Step(status.message());
  features->TurnOffForNow(NM_FEATURE_FORWARDED, status.message());
  return Remove(transaction);
}

uint64_t ForwardingBuildId() {
  size_t size = 0;
  const void* const bytes = forward_bpf__elf_bytes(&size);
  return HashOf(absl::string_view(static_cast<const char*>(bytes), size));
}

}  // namespace internal
}  // namespace netmeter
