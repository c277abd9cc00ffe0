// SPDX-License-Identifier: BSD-3-Clause
// For tests of the loader on the real kernel. It has its own cgroup and pin directory, so
// that the host's meter is not disturbed, and loads that are killed between two steps.
// Needs root.
//
// Threads: one at a time.

#ifndef NETMETER_LIB_LOADER_LOADER_FIXTURE_H_
#define NETMETER_LIB_LOADER_LOADER_FIXTURE_H_

#include <gtest/gtest.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/loader/config.h"
#include "lib/loader/load.h"
#include "lib/loader/status.h"

namespace netmeter {
namespace internal {

using Action = LoadResult::Action;

constexpr char kGroup[] = "daemon";  // on every Debian, gid 1
constexpr gid_t kGid = 1;
constexpr uid_t kNobody = 65534;

std::string CgroupRoot();

// Runs `body` in a child and returns its exit status.
int InChild(const std::function<int()>& body);

// Changes the calling process for good. False if that is refused.
bool BecomeUser(gid_t gid, uid_t uid = kNobody);

// Makes this system call fail with `error` in the calling process, like the seccomp
// filter of a container; if `first` is not -1, only with this first argument. False if
// the kernel accepts no filter.
bool RefuseCall(long number, int error, int first = -1);

class LoaderRootTest : public ::testing::Test {
 protected:
  // Also checks that nothing is left.
  void SetUp() override;
  void TearDown() override;

  Action MustLoad();

  // The message of a failing load, which must have one line; "loaded" if it succeeds.
  std::string LoadError();

  // The message of a reader that opens the meter again; "" if it can.
  std::string ReadError();

  // Loads in a child that is killed at the first step that contains `step`. Returns
  // whether it was.
  bool LoadKilledAt(const std::string& step);

  // Kills `steps` steps after the first one that contains `from`. Returns the last step,
  // or "".
  std::string LoadKilledAfter(const std::string& from, int steps);
  // Does this for another call, which returns whether it succeeded.
  std::string KilledAfter(const std::string& from, int steps,
                          const std::function<bool()>& call);

  void ExpectModes();

  // The output of `netmeter-loader status`, in all its forms.
  struct Report {
    MeterState state = MeterState::kNotLoaded;
    std::string text;
    std::string json;
  };
  absl::StatusOr<Report> TryStatus();
  Report MustStatus();

  std::string Pin(const std::string& name);
  uint32_t LinkId(const std::string& pin, uint32_t* program = nullptr);
  std::vector<uint32_t> LinkedPrograms();

  // Sends one UDP datagram of `bytes` to the proxy port on loopback, from a process in
  // the test's cgroup. It is counted and leaves nothing behind.
  void SendFromCgroup(size_t bytes);

  // Sends `count` datagrams of 10 bytes. Each has a series of its own, by its tag, such
  // as "tag7".
  void SendTagged(int first, int count);

  // Waits until a socket listens at this path, for at most half a minute. Between bind(2)
  // and listen(2) its file exists, but connections are refused.
  void AwaitListener(const std::string& path);

  // The payload that all series have sent.
  uint64_t PayloadSent();

  std::string cgroup_;
  Config config_;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_LOADER_FIXTURE_H_
