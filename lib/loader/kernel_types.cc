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
#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/core/status_util.h"
#include "lib/core/unique_fd.h"

namespace netmeter {
namespace internal {
namespace {

constexpr char kOwnTypes[] = "/sys/kernel/btf/vmlinux";

// For each type that a program uses, libbpf looks through all types of the file, and
// through each name to its end: with one name of megabytes, for minutes. Kernels up to
// 7.3 have 6 MB of types, names of up to 104 bytes and 1.5 MB in all, types in each other
// 33 deep, and 276 members at most in one structure.
constexpr uint64_t kMostBytes = 64 << 20;
constexpr uint32_t kMostNameBytes = 1023;
constexpr uint64_t kMostBytesOfNames = 32 << 20;  // of types, each time anew
// libbpf tries each type of the name that a program uses. Kernels have at most 4 of one.
constexpr size_t kMostOfOneName = 256;
constexpr uint32_t kMostDepth = 256;
constexpr uint32_t kMostMembers = 65535;

absl::Status Wrong(const std::string& path, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("btf: ", path, ": ", why));
}

absl::Status TooLarge(const std::string& path, uint64_t size) {
  return Wrong(
      path,
      absl::StrCat("is too large for the types of a kernel: ", size, " bytes"));
}

// Nothing is opened that does more than be read. `size`: of the file; `begin`: its
// first bytes.
absl::Status ReadBegin(const std::string& path, uint64_t* size,
                       std::string* begin, UniqueFd* file) {
  struct stat about;
  if (stat(path.c_str(), &about) != 0) {
    return ErrnoStatus(errno, absl::StrCat("btf: read ", path));
  }
  if (!S_ISREG(about.st_mode)) return Wrong(path, "is no regular file");
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  begin->resize(sizeof(btf_header));
  const ssize_t count =
      fd.ok() ? read(fd.get(), &(*begin)[0], begin->size()) : -1;
  if (count < 0) return ErrnoStatus(errno, absl::StrCat("btf: read ", path));
  begin->resize(static_cast<size_t>(count));
  *size = static_cast<uint64_t>(about.st_size);
  *file = std::move(fd);
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
  return size > kMostBytes ? TooLarge(path, size) : absl::OkStatus();
}

bool ReadAt(int fd, uint64_t offset, void* to, size_t bytes) {
  return offset <= INT64_MAX &&
         pread(fd, to, bytes, static_cast<off_t>(offset)) ==
             static_cast<ssize_t>(bytes);
}

// libbpf reads all names of sections, and each section that it takes for one with types,
// before it looks at any: with one of 3.9 GB, in a file that takes no room on the disk,
// for a minute. libelf would look at as many headers as there are said to be. Those of a
// kernel are fewer than a hundred.
template <typename Header, typename Section>
absl::Status CheckSections(const std::string& path, int fd) {
  Header header;
  if (!ReadAt(fd, 0, &header, sizeof(header))) {
    return Wrong(path, "is an ELF file that is cut short");
  }
  if (header.e_shentsize != sizeof(Section) ||
      header.e_shstrndx >= header.e_shnum) {
    return Wrong(path, "is an ELF file without BTF");
  }
  std::vector<Section> sections(header.e_shnum);
  if (!ReadAt(fd, header.e_shoff, sections.data(),
              sections.size() * sizeof(Section))) {
    return Wrong(path, "is an ELF file that is cut short");
  }
  const Section& names = sections[header.e_shstrndx];
  if (names.sh_size > kMostBytes) return TooLarge(path, names.sh_size);
  uint64_t bytes = 0;  // of all: one may be there often
  for (const Section& section : sections) {
    char name[] = ".BTF.";
    if (!ReadAt(fd, uint64_t{names.sh_offset} + section.sh_name, name,
                strlen(name)) ||
        memcmp(name, ".BTF", 4) != 0 || (name[4] != '\0' && name[4] != '.')) {
      continue;
    }
    // As `objcopy --only-keep-debug` leaves it: libbpf would read what is not there.
    if (section.sh_type == SHT_NOBITS) {
      return Wrong(path, "is an ELF file without BTF");
    }
    bytes = section.sh_size > kMostBytes ? section.sh_size
                                         : bytes + section.sh_size;
    if (bytes > kMostBytes) return TooLarge(path, bytes);
  }
  return absl::OkStatus();
}

absl::Status CheckElf(const std::string& path, int fd) {
  unsigned char ident[EI_NIDENT] = {};
  if (!ReadAt(fd, 0, ident, sizeof(ident))) {
    return Wrong(path, "is an ELF file that is cut short");
  }
  constexpr unsigned char kOurOrder =
      __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ELFDATA2LSB : ELFDATA2MSB;
  if (ident[EI_DATA] != kOurOrder) {
    return Wrong(path, "is of a machine with another byte order");
  }
  return ident[EI_CLASS] == ELFCLASS32
             ? CheckSections<Elf32_Ehdr, Elf32_Shdr>(path, fd)
             : CheckSections<Elf64_Ehdr, Elf64_Shdr>(path, fd);
}

// What libbpf takes for granted of types. Damaged ones let it look for minutes, follow a
// type that leads back to itself for ever, or read what is not there.
class TypesCheck {
 public:
  explicit TypesCheck(const btf* types)
      : types_(types), count_(btf__type_cnt(types)), seen_(count_, Seen{}) {}

  // What is wrong with them; "" if nothing is.
  std::string FindWrong() {
    uint32_t size = 0;
    const auto* const bytes =
        static_cast<const char*>(btf__raw_data(types_, &size));
    btf_header header = {};
    if (bytes == nullptr || size < sizeof(header)) return "no types";
    memcpy(&header, bytes, sizeof(header));
    strings_ = bytes + header.hdr_len + header.str_off;
    strings_size_ = header.str_len;
    if (!NamesAreText()) {
      return absl::StrCat("its names are no text, or longer than ",
                          kMostNameBytes, " bytes");
    }
    uint64_t bytes_of_names = 0;
    for (uint32_t id = 1; id < count_; id++) {
      const btf_type* const type = btf__type_by_id(types_, id);
      if (!RefersToWhatIsThere(*type)) {
        return absl::StrCat("type ", id, " refers to what is not there");
      }
      bytes_of_names += strlen(strings_ + type->name_off);
    }
    if (bytes_of_names > kMostBytesOfNames) {
      return absl::StrCat("its types have ", bytes_of_names, " bytes of names");
    }
    if (SomeNameIsOfTooMany()) {
      return absl::StrCat("more than ", kMostOfOneName,
                          " of its types have one name");
    }
    for (uint32_t id = 1; id < count_; id++) {
      if (!Measure(id, 0)) {
        return absl::StrCat("type ", id, " holds itself, or too many others");
      }
    }
    return "";
  }

 private:
  struct Seen {
    bool begun = false;
    uint32_t depth = 0;    // of the types that it holds; 0: not known yet
    uint32_t members = 0;  // with those of its members without a name
  };

  // All of them at once: each offset below the end is then one of a short text. "long
  // unsigned int" has spaces, and a tag or a section (".data") may have what it likes.
  bool NamesAreText() const {
    uint32_t length = 0;
    for (uint32_t i = 0; i < strings_size_; i++) {
      const char at = strings_[i];
      length = at == '\0' ? 0 : length + 1;
      if (length > kMostNameBytes) return false;
      if (at != '\0' && (at < ' ' || at > '~')) return false;
    }
    return length == 0;
  }

  bool IsThere(uint32_t name, uint32_t type) const {
    return name < strings_size_ && type < count_;
  }

  bool RefersToWhatIsThere(const btf_type& type) const {
    if (!IsThere(type.name_off, 0)) return false;
    const uint32_t length = btf_vlen(&type);
    bool good = true;
    switch (btf_kind(&type)) {
      case BTF_KIND_ARRAY:
        return IsThere(0, btf_array(&type)->type) &&
               IsThere(0, btf_array(&type)->index_type);
      case BTF_KIND_STRUCT:
      case BTF_KIND_UNION:
        for (uint32_t i = 0; i < length; i++) {
          const btf_member& member = btf_members(&type)[i];
          good &= IsThere(member.name_off, member.type);
        }
        return good;
      case BTF_KIND_ENUM:
        for (uint32_t i = 0; i < length; i++) {
          good &= IsThere(btf_enum(&type)[i].name_off, 0);
        }
        return good;
      case BTF_KIND_ENUM64:
        for (uint32_t i = 0; i < length; i++) {
          good &= IsThere(btf_enum64(&type)[i].name_off, 0);
        }
        return good;
      case BTF_KIND_FUNC_PROTO:
        for (uint32_t i = 0; i < length; i++) {
          const btf_param& param = btf_params(&type)[i];
          good &= IsThere(param.name_off, param.type);
        }
        return good && IsThere(0, type.type);
      case BTF_KIND_DATASEC:
        for (uint32_t i = 0; i < length; i++) {
          good &= IsThere(0, btf_var_secinfos(&type)[i].type);
        }
        return good;
      case BTF_KIND_INT:
      case BTF_KIND_FLOAT:
      case BTF_KIND_FWD:
        return true;  // no type; what is there is a size, or nothing
      default:
        return IsThere(0, type.type);
    }
  }

  // By a number for each name: two names with the same one are as likely as a damaged
  // disk, and no harm. Functions and tags have the names that they like.
  bool SomeNameIsOfTooMany() const {
    std::vector<size_t> names;
    for (uint32_t id = 1; id < count_; id++) {
      const btf_type* const type = btf__type_by_id(types_, id);
      if (!btf_is_int(type) && !btf_is_float(type) && !btf_is_composite(type) &&
          !btf_is_any_enum(type) && !btf_is_fwd(type) &&
          !btf_is_typedef(type)) {
        continue;
      }
      const std::string_view name(strings_ + type->name_off);
      if (name.empty()) continue;
      names.push_back(
          std::hash<std::string_view>()(name.substr(0, LengthOf(name))));
    }
    std::sort(names.begin(), names.end());
    for (size_t i = kMostOfOneName; i < names.size(); i++) {
      if (names[i] == names[i - kMostOfOneName]) return true;
    }
    return false;
  }

  // Without the flavor, as libbpf compares it: "task_struct___old" is a task_struct.
  static size_t LengthOf(std::string_view name) {
    for (size_t i = name.size(); i >= 5; i--) {
      const std::string_view at = name.substr(i - 5, 5);
      if (at[0] != '_' && at.substr(1, 3) == "___" && at[4] != '_') {
        return i - 4;
      }
    }
    return name.size();
  }

  // What a type holds, and is no pointer to: no more than libbpf can look through. A
  // member without a name is looked into, time and again. False where it is too much, or
  // itself. `above`: how many hold it.
  bool Measure(uint32_t id, uint32_t above) {
    if (id == 0 || seen_[id].depth != 0) return true;
    if (seen_[id].begun || above > kMostDepth) return false;
    seen_[id].begun = true;
    const btf_type& type = *btf__type_by_id(types_, id);
    Seen sum;
    if (btf_is_composite(&type)) {
      for (uint32_t i = 0; i < btf_vlen(&type); i++) {
        const btf_member& member = btf_members(&type)[i];
        if (!Measure(member.type, above + 1)) return false;
        const Seen& inner = seen_[member.type];
        sum.depth = std::max(sum.depth, inner.depth);
        sum.members += 1;
        if (strings_[member.name_off] == '\0') sum.members += inner.members;
        if (sum.members > kMostMembers) return false;
      }
    } else if (btf_is_mod(&type) || btf_is_typedef(&type)) {
      if (!Measure(type.type, above + 1)) return false;
      sum = seen_[type.type];
    } else if (btf_is_array(&type)) {
      if (!Measure(btf_array(&type)->type, above + 1)) return false;
      sum.depth = seen_[btf_array(&type)->type].depth;
    }
    if (sum.depth >= kMostDepth) return false;
    seen_[id].depth = sum.depth + 1;
    seen_[id].members = sum.members;
    return true;
  }

  const btf* const types_;
  const uint32_t count_;
  std::vector<Seen> seen_;  // by id
  const char* strings_ = nullptr;
  uint32_t strings_size_ = 0;
};

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
  UniqueFd file;
  NETMETER_RETURN_IF_ERROR(ReadBegin(path, &size, &begin, &file));
  const bool is_elf = begin.compare(0, SELFMAG, ELFMAG) == 0;
  NETMETER_RETURN_IF_ERROR(is_elf ? CheckElf(path, file.get())
                                  : CheckHeader(path, size, begin));
  const std::unique_ptr<btf, decltype(&btf__free)> types(
      btf__parse(path.c_str(), nullptr), btf__free);
  if (!types) {
    // libbpf's own word for an ELF file without that section.
    return Wrong(path, is_elf && (errno == ENODATA || errno == ENOENT)
                           ? "is an ELF file without BTF"
                           : absl::StrCat("is damaged: ", strerror(errno)));
  }
  if (is_elf) {
    uint32_t bytes = 0;
    const auto* const raw =
        static_cast<const char*>(btf__raw_data(types.get(), &bytes));
    NETMETER_RETURN_IF_ERROR(CheckHeader(
        path, bytes,
        std::string(raw, std::min<size_t>(bytes, sizeof(btf_header)))));
  }
  const std::string wrong = TypesCheck(types.get()).FindWrong();
  if (!wrong.empty()) return Wrong(path, absl::StrCat("is damaged: ", wrong));
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
