// SPDX-License-Identifier: BSD-3-Clause
// What users and services have added to the tables, over loads.

#include <bpf/bpf.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bpf/internal.h"
#include "lib/base/privileges.h"
#include "lib/base/unique_fd.h"
#include "lib/loader/load.h"
#include "lib/loader/loader_fixture.h"
#include "lib/loader/unload.h"
#include "lib/testing/interruption.h"
#include "netmeter/abi.h"

namespace netmeter {
namespace internal {
namespace {

// A process of the cgroup, of this real user, that has a UDP socket open until it ends.
class Holder {
 public:
  Holder(const std::string& cgroup, uid_t uid) {
    int ready[2], go[2];
    EXPECT_EQ(pipe2(ready, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(go, O_CLOEXEC), 0);
    pid_ = fork();
    if (pid_ == 0) {
      alarm(120);
      close(go[1]);
      std::ofstream(cgroup + "/cgroup.procs") << getpid();
      const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
      char byte;
      const bool went_well = setresuid(uid, 0, 0) == 0 &&
                             write(ready[1], &fd, sizeof(fd)) == sizeof(fd) &&
                             read(go[0], &byte, 1) == 0;
      _exit(went_well ? 0 : 1);
    }
    const UniqueFd told(ready[0]);
    close(ready[1]);
    close(go[0]);
    go_ = UniqueFd(go[1]);
    int fd = -1;
    EXPECT_EQ(read(told.get(), &fd, sizeof(fd)), static_cast<int>(sizeof(fd)));
    const UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
    socket_ = UniqueFd(
        static_cast<int>(syscall(SYS_pidfd_getfd, process.get(), fd, 0)));
  }
  ~Holder() {
    go_ = UniqueFd();
    int status = -1;
    waitpid(pid_, &status, 0);
    EXPECT_EQ(status, 0);
  }

  uint32_t pid() const { return static_cast<uint32_t>(pid_); }
  int socket() const { return socket_.get(); }

 private:
  pid_t pid_ = -1;
  UniqueFd go_, socket_;
};

class QuotaRootTest : public LoaderRootTest {
 protected:
  void SetUp() override {
    LoaderRootTest::SetUp();
    config_.destinations.clear();  // their names take room
    config_.max_series = 400;
    config_.max_names = 400;  // an eighth: 50
  }

  // How many of 120 new names a user adds.
  int AddedByUser(const std::string& prefix) {
    return InChild([&] {
      std::ofstream(cgroup_ + "/cgroup.procs") << getpid();
      if (!BecomeUser(kGid)) return 255;
      const UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
      int added = 0;
      for (int i = 0; i < 120; i++) {
        const std::string name = absl::StrCat(prefix, i);
        added += setsockopt(fd.get(), NM_SOL, NM_SERVICE, name.data(),
                            static_cast<socklen_t>(name.size())) == 0;
      }
      return added;
    });
  }

  nm_stored_owner OwnerOf(int socket) {
    nm_stored_owner owner = {};
    const UniqueFd owners(bpf_obj_get(Pin("owners").c_str()));
    EXPECT_EQ(bpf_map_lookup_elem(owners.get(), &socket, &owner), 0);
    return owner;
  }
};

// The bug: a load that changed anything gave each user an eighth of the names anew.
TEST_F(QuotaRootTest, AUserGetsNoOtherShareByALoad) {
  MustLoad();
  EXPECT_EQ(AddedByUser("a"), 49);  // and the name of this program
  for (const uint16_t port : {7001, 7002}) {
    config_.proxy_ports = {port};
    EXPECT_EQ(MustLoad(), Action::kUpgraded);
    EXPECT_EQ(AddedByUser(absl::StrCat(port, "-")), 0);
  }
  config_.max_series = 600;
  EXPECT_EQ(MustLoad(), Action::kUpgraded);
  EXPECT_EQ(AddedByUser("b"), 0);
  config_.max_names = 800;
  EXPECT_EQ(MustLoad(), Action::kUpgraded);
  EXPECT_EQ(AddedByUser("c"), 50);
  config_.proxy_ports = {7003};
  EXPECT_EQ(MustLoad(), Action::kUpgraded);
  EXPECT_EQ(AddedByUser("d"), 0);
}

// The bug: what was open at a load counted for the effective user of its process, so
// that a socket which su(1) had been given was root's.
TEST_F(QuotaRootTest, AnOpenSocketIsOfTheRealUser) {
  const Holder holder(cgroup_, kNobody);
  MustLoad();
  const nm_stored_owner owner = OwnerOf(holder.socket());
  EXPECT_EQ(owner.owner.tgid, holder.pid());
  EXPECT_EQ(owner.owner.user, nm_user_of_uid(kNobody));
}

// The bug: nothing said so, and the open sockets of all services were unattributed.
TEST_F(QuotaRootTest, ANoteSaysThatOpenSocketsAreOutOfReach) {
  const Holder holder(cgroup_, 0);
  EXPECT_EQ(InChild([&] {
              const absl::Status dropped = DropPrivileges(
                  {CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON, CAP_SYS_ADMIN,
                   CAP_SYS_RESOURCE, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH,
                   CAP_CHOWN});
              EXPECT_TRUE(dropped.ok()) << dropped;
              const absl::StatusOr<LoadResult> loaded = Load(config_);
              EXPECT_TRUE(loaded.ok()) << loaded.status();
              if (!loaded.ok()) return 1;
              EXPECT_THAT(loaded->notes,
                          testing::Contains(testing::MatchesRegex(
                              "open sockets are unattributed until closed: "
                              "read /proc/[0-9]*/fd: Permission denied "
                              ".needs CAP_SYS_PTRACE.")));
              return HasFailure() ? 1 : 0;
            }),
            0);
}

// The bug: one call without memory left an open socket without an owner, or in
// `overflow`, for as long as it was open, and the load said that all was well.
TEST_F(QuotaRootTest, AnOpenSocketHasItsOwnerThoughMemoryIsShort) {
  const Holder holder(cgroup_, 0);
  const auto load = [&] { return Load(config_).status(); };
  const std::vector<std::string> calls =
      RunInterrupted({-1, ENOMEM, "-"}, load).calls;
  bool was_loaded = false;
  ASSERT_TRUE(Unload(config_.pin_dir, &was_loaded).ok());
  // A process is looked up, named, and written as the owner. Other processes come and
  // go, so that these calls have no number.
  int loads = 0;
  for (const std::string name : {"bpf(1)", "bpf(10)", "bpf(2)"}) {
    const auto count =
        static_cast<int>(std::count(calls.begin(), calls.end(), name));
    for (int but = std::max(0, count - 5); but < count; but++) {
      SCOPED_TRACE(absl::StrCat(but, " ", name));
      const Interrupted loaded =
          RunInterrupted({-1, ENOMEM, name, but, 1}, load);
      if (!loaded.ok) continue;  // such as one that could not write the info
      loads++;
      const nm_stored_owner owner = OwnerOf(holder.socket());
      EXPECT_EQ(owner.owner.tgid, holder.pid());
      EXPECT_EQ(owner.owner.attribution.kind, NM_KIND_BINARY);
      EXPECT_GE(owner.owner.attribution.service, NM_NAME_FIRST);
      ASSERT_TRUE(Unload(config_.pin_dir, &was_loaded).ok());
    }
  }
  EXPECT_GE(loads, 5);
}

// The bug: a first load made the names of all processes at root's expense, those with
// the highest numbers first, so that a user who had enough of them left root no name.
TEST_F(QuotaRootTest, AFirstLoadNamesProcessesAtTheirUsersExpense) {
  std::string folder = "/tmp/nm-quota-XXXXXX";
  ASSERT_NE(mkdtemp(&folder[0]), nullptr);
  ASSERT_EQ(chmod(folder.c_str(), 0755), 0);
  int executes[2];
  ASSERT_EQ(pipe2(executes, O_CLOEXEC), 0);
  std::vector<pid_t> children;
  for (int i = 0; i < 120; i++) {
    const std::string program = absl::StrCat(folder, "/his-", i);
    ASSERT_EQ(symlink("/bin/sleep", program.c_str()), 0);
    children.push_back(fork());
    if (children.back() == 0) {
      std::ofstream(cgroup_ + "/cgroup.procs") << getpid();
      if (!BecomeUser(kGid) || socket(AF_INET, SOCK_DGRAM, 0) < 0) _exit(1);
      execl(program.c_str(), program.c_str(), "60", nullptr);
      _exit(1);
    }
  }
  close(executes[1]);
  char byte;
  EXPECT_EQ(read(executes[0], &byte, 1), 0);  // once all execute it is closed
  close(executes[0]);
  MustLoad();
  EXPECT_EQ(AddedByUser("his-other-"), 0);
  EXPECT_EQ(InChild([&] {
              std::ofstream(cgroup_ + "/cgroup.procs") << getpid();
              const UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
              int added = 0;
              for (int i = 0; i < 100; i++) {
                const std::string name = absl::StrCat("root-", i);
                added += setsockopt(fd.get(), NM_SOL, NM_SERVICE, name.data(),
                                    static_cast<socklen_t>(name.size())) == 0;
              }
              return added;
            }),
            100);
  for (const pid_t child : children) {
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status)) << status;
  }
  std::filesystem::remove_all(folder);
}

// The bug: so did the cap on names of destinations start again.
TEST_F(QuotaRootTest, AServiceGetsNoOtherDestinationsByALoad) {
  MustLoad();
  const UniqueFd counts(bpf_obj_get(Pin("wire_names").c_str()));
  const uint32_t id = NM_NAME_FIRST + 10, count = 77;
  ASSERT_EQ(bpf_map_update_elem(counts.get(), &id, &count, BPF_ANY), 0);
  config_.proxy_ports = {7001};
  EXPECT_EQ(MustLoad(), Action::kUpgraded);
  uint32_t found = 0;
  const UniqueFd after(bpf_obj_get(Pin("wire_names").c_str()));
  EXPECT_EQ(bpf_map_lookup_elem(after.get(), &id, &found), 0);
  EXPECT_EQ(found, count);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
