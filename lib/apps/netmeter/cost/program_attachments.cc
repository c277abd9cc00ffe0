// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/netmeter/cost/program_attachments.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/pkt_cls.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <string.h>
#include <sys/socket.h>

#include <array>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "lib/base/cgroup.h"
#include "lib/base/kernel_object.h"
#include "lib/base/unique_fd.h"
#include "lib/netlink/diag_message.h"
#include "lib/netlink/receive.h"

namespace netmeter {
namespace internal {
namespace {

// Newer than the headers of Debian 12 (include/uapi/linux/bpf.h).
constexpr uint32_t kNetfilterLink = 10, kTcxLink = 11, kNetkitLink = 13;
constexpr struct {
  int type;
  const char* name;
} kInterfaceTypes[] = {{46, "tcx_ingress"},
                       {47, "tcx_egress"},
                       {54, "netkit_primary"},
                       {55, "netkit_peer"}};

// Adds the programs that BPF_PROG_QUERY returns for a cgroup or an interface.
void Query(int target, int type, const std::string& text,
           ProgramAttachments* all) {
  std::array<uint32_t, 64> ids;
  uint32_t count = ids.size(), flags = 0;
  // With ENOSPC the kernel has filled the array.
  if (bpf_prog_query(target, static_cast<bpf_attach_type>(type), 0, &flags,
                     ids.data(), &count) != 0 &&
      errno != ENOSPC) {
    return;
  }
  for (uint32_t i = 0; i < count && i < ids.size(); i++) {
    (*all)[ids[i]].insert(text);
  }
}

void ReadCgroup(const std::string& path, const std::string& name,
                ProgramAttachments* all) {
  constexpr int kMostTypes = 64;
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.ok()) return;
  for (int type = 0; type < kMostTypes; type++) {
    const char* const hook =
        libbpf_bpf_attach_type_str(static_cast<bpf_attach_type>(type));
    if (hook != nullptr && absl::StartsWith(hook, "cgroup_")) {
      Query(fd.get(), type, absl::StrCat(hook, " ", name), all);
    }
  }
}

void ReadCgroups(ProgramAttachments* all) {
  namespace fs = std::filesystem;
  const absl::StatusOr<std::string> root = FindCgroupRoot();
  if (!root.ok()) return;
  ReadCgroup(*root, "/", all);
  // A cgroup that is removed meanwhile ends the search in its siblings at worst.
  std::error_code error;
  for (fs::recursive_directory_iterator entry(*root, error), end;
       !error && entry != end; entry.increment(error)) {
    std::error_code gone;
    if (entry->is_directory(gone)) {
      const std::string path = entry->path().string();
      ReadCgroup(path, path.substr(root->size()), all);
    }
  }
}

// Adds the program of an RTM_NEWTFILTER if it is a classifier of cls_bpf.
void TakeFilter(const NetlinkMessage& message, const std::string& text,
                ProgramAttachments* all) {
  if (message.payload.size() < sizeof(tcmsg)) return;
  bool is_bpf = false;
  absl::string_view options;
  ForEachAttribute(message.payload.substr(NLMSG_ALIGN(sizeof(tcmsg))),
                   [&](int type, absl::string_view value) {
                     if (type == TCA_KIND) {
                       is_bpf = value == absl::string_view("bpf", 4);
                     } else if (type == TCA_OPTIONS) {
                       options = value;
                     }
                   });
  if (!is_bpf) return;
  ForEachAttribute(options, [&](int type, absl::string_view value) {
    uint32_t id = 0;
    if (type != TCA_BPF_ID || value.size() != sizeof(id)) return;
    memcpy(&id, value.data(), sizeof(id));
    (*all)[id].insert(text);
  });
}

void ReadFilters(int fd, uint32_t interface, uint32_t parent,
                 const std::string& text, ProgramAttachments* all) {
  struct {
    nlmsghdr header;
    tcmsg filter;
  } request = {};
  request.header.nlmsg_len = sizeof(request);
  request.header.nlmsg_type = RTM_GETTFILTER;
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  request.filter.tcm_family = AF_UNSPEC;
  request.filter.tcm_ifindex = static_cast<int>(interface);
  request.filter.tcm_parent = TC_H_MAKE(TC_H_CLSACT, parent);
  const absl::string_view bytes(reinterpret_cast<const char*>(&request),
                                sizeof(request));
  DumpFromKernel(fd, bytes, "list filters", [&](const NetlinkMessage& message) {
    if (message.type == RTM_NEWTFILTER) TakeFilter(message, text, all);
    return true;
  }).IgnoreError();
}

void ReadInterfaces(ProgramAttachments* all) {
  const UniqueFd fd(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  struct if_nameindex* const interfaces = if_nameindex();
  for (const struct if_nameindex* interface = interfaces;
       interface != nullptr && interface->if_index != 0; interface++) {
    const int index = static_cast<int>(interface->if_index);
    const std::string name = interface->if_name;
    for (const auto& type : kInterfaceTypes) {
      Query(index, type.type, absl::StrCat(type.name, " ", name), all);
    }
    LIBBPF_OPTS(bpf_xdp_query_opts, xdp);
    if (bpf_xdp_query(index, 0, &xdp) == 0) {
      for (const uint32_t id :
           {xdp.prog_id, xdp.drv_prog_id, xdp.hw_prog_id, xdp.skb_prog_id}) {
        if (id != 0) (*all)[id].insert("xdp " + name);
      }
    }
    if (!fd.ok()) continue;
    ReadFilters(fd.get(), interface->if_index, TC_H_MIN_INGRESS,
                "tc ingress " + name, all);
    ReadFilters(fd.get(), interface->if_index, TC_H_MIN_EGRESS,
                "tc egress " + name, all);
  }
  if_freenameindex(interfaces);
}

// The names of functions, from the kernel's BTF, which is read if a link needs it.
class FunctionNames {
 public:
  std::string Get(uint32_t object, uint32_t type) {
    auto& btf = objects_[object];
    if (btf == nullptr) btf.reset(btf__load_from_kernel_by_id(object));
    const btf_type* const found =
        btf == nullptr ? nullptr : btf__type_by_id(btf.get(), type);
    return found == nullptr ? ""
                            : btf__name_by_offset(btf.get(), found->name_off);
  }

 private:
  struct Free {
    void operator()(btf* object) const { btf__free(object); }
  };
  std::map<uint32_t, std::unique_ptr<btf, Free>> objects_;
};

std::string AttachTypeText(uint32_t type) {
  const char* const text =
      libbpf_bpf_attach_type_str(static_cast<bpf_attach_type>(type));
  return text == nullptr ? absl::StrCat("attach type ", type) : text;
}

// "" for links that ReadCgroups(), ReadInterfaces() and ReadProgramHolders() describe.
std::string LinkText(int fd, const bpf_link_info& link, FunctionNames* names) {
  switch (link.type) {
    case BPF_LINK_TYPE_CGROUP:
    case BPF_LINK_TYPE_XDP:
    case BPF_LINK_TYPE_PERF_EVENT:
    case kTcxLink:
    case kNetkitLink:
      return "";
    case BPF_LINK_TYPE_RAW_TRACEPOINT: {
      char name[128] = "";
      bpf_link_info with_name = {};
      with_name.raw_tracepoint.tp_name = reinterpret_cast<uintptr_t>(name);
      with_name.raw_tracepoint.tp_name_len = sizeof(name);
      if (!GetInfo(fd, &with_name)) return "raw_tracepoint";
      return absl::StrCat("raw_tracepoint ", name);
    }
    case BPF_LINK_TYPE_TRACING:
      return absl::StrCat(
          AttachTypeText(link.tracing.attach_type), " ",
          names->Get(link.tracing.target_obj_id, link.tracing.target_btf_id));
    case BPF_LINK_TYPE_NETNS:
      return absl::StrCat(AttachTypeText(link.netns.attach_type),
                          " network namespace ", link.netns.netns_ino);
    case kNetfilterLink:
      return "netfilter";
    default: {
      const char* const text =
          libbpf_bpf_link_type_str(static_cast<bpf_link_type>(link.type));
      return text == nullptr ? absl::StrCat("link type ", link.type) : text;
    }
  }
}

void ReadLinks(ProgramAttachments* all) {
  FunctionNames names;
  uint32_t id = 0;
  while (bpf_link_get_next_id(id, &id) == 0) {
    const UniqueFd fd(bpf_link_get_fd_by_id(id));
    bpf_link_info link = {};
    if (!fd.ok() || !GetInfo(fd.get(), &link)) continue;
    const std::string text = LinkText(fd.get(), link, &names);
    if (!text.empty()) (*all)[link.prog_id].insert(text);
  }
}

}  // namespace

ProgramAttachments ReadProgramAttachments() {
  ProgramAttachments all;
  ReadCgroups(&all);
  ReadInterfaces(&all);
  ReadLinks(&all);
  return all;
}

}  // namespace internal
}  // namespace netmeter
