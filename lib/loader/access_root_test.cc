// SPDX-License-Identifier: BSD-3-Clause
// Tests access to the counters, and what users may do on the control channel.

#include <bpf/bpf.h>
#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <string>
#include <vector>

#include "lib/base/pins.h"
#include "lib/base/privileges.h"
#include "lib/base/unique_fd.h"
#include "lib/loader/load.h"
#include "lib/loader/loader_fixture.h"
#include "lib/loader/status.h"
#include "lib/loader/system.h"
#include "lib/loader/unload.h"
#include "netmeter/abi.h"
#include "netmeter/meter.h"

namespace netmeter {
namespace internal {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

TEST_F(LoaderRootTest, OnlyTheGroupReads) {
  ASSERT_NE(UnprivilegedBpfDisabled(), 0);
  MustLoad();
  SendFromCgroup(42);
  MeterOptions options;
  options.pin_dir = config_.pin_dir;
  const absl::StatusOr<bool> direct = UsersMayOpenPins();
  ASSERT_TRUE(direct.ok()) << direct.status();
  if (*direct) {
    EXPECT_EQ(InChild([&] {
                if (!BecomeUser(kGid)) return 2;
                auto meter = Meter::Open(options);
                if (!meter.ok()) return 3;
                auto samples = (*meter)->ReadHost();
                return samples.ok() && samples->size() == 1 ? 0 : 4;
              }),
              0);
  }
  EXPECT_EQ(InChild([&] {
              if (!BecomeUser(kNobody)) return 2;
              auto meter = Meter::Open(options);
              return absl::IsPermissionDenied(meter.status()) &&
                             meter.status().message().find('\n') ==
                                 absl::string_view::npos
                         ? 0
                         : 3;
            }),
            0);
}

// Tests each map that readers map, not only the counters: neither a descriptor that root
// opened nor the user's own one may write.
TEST_F(LoaderRootTest, NobodyWritesToAnyMapOfTheReaders) {
  ASSERT_NE(UnprivilegedBpfDisabled(), 0);
  MustLoad();
  // 0, or the number of the first check that failed.
  const auto try_to_write = [](int fd) {
    const std::vector<char> value(4096, 'x');
    const uint32_t zero = 0;
    if (bpf_map_update_elem(fd, &zero, value.data(), BPF_ANY) == 0) return 4;
    if (mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) !=
        MAP_FAILED) {
      return 5;
    }
    void* readable = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0);
    if (readable == MAP_FAILED) return 6;
    return mprotect(readable, 4096, PROT_READ | PROT_WRITE) == 0 ? 7 : 0;
  };
  int shared = 0;
  for (const MapPin& map : MapPins()) {
    if (!map.shared()) continue;
    shared++;
    for (uid_t user : {uid_t{0}, kNobody}) {
      EXPECT_EQ(InChild([&] {
                  UniqueFd fd(bpf_obj_get(Pin(map.pin).c_str()));
                  if (!fd.ok()) return 2;
                  if (user != 0 && !BecomeUser(kGid)) return 3;
                  if (int wrong = try_to_write(fd.get())) return wrong;
                  // Before Linux 5.19, a user with fewer rights than the map's mode opens
                  // none.
                  fd = UniqueFd(bpf_obj_get(Pin(map.pin).c_str()));
                  return fd.ok() ? try_to_write(fd.get()) : 0;
                }),
                0)
          << map.pin << ", uid " << user;
    }
  }
  EXPECT_EQ(shared, kSharedMaps);
}

// Readers open these at each read, also while a load replaces two of them.
TEST_F(LoaderRootTest, TheGroupReadsTheMapsOfUplinksAndWritesNone) {
  ASSERT_NE(UnprivilegedBpfDisabled(), 0);
  const absl::StatusOr<bool> direct = UsersMayOpenPins();
  ASSERT_TRUE(direct.ok()) << direct.status();
  config_.uplinks = {{"satellite", {"sat*"}}};
  for (const bool upgrade : {false, true}) {
    if (upgrade) config_.forwarded_clients = {"satellite"};
    MustLoad();
    ExpectModes();
    for (const char* map : {"uplink_names", "interfaces", kForwardedPin,
                            kForwardedByPin, kClientsPin}) {
      if (access(Pin(map).c_str(), F_OK) != 0) continue;
      EXPECT_EQ(
          InChild([&] {
            if (!BecomeUser(kGid)) return 2;
            if (UniqueFd(bpf_obj_get(Pin(map).c_str())).ok()) return 3;
            LIBBPF_OPTS(bpf_obj_get_opts, options);
            options.file_flags = BPF_F_RDONLY;
            const UniqueFd fd(bpf_obj_get_opts(Pin(map).c_str(), &options));
            if (!*direct) return 0;
            std::vector<char> key(64), value(sizeof(nm_forwarded) * 8192);
            if (!fd.ok()) return 4;
            if (bpf_map_update_elem(fd.get(), key.data(), value.data(), 0) ==
                0) {
              return 5;
            }
            const bool empty =
                bpf_map_get_next_key(fd.get(), nullptr, key.data()) != 0;
            return empty || bpf_map_lookup_elem(fd.get(), key.data(),
                                                value.data()) == 0
                       ? 0
                       : 6;
          }),
          0)
          << map;
    }
  }
}

// It was "not loaded", with the exit status of that, for a user without the group.
TEST_F(LoaderRootTest, StatusTellsWhoMayNotLook) {
  MustLoad();
  EXPECT_EQ(InChild([&] {
              if (!BecomeUser(kNobody)) return 2;
              const auto status = GetStatus(config_.pin_dir);
              return absl::IsPermissionDenied(status.status()) ? 0 : 3;
            }),
            0);
  EXPECT_EQ(MustStatus().state, MeterState::kLoaded);
}

// To root in a container load and unload said that the meter's own link is "not ours",
// and to choose another directory. The kernel opens nothing by its
// id without this capability.
TEST_F(LoaderRootTest, WithoutCapSysAdminItSaysWhatIsMissing) {
  MustLoad();
  SendFromCgroup(42);
  EXPECT_EQ(
      InChild([&] {
        const absl::Status dropped =
            DropPrivileges({CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON, CAP_SYS_PTRACE,
                            CAP_SYS_RESOURCE, CAP_DAC_OVERRIDE,
                            CAP_DAC_READ_SEARCH, CAP_CHOWN, CAP_FOWNER});
        EXPECT_TRUE(dropped.ok()) << dropped;
        bool was_loaded = false;
        config_.proxy_ports = {7001};
        for (const absl::Status& status :
             {Load(config_).status(), Unload(config_.pin_dir, &was_loaded)}) {
          EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
          EXPECT_THAT(std::string(status.message()),
                      MatchesRegex("open a BPF map by its id: Operation not "
                                   "permitted \\(needs CAP_SYS_ADMIN\\)"
                                   "(; nothing was changed)?"));
        }
        EXPECT_FALSE(was_loaded);
        return HasFailure() ? 1 : 0;
      }),
      0);
  config_.proxy_ports.clear();
  EXPECT_EQ(PayloadSent(), 42u);
  EXPECT_EQ(MustStatus().state, MeterState::kLoaded);
}

// It blamed the mode of a file.
TEST_F(LoaderRootTest, WithoutCapChownALoadWithAGroupSaysWhatIsMissing) {
  EXPECT_EQ(
      InChild([&] {
        // Leaves all groups: a file may be given to one's own group without a capability.
        EXPECT_EQ(setgroups(0, nullptr), 0);
        const absl::Status dropped = DropPrivileges(
            {CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON, CAP_SYS_ADMIN, CAP_SYS_PTRACE,
             CAP_SYS_RESOURCE, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH});
        EXPECT_TRUE(dropped.ok()) << dropped;
        EXPECT_THAT(
            LoadError(),
            MatchesRegex("give .*/[a-z_]* to group 1: Operation "
                         "not permitted \\(needs CAP_CHOWN\\); nothing is "
                         "loaded"));
        EXPECT_NE(access(config_.pin_dir.c_str(), F_OK), 0);
        return HasFailure() ? 1 : 0;
      }),
      0);
}

TEST_F(LoaderRootTest, AMissingGroupLeavesRootAlone) {
  config_.group = "no-such-group";
  absl::StatusOr<LoadResult> result = Load(config_);
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->notes.size(), 1u);
  EXPECT_THAT(result->notes[0], HasSubstr("root only"));
  struct stat about;
  ASSERT_EQ(stat(config_.pin_dir.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0700u);
  ASSERT_EQ(stat(Pin("counters").c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0600u);
}

TEST_F(LoaderRootTest, SetsockoptOfOthersIsUntouched) {
  struct Call {
    int level, option;
    std::vector<char> value;
  };
  const int on = 1;
  auto bytes = [](const void* data, size_t size) {
    return std::vector<char>(static_cast<const char*>(data),
                             static_cast<const char*>(data) + size);
  };
  const std::vector<Call> calls = {
      {SOL_SOCKET, SO_REUSEADDR, bytes(&on, sizeof(on))},
      {SOL_SOCKET, SO_RCVBUF, bytes(&on, sizeof(on))},
      {SOL_SOCKET, SO_RCVBUF, {}},
      {SOL_SOCKET, 9999, bytes(&on, sizeof(on))},
      {IPPROTO_IP, IP_TOS, bytes(&on, sizeof(on))},
      {IPPROTO_IP, IP_OPTIONS, std::vector<char>(40, 1)},
      {IPPROTO_IP, IP_OPTIONS, std::vector<char>(41, 1)},
      {IPPROTO_IP, IP_TOS, std::vector<char>(8192, 1)},
      {IPPROTO_IP, 64, std::vector<char>(16384, 0)},  // IPT_SO_SET_REPLACE
      {NM_SOL + 1, 1, bytes("x", 1)},
  };
  auto run = [&](std::vector<std::pair<int, int>>* results) {
    // Results come back through shared memory: the cgroup is the child's.
    auto* shared = static_cast<int*>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE,
                                          MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    ASSERT_EQ(InChild([&] {
                std::ofstream(cgroup_ + "/cgroup.procs") << getpid();
                UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
                for (size_t i = 0; i < calls.size(); i++) {
                  errno = 0;
                  shared[2 * i] =
                      setsockopt(fd.get(), calls[i].level, calls[i].option,
                                 calls[i].value.data(),
                                 static_cast<socklen_t>(calls[i].value.size()));
                  shared[2 * i + 1] = errno;
                }
                return 0;
              }),
              0);
    for (size_t i = 0; i < calls.size(); i++) {
      results->emplace_back(shared[2 * i], shared[2 * i + 1]);
    }
    munmap(shared, 4096);
  };
  std::vector<std::pair<int, int>> without, with;
  run(&without);
  MustLoad();
  run(&with);
  EXPECT_EQ(with, without);
}

TEST_F(LoaderRootTest, TheControlChannelRegistersAndRefuses) {
  MustLoad();
  auto control = [&](int option, const std::string& name) {
    return InChild([&] {
      std::ofstream(cgroup_ + "/cgroup.procs") << getpid();
      UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
      if (!BecomeUser(kNobody)) return 200;
      return setsockopt(fd.get(), NM_SOL, option, name.data(),
                        static_cast<socklen_t>(name.size())) == 0
                 ? 0
                 : errno;
    });
  };
  EXPECT_EQ(control(NM_REGISTER, "subscriberdb"), 0);
  EXPECT_EQ(control(NM_REGISTER, std::string(64, 'a')), 0);
  EXPECT_EQ(control(NM_REGISTER, std::string("\xff\xfe")), 0);
  EXPECT_EQ(control(NM_TAG, "streamer"), 0);
  EXPECT_EQ(control(NM_SERVICE, "second"), 0);
  EXPECT_EQ(control(NM_REGISTER, ""), EPERM);
  EXPECT_EQ(control(NM_REGISTER, std::string(65, 'a')), EPERM);
  EXPECT_EQ(control(NM_REGISTER, std::string("a\0b", 3)), EPERM);
  EXPECT_EQ(control(NM_REGISTER, std::string(9000, 'a')), EPERM);
  EXPECT_EQ(control(99, "x"), EPERM);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
