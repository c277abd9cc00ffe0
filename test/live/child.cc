// SPDX-License-Identifier: BSD-3-Clause
#include "test/live/child.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <chrono>
#include <fstream>
#include <sstream>

#include "lib/base/mounts.h"

namespace netmeter {
namespace internal {
namespace {

int janitor_pipe = -1;
pid_t janitor = -1;

void AwaitJanitor() {
  close(janitor_pipe);
  // Not for ever: it unloads what was loaded.
  for (int i = 0; i < kTimeoutMs && waitpid(janitor, nullptr, WNOHANG) == 0;
       ++i) {
    usleep(1000);
  }
}

// A load among the traffic of a soak once took an emulated guest of 5.10 more than half
// a minute, on a machine that had other work.
constexpr unsigned kProgramSeconds = 120;

std::vector<std::string> Entries(const std::string& path) {
  std::vector<std::string> names;
  DIR* directory = opendir(path.c_str());
  if (directory == nullptr) return names;
  while (const dirent* entry = readdir(directory)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  closedir(directory);
  return names;
}

bool IsDirectory(const std::string& path) {
  struct stat info;
  return lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

bool IsMount(const std::string& path) {
  struct stat here, above;
  return stat(path.c_str(), &here) == 0 &&
         stat((path + "/..").c_str(), &above) == 0 &&
         here.st_dev != above.st_dev;
}

void RemoveTree(const std::string& path) {
  for (const std::string& name : Entries(path)) {
    const std::string child = path + "/" + name;
    if (IsDirectory(child))
      RemoveTree(child);
    else
      unlink(child.c_str());
  }
  rmdir(path.c_str());
}

// The first cgroup v2 mount, which need not be at /sys/fs/cgroup.
std::string CgroupMount() {
  for (const Mount& mount : ReadMounts()) {
    if (mount.type == "cgroup2") return mount.point;
  }
  Die("no cgroup v2 is mounted");
}

}  // namespace

std::string WorkDirectory(pid_t owner) {
  return "/run/nm-live-" + std::to_string(owner);
}

std::string CgroupDirectory(pid_t owner) {
  return CgroupMount() + "/nm-live-" + std::to_string(owner);
}

void RemoveCgroup(const std::string& path) {
  for (const std::string& name : Entries(path))
    if (IsDirectory(path + "/" + name)) RemoveCgroup(path + "/" + name);
  for (int i = 0; i < 200; ++i) {
    if (rmdir(path.c_str()) == 0 || errno == ENOENT) return;
    std::ifstream members(path + "/cgroup.procs");
    for (pid_t pid; members >> pid;) kill(pid, SIGKILL);
    usleep(10000);
  }
  std::fprintf(stderr, "live_test: cannot remove %s\n", path.c_str());
}

Cgroup::Cgroup(const std::string& name) {
  if (mkdir(CgroupDirectory().c_str(), 0755) != 0 && errno != EEXIST)
    DieWithErrno(CgroupDirectory());
  path_ = CgroupDirectory() + "/" + name;
  Check(mkdir(path_.c_str(), 0755), path_);
}

uint64_t Cgroup::id() const {
  struct stat about = {};
  Check(stat(path_.c_str(), &about), path_.c_str());
  return about.st_ino;
}

void Cgroup::Join() const {
  UniqueFd fd(Check(
      open((path_ + "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC), path_));
  Check(write(fd.get(), "0", 1), "join " + path_);
}

void Child::Parent::SendBytes(const void* data, size_t size) {
  Check(send(fd_.get(), data, size, MSG_NOSIGNAL), "message to the test");
}

bool Child::Parent::WaitForMessage() { return WaitFor(fd_.get(), POLLIN); }

void Child::Parent::ReceiveBytes(void* data, size_t size) {
  if (!WaitForMessage()) DieWithErrno("no message from the other process");
  const ssize_t received = Check(recv(fd_.get(), data, size, 0), "message");
  if (static_cast<size_t>(received) != size) {
    Die("the other process ended early");
  }
}

Child::Child(const Cgroup* cgroup, const NetNamespace& network,
             const std::function<void(Parent&)>& body) {
  int ends[2];
  Check(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends),
        "socketpair");
  child_.fd_ = UniqueFd(ends[0]);
  Parent parent;
  parent.fd_ = UniqueFd(ends[1]);
  std::fflush(stdout);
  pid_ = Check(fork(), "fork");
  if (pid_ != 0) return;

  // No stray process, whatever becomes of the test.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // Once: a child may have children.
  if (janitor_pipe >= 0) close(janitor_pipe);
  janitor_pipe = -1;
  await_janitor = nullptr;
  child_.fd_ = UniqueFd();
  alarm(2 * kTimeoutMs / 1000);
  if (cgroup != nullptr) cgroup->Join();
  network.Enter();
  body(parent);
  _exit(0);
}

Child::~Child() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void Child::DieWithDescription() const {
  for (const char* file : {"stack", "wchan", "net/tcp", "net/tcp6",
                           "net/netstat", "net/snmp6", "net/dev"}) {
    std::ifstream content("/proc/" + std::to_string(pid_) + "/" + file);
    std::stringstream text;
    text << content.rdbuf();
    std::fprintf(stderr, "%s:\n%s\n", file, text.str().c_str());
  }
  Die("no message from a child");
}

int Child::Wait() {
  int status = 0;
  for (int i = 0; Check(waitpid(pid_, &status, WNOHANG), "waitpid") == 0; ++i) {
    if (i == kTimeoutMs) DieWithDescription();
    usleep(1000);
  }
  pid_ = -1;
  return status;
}

int RunProgram(const std::vector<std::string>& arguments, std::string* output) {
  int ends[2];
  Check(pipe2(ends, O_CLOEXEC), "pipe");
  UniqueFd read_end(ends[0]), write_end(ends[1]);
  std::vector<char*> argv;
  for (const std::string& argument : arguments)
    argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const pid_t pid = Check(fork(), "fork");
  if (pid == 0) {
    alarm(kProgramSeconds);
    dup2(write_end.get(), 1);
    dup2(write_end.get(), 2);
    execvp(argv[0], argv.data());
    DieWithErrno("run " + arguments[0]);
  }
  write_end = UniqueFd();
  output->clear();
  char buffer[4096];
  for (;;) {
    pollfd ready = {read_end.get(), POLLIN, 0};
    if (poll(&ready, 1, kProgramSeconds * 1000) <= 0) break;
    const ssize_t size = read(read_end.get(), buffer, sizeof(buffer));
    if (size <= 0) {
      int status = 0;
      waitpid(pid, &status, 0);
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    output->append(buffer, size);
  }
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  return -1;
}

void CleanUp(const std::string& loader, pid_t owner) {
  const std::string cgroups = CgroupDirectory(owner);
  const std::string work = WorkDirectory(owner);
  for (const std::string& name : Entries(work)) {
    const std::string path = work + "/" + name;
    if (!IsDirectory(path) || !IsMount(path)) continue;
    std::string output;
    if (RunProgram({loader, "unload", "--pin-dir", path}, &output) != 0)
      std::fprintf(stderr, "live_test: unload %s: %s\n", path.c_str(),
                   output.c_str());
    if (IsMount(path)) umount2(path.c_str(), MNT_DETACH);
  }
  RemoveCgroup(cgroups);
  RemoveTree(work);
}

void StartJanitor(const std::string& loader) {
  const pid_t owner = getpid();
  int ends[2];
  Check(pipe2(ends, O_CLOEXEC), "pipe");
  janitor = Check(fork(), "fork");
  if (janitor == 0) {
    setsid();
    for (int signal_number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE})
      signal(signal_number, SIG_IGN);
    prctl(PR_SET_NAME, "nm-janitor");
    close(ends[1]);
    char byte;
    while (read(ends[0], &byte, 1) < 0 && errno == EINTR) {
    }
    CleanUp(loader, owner);
    _exit(0);
  }
  close(ends[0]);
  janitor_pipe = ends[1];
  await_janitor = AwaitJanitor;
}

}  // namespace internal
}  // namespace netmeter
