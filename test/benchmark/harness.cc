// SPDX-License-Identifier: BSD-3-Clause
#include "test/benchmark/harness.h"

#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace netmeter {
namespace internal {
namespace {

std::string g_name = "benchmark";
volatile pid_t g_child = 0;

// The child's whole process group: what it started ends with it.
void EndChild(int number) {
  if (g_child > 0) kill(-g_child, SIGKILL);
  if (number == SIGALRM) {
    static const char kMessage[] = "benchmark: the time limit has passed\n";
    // What cannot be said is no reason to stay.
    if (write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1) < 0) return;
  }
}

}  // namespace

void Die(const std::string& what) {
  std::fprintf(stderr, "%s: %s\n", g_name.c_str(), what.c_str());
  std::fflush(stderr);
  _exit(1);
}

void DieWithErrno(const std::string& what) {
  Die(what + ": " + std::strerror(errno));
}

int Check(int result, const char* what) {
  if (result < 0) DieWithErrno(what);
  return result;
}

std::string Run::CgroupPath() const {
  char path[4096] = {};
  const std::string link = "/proc/self/fd/" + std::to_string(cgroup_->fd());
  if (readlink(link.c_str(), path, sizeof(path) - 1) < 0) {
    DieWithErrno("find the cgroup");
  }
  return path;
}

void Run::MountDirectory() {
  Check(unshare(CLONE_NEWNS), "mounts of our own");
  Check(mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr), "mount");
  Check(mount("none", directory_.c_str(), "tmpfs", 0, "mode=0700"), "mount");
}

double NowNs(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) * 1e9 +
         static_cast<double>(now.tv_nsec);
}

double CpuNsOf(pid_t pid) {
  clockid_t clock;
  timespec time;
  if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &time)) {
    return 0;
  }
  return static_cast<double>(time.tv_sec) * 1e9 +
         static_cast<double>(time.tv_nsec);
}

void ForEachRound(int rounds, int subjects,
                  const std::function<void(int)>& measure) {
  for (int round = 0; round < rounds; ++round) {
    for (int i = 0; i < subjects; ++i) measure((round + i) % subjects);
  }
}

Benchmark::Benchmark(std::string name, std::string about)
    : name_(std::move(name)), about_(std::move(about)) {
  Text("json", &json_, "where the results go; without: nowhere");
  Number("time-limit", &time_limit_, 60, "seconds after which it gives up");
}

void Benchmark::Number(const std::string& name, int* value, int smoke,
                       const std::string& help) {
  options_.push_back({"--" + name, help, value, smoke, nullptr, false});
}

void Benchmark::Text(const std::string& name, std::string* value,
                     const std::string& help) {
  options_.push_back({"--" + name, help, nullptr, 0, value, false});
}

int Benchmark::Usage(bool error, const std::string& what) const {
  if (error) {
    std::fprintf(stderr, "%s: %s (--help tells)\n", name_.c_str(),
                 what.c_str());
    return 2;
  }
  std::printf("%s: %s\n\n", name_.c_str(), about_.c_str());
  for (const Option& option : options_) {
    const std::string left =
        option.name + (option.number != nullptr ? " N" : " TEXT");
    std::printf("  %-18s %s", left.c_str(), option.help.c_str());
    if (option.number != nullptr) std::printf(" (%d)", *option.number);
    std::printf("\n");
  }
  std::printf("  %-18s every measurement once and in short: it works\n",
              "--smoke");
  std::printf("\nNeeds root. Run it by test/benchmark.sh.\n");
  return 0;
}

bool Benchmark::Parse(int argc, char** argv, int* status) {
  bool smoke = false;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--help" || argument == "-h") {
      *status = Usage(false, "");
      return false;
    }
    if (argument == "--smoke") {
      smoke = true;
      continue;
    }
    Option* found = nullptr;
    for (Option& option : options_) {
      if (option.name == argument) found = &option;
    }
    bool good = found != nullptr && i + 1 < argc;
    if (good && found->number != nullptr) {
      good = (*found->number = std::atoi(argv[++i])) >= 1;
    } else if (good) {
      *found->text = argv[++i];
    }
    if (!good) {
      *status = Usage(true, "bad option " + argument);
      return false;
    }
    found->given = true;
  }
  for (const Option& option : options_) {
    if (smoke && !option.given && option.number != nullptr) {
      *option.number = option.smoke;
    }
  }
  return true;
}

int Benchmark::RunChild(OwnCgroup* cgroup, const std::string& directory,
                        const std::function<void(Run*)>& measure) const {
  // What the child starts becomes ours when the child ends: it is waited for,
  // too, or else the cgroup could not be removed.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) {
    std::perror("fork");
    return 1;
  }
  if (child == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    Run run(name_, cgroup, directory);
    measure(&run);
    std::string error;
    if (!json_.empty() && !run.results()->WriteTo(json_, &error)) Die(error);
    std::fflush(stdout);
    _exit(0);
  }
  setpgid(child, child);
  g_child = child;
  for (int number : {SIGINT, SIGTERM, SIGHUP, SIGALRM}) {
    signal(number, EndChild);
  }
  alarm(static_cast<unsigned>(time_limit_));
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  alarm(0);
  kill(-child, SIGKILL);
  while (waitpid(-1, nullptr, 0) >= 0 || errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int Benchmark::Main(int argc, char** argv,
                    const std::function<void(Run*)>& measure) {
  g_name = name_;
  int status = 0;
  if (!Parse(argc, argv, &status)) return status;
  std::string error;
  const auto cgroup = OwnCgroup::Make("nm-bench-" + name_, &error);
  if (cgroup == nullptr) {
    std::fprintf(stderr, "%s: %s\n", name_.c_str(), error.c_str());
    return 1;
  }
  char directory[] = "/tmp/nm-bench-XXXXXX";
  if (mkdtemp(directory) == nullptr) {
    std::perror("temporary folder");
    return 1;
  }
  status = RunChild(cgroup.get(), directory, measure);
  rmdir(directory);
  return status;
}

}  // namespace internal
}  // namespace netmeter
