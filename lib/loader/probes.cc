// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/probes.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lib/base/status_util.h"
#include "lib/base/unique_fd.h"

namespace netmeter {
namespace internal {

bool MayLoad(bpf_prog_type type, const bpf_insn* code, size_t instructions,
             bpf_attach_type attach) {
  LIBBPF_OPTS(bpf_prog_load_opts, options);
  options.expected_attach_type = attach;
  return UniqueFd(bpf_prog_load(type, "nm_probe", "GPL", code, instructions,
                                &options))
      .ok();
}

bool HelperExists(bpf_prog_type type, bpf_func_id helper) {
  return libbpf_probe_bpf_helper(type, helper, nullptr) == 1;
}

// Tries bpf_skc_to_mptcp_sock(). The helper exists even without MPTCP, and then fails
// only when a program calls it with a socket.
bool MayFollowMptcp() {
  const bpf_insn code[] = {
      {BPF_LDX | BPF_MEM | BPF_DW, BPF_REG_1, BPF_REG_1,
       offsetof(bpf_sock_ops, sk), 0},
      {BPF_JMP | BPF_JEQ | BPF_K, BPF_REG_1, 0, 1, 0},
      {BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_skc_to_mptcp_sock},
      {BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, 1},
      {BPF_JMP | BPF_EXIT, 0, 0, 0, 0},
  };
  return MayLoad(BPF_PROG_TYPE_SOCK_OPS, code);
}

// Reading the error of a TCP socket needs the kernel's own types, which some kernels do
// not show, and CAP_PERFMON.
bool MayReadErrors() {
  const bpf_insn code[] = {
      {BPF_LDX | BPF_MEM | BPF_DW, BPF_REG_1, BPF_REG_1,
       offsetof(bpf_sock_ops, sk), 0},
      {BPF_JMP | BPF_JEQ | BPF_K, BPF_REG_1, 0, 3, 0},
      {BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_skc_to_tcp_sock},
      {BPF_JMP | BPF_JEQ | BPF_K, BPF_REG_0, 0, 1, 0},
      {BPF_LDX | BPF_MEM | BPF_W, BPF_REG_0, BPF_REG_0, 0, 0},
      {BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, 1},
      {BPF_JMP | BPF_EXIT, 0, 0, 0, 0},
  };
  return MayLoad(BPF_PROG_TYPE_SOCK_OPS, code);
}

bool MayAskForNetworks() {
  const bpf_insn code[] = {
      {BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_get_netns_cookie},
      {BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, 1},
      {BPF_JMP | BPF_EXIT, 0, 0, 0, 0},
  };
  return MayLoad(BPF_PROG_TYPE_CGROUP_SKB, code);
}

namespace {

constexpr char kOwnTypes[] = "/sys/kernel/btf/vmlinux";

// libbpf reads a BTF file whole into memory. An ELF file with debug information may be
// this large; its types are 6 MB of it.
constexpr off_t kMostBytesOfTypes = 1 << 30;

}  // namespace

bool KernelShowsTypes() { return access(kOwnTypes, R_OK) == 0; }

absl::StatusOr<std::string> FindKernelTypes(const std::string& file) {
  if (KernelShowsTypes()) return std::string();
  if (file.empty()) {
    return absl::UnimplementedError(absl::StrCat(
        "the kernel has no BTF (CONFIG_DEBUG_INFO_BTF): ", kOwnTypes,
        " is missing, and there is no file with it (--btf)"));
  }
  struct stat about;
  if (stat(file.c_str(), &about) != 0) {
    return ErrnoStatus(errno, absl::StrCat("btf: read ", file));
  }
  if (!S_ISREG(about.st_mode) || about.st_size > kMostBytesOfTypes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "btf: ", file, ": expected a regular file of at most 1 GiB"));
  }
  btf* const types = btf__parse(file.c_str(), nullptr);
  if (types == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "btf: ", file,
        ": libbpf reads no types of a kernel in it: ", strerror(errno)));
  }
  btf__free(types);
  return file;
}

}  // namespace internal
}  // namespace netmeter
