// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/kernel_types.h"

#include <bpf/btf.h>
#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace netmeter {
namespace internal {
namespace {

using testing::HasSubstr;
using testing::Not;

class KernelTypesTest : public testing::Test {
 protected:
  void SetUp() override { unlink(path_.c_str()); }
  void TearDown() override { unlink(path_.c_str()); }

  void Write(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary) << bytes;
  }
  // "" if the file can serve.
  std::string Error(const std::string& path) const {
    return std::string(CheckTypesFile(path).message());
  }
  std::string Error() const { return Error(path_); }

  // Types as a kernel's, with this one structure.
  static std::string TypesWith(const char* structure) {
    return TypesWith(structure, [](btf*) {});
  }
  // The same, and what `add` adds: its first type has the id kNext.
  static constexpr int kNext = 3;
  static std::string TypesWith(const char* structure,
                               const std::function<void(btf*)>& add) {
    const std::unique_ptr<btf, decltype(&btf__free)> types(btf__new_empty(),
                                                           btf__free);
    btf__add_int(types.get(), "unsigned long", 8, 0);
    btf__add_struct(types.get(), structure, 8);
    add(types.get());
    uint32_t size = 0;
    const void* bytes = btf__raw_data(types.get(), &size);
    return std::string(static_cast<const char*>(bytes), size);
  }

  // One byte after the other: an error, or types.
  void ReadWithEachByteDamaged(const std::string& whole) const {
    for (size_t i = 0; i < whole.size(); ++i) {
      for (const char value : {'\0', '\xff', '\x7f'}) {
        std::string damaged = whole;
        damaged[i] = value;
        Write(damaged);
        Error();
      }
    }
  }

  // Of a kernel's types with these.
  std::string ErrorWith(const std::function<void(btf*)>& add) const {
    Write(TypesWith("task_struct", add));
    return Error();
  }

  const std::string path_ = std::string(std::getenv("TEST_TMPDIR")) + "/types";
};

TEST_F(KernelTypesTest, AKernelsTypesServe) {
  Write(TypesWith("task_struct"));
  EXPECT_EQ(Error(), "");
  EXPECT_TRUE(CheckTypesFile(path_).ok());
}

TEST_F(KernelTypesTest, AFileThatIsMissingIsSaidToBe) {
  EXPECT_EQ(Error(), "btf: read " + path_ + ": No such file or directory");
}

TEST_F(KernelTypesTest, AFileThatIsCutShortIsSaidToBe) {
  const std::string whole = TypesWith("task_struct");
  for (size_t size = 8; size < whole.size(); ++size) {
    Write(whole.substr(0, size));
    EXPECT_THAT(Error(), HasSubstr(": is cut short: it has " +
                                   std::to_string(size) + " bytes of "));
  }
  for (size_t size = 0; size < 8; ++size) {
    Write(whole.substr(0, size));
    EXPECT_NE(Error(), "") << size;
  }
}

TEST_F(KernelTypesTest, WhatIsNoBtfIsSaidToBe) {
  for (const char* bytes : {"", "#", "services: [mme]\n"}) {
    Write(bytes);
    EXPECT_EQ(Error(),
              "btf: " + path_ + ": is neither BTF nor an ELF file with BTF");
  }
  EXPECT_EQ(Error("/proc/self/exe"),
            "btf: /proc/self/exe: is an ELF file without BTF");
}

TEST_F(KernelTypesTest, TypesOfSomethingElseAreSaidToBe) {
  Write(TypesWith("tcphdr"));
  EXPECT_THAT(Error(), HasSubstr("not of a kernel: no struct task_struct"));
  std::string swapped = TypesWith("task_struct");
  std::swap(swapped[0], swapped[1]);
  Write(swapped);
  EXPECT_THAT(Error(), HasSubstr("another byte order"));
}

// Each byte of the header and of the types, one after the other: an error, or types.
TEST_F(KernelTypesTest, DamagedTypesCrashNothing) {
  const std::string whole = TypesWith("task_struct");
  ReadWithEachByteDamaged(whole);
}

// The bug: with all names but one overwritten by one letter, a load was busy for more
// minutes than anybody waits. libbpf goes through each name to its end, for each type
// that a program uses.
TEST_F(KernelTypesTest, NamesThatAreNoTextOrHaveNoEndAreRefused) {
  const auto with_name = [this](const std::string& name) {
    return ErrorWith([&](btf* types) {
      btf__add_struct(types, name.c_str(), 8);
      btf__add_typedef(types, "alias", kNext);
    });
  };
  for (const char* name : {"long long unsigned int", ".data..percpu", "x",
                           "address_space(1)", "Option<alloc::Box>"}) {
    EXPECT_EQ(with_name(name), "");
  }
  EXPECT_EQ(with_name(std::string(1023, 'x')), "");
  for (const std::string& name :
       {std::string(1024, 'x'), std::string(1 << 20, 'x'), std::string("\x01"),
        std::string("task\nstruct"), std::string("\xff\xfe")}) {
    EXPECT_EQ(with_name(name), "btf: " + path_ +
                                   ": is damaged: its names are no text, or "
                                   "longer than 1023 bytes");
  }
}

// None is too long, but there would be as much to read.
TEST_F(KernelTypesTest, OneLongNameForManyTypesIsRefused) {
  const std::string name(1000, 'x');
  const auto with_types = [&](int count) {
    return ErrorWith([&](btf* types) {
      for (int i = 0; i < count; i++) {
        // 100 of each name.
        const std::string own = absl::StrCat(i / 100, name);
        btf__add_struct(types, own.substr(0, name.size()).c_str(), 8);
      }
    });
  };
  EXPECT_EQ(with_types(1000), "");
  EXPECT_THAT(with_types(34000), HasSubstr(" bytes of names"));
}

TEST_F(KernelTypesTest, TypesThatReferToWhatIsNotThereAreRefused) {
  const std::function<void(btf*)> wrong[] = {
      [](btf* types) { btf__add_ptr(types, kNext + 1); },
      [](btf* types) { btf__add_typedef(types, "t", 0x70000000); },
      [](btf* types) { btf__add_array(types, kNext + 1, 1, 1); },
      [](btf* types) { btf__add_array(types, 1, kNext + 1, 1); },
      [](btf* types) {
        btf__add_struct(types, "s", 8);
        btf__add_field(types, "f", kNext + 1, 0, 0);
      },
      [](btf* types) { btf__add_func_proto(types, kNext + 1); },
      [](btf* types) {
        btf__add_func_proto(types, 0);
        btf__add_func_param(types, "p", kNext + 1);
      },
      [](btf* types) {
        btf__add_datasec(types, ".data", 8);
        btf__add_datasec_var_info(types, kNext + 1, 0, 8);
      },
  };
  for (const auto& add : wrong) {
    EXPECT_EQ(ErrorWith(add), "btf: " + path_ +
                                  ": is damaged: type 3 refers to what is not "
                                  "there");
  }
  // A name, after the last one: of a type, a member, a value and a parameter.
  constexpr uint32_t kFar = 0x100000;
  const std::function<void(btf*)> names[] = {
      [](btf* types) {
        btf__add_struct(types, "s", 8);
        const_cast<btf_type*>(btf__type_by_id(types, kNext))->name_off = kFar;
      },
      [](btf* types) {
        btf__add_struct(types, "s", 8);
        btf__add_field(types, "f", 1, 0, 0);
        btf_members(btf__type_by_id(types, kNext))->name_off = kFar;
      },
      [](btf* types) {
        btf__add_enum(types, "e", 4);
        btf__add_enum_value(types, "v", 1);
        btf_enum(btf__type_by_id(types, kNext))->name_off = kFar;
      },
      [](btf* types) {
        btf__add_enum64(types, "e", 8, false);
        btf__add_enum64_value(types, "v", 1);
        btf_enum64(btf__type_by_id(types, kNext))->name_off = kFar;
      },
      [](btf* types) {
        btf__add_func_proto(types, 0);
        btf__add_func_param(types, "p", 1);
        btf_params(btf__type_by_id(types, kNext))->name_off = kFar;
      },
  };
  for (const auto& add : names) {
    EXPECT_THAT(ErrorWith(add), HasSubstr("refers to what is not there"));
  }
}

// libbpf follows a typedef of itself for ever.
TEST_F(KernelTypesTest, TypesThatHoldThemselvesAreRefused) {
  const char* const error = ": is damaged: type 3 holds itself, or too many";
  EXPECT_THAT(
      ErrorWith([](btf* types) { btf__add_typedef(types, "t", kNext); }),
      HasSubstr(error));
  EXPECT_THAT(ErrorWith([](btf* types) {
                btf__add_const(types, kNext + 1);
                btf__add_volatile(types, kNext + 2);
                btf__add_struct(types, "s", 8);
                btf__add_field(types, "f", kNext + 3, 0, 0);
                btf__add_array(types, 1, kNext, 1);
              }),
              HasSubstr(error));
  // By a pointer a structure may.
  EXPECT_EQ(ErrorWith([](btf* types) {
              btf__add_struct(types, "list_head", 16);
              btf__add_field(types, "next", kNext + 1, 0, 0);
              btf__add_field(types, "prev", kNext + 1, 64, 0);
              btf__add_ptr(types, kNext);
            }),
            "");
}

// Each has the next one twice, without a name, as libbpf would see all of them.
TEST_F(KernelTypesTest, TypesThatUnfoldWithoutEndAreRefused) {
  const auto of_depth = [this](int depth) {
    return ErrorWith([depth](btf* types) {
      for (int i = 0; i < depth; i++) {
        btf__add_struct(types, nullptr, 8);
        const int next = i + 1 < depth ? kNext + i + 1 : 1;
        btf__add_field(types, nullptr, next, 0, 0);
        btf__add_field(types, nullptr, next, 0, 0);
      }
    });
  };
  EXPECT_EQ(of_depth(10), "");
  EXPECT_THAT(of_depth(40), HasSubstr("holds itself, or too many"));
  const auto chain = [this](int depth) {
    return ErrorWith([depth](btf* types) {
      for (int i = 0; i < depth; i++) {
        btf__add_const(types, i + 1 < depth ? kNext + i + 1 : 1);
      }
    });
  };
  EXPECT_EQ(chain(200), "");
  EXPECT_THAT(chain(300), HasSubstr("holds itself, or too many"));
}

// An ELF file as small as can be: sections without a name, .shstrtab, and those of these
// names, which all have the same bytes. `size` and `type` are what their headers say.
std::string ElfWith(const std::vector<std::string>& sections,
                    const std::string& bytes, uint64_t size,
                    uint32_t type = SHT_PROGBITS) {
  Elf64_Ehdr header = {};
  memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] =
      __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ELFDATA2LSB : ELFDATA2MSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_type = ET_EXEC;
  header.e_version = EV_CURRENT;
  header.e_ehsize = sizeof(header);
  header.e_shoff = sizeof(header);
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = static_cast<Elf64_Half>(2 + sections.size());
  header.e_shstrndx = 1;
  std::vector<Elf64_Shdr> table(2 + sections.size(), Elf64_Shdr{});
  std::string names = std::string("\0.shstrtab\0", 11);
  const uint64_t end = header.e_shoff + table.size() * sizeof(Elf64_Shdr);
  for (size_t i = 0; i < sections.size(); i++) {
    Elf64_Shdr& section = table[2 + i];
    section.sh_name = static_cast<Elf64_Word>(names.size());
    section.sh_type = type;
    section.sh_offset = end;
    section.sh_size = size;
    section.sh_addralign = 1;
    names += sections[i] + '\0';
  }
  table[1].sh_name = 1;
  table[1].sh_type = SHT_STRTAB;
  table[1].sh_offset = end + bytes.size();
  table[1].sh_size = names.size();
  table[1].sh_addralign = 1;
  return std::string(reinterpret_cast<const char*>(&header), sizeof(header)) +
         std::string(reinterpret_cast<const char*>(table.data()),
                     table.size() * sizeof(Elf64_Shdr)) +
         bytes + names;
}

constexpr uint64_t kMost = 64 << 20;
const char* const kTooLarge = "is too large for the types of a kernel: ";

TEST_F(KernelTypesTest, AFileThatIsTooLargeIsRefused) {
  Write(TypesWith("task_struct"));
  ASSERT_EQ(truncate(path_.c_str(), kMost), 0);
  EXPECT_THAT(Error(), Not(HasSubstr(kTooLarge)));
  ASSERT_EQ(truncate(path_.c_str(), kMost + 1), 0);
  EXPECT_THAT(Error(), HasSubstr(absl::StrCat(kTooLarge, kMost + 1)));
}

// It was looked at when all of it had been read: 3.9 GB, which take no room on the disk,
// took 8 GB of memory and 47 seconds, in which the loader had the lock.
TEST_F(KernelTypesTest, OfAnElfFileNothingIsReadThatIsTooLarge) {
  const std::string types = TypesWith("task_struct");
  Write(ElfWith({".BTF"}, types, types.size()));
  EXPECT_EQ(Error(), "");
  Write(ElfWith({".text", ".BTF_ids", ".BTF"}, types, types.size()));
  EXPECT_EQ(Error(), "");

  const uint64_t huge = uint64_t{3900} << 20;
  for (const char* name : {".BTF", ".BTF.ext", ".BTF.base"}) {
    SCOPED_TRACE(name);
    Write(ElfWith({name}, types, kMost));
    ASSERT_EQ(truncate(path_.c_str(), huge * 2), 0);
    EXPECT_THAT(Error(), Not(HasSubstr(kTooLarge)));
    for (const uint64_t size : {kMost + 1, huge}) {
      Write(ElfWith({name}, types, size));
      ASSERT_EQ(truncate(path_.c_str(), huge * 2), 0);
      EXPECT_EQ(Error(),
                absl::StrCat("btf: ", path_, ": ", kTooLarge, size, " bytes"));
    }
  }
  // Often the same one, which would be read as often.
  Write(ElfWith(std::vector<std::string>(1000, ".BTF"), types, 1 << 20));
  ASSERT_EQ(truncate(path_.c_str(), kMost), 0);
  EXPECT_THAT(Error(), HasSubstr(absl::StrCat(kTooLarge, 65 << 20)));
  // The names of the sections.
  std::string names = ElfWith({".BTF"}, types, types.size());
  memcpy(&names[sizeof(Elf64_Ehdr) + sizeof(Elf64_Shdr) +
                offsetof(Elf64_Shdr, sh_size)],
         &huge, sizeof(huge));
  Write(names);
  ASSERT_EQ(truncate(path_.c_str(), huge * 2), 0);
  EXPECT_THAT(Error(), HasSubstr(kTooLarge));
}

// What `objcopy --only-keep-debug` leaves of a kernel has a section without its bytes.
TEST_F(KernelTypesTest, ElfFilesThatAreDamagedAreRefused) {
  const std::string types = TypesWith("task_struct");
  Write(ElfWith({".BTF"}, types, types.size(), SHT_NOBITS));
  EXPECT_EQ(Error(), "btf: " + path_ + ": is an ELF file without BTF");
  const std::string whole = ElfWith({".BTF"}, types, types.size());
  for (size_t size = 4; size < whole.size(); ++size) {
    Write(whole.substr(0, size));
    EXPECT_NE(Error(), "") << size;
  }
  ReadWithEachByteDamaged(whole);
  std::string swapped = whole;
  swapped[EI_DATA] ^= ELFDATA2LSB ^ ELFDATA2MSB;
  Write(swapped);
  EXPECT_THAT(Error(), HasSubstr("another byte order"));
}

// libbpf tried each of 2.9 million structures called task_struct, for a minute. Kernels
// have at most 4 types of one name.
TEST_F(KernelTypesTest, ANameOfTooManyTypesIsRefused) {
  const auto with = [this](int count,
                           const std::function<void(btf*, int)>& add) {
    return ErrorWith([&](btf* types) {
      for (int i = 0; i < count; i++) add(types, i);
    });
  };
  const std::string error = "btf: " + path_ +
                            ": is damaged: more than 256 of its types have one "
                            "name";
  const std::function<void(btf*, int)> kinds[] = {
      [](btf* types, int) { btf__add_struct(types, "x", 8); },
      [](btf* types, int) { btf__add_union(types, "x", 8); },
      [](btf* types, int) { btf__add_enum(types, "x", 4); },
      [](btf* types, int) { btf__add_enum64(types, "x", 8, false); },
      [](btf* types, int) { btf__add_int(types, "x", 4, 0); },
      [](btf* types, int) { btf__add_float(types, "x", 4); },
      [](btf* types, int) { btf__add_typedef(types, "x", 1); },
      [](btf* types, int) { btf__add_fwd(types, "x", BTF_FWD_STRUCT); },
      // libbpf takes these for one name.
      [](btf* types, int i) {
        btf__add_struct(types, absl::StrCat("x___", i).c_str(), 8);
      },
  };
  for (const auto& kind : kinds) {
    EXPECT_EQ(with(256, kind), "");
    EXPECT_EQ(with(257, kind), error);
  }
  // There is a task_struct already.
  const auto task = [](btf* types, int) {
    btf__add_struct(types, "task_struct", 8);
  };
  EXPECT_EQ(with(255, task), "");
  EXPECT_EQ(with(256, task), error);
  // Many have no name, and many static functions the same.
  EXPECT_EQ(
      with(1000, [](btf* types, int) { btf__add_struct(types, nullptr, 8); }),
      "");
  EXPECT_EQ(with(1000,
                 [](btf* types, int) {
                   const int type = btf__add_func_proto(types, 0);
                   btf__add_func(types, "init", BTF_FUNC_STATIC, type);
                 }),
            "");
}

TEST_F(KernelTypesTest, TheTypesOfThisKernelServe) {
  if (!KernelShowsTypes()) GTEST_SKIP() << "the kernel shows no types";
  EXPECT_EQ(Error("/sys/kernel/btf/vmlinux"), "");
}

// It is never opened: nobody might ever write into it.
TEST_F(KernelTypesTest, WhatIsNoRegularFileIsRefusedAtOnce) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(Error(), "btf: " + path_ + ": is no regular file");
  EXPECT_EQ(Error("/"), "btf: /: is no regular file");
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
