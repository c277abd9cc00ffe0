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
#include "lib/evict/evict.h"
#include "lib/loader/load.h"
#include "lib/loader/loader_fixture.h"
#include "lib/loader/status.h"
#include "lib/loader/system.h"
#include "lib/loader/unload.h"

namespace netmeter {
namespace internal {
namespace {

using ::testing::HasSubstr;

class MountsRootTest : public LoaderRootTest {};

// Linux 5.10 forgets the source of a BPF file system, by which the loader knows its own
// mount: unload left it there. Mounted here as it looks there.
TEST_F(MountsRootTest, AMountWithoutItsSourceIsOurs) {
  ASSERT_EQ(mkdir(config_.pin_dir.c_str(), 0755), 0);
  ASSERT_EQ(mount("none", config_.pin_dir.c_str(), "bpf", 0, ""), 0);
  EXPECT_EQ(MustLoad(), Action::kLoaded);
  ExpectModes();
  bool was_loaded;
  EXPECT_TRUE(Unload(config_.pin_dir, &was_loaded).ok());
  EXPECT_TRUE(was_loaded);
  EXPECT_NE(access(config_.pin_dir.c_str(), F_OK), 0);
}

// Unload took them with the mount: what others had pinned there, and what they had
// mounted below.
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
  ASSERT_TRUE(MakePinDirectory(config_.pin_dir).ok());
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

// In a BPF file system that others use, too, unload removed whatever had the name of a
// pin of ours. Now it is refused, as any directory with something in it.
TEST_F(MountsRootTest, ABpfFileSystemOfOthersIsLeftAlone) {
  ASSERT_EQ(mkdir(config_.pin_dir.c_str(), 0755), 0);
  ASSERT_EQ(mount("others", config_.pin_dir.c_str(), "bpf", 0, ""), 0);
  UniqueFd map(
      bpf_map_create(BPF_MAP_TYPE_ARRAY, "nm_names", 4, 4, 1, nullptr));
  ASSERT_EQ(bpf_obj_pin(map.get(), Pin("names").c_str()), 0);
  bool was_loaded = true;
  for (const std::string& error :
       {LoadError(),
        std::string(Unload(config_.pin_dir, &was_loaded).message())}) {
    EXPECT_THAT(error, HasSubstr(" has no meter, but foreign files (names): "
                                 "choose another --pin-dir"));
  }
  EXPECT_FALSE(was_loaded);
  EXPECT_EQ(access(Pin("names").c_str(), F_OK), 0);
  EXPECT_NE(access(LockFile(config_.pin_dir).c_str(), F_OK), 0);
  umount2(config_.pin_dir.c_str(), 0);
  rmdir(config_.pin_dir.c_str());
}

// The kernel puts two files into each BPF file system. An empty one was refused for them.
TEST_F(MountsRootTest, AnEmptyBpfFileSystemOfOthersIsAnEmptyDirectory) {
  ASSERT_EQ(mkdir(config_.pin_dir.c_str(), 0755), 0);
  ASSERT_EQ(mount("others", config_.pin_dir.c_str(), "bpf", 0, ""), 0);
  MustLoad();
  bool was_loaded = false;
  EXPECT_TRUE(Unload(config_.pin_dir, &was_loaded).ok());
  EXPECT_TRUE(was_loaded);
  EXPECT_EQ(umount2(config_.pin_dir.c_str(), 0), 0) << "that of others is gone";
  rmdir(config_.pin_dir.c_str());
}

// A load blamed the kernel, and left its directory behind: without /proc the mounts are
// unknown.
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
