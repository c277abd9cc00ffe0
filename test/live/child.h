// SPDX-License-Identifier: BSD-3-Clause
// Control groups and the processes that run in them.
//
//   Cgroup cgroup("client");
//   Child child(&cgroup, network, [](Child::Parent& parent) {
//     parent.Send(MeasureSomething());
//   });
//   auto result = child.Receive<uint64_t>();
//   child.Join();

#ifndef NETMETER_TEST_LIVE_CHILD_H_
#define NETMETER_TEST_LIVE_CHILD_H_

#include <gtest/gtest.h>
#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "lib/testing/check.h"
#include "lib/testing/net_namespace.h"

namespace netmeter {
namespace internal {

// Everything that this process leaves in file systems is below these two: a
// directory in /run, and one in cgroup v2.
std::string WorkDirectory(pid_t owner = getpid());
std::string CgroupDirectory(pid_t owner = getpid());

// Kills what runs in the cgroup at path, and removes it with those below.
void RemoveCgroup(const std::string& path);

class Cgroup {
 public:
  explicit Cgroup(const std::string& name);
  Cgroup(const Cgroup&) = delete;
  Cgroup& operator=(const Cgroup&) = delete;
  ~Cgroup() { RemoveCgroup(path_); }

  const std::string& path() const { return path_; }
  uint64_t id() const;  // as BPF links tell it: the directory's inode

  // Moves the calling process here; its sockets stay where they were made.
  void Join() const;

 private:
  std::string path_;
};

class Child {
 public:
  // One end of the conversation between the test and its child.
  class Parent {
   public:
    template <typename T>
    void Send(const T& value) {
      SendBytes(&value, sizeof(value));
    }
    template <typename T>
    T Receive() {
      T value;
      ReceiveBytes(&value, sizeof(value));
      return value;
    }
    int fd() const { return fd_.get(); }  // readable when there is a message

   private:
    friend class Child;
    bool WaitForMessage();
    void SendBytes(const void* data, size_t size);
    void ReceiveBytes(void* data, size_t size);
    UniqueFd fd_;
  };

  // Runs body in a new process, in the cgroup (nullptr: the test's own) and
  // the network namespace. The process ends with 0 after body.
  Child(const Cgroup* cgroup, const NetNamespace& network,
        const std::function<void(Parent&)>& body);
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child();  // kills it if it still runs

  template <typename T>
  void Send(const T& value) {
    child_.Send(value);
  }
  template <typename T>
  T Receive() {
    if (!child_.WaitForMessage()) DieWithDescription();
    return child_.Receive<T>();
  }

  // Waits for the end; fails the test if that was not with status 0.
  void Join() { EXPECT_EQ(Wait(), 0) << "wait status of a child"; }

 private:
  int Wait();
  // Where the child is, and the sockets of its namespace.
  [[noreturn]] void DieWithDescription() const;

  Parent child_;
  pid_t pid_;
};

// A child that says nothing: waits for its end.
inline void RunChild(const Cgroup* cgroup, const NetNamespace& network,
                     const std::function<void()>& body) {
  Child(cgroup, network, [&](Child::Parent&) { body(); }).Join();
}

// Runs a program in this namespace and cgroup, waits, and returns its exit
// status; what it printed is left in output. -1 when it took too long.
int RunProgram(const std::vector<std::string>& arguments, std::string* output);

// Starts a process that cleans up after this one, however this one ends.
// Programs below WorkDirectory() that are mounts are unloaded with loader.
void StartJanitor(const std::string& loader);

// What the janitor does: nothing of the process with this id is left.
void CleanUp(const std::string& loader, pid_t owner);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_TEST_LIVE_CHILD_H_
