// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/kernel_types.h"

#include <bpf/btf.h>
#include <elf.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <memory>

#include "absl/strings/str_cat.h"
#include "lib/core/status_util.h"
#include "lib/core/unique_fd.h"

namespace netmeter {
namespace internal {
namespace {

constexpr char kOwnTypes[] = "/sys/kernel/btf/vmlinux";

absl::Status Wrong(const std::string& path, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("btf: ", path, ": ", why));
}

// Nothing is opened that does more than be read. `size`: of the file; `begin`: its
// first bytes.
absl::Status ReadBegin(const std::string& path, uint64_t* size,
                       std::string* begin) {
  struct stat about;
  if (stat(path.c_str(), &about) != 0) {
    return ErrnoStatus(errno, absl::StrCat("btf: read ", path));
  }
  if (!S_ISREG(about.st_mode)) return Wrong(path, "is no regular file");
  const UniqueFd fd(
      open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  begin->resize(sizeof(btf_header));
  const ssize_t count =
      fd.ok() ? read(fd.get(), &(*begin)[0], begin->size()) : -1;
  if (count < 0) return ErrnoStatus(errno, absl::StrCat("btf: read ", path));
  begin->resize(static_cast<size_t>(count));
  *size = static_cast<uint64_t>(about.st_size);
  return absl::OkStatus();
}

// What libbpf would only call invalid.
absl::Status CheckHeader(const std::string& path, uint64_t size,
                         const std::string& begin) {
  btf_header header = {};
  memcpy(&header, begin.data(), begin.size());
  if (header.magic == __builtin_bswap16(BTF_MAGIC)) {
    return Wrong(path, "is BTF of a machine with another byte order");
  }
  if (header.magic != BTF_MAGIC) {
    return Wrong(path, "is neither BTF nor an ELF file with BTF");
  }
  const uint64_t types = uint64_t{header.type_off} + header.type_len;
  const uint64_t strings = uint64_t{header.str_off} + header.str_len;
  const uint64_t whole = header.hdr_len + std::max(types, strings);
  if (begin.size() < sizeof(header) || size < whole) {
    return Wrong(
        path, absl::StrCat("is cut short: it has ", size, " bytes of ", whole));
  }
  return absl::OkStatus();
}

}  // namespace

bool KernelShowsTypes() { return access(kOwnTypes, R_OK) == 0; }

absl::StatusOr<std::string> FindKernelTypes(const std::string& file) {
  if (KernelShowsTypes()) return std::string();
  if (file.empty()) {
    return absl::UnimplementedError(absl::StrCat(
        "the kernel has no BTF (CONFIG_DEBUG_INFO_BTF): ", kOwnTypes,
        " is missing, and there is no file with it (--btf)"));
  }
  const absl::Status status = CheckTypesFile(file);
  if (!status.ok()) return status;
  return file;
}

absl::Status CheckTypesFile(const std::string& path) {
  uint64_t size = 0;
  std::string begin;
  NETMETER_RETURN_IF_ERROR(ReadBegin(path, &size, &begin));
  const bool is_elf = begin.compare(0, SELFMAG, ELFMAG) == 0;
  if (!is_elf) NETMETER_RETURN_IF_ERROR(CheckHeader(path, size, begin));
  const std::unique_ptr<btf, decltype(&btf__free)> types(
      btf__parse(path.c_str(), nullptr), btf__free);
  if (!types) {
    // libbpf's own word for an ELF file without that section.
    return Wrong(path, is_elf && (errno == ENODATA || errno == ENOENT)
                           ? "is an ELF file without BTF"
                           : absl::StrCat("is damaged: ", strerror(errno)));
  }
  if (btf__find_by_name_kind(types.get(), "task_struct", BTF_KIND_STRUCT) < 0) {
    return Wrong(path, "is BTF, but not of a kernel: no struct task_struct");
  }
  const size_t pointer = btf__pointer_size(types.get());
  if (pointer != 0 && pointer != sizeof(void*)) {
    return Wrong(path, absl::StrCat("is BTF of a machine with pointers of ",
                                    pointer, " bytes"));
  }
  return absl::OkStatus();
}

}  // namespace internal
}  // namespace netmeter
