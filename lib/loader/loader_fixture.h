// SPDX-License-Identifier: BSD-3-Clause
// For the tests of the loader on the real kernel: a cgroup and a pin directory
// of the test's own, so that the host's meter, if any, is not disturbed, and
// loads that are killed between two steps. Needs root.
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

// Runs in a child of its own; its exit status.
int InChild(const std::function<int()>& body);

// Of the calling process, for good. False where it is refused.
bool BecomeUser(gid_t gid, uid_t uid = kNobody);

// From here on this system call fails so in the calling process, as by the seccomp filter
// of a container. False where the kernel takes no filter.
bool RefuseCall(long number, int error);

class LoaderRootTest : public ::testing::Test {
 protected:
  // Also checks that nothing is left.
  void SetUp() override;
  void TearDown() override;

  Action MustLoad();

  // The message of a load that fails, which must have one line; "loaded".
  std::string LoadError();

  // The message of a reader that opens the meter anew; "" where it can.
  std::string ReadError();

  // Loads in a child that is killed at the first step that says `step`. Whether
  // it was.
  bool LoadKilledAt(const std::string& step);

  // As above, so many steps after the first that says `from`; what it had done
  // last, or "".
  std::string LoadKilledAfter(const std::string& from, int steps);
  // The same of another call, which says whether it went well.
  std::string KilledAfter(const std::string& from, int steps,
                          const std::function<bool()>& call);

  void ExpectModes();

  // What `netmeter-loader status` says, in all its forms.
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

  // One UDP datagram of `bytes` to the proxy port on loopback, from a process
  // of the test's cgroup: it is counted, and leaves nothing behind.
  void SendFromCgroup(size_t bytes);

  // Until a socket listens at this path, for at most half a minute. Between bind(2) and
  // listen(2) its file is there, and who connects is refused.
  void AwaitListener(const std::string& path);

  // The payload that all series have sent.
  uint64_t PayloadSent();

  std::string cgroup_;
  Config config_;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_LOADER_FIXTURE_H_
