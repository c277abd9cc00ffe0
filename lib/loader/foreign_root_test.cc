// SPDX-License-Identifier: BSD-3-Clause
// What is not ours is left alone, and what the loader cannot do it explains.

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/cgroup.h"
#include "lib/base/kernel_object.h"
#include "lib/base/pins.h"
#include "lib/base/unique_fd.h"
#include "lib/loader/load.h"
#include "lib/loader/loader_fixture.h"
#include "lib/loader/object.h"
#include "lib/loader/status.h"
#include "lib/loader/system.h"
#include "lib/loader/unload.h"
#include "netmeter/abi.h"
#include "netmeter/meter.h"

namespace netmeter {
namespace internal {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

// Another program, which lets all packets pass: a descriptor, or -1 with errno.
int LoadForeign(bpf_prog_type type, bpf_attach_type where, const char* name,
                int verdict = 1) {
  const bpf_insn pass[] = {{BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, verdict},
                           {BPF_JMP | BPF_EXIT, 0, 0, 0, 0}};
  LIBBPF_OPTS(bpf_prog_load_opts, options);
  options.expected_attach_type = where;
  return bpf_prog_load(type, name, "GPL", pass, 2, &options);
}

TEST_F(LoaderRootTest, AnotherCgroupAtTheSamePinsIsRefused) {
  MustLoad();
  const std::string other = absl::StrCat(cgroup_, "/inner");
  ASSERT_EQ(mkdir(other.c_str(), 0755), 0);
  config_.cgroup = other;
  EXPECT_THAT(LoadError(), HasSubstr("choose another --pin-dir"));
  rmdir(other.c_str());
  config_.cgroup = cgroup_;
}

TEST_F(LoaderRootTest, ForeignFilesAreLeftAlone) {
  ASSERT_EQ(mkdir(config_.pin_dir.c_str(), 0755), 0);
  const std::string file = Pin("precious");
  std::ofstream(file) << "data";
  EXPECT_THAT(LoadError(),
              HasSubstr("has no meter, but foreign files (precious)"));
  EXPECT_EQ(access(file.c_str(), F_OK), 0);
  unlink(file.c_str());
  rmdir(config_.pin_dir.c_str());
}

// Unload knew the pins of its own version only, and left a newer one's behind.
TEST_F(LoaderRootTest, PinsOfOtherVersionsAreRemovedWithTheMeter) {
  MustLoad();
  UniqueFd newer(
      bpf_map_create(BPF_MAP_TYPE_ARRAY, "nm_of_tomorrow", 4, 4, 1, nullptr));
  ASSERT_TRUE(newer.ok()) << strerror(errno);
  ASSERT_EQ(bpf_obj_pin(newer.get(), Pin("of_tomorrow").c_str()), 0);
  ASSERT_EQ(bpf_obj_pin(newer.get(), Pin("of_yesterday").c_str()), 0);
  bool was_loaded;
  std::string note;
  ASSERT_TRUE(Unload(config_.pin_dir, &was_loaded, &note).ok());
  EXPECT_NE(access(Pin("of_tomorrow").c_str(), F_OK), 0);
  EXPECT_THAT(note, HasSubstr(Pin("of_yesterday") + " does not belong to"));
  unlink(Pin("of_yesterday").c_str());
}

// Where /run was full it said "No space left on device (run as root)", to root.
TEST_F(LoaderRootTest, AFullRunIsNoLackOfPrivilege) {
  EXPECT_EQ(InChild([] {
              if (unshare(CLONE_NEWNS) != 0 ||
                  mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
                  mount("full", "/run", "tmpfs", 0, "nr_inodes=1") != 0) {
                return 2;
              }
              const auto lock = LockDirectory("/run/x", LOCK_EX, kLockTime);
              return absl::IsResourceExhausted(lock.status()) &&
                             absl::EndsWith(lock.status().message(),
                                            ": No space left on device")
                         ? 0
                         : 1;
            }),
            0);
  EXPECT_EQ(
      InChild([] {
        if (unshare(CLONE_NEWNS) != 0 ||
            mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
            mount("roots", "/run", "tmpfs", 0, "mode=0755") != 0 ||
            !BecomeUser(kNobody)) {
          return 2;
        }
        const auto lock = LockDirectory("/run/x", LOCK_EX, kLockTime);
        return absl::EndsWith(lock.status().message(), "(run as root)") ? 0 : 1;
      }),
      0);
}

// One before the counters of resets and time-outs: its map `tcp` has shorter values. It
// goes on as it is.
TEST_F(LoaderRootTest, AMeterWithShorterConnectionsIsRefusedAndGoesOn) {
  EXPECT_EQ(MustLoad(), Action::kLoaded);
  const UniqueFd real(bpf_obj_get(Pin("info").c_str()));
  ASSERT_TRUE(real.ok());
  const uint32_t zero = 0;
  nm_info info;
  ASSERT_EQ(bpf_map_lookup_elem(real.get(), &zero, &info), 0);
  info.tcp_size = 128;
  const UniqueFd older(bpf_map_create(BPF_MAP_TYPE_ARRAY, "nm_info", 4,
                                      sizeof(info), 1, nullptr));
  ASSERT_TRUE(older.ok());
  ASSERT_EQ(bpf_map_update_elem(older.get(), &zero, &info, BPF_ANY), 0);
  ASSERT_EQ(unlink(Pin("info").c_str()), 0);
  ASSERT_EQ(bpf_obj_pin(older.get(), Pin("info").c_str()), 0);
  EXPECT_THAT(LoadError(), HasSubstr("netmeter-loader unload"));
  EXPECT_EQ(access(Pin("link_egress").c_str(), F_OK), 0);
  bool was_loaded;
  EXPECT_TRUE(Unload(config_.pin_dir, &was_loaded).ok());
  EXPECT_TRUE(was_loaded);
  EXPECT_EQ(MustLoad(), Action::kLoaded);
}

// A newer version may lengthen them. The kernel writes a whole value: status and
// evict gave it room for their own, on the stack of a root.
TEST_F(LoaderRootTest, ValuesThatAreLongerThanOursAreNotReadIntoOurs) {
  ASSERT_TRUE(MakePinDirectory(config_.pin_dir).ok());
  const struct {
    const char* pin;
    bpf_map_type type;
    uint32_t key_size;
  } pins[] = {{"stats", BPF_MAP_TYPE_ARRAY, 4},
              {"info", BPF_MAP_TYPE_ARRAY, 4},
              {"free_slots", BPF_MAP_TYPE_QUEUE, 0},
              {"processes", BPF_MAP_TYPE_HASH, 64}};
  const std::vector<char> value(65536, 'x');
  for (const auto& pin : pins) {
    const UniqueFd map(bpf_map_create(
        pin.type, absl::StrCat("nm_", pin.pin).c_str(), pin.key_size,
        static_cast<uint32_t>(value.size()), 1, nullptr));
    ASSERT_TRUE(map.ok()) << pin.pin << ": " << strerror(errno);
    const std::vector<char> key(pin.key_size);
    ASSERT_EQ(
        bpf_map_update_elem(map.get(), pin.key_size == 0 ? nullptr : key.data(),
                            value.data(), BPF_ANY),
        0);
    ASSERT_EQ(bpf_obj_pin(map.get(), Pin(pin.pin).c_str()), 0);
  }
  EXPECT_FALSE(GetStatus(config_.pin_dir).ok());

  EXPECT_NE(LoadError(), "");
  for (const auto& pin : pins) unlink(Pin(pin.pin).c_str());
}

TEST_F(LoaderRootTest, AFileAsPinDirectoryIsAClearError) {
  std::ofstream(config_.pin_dir) << "x";
  const std::string error = "open " + config_.pin_dir + ": Not a directory";
  bool was_loaded;
  EXPECT_EQ(LoadError(), error + "; nothing was changed");
  EXPECT_EQ(Unload(config_.pin_dir, &was_loaded).message(), error);
  EXPECT_NE(access(LockFile(config_.pin_dir).c_str(), F_OK), 0);
  unlink(config_.pin_dir.c_str());
}

// It also left its configuration. The next load took the cgroup and the sizes from it.
TEST_F(LoaderRootTest, WithoutADirectoryAboveItIsSaid) {
  const std::string above = config_.pin_dir;
  config_.pin_dir += "/pins";
  config_.max_series = 100;
  EXPECT_THAT(LoadError(),
              HasSubstr(": No such file or directory (make the directory above "
                        "it first); nothing is loaded"));
  EXPECT_NE(access(LockFile(config_.pin_dir).c_str(), F_OK), 0);
  ASSERT_EQ(mkdir(above.c_str(), 0755), 0);
  const absl::StatusOr<LoadResult> next = Load(
      config_.pin_dir, [this](Config* config) { config->cgroup = cgroup_; });
  EXPECT_TRUE(next.ok()) << next.status();
  EXPECT_THAT(next->notes, Each(Not(HasSubstr("configuration"))));
  const absl::StatusOr<std::string> config = LoadedConfig(config_.pin_dir);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(*config,
              HasSubstr(absl::StrCat("max_series: ", Config().max_series)));
  bool was_loaded = false;
  EXPECT_TRUE(Unload(config_.pin_dir, &was_loaded).ok());
  EXPECT_EQ(rmdir(above.c_str()), 0);
}

TEST_F(LoaderRootTest, ADirectoryThatIsNoCgroupIsRefused) {
  config_.cgroup = "/tmp";
  EXPECT_THAT(LoadError(), HasSubstr("not a cgroup v2 directory"));
  config_.cgroup = "/sys/fs/no-such-cgroup";
  EXPECT_THAT(LoadError(), HasSubstr("No such file or directory"));
}

TEST_F(LoaderRootTest, WithoutPrivilegeItSaysWhatIsMissing) {
  EXPECT_EQ(InChild([&] {
              if (!BecomeUser(kNobody)) return 2;
              absl::StatusOr<LoadResult> result = Load(config_);
              return !result.ok() &&
                             absl::IsPermissionDenied(result.status()) &&
                             result.status().message().find("CAP_BPF") !=
                                 absl::string_view::npos
                         ? 0
                         : 1;
            }),
            0);
}

// What this mount namespace does not show, a kernel does not have.
TEST_F(LoaderRootTest, AKernelWithoutBtfIsAClearError) {
  EXPECT_EQ(
      InChild([this] {
        if (unshare(CLONE_NEWNS) != 0 ||
            mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
            mount("none", "/sys/kernel/btf", "tmpfs", 0, "") != 0) {
          return 1;
        }
        const absl::Status status = Load(config_).status();
        return absl::StrContains(status.message(),
                                 "the kernel has no BTF "
                                 "(CONFIG_DEBUG_INFO_BTF)")
                   ? 0
                   : 2;
      }),
      0);
  EXPECT_NE(access(config_.pin_dir.c_str(), F_OK), 0);
}

// On this kernel with a file of its types, the meter counts, and the next load knows the
// file. Parts that need the kernel's own types are off.
TEST_F(LoaderRootTest, AKernelWithoutBtfTakesItFromAFile) {
  const std::string types = std::string(getenv("TEST_TMPDIR")) + "/types";
  std::ofstream(types, std::ios::binary)
      << std::ifstream("/sys/kernel/btf/vmlinux", std::ios::binary).rdbuf();
  // The pins, too, are in the child's mounts alone.
  const int status = InChild([&] {
    if (unshare(CLONE_NEWNS) != 0 ||
        mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("none", "/sys/kernel/btf", "tmpfs", 0, "") != 0) {
      return 1;
    }
    config_.btf = types + "-none";
    EXPECT_EQ(LoadError(),
              "btf: read " + types +
                  "-none: No such file or directory; nothing was changed");
    config_.btf = types + "-damaged";
    std::ofstream(config_.btf) << "no types";
    EXPECT_THAT(
        LoadError(),
        HasSubstr("-damaged: libbpf reads no types of a kernel in it: "));
    EXPECT_EQ(truncate(config_.btf.c_str(), off_t{2} << 30), 0);
    EXPECT_THAT(LoadError(), HasSubstr("a regular file of at most 1 GiB"));
    EXPECT_NE(access(config_.pin_dir.c_str(), F_OK), 0);
    config_.btf = types;
    EXPECT_EQ(MustLoad(), Action::kLoaded);
    SendFromCgroup(1000);
    EXPECT_EQ(PayloadSent(), 1000u);
    EXPECT_THAT(MustStatus().text,
                HasSubstr("the kernel has no BTF of its own"));
    // Of one that names no file the loaded configuration does.
    const auto again = Load(config_.pin_dir, [](Config*) {});
    EXPECT_TRUE(again.ok() && again->action == Action::kUnchanged)
        << again.status();
    // A reader is told of larger tables and of the end, neither of which needs the file:
    // both were refused because there were no types.
    MeterOptions options;
    options.pin_dir = config_.pin_dir;
    const auto meter = Meter::Open(options);
    EXPECT_TRUE(meter.ok() && (*meter)->ReadHost().ok());
    config_.max_series = 5000;
    EXPECT_EQ(MustLoad(), Action::kUpgraded);
    EXPECT_EQ(PayloadSent(), 1000u);
    EXPECT_EQ(rename(types.c_str(), (types + "-moved").c_str()), 0);
    bool was_loaded = false;
    EXPECT_TRUE(Unload(config_.pin_dir, &was_loaded).ok() && was_loaded);
    EXPECT_FALSE(meter.ok() && (*meter)->ReadHost().ok());
    EXPECT_EQ(rename((types + "-moved").c_str(), types.c_str()), 0);
    EXPECT_EQ(MustLoad(), Action::kLoaded);
    SendFromCgroup(1000);
    // A kernel that shows its own needs no file.
    EXPECT_EQ(umount("/sys/kernel/btf"), 0);
    EXPECT_EQ(unlink(types.c_str()), 0);
    EXPECT_EQ(MustLoad(), Action::kUpgraded);
    EXPECT_THAT(MustStatus().text, Not(HasSubstr("no BTF of its own")));
    EXPECT_EQ(PayloadSent(), 1000u);
    EXPECT_TRUE(Unload(config_.pin_dir, &was_loaded).ok() && was_loaded);
    return HasFailure() ? 2 : 0;
  });
  EXPECT_EQ(status, 0);
}

TEST_F(LoaderRootTest, AHostWithoutCgroupV2IsAClearError) {
  EXPECT_EQ(
      InChild([this] {
        if (unshare(CLONE_NEWNS) != 0 ||
            mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
          return 1;
        }
        absl::StatusOr<std::string> root = FindCgroupRoot();
        for (int i = 0; i < 10 && root.ok(); i++) {
          if (umount2(root->c_str(), MNT_DETACH) != 0) return 2;
          root = FindCgroupRoot();
        }
        // Else it would be the whole host that is counted.
        if (root.ok()) return 3;
        Config config = config_;
        config.cgroup.clear();
        const absl::Status status = Load(config).status();
        return absl::StrContains(status.message(),
                                 "cgroup v2 is not mounted (mkdir -p "
                                 "/sys/fs/cgroup/unified && ")
                   ? 0
                   : 4;
      }),
      0);
  EXPECT_NE(access(config_.pin_dir.c_str(), F_OK), 0);
}

TEST_F(LoaderRootTest, AForeignExclusiveProgramIsExplained) {
  // attach without the multi flag, as old tools do
  UniqueFd program(
      LoadForeign(BPF_PROG_TYPE_CGROUP_SKB, BPF_CGROUP_INET_EGRESS, "foreign"));
  ASSERT_TRUE(program.ok()) << strerror(errno);
  UniqueFd cgroup(open(cgroup_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ASSERT_EQ(
      bpf_prog_attach(program.get(), cgroup.get(), BPF_CGROUP_INET_EGRESS, 0),
      0);
  EXPECT_THAT(LoadError(), HasSubstr("without the multi flag"));
  // Nothing is half attached: ours are gone, the foreign one is there.
  EXPECT_NE(access(config_.pin_dir.c_str(), F_OK), 0);
  EXPECT_EQ(
      bpf_prog_detach2(program.get(), cgroup.get(), BPF_CGROUP_INET_EGRESS), 0);
}

// Programs that others attached with the multi flag, before or after ours, stay in their
// place and keep their effect, whatever the loader does. This one drops all packets.
TEST_F(LoaderRootTest, ForeignProgramsStayAttachedAndGoOn) {
  const bpf_attach_type where = BPF_CGROUP_INET_EGRESS;
  const UniqueFd drops(
      LoadForeign(BPF_PROG_TYPE_CGROUP_SKB, where, "drops", 0));
  const UniqueFd first(LoadForeign(BPF_PROG_TYPE_CGROUP_SKB, where, "first"));
  const UniqueFd later(LoadForeign(BPF_PROG_TYPE_CGROUP_SKB, where, "later"));
  ASSERT_TRUE(drops.ok() && first.ok() && later.ok()) << strerror(errno);
  const UniqueFd cgroup(
      open(cgroup_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const auto attach = [&](const UniqueFd& program) {
    ASSERT_EQ(
        bpf_prog_attach(program.get(), cgroup.get(), where, BPF_F_ALLOW_MULTI),
        0)
        << strerror(errno);
  };
  // The other programs are on the cgroup, in their order, and this number of ours.
  const auto expect = [&](const std::vector<const UniqueFd*>& theirs,
                          size_t ours) {
    uint32_t ids[16], count = 16;
    ASSERT_EQ(bpf_prog_query(cgroup.get(), where, 0, nullptr, ids, &count), 0);
    EXPECT_EQ(count, theirs.size() + ours);
    std::vector<uint32_t> wanted, found;
    for (const UniqueFd* program : theirs) {
      wanted.push_back(IdentifyObject(program->get()).id);
    }
    for (uint32_t i = 0; i < count; i++) {
      for (const uint32_t id : wanted) {
        if (id == ids[i]) found.push_back(id);
      }
    }
    EXPECT_EQ(found, wanted);
    EXPECT_EQ(
        InChild([&] {
          std::ofstream(cgroup_ + "/cgroup.procs") << getpid();
          const UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
          sockaddr_in to = {};
          to.sin_family = AF_INET;
          to.sin_port = htons(8443);
          to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
          const bool sent =
              sendto(fd.get(), "x", 1, 0,
                     reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 1;
          return !sent && errno == EPERM ? 0 : 1;
        }),
        0);
  };
  attach(drops);
  attach(first);
  expect({&drops, &first}, 0);
  MustLoad();
  expect({&drops, &first}, 1);
  attach(later);
  expect({&drops, &first, &later}, 1);
  config_.proxy_ports = {7001};
  EXPECT_EQ(MustLoad(), Action::kUpgraded);
  expect({&drops, &first, &later}, 1);
  config_.max_series = 5000;
  EXPECT_EQ(MustLoad(), Action::kUpgraded);
  expect({&drops, &first, &later}, 1);
  bool was_loaded = false;
  EXPECT_TRUE(Unload(config_.pin_dir, &was_loaded).ok() && was_loaded);
  expect({&drops, &first, &later}, 0);
}

// A program with this flag runs before those of the cgroups below. With one of them at a
// hook, bpf_link_update() of a kernel before commit f08aaee3152d may put the new program
// into the slot of another one.
TEST_F(LoaderRootTest, ProgramsInPreorderStayAndSoDoOurs) {
  constexpr uint32_t kPreorder = 1 << 6;  // BPF_F_PREORDER
  const struct {
    bpf_prog_type type;
    bpf_attach_type where;
    const char* link;
  } hooks[] = {
      {BPF_PROG_TYPE_CGROUP_SKB, BPF_CGROUP_INET_INGRESS, "link_ingress"},
      {BPF_PROG_TYPE_CGROUP_SKB, BPF_CGROUP_INET_EGRESS, "link_egress"},
      {BPF_PROG_TYPE_CGROUP_SOCK, BPF_CGROUP_INET_SOCK_CREATE,
       "link_sock_create"},
      {BPF_PROG_TYPE_CGROUP_SOCK, BPF_CGROUP_INET_SOCK_RELEASE,
       "link_sock_release"},
      {BPF_PROG_TYPE_SOCK_OPS, BPF_CGROUP_SOCK_OPS, "link_sockops"},
      {BPF_PROG_TYPE_CGROUP_SOCKOPT, BPF_CGROUP_SETSOCKOPT, "link_setsockopt"},
  };
  const std::string above = cgroup_, ours = above + "/ours",
                    below = ours + "/below";
  for (const std::string& path : {ours, below}) {
    ASSERT_EQ(mkdir(path.c_str(), 0755), 0) << strerror(errno);
  }
  config_.cgroup = ours;
  std::map<bpf_attach_type, std::vector<uint32_t>> theirs;
  // 0, or an errno.
  const auto attach = [&](uint32_t flags) {
    for (const auto& hook : hooks) {
      for (const std::string& path : {above, ours, below}) {
        const UniqueFd program(LoadForeign(hook.type, hook.where, "foreign"));
        const UniqueFd cgroup(
            open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        if (!program.ok() ||
            bpf_prog_attach(program.get(), cgroup.get(), hook.where,
                            BPF_F_ALLOW_MULTI | flags) != 0) {
          return errno;
        }
        theirs[hook.where].push_back(IdentifyObject(program.get()).id);
      }
    }
    return 0;
  };
  // What runs for a process in the lowest cgroup: each of theirs, and ours.
  uint64_t sent = 0;
  const auto expect = [&](bool loaded) {
    const UniqueFd cgroup(
        open(below.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    for (const auto& hook : hooks) {
      SCOPED_TRACE(hook.link);
      std::vector<uint32_t> expected = theirs[hook.where];
      if (loaded) {
        expected.push_back(0);
        LinkId(hook.link, &expected.back());
      }
      uint32_t ids[64], count = 64;
      ASSERT_EQ(bpf_prog_query(cgroup.get(), hook.where, BPF_F_QUERY_EFFECTIVE,
                               nullptr, ids, &count),
                0);
      for (const uint32_t id : expected) {
        EXPECT_EQ(std::count(ids, ids + count, id), 1) << id;
      }
    }
    if (!loaded) return;
    cgroup_ = below;
    SendFromCgroup(10);
    cgroup_ = above;
    EXPECT_EQ(PayloadSent(), sent += 10);
  };
  const int error = attach(kPreorder);
  if (error != 0) {  // Linux 6.15 has the flag
    EXPECT_EQ(error, EINVAL);
    int major = 0, minor = 0;
    ASSERT_EQ(sscanf(KernelRelease().c_str(), "%d.%d", &major, &minor), 2);
    EXPECT_LT(std::make_pair(major, minor), std::make_pair(6, 15));
  }
  ASSERT_EQ(attach(0), 0);
  MustLoad();
  expect(true);
  ASSERT_EQ(attach(error == 0 ? kPreorder : 0), 0);
  expect(true);
  config_.proxy_ports = {8443, 7001};
  EXPECT_EQ(MustLoad(), Action::kUpgraded);
  expect(true);
  config_.max_series = 5000;
  EXPECT_EQ(MustLoad(), Action::kUpgraded);
  expect(true);
  bool was_loaded = false;
  EXPECT_TRUE(Unload(config_.pin_dir, &was_loaded).ok() && was_loaded);
  expect(false);
  EXPECT_EQ(rmdir(below.c_str()), 0);
  EXPECT_EQ(rmdir(ours.c_str()), 0);
}

// Each series has a cell for every possible CPU, and keeps no more when the host has
// others. What is loaded goes on, and is not touched.
TEST_F(LoaderRootTest, OtherPossibleCpusThanAtTheFirstLoadAreRefused) {
  MustLoad();
  SendFromCgroup(100);
  const std::string cpus = std::string(getenv("TEST_TMPDIR")) + "/possible";
  const std::string said = cpus + "-said";
  std::ofstream(cpus) << "0-62\n";
  // A program of its own: libbpf counts once in each.
  const int status = InChild([&] {
    if (unshare(CLONE_NEWNS) != 0 ||
        mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount(cpus.c_str(), "/sys/devices/system/cpu/possible", nullptr,
              MS_BIND, nullptr) != 0 ||
        freopen(said.c_str(), "w", stderr) == nullptr) {
      return 200;
    }
    execl("lib/netmeter_loader/netmeter-loader", "netmeter-loader", "load",
          "--pin-dir", config_.pin_dir.c_str(), "--max-series", "5000",
          nullptr);
    return 201;
  });
  EXPECT_EQ(status, 1);
  std::string line;
  std::getline(std::ifstream(said), line);
  EXPECT_THAT(
      line, HasSubstr(absl::StrCat(
                config_.pin_dir, " was loaded for ", libbpf_num_possible_cpus(),
                " possible CPUs, now there are 63 "
                "(run: netmeter-loader load --restart --pin-dir ",
                config_.pin_dir, ": counters start again)")));
  EXPECT_EQ(PayloadSent(), 100u);
  SendFromCgroup(1);
  EXPECT_EQ(PayloadSent(), 101u);
  EXPECT_EQ(MustLoad(), Action::kUnchanged);
}

// A part that could not be attached at the first load stayed off for good: later loads,
// when nothing was in the way any more, said that there was nothing to do.
TEST_F(LoaderRootTest, APartThatAForeignProgramKeptOffIsTriedAgain) {
  UniqueFd program(LoadForeign(BPF_PROG_TYPE_CGROUP_SOCKOPT,
                               BPF_CGROUP_SETSOCKOPT, "foreign"));
  ASSERT_TRUE(program.ok()) << strerror(errno);
  UniqueFd cgroup(open(cgroup_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ASSERT_EQ(
      bpf_prog_attach(program.get(), cgroup.get(), BPF_CGROUP_SETSOCKOPT, 0),
      0);
  MustLoad();
  EXPECT_THAT(MustStatus().text, HasSubstr("without the multi flag"));
  EXPECT_NE(access(Pin("link_setsockopt").c_str(), F_OK), 0);
  ASSERT_EQ(
      bpf_prog_detach2(program.get(), cgroup.get(), BPF_CGROUP_SETSOCKOPT), 0);
  SendFromCgroup(100);
  EXPECT_EQ(MustLoad(), Action::kUpgraded);
  EXPECT_EQ(access(Pin("link_setsockopt").c_str(), F_OK), 0);
  EXPECT_EQ(PayloadSent(), 100u);
  EXPECT_EQ(MustLoad(), Action::kUnchanged);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
