// SPDX-License-Identifier: BSD-3-Clause
// Tests without BPF: the checks, and the errors of opening. meter_root_test.cc tests the
// maps themselves.
#include "lib/reader/shared_maps.h"

#include <dirent.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/bpf.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace netmeter {
namespace internal {
namespace {

using ::testing::HasSubstr;

constexpr char kAskTheServer[] =
    "run as root or as a member of the group that netmeter-fds answers; its "
    "log "
    "says which";

std::string MessageOf(const absl::Status& status) {
  return std::string(status.message());
}

size_t CountDescriptors() {
  size_t count = 0;
  DIR* directory = opendir("/proc/self/fd");
  while (readdir(directory) != nullptr) ++count;
  closedir(directory);
  return count;
}

class SharedMapsTest : public testing::Test {
 protected:
  void SetUp() override {
    // Not TempDir(): its name may be too long for a Unix socket.
    char name[] = "/tmp/netmeter-test-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    root_ = name;
    pin_dir_ = root_ + "/meter";
    descriptors_ = CountDescriptors();
  }
  void TearDown() override {
    if (server_.joinable()) server_.join();
    EXPECT_EQ(CountDescriptors(), descriptors_) << "a descriptor leaked";
    for (const SharedMap map : OpeningOrder()) {
      unlink((pin_dir_ + "/" + PinOf(map)).c_str());
    }
    rmdir(pin_dir_.c_str());
    unlink(pin_dir_.c_str());
    unlink((pin_dir_ + ".sock").c_str());
    EXPECT_EQ(rmdir(root_.c_str()), 0);
  }

  // Serves one connection at <pin_dir>.sock by `answer`.
  void Serve(std::function<void(int)> answer) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    strcpy(address.sun_path, (pin_dir_ + ".sock").c_str());
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT_EQ(
        bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
        0);
    ASSERT_EQ(listen(fd, 1), 0);
    server_ = std::thread([fd, answer] {
      const int connection = accept4(fd, nullptr, nullptr, SOCK_CLOEXEC);
      answer(connection);
      close(connection);
      close(fd);
    });
  }

  // Sends `version` with `count` descriptors of /dev/null.
  static void Send(int connection, unsigned char version, size_t count) {
    const int file = open("/dev/null", O_RDWR | O_CLOEXEC);
    std::vector<int> fds(count, file);
    std::vector<char> control(CMSG_SPACE(count * sizeof(int)));
    std::vector<unsigned char> bytes = {version};
    for (size_t i = 0; i < count; i++) {
      bytes.push_back(static_cast<unsigned char>(i));
    }
    iovec data = {bytes.data(), bytes.size()};
    msghdr message = {};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    if (count > 0) {
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      cmsghdr* part = CMSG_FIRSTHDR(&message);
      part->cmsg_level = SOL_SOCKET;
      part->cmsg_type = SCM_RIGHTS;
      part->cmsg_len = CMSG_LEN(count * sizeof(int));
      memcpy(CMSG_DATA(part), fds.data(), count * sizeof(int));
    }
    EXPECT_EQ(sendmsg(connection, &message, MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
    close(file);
  }

  absl::Status OpenStatus() { return SharedMaps::Open(pin_dir_).status(); }

  std::string root_;
  std::string pin_dir_;
  size_t descriptors_ = 0;
  std::thread server_;
};

TEST_F(SharedMapsTest, WithoutPinsAndServerThereIsNoMeter) {
  const std::string advice = "no meter at " + pin_dir_ +
                             " (run: netmeter-loader load --pin-dir " +
                             pin_dir_ + ")";
  EXPECT_TRUE(absl::IsNotFound(OpenStatus())) << OpenStatus();
  EXPECT_EQ(MessageOf(OpenStatus()), advice);
  EXPECT_EQ(MessageOf(SharedMaps::Open(pin_dir_ + "//").status()), advice);
  // The name is too long for a Unix socket.
  EXPECT_TRUE(absl::IsNotFound(
      SharedMaps::Open(root_ + "/" + std::string(200, 'x')).status()));
  ASSERT_EQ(mkdir(pin_dir_.c_str(), 0755), 0);
  EXPECT_TRUE(absl::IsNotFound(OpenStatus())) << OpenStatus();
  std::ofstream(pin_dir_ + ".sock") << "text";
  EXPECT_TRUE(absl::IsNotFound(OpenStatus())) << OpenStatus();
}

TEST_F(SharedMapsTest, EmptyNameOfTheDirectoryIsInvalid) {
  EXPECT_TRUE(absl::IsInvalidArgument(SharedMaps::Open("").status()));
}

TEST_F(SharedMapsTest, RegularFilesAreNoPins) {
  ASSERT_EQ(mkdir(pin_dir_.c_str(), 0755), 0);
  for (const SharedMap map : OpeningOrder()) {
    std::ofstream(pin_dir_ + "/" + PinOf(map)) << "text";
  }
  EXPECT_TRUE(absl::IsFailedPrecondition(OpenStatus())) << OpenStatus();
  EXPECT_EQ(MessageOf(OpenStatus()),
            pin_dir_ +
                "/info is no map of a netmeter: it is not on a BPF file "
                "system");
}

TEST_F(SharedMapsTest, FileInPlaceOfTheDirectoryIsAnError) {
  std::ofstream(pin_dir_) << "text";
  const absl::Status status = OpenStatus();
  EXPECT_FALSE(status.ok());
  EXPECT_FALSE(absl::IsNotFound(status)) << status;
}

TEST_F(SharedMapsTest, ServerThatHasNoMeterMeansNoMeter) {
  Serve([](int) {});
  const absl::Status status = OpenStatus();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_THAT(MessageOf(status), HasSubstr("netmeter-loader load"));
}

// A refused client has nothing to load. The bug: if bpf(2) was refused, too, the error
// advised to start the server.
TEST_F(SharedMapsTest, ServerThatRefusesIsNoMissingMeter) {
  Serve([](int fd) { Send(fd, kDescriptorsRefused, 0); });
  const absl::Status status = OpenStatus();
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
  EXPECT_EQ(MessageOf(status), "receive the maps from " + pin_dir_ +
                                   ".sock: Permission denied (" +
                                   kAskTheServer + ")");
  // The reader keeps none of the descriptors of such a message.
  server_.join();
  unlink((pin_dir_ + ".sock").c_str());
  Serve([](int fd) { Send(fd, kDescriptorsRefused, kSharedMaps); });
  EXPECT_TRUE(absl::IsPermissionDenied(OpenStatus()));
}

// With --group the server ignores the group of the pins. The bug: members of that group
// were told to join it, and other users that no group may read.
TEST(WhomServerAnswers, TheGroupOfThePinsIsNoHelpToItsMembers) {
  const gid_t group = 7654321;
  const auto told = [](gid_t gid, mode_t mode, const std::vector<gid_t>& own) {
    struct stat pin = {};
    pin.st_gid = gid;
    pin.st_mode = S_IFREG | mode;
    return WhomServerAnswers(pin, own);
  };
  EXPECT_EQ(told(group, 0660, {1, 2}),
            "run as root or as a member of group 7654321");
  EXPECT_EQ(told(group, 0660, {1, group, 2}), kAskTheServer);
  EXPECT_EQ(told(group, 0600, {1, 2}), kAskTheServer);
  EXPECT_EQ(told(0, 0660, {1, 2}), kAskTheServer);
  EXPECT_EQ(WhomServerAnswers(std::nullopt, {group}), kAskTheServer);
}

TEST_F(SharedMapsTest, ServerOfAnotherProtocolIsRefused) {
  Serve([](int fd) { Send(fd, 9, kSharedMaps); });
  const absl::Status status = OpenStatus();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(MessageOf(status), HasSubstr("protocol 9"));
}

// Before ABI 1.0 a server sent four maps. The bug: a reader went on without connections.
TEST_F(SharedMapsTest, ServerThatSendsAnotherNumberOfDescriptorsIsRefused) {
  for (const size_t count : {size_t{0}, kSharedMaps - size_t{1},
                             kReadableMaps + size_t{1}, size_t{100}}) {
    Serve([count](int fd) { Send(fd, kDescriptorProtocol, count); });
    const absl::Status status = OpenStatus();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << count << status;
    if (count == kSharedMaps - 1) {
      EXPECT_THAT(MessageOf(status),
                  HasSubstr("4 descriptors, which are not all maps"));
    }
    server_.join();
    unlink((pin_dir_ + ".sock").c_str());
  }
}

TEST_F(SharedMapsTest, DescriptorsThatAreNoMapsAreRefused) {
  Serve([](int fd) { Send(fd, kDescriptorProtocol, kSharedMaps); });
  const absl::Status status = OpenStatus();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(MessageOf(status), HasSubstr("is not a BPF array"));
}

TEST_F(SharedMapsTest, ServerThatNeverAnswersIsGivenUp) {
  std::promise<void> given_up;
  Serve([ended = given_up.get_future().share()](int) { ended.wait(); });
  const absl::Status status = OpenStatus();
  given_up.set_value();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
}

TEST(ParseFdInfo, ReadsWhatTheKernelWrites) {
  const MapShape shape = ParseFdInfo(
      "pos:\t0\nflags:\t02000002\nmnt_id:\t15\nino:\t9\nmap_type:\t2\n"
      "key_size:\t4\nvalue_size:\t64\nmax_entries:\t8192\nmap_flags:\t0x400\n"
      "map_extra:\t0x0\nmemlock:\t524288\nmap_id:\t7\nfrozen:\t1\n");
  EXPECT_EQ(shape.type, 2u);
  EXPECT_EQ(shape.key_size, 4u);
  EXPECT_EQ(shape.value_size, 64u);
  EXPECT_EQ(shape.max_entries, 8192u);
  EXPECT_EQ(shape.flags, static_cast<uint32_t>(BPF_F_MMAPABLE));
}

TEST(ParseFdInfo, HasNoShapeForWhatIsNoMap) {
  for (const char* text :
       {"", "pos:\t0\nflags:\t02\n", "map_type:\t-1\n", "map_type:\tx\n",
        "map_type:\t99999999999\n", "map_type:", "map_flags:\tzz\n",
        "prog_type:\t2\nprog_jited:\t1\n"}) {
    EXPECT_EQ(ParseFdInfo(text).type, 0u) << text;
  }
}

nm_info GoodInfo() {
  nm_info info = {};
  info.magic = NM_MAGIC;
  info.abi_major = NM_ABI_MAJOR;
  info.abi_minor = NM_ABI_MINOR;
  info.info_size = sizeof(nm_info);
  info.cell_size = sizeof(nm_cell);
  info.name_size = sizeof(nm_name);
  info.stats_size = sizeof(nm_stats);
  info.tcp_size = sizeof(nm_tcp);
  info.cells_per_series = 2;
  info.max_series = 4096;
  info.max_names = 4096;
  return info;
}

TEST(CheckInfo, TakesAnyMinorVersionAndLargerTails) {
  nm_info info = GoodInfo();
  EXPECT_TRUE(CheckInfo(info, "x").ok());
  info.abi_minor = 9;
  info.info_size += 64;
  info.stats_size += 64;
  EXPECT_TRUE(CheckInfo(info, "x").ok());
}

TEST(CheckInfo, RefusesAnotherMajorVersionAndSaysWhatToInstall) {
  nm_info info = GoodInfo();
  info.abi_major = 2;
  info.abi_minor = 0;
  absl::Status status = CheckInfo(info, "/run/netmeter/info");
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_EQ(MessageOf(status),
            "/run/netmeter/info has ABI 2.0, this library reads 1.x (install a "
            "newer libnetmeter)");
  info.abi_major = 0;
  status = CheckInfo(info, "x");
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(MessageOf(status), HasSubstr("newer netmeter-loader"));
}

// Loaders before ABI 1.0 pinned no map `tcp`. The bug: readers went on without it, and
// `netmeter-fds`, which needs all maps, sent nothing and gave no error.
TEST(CheckInfo, RefusesAMeterWithoutConnections) {
  nm_info info = GoodInfo();
  info.tcp_size = 0;
  const absl::Status status = CheckInfo(info, "/run/netmeter/info");
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_EQ(MessageOf(status),
            "/run/netmeter/info has no map `tcp` of ABI 1.0 (install a newer "
            "netmeter-loader)");
}

TEST(CheckInfo, RefusesWhatCannotBe) {
  const std::vector<std::function<void(nm_info*)>> breaks = {
      [](nm_info* info) { info->magic = 0; },
      [](nm_info* info) { info->info_size = 8; },
      [](nm_info* info) { info->stats_size = 8; },
      [](nm_info* info) { info->cell_size = 72; },
      [](nm_info* info) { info->name_size = 64; },
      [](nm_info* info) { info->tcp_size = 8; },
      [](nm_info* info) { info->cells_per_series = 0; },
      [](nm_info* info) { info->max_series = NM_SLOT_FIRST - 1; },
      [](nm_info* info) { info->max_names = 2; },
  };
  for (size_t i = 0; i < breaks.size(); ++i) {
    nm_info info = GoodInfo();
    breaks[i](&info);
    EXPECT_TRUE(absl::IsFailedPrecondition(CheckInfo(info, "x"))) << i;
  }
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
