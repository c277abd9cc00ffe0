// SPDX-License-Identifier: BSD-3-Clause
// Pins that change while they are opened.
#include "lib/core/shared_maps.h"

#include <gtest/gtest.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "lib/testing/bpffs_fixture.h"
#include "lib/testing/fake_meter.h"

namespace netmeter {
namespace internal {
namespace {

class SharedMapsRootTest : public BpffsTest {};

// While tables are switched, `info` is a symbolic link through another one. Who had read
// it and looked for where it leads when the switch was over was told that there is no
// meter. An hour of soak found it once, in 500 growths.
TEST_F(SharedMapsRootTest, AreFoundWhileASwitchEnds) {
  FakeMeter meter((FakeMeter::Options()));
  ASSERT_EQ(meter.Pin(pin_dir_), "");
  const std::string info = pin_dir_ + "/info", way = pin_dir_ + "/way";
  const std::string tables = pin_dir_ + "/tables", kept = pin_dir_ + "/kept";
  ASSERT_EQ(link(info.c_str(), kept.c_str()), 0);
  // A long way gives the switch time to end.
  ASSERT_EQ(mkdir((pin_dir_ + "/long").c_str(), 0755), 0);
  std::string target;
  for (int i = 0; i < 400; ++i) target += "long/../";
  target += "way/info";
  std::atomic<bool> done{false};
  std::atomic<int> switches{0};
  std::thread loader([&] {
    const std::string next = pin_dir_ + "/next";
    for (; !done; ++switches) {
      mkdir(tables.c_str(), 0755);
      link(kept.c_str(), (tables + "/info").c_str());
      if (symlink("tables", way.c_str()) != 0) break;
      if (symlink(target.c_str(), next.c_str()) != 0) break;
      if (rename(next.c_str(), info.c_str()) != 0) break;
      if (link(kept.c_str(), next.c_str()) != 0) break;
      if (rename(next.c_str(), info.c_str()) != 0) break;
      unlink(way.c_str());
      unlink((tables + "/info").c_str());
      rmdir(tables.c_str());
    }
  });
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(6);
  int opened = 0;
  for (; std::chrono::steady_clock::now() < end; ++opened) {
    const auto found = OpenSharedPins(pin_dir_);
    EXPECT_TRUE(found.ok()) << found.status() << " after " << opened;
    if (!found.ok()) break;
  }
  done = true;
  loader.join();
  EXPECT_GT(opened, 100);
  EXPECT_GT(switches, 100);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
