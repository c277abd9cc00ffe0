// SPDX-License-Identifier: BSD-3-Clause
#include "lib/base/proc.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace netmeter {
namespace internal {
namespace {

// What a thread of a child does before it says that it is ready.
enum class Does { kNothing, kOwnTable };

void* RunThread(void* argument) {
  const auto [does, ready] = *static_cast<std::pair<Does, int>*>(argument);
  if (does == Does::kOwnTable) {
    unshare(CLONE_FILES);
    socket(AF_INET, SOCK_DGRAM, 0);
  }
  if (write(ready, "x", 1) != 1) _exit(1);
  pause();
  return nullptr;
}

// A process with a socket, and the main thread. Besides, there are pairs of threads: one
// does nothing, and the other does as told.
class ProcTest : public ::testing::Test {
 protected:
  void Start(Does does, bool main_thread_ends, int pairs = 1) {
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    child_ = fork();
    if (child_ == 0) {
      alarm(60);
      socket(AF_INET, SOCK_STREAM, 0);
      std::pair<Does, int> arguments[] = {{Does::kNothing, ready[1]},
                                          {does, ready[1]}};
      pthread_t thread;
      for (int i = 0; i < 2 * pairs; i++) {
        pthread_create(&thread, nullptr, RunThread, &arguments[i % 2]);
      }
      if (main_thread_ends) syscall(SYS_exit, 0);  // as pthread_exit(3)
      pause();
    }
    char byte;
    for (int i = 0; i < 2 * pairs; i++) ASSERT_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    std::string state;
    while (main_thread_ends && state != "Z") {
      std::ifstream stat(absl::StrCat("/proc/", child_, "/stat"));
      stat >> state >> state >> state;
    }
  }

  void TearDown() override {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }

  uint32_t pid() const { return static_cast<uint32_t>(child_); }

  // The sockets, and in how many tables they were.
  std::multiset<std::string> Sockets() const {
    std::multiset<std::string> sockets;
    ForEachTable(pid(), [&](const Thread& thread) {
      EXPECT_TRUE(
          ForEachDescriptor(thread, [&](uint32_t, absl::string_view link) {
            if (absl::StartsWith(link, "socket:[")) {
              sockets.insert(std::string(link));
            }
          }));
    });
    return sockets;
  }

 private:
  pid_t child_ = -1;
};

TEST_F(ProcTest, ThreadsThatShareATableAreReadOnce) {
  Start(Does::kNothing, /*main_thread_ends=*/false);
  std::vector<uint32_t> threads;
  ForEachThread(pid(), [&](const Thread& t) { threads.push_back(t.tid); });
  ASSERT_EQ(threads.size(), 3u);
  EXPECT_EQ(threads[0], pid());
  EXPECT_EQ(Sockets().size(), 1u);
  EXPECT_EQ(FolderOfProcess(pid()), absl::StrCat("/proc/", pid()));
}

// It had no descriptor, no executable and no command line.
TEST_F(ProcTest, AProcessWhoseMainThreadHasEndedHasWhatItsThreadsHave) {
  Start(Does::kNothing, /*main_thread_ends=*/true);
  EXPECT_EQ(Sockets().size(), 1u);
  const std::string folder = FolderOfProcess(pid());
  EXPECT_TRUE(absl::StartsWith(folder, absl::StrCat("/proc/", pid(), "/task/")))
      << folder;
  struct stat own, of_child;
  ASSERT_EQ(stat("/proc/self/exe", &own), 0);
  ASSERT_EQ(stat((folder + "/exe").c_str(), &of_child), 0);
  EXPECT_EQ(of_child.st_ino, own.st_ino);
}

TEST_F(ProcTest, AThreadWithATableOfItsOwnIsReadToo) {
  Start(Does::kOwnTable, /*main_thread_ends=*/false);
  const std::multiset<std::string> sockets = Sockets();
  EXPECT_EQ(sockets.size(), 3u);  // the first one is in both tables
  EXPECT_EQ(std::set<std::string>(sockets.begin(), sockets.end()).size(), 2u);
}

// The bug: each thread was compared with one of every table before it, so that 6000
// tables took most of a minute.
TEST_F(ProcTest, EachOfManyTablesIsReadOnce) {
  constexpr size_t kPairs = 200;
  Start(Does::kOwnTable, /*main_thread_ends=*/false, kPairs);
  size_t tables = 0;
  ForEachTable(pid(), [&](const Thread&) { tables++; });
  EXPECT_EQ(tables, kPairs + 1);
  const std::multiset<std::string> sockets = Sockets();
  EXPECT_EQ(sockets.size(), 2 * kPairs + 1);  // the first one is in all tables
  EXPECT_EQ(std::set<std::string>(sockets.begin(), sockets.end()).size(),
            kPairs + 1);
}

TEST(StartOfProcessTest, TellsProcessesApart) {
  const auto own = StartOfProcess(static_cast<uint32_t>(getpid()));
  ASSERT_TRUE(own.has_value());
  EXPECT_GT(*own, 0u);
  EXPECT_EQ(StartOfProcess(static_cast<uint32_t>(getpid())), own);
  EXPECT_FALSE(StartOfProcess(1u << 30).has_value());  // above pid_max
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
