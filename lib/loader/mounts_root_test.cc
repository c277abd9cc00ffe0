// SPDX-License-Identifier: BSD-3-Clause
// Whose a BPF file system at the pin directory is, and what others have in ours.
#include <bpf/bpf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <string>

#include "absl/strings/match.h"
#include "lib/base/unique_fd.h"
#include "lib/loader/load.h"
#include "lib/loader/loader_fixture.h"
#include "lib/loader/retire.h"
#include "lib/loader/status.h"
#include "lib/loader/system.h"
#include "lib/loader/unload.h"
#include "lib/testing/interruption.h"

namespace netmeter {
namespace internal {
namespace {

using ::testing::HasSubstr;

class MountsRootTest : public LoaderRootTest {
 protected:
  // A BPF file system at the pin directory that no loader has mounted.
  void Mount(const char* source, struct stat* about) {
    const char* const dir = config_.pin_dir.c_str();
    ASSERT_EQ(mkdir(dir, 0755), 0);
    ASSERT_EQ(mount(source, dir, "bpf", 0, ""), 0);
    ASSERT_EQ(stat(dir, about), 0);
  }

  // As if one had mounted it, with this device; 0: had been about to.
  void RememberDevice(uint64_t device) {
    absl::StatusOr<UniqueFd> lock =
        LockDirectory(config_.pin_dir, LOCK_EX, kLockTime);
    ASSERT_TRUE(lock.ok()) << lock.status();
    LoaderState state;
    state.mounted = true;
    state.device = device;
    ASSERT_TRUE(WriteState(LockFile(config_.pin_dir), state, &*lock).ok());
  }
};

// Linux 5.10 forgets the source of a BPF file system, by which the loader knew
// its own mount: unload left it there. Mounted here as it looks there.
TEST_F(MountsRootTest, AMountWithoutItsSourceIsKnownByItsDevice) {
  for (const int shift : {0, 1}) {
    struct stat about;
    ASSERT_NO_FATAL_FAILURE(Mount("none", &about));
    RememberDevice(about.st_dev + static_cast<uint64_t>(shift));
    EXPECT_EQ(MustLoad(), Action::kLoaded);
    ASSERT_EQ(stat(config_.pin_dir.c_str(), &about), 0);
    EXPECT_EQ(about.st_gid, shift == 0 ? kGid : 0u);
    bool was_loaded;
    EXPECT_TRUE(Unload(config_.pin_dir, &was_loaded).ok());
    EXPECT_TRUE(was_loaded);
    // That of others stays.
    EXPECT_EQ(access(config_.pin_dir.c_str(), F_OK) == 0, shift != 0);
    if (shift != 0) {
      EXPECT_EQ(umount2(config_.pin_dir.c_str(), 0), 0);
      EXPECT_EQ(rmdir(config_.pin_dir.c_str()), 0);
    }
  }
}

// Unload took them with the mount: what others had pinned there, what they had mounted
// below, and a BPF file system of theirs that had the device number of ours by then.
TEST_F(MountsRootTest, UnloadLeavesWhatOthersHaveThere) {
  const std::string& dir = config_.pin_dir;
  const std::string below = dir + "/below";
  bool was_loaded = false;
  std::string note;
  MustLoad();
  UniqueFd map(bpf_map_create(BPF_MAP_TYPE_ARRAY, "theirs", 4, 4, 1, nullptr));
  ASSERT_EQ(bpf_obj_pin(map.get(), Pin("theirs").c_str()), 0);
  EXPECT_TRUE(Unload(dir, &was_loaded, &note).ok());
  EXPECT_TRUE(was_loaded);
  EXPECT_THAT(note, HasSubstr(Pin("theirs") + " does not belong to the meter"));
  EXPECT_EQ(MustStatus().state, MeterState::kNotLoaded);
  EXPECT_EQ(access(Pin("theirs").c_str(), F_OK), 0);

  ASSERT_EQ(unlink(Pin("theirs").c_str()), 0);
  MustLoad();
  ASSERT_EQ(mkdir(below.c_str(), 0755), 0);
  ASSERT_EQ(mount("theirs", below.c_str(), "tmpfs", 0, ""), 0);
  EXPECT_TRUE(Unload(dir, &was_loaded, &note).ok());
  EXPECT_THAT(note, HasSubstr(below + " does not belong to the meter"));
  EXPECT_EQ(umount2(below.c_str(), 0), 0);
  EXPECT_EQ(rmdir(below.c_str()), 0);
  EXPECT_TRUE(Unload(dir, &was_loaded, &note).ok());
  EXPECT_EQ(note, "");
  EXPECT_NE(access(dir.c_str(), F_OK), 0);
}

// iproute2 makes its folders in the first BPF file system that it finds: then unload left
// the mount, and load refused.
TEST_F(MountsRootTest, FoldersOfIproute2AreInNobodysWay) {
  const auto make_folders = [this] {
    for (const char* folder : {"tc", "tc/globals", "xdp"}) {
      ASSERT_EQ(mkdir(Pin(folder).c_str(), 0700), 0) << strerror(errno);
    }
    ASSERT_EQ(symlink("tc/", Pin("ip").c_str()), 0) << strerror(errno);
  };
  bool was_loaded = false;
  std::string note;
  ASSERT_TRUE(PrepareDirectory(config_.pin_dir).ok());
  ASSERT_NO_FATAL_FAILURE(make_folders());
  EXPECT_EQ(MustLoad(), Action::kLoaded);
  EXPECT_EQ(access(Pin("tc/globals").c_str(), F_OK), 0);
  EXPECT_TRUE(Unload(config_.pin_dir, &was_loaded, &note).ok());
  EXPECT_EQ(note, "");
  EXPECT_NE(access(config_.pin_dir.c_str(), F_OK), 0);

  // A foreign pin in them keeps them.
  MustLoad();
  ASSERT_NO_FATAL_FAILURE(make_folders());
  UniqueFd map(bpf_map_create(BPF_MAP_TYPE_ARRAY, "theirs", 4, 4, 1, nullptr));
  ASSERT_EQ(bpf_obj_pin(map.get(), Pin("tc/globals/theirs").c_str()), 0);
  EXPECT_TRUE(Unload(config_.pin_dir, &was_loaded, &note).ok());
  EXPECT_THAT(note, HasSubstr(Pin("tc") + " does not belong to the meter"));
  EXPECT_EQ(access(Pin("tc/globals/theirs").c_str(), F_OK), 0);
  unlink(Pin("tc/globals/theirs").c_str());
  EXPECT_TRUE(Unload(config_.pin_dir, &was_loaded, &note).ok());
  EXPECT_EQ(note, "");
  EXPECT_NE(access(config_.pin_dir.c_str(), F_OK), 0);
}

// Where statfs(2) failed four times in a row, a load took the directory for one without
// a BPF file system, and mounted one over the meter: it said that all was well, and
// counted anew.
TEST_F(MountsRootTest, AMeterIsNotMountedOverWhereNobodyCanLook) {
  MustLoad();
  SendFromCgroup(1000);
  bool reached = true;
  for (int but = 0; reached; but++) {
    SCOPED_TRACE(but);
    Interruption failing = {-1, EIO, "statfs", but};
    failing.most = 4;
    config_.max_series++;
    const Interrupted load =
        RunInterrupted(failing, [this] { return Load(config_).status(); });
    EXPECT_TRUE(load.ok ||
                absl::StrContains(load.message, "Input/output error"))
        << load.message;
    EXPECT_EQ(MustStatus().state, MeterState::kLoaded);
    EXPECT_EQ(PayloadSent(), 1000u);
    reached = load.reached;
    ASSERT_TRUE(but != 0 || reached);
  }

  bool was_loaded = false;
  const Interrupted unload = RunInterrupted({-1, EIO, "statfs"}, [&] {
    return Unload(config_.pin_dir, &was_loaded);
  });
  EXPECT_TRUE(unload.reached);
  EXPECT_THAT(unload.message,
              HasSubstr("look at " + config_.pin_dir + ": Input/output error"));
  EXPECT_EQ(PayloadSent(), 1000u);
}

TEST_F(MountsRootTest, ABpfFileSystemOfOthersIsNotUnmounted) {
  for (const bool known : {true, false}) {
    struct stat about;
    ASSERT_NO_FATAL_FAILURE(Mount("others", &about));
    RememberDevice(known ? about.st_dev : 0);
    UniqueFd map(
        bpf_map_create(BPF_MAP_TYPE_ARRAY, "theirs", 4, 4, 1, nullptr));
    ASSERT_EQ(bpf_obj_pin(map.get(), Pin("theirs").c_str()), 0);
    bool was_loaded = true;
    std::string note;
    EXPECT_TRUE(Unload(config_.pin_dir, &was_loaded, &note).ok());
    EXPECT_FALSE(was_loaded);
    EXPECT_EQ(access(Pin("theirs").c_str(), F_OK), 0);
    unlink(Pin("theirs").c_str());
    umount2(config_.pin_dir.c_str(), 0);
    rmdir(config_.pin_dir.c_str());
    unlink(LockFile(config_.pin_dir).c_str());
  }
}

// A load blamed the kernel, and left its directory: without /proc nobody knows what is
// mounted there.
TEST_F(MountsRootTest, WithoutProcNothingIsBegun) {
  const auto without_proc = [](const std::function<absl::Status()>& body) {
    return InChild([&] {
      if (unshare(CLONE_NEWNS) != 0 ||
          mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
        return 1;
      }
      while (umount2("/proc", MNT_DETACH) == 0) {
      }
      const absl::Status status = body();
      printf("%s\n", status.ToString().c_str());
      return absl::StrContains(status.message(), "(mount -t proc proc /proc)")
                 ? 0
                 : 2;
    });
  };
  const auto load = [this] { return Load(config_).status(); };
  const auto unload = [this] {
    bool was_loaded = false;
    return Unload(config_.pin_dir, &was_loaded);
  };
  EXPECT_EQ(without_proc(load), 0);
  EXPECT_NE(access(config_.pin_dir.c_str(), F_OK), 0);
  MustLoad();
  EXPECT_EQ(without_proc(load), 0);
  EXPECT_EQ(without_proc(unload), 0);
  // It called each link missing, and the meter damaged.
  EXPECT_EQ(without_proc([this] { return TryStatus().status(); }), 0);
  EXPECT_EQ(MustStatus().state, MeterState::kLoaded);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
