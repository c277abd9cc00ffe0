// SPDX-License-Identifier: BSD-3-Clause
// The main() of live tests: real traffic between network namespaces, and a meter on the
// cgroup of one side or both. Needs root, nothing else but
//
//   live_test [--loader=PATH to netmeter-loader] [--actor=PATH to live_actor]
//             [--accuracy=FILE] [--soak-...] [--gtest_...]
//
// Without --loader and --actor they are looked for in Bazel's runfiles, beside
// this file, in PATH. FILE receives the rows of test/accuracy.sh. The
// options --soak-... are those of test/soak.sh (soak.h).

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/utsname.h>

#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "test/live/actor.h"
#include "test/live/child.h"
#include "test/live/measurement.h"
#include "test/live/soak.h"
#include "test/live/world.h"

namespace netmeter {
namespace internal {
namespace {

// program: its path in the tree.
std::string Find(const std::string& self, const std::string& program) {
  const std::string name = program.substr(program.rfind('/'));
  const std::string here = self.substr(0, self.rfind('/') + 1) + ".";
  std::vector<std::string> candidates = {program, here + name};
  const char* runfiles = std::getenv("TEST_SRCDIR");
  const char* workspace = std::getenv("TEST_WORKSPACE");
  if (runfiles != nullptr && workspace != nullptr)
    candidates.push_back(std::string(runfiles) + "/" + workspace + "/" +
                         program);
  candidates.push_back(self + ".runfiles/libnetmeter/" + program);
  const char* path = std::getenv("PATH");
  std::istringstream directories(path == nullptr ? "" : path);
  for (std::string directory; std::getline(directories, directory, ':');)
    candidates.push_back(directory + name);
  for (const std::string& candidate : candidates)
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  return "";
}

void OnAlarm(int) {
  constexpr char kMessage[] = "live_test: a test took too long\n";
  (void)!write(2, kMessage, sizeof(kMessage) - 1);
  _exit(97);
}

int Main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  std::string loader = Find(argv[0], "lib/netmeter_loader/netmeter-loader"),
              rows;
  actor_program = Find(argv[0], "test/live/live_actor");
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const auto is = [&](const std::string& flag) {
      return argument.compare(0, flag.size(), flag) == 0;
    };
    const std::string value = argument.substr(argument.find('=') + 1);
    if (is("--loader=")) {
      loader = value;
    } else if (is("--actor=")) {
      actor_program = value;
    } else if (is("--accuracy=")) {
      rows = value;
    } else if (is("--soak-rounds=")) {
      soak_options.rounds = std::atoi(value.c_str());
    } else if (is("--soak-seconds=")) {
      soak_options.seconds = std::atoi(value.c_str());
    } else if (is("--soak-upgrades=")) {
      soak_options.upgrades = std::atoi(value.c_str());
    } else if (is("--soak-observer=")) {
      soak_options.observer = value;
    } else if (is("--soak-json=")) {
      soak_options.json = value;
    } else if (is("--soak-packets=")) {
      soak_options.packets = value;
    } else if (argument == "--soak-cpu-hotplug") {
      soak_options.cpu_hotplug = true;
    } else if (argument == "--soak-clock-jumps") {
      soak_options.clock_jumps = true;
    } else {
      std::fprintf(stderr, "live_test: unknown argument %s\n", argv[i]);
      return 2;
    }
  }
  if (testing::GTEST_FLAG(list_tests)) return RUN_ALL_TESTS();
  if (geteuid() != 0 || access(loader.c_str(), X_OK) != 0) {
    std::fprintf(stderr,
                 geteuid() != 0
                     ? "live_test: needs root\n"
                     : "live_test: no netmeter-loader: --loader=PATH\n");
    return 2;
  }
  if (access(actor_program.c_str(), X_OK) != 0) {
    std::fprintf(stderr, "live_test: no live_actor: --actor=PATH\n");
    return 2;
  }
  MeteredCgroup::loader = loader;
  if (!rows.empty()) Measurement::WriteRowsTo(rows);
  utsname kernel;
  Check(uname(&kernel), "uname");
  std::printf("kernel %s\n", kernel.release);

  StartJanitor(loader);
  signal(SIGALRM, OnAlarm);
  signal(SIGPIPE, SIG_IGN);
  const int result = RUN_ALL_TESTS();
  World::Close();
  Measurement::PrintTable();
  CleanUp(loader, getpid());
  return result;
}

}  // namespace
}  // namespace internal
}  // namespace netmeter

int main(int argc, char** argv) { return netmeter::internal::Main(argc, argv); }
