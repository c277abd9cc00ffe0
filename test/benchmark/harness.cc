// SPDX-License-Identifier: BSD-3-Clause
#include "test/benchmark/harness.h"

#include <bpf/bpf.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <utility>

namespace netmeter {
namespace internal {
namespace {

constexpr unsigned kMostSeconds = 1800;
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

// Runs `body` in a child; the exit status of the child.
int RunChild(const std::function<void()>& body) {
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
    body();
    std::fflush(stdout);
    _exit(0);
  }
  setpgid(child, child);
  g_child = child;
  for (int number : {SIGINT, SIGTERM, SIGHUP, SIGALRM}) {
    signal(number, EndChild);
  }
  alarm(kMostSeconds);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  alarm(0);
  kill(-child, SIGKILL);
  while (waitpid(-1, nullptr, 0) >= 0 || errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int RunBenchmark(const std::string& name, int argc, char** argv,
                 const std::function<void(Run*)>& measure) {
  g_name = name;
  std::string json, word, netobserv, error;
  bool smoke = false;
  std::vector<Build> builds;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--smoke") {
      smoke = true;
    } else if (argument == "--json" && i + 1 < argc) {
      json = argv[++i];
    } else if (argument == "--netobserv" && i + 1 < argc) {
      netobserv = argv[++i];
    } else if ((argument == "--object" || argument == "--loader") &&
               i + 1 < argc && std::strchr(argv[i + 1], '=') != nullptr) {
      const std::string build = argv[++i];
      const size_t equals = build.find('=');
      builds.push_back({build.substr(0, equals), build.substr(equals + 1),
                        argument == "--loader"});
    } else if (argument[0] != '-') {
      word = argument;
    } else {
      std::fprintf(stderr,
                   "usage: test/benchmark.sh %s [--json FILE] [--smoke] "
                   "[--object NAME=FILE] [--loader NAME=FILE] "
                   "[--netobserv FILE]\n",
                   name.c_str());
      return 2;
    }
  }
  const auto cgroup = OwnCgroup::Make("nm-bench-" + name, &error);
  if (cgroup == nullptr) Die(error);
  char directory[] = "/tmp/nm-bench-XXXXXX";
  if (mkdtemp(directory) == nullptr) DieWithErrno("temporary folder");
  const int status = RunChild([&] {
    Run run(name, cgroup.get(), directory, smoke, word, builds, netobserv);
    measure(&run);
    if (!json.empty() && !run.results()->WriteTo(json, &error)) Die(error);
  });
  rmdir(directory);
  return status;
}

void Results::Add(const std::string& test_case, const std::string& subject,
                  const std::string& unit, Better better, double value) {
  auto found =
      std::find_if(series_.begin(), series_.end(), [&](const Series& series) {
        return series.test_case == test_case && series.subject == subject &&
               series.unit == unit;
      });
  if (found == series_.end()) {
    series_.push_back({test_case, subject, unit, better, {}});
    found = series_.end() - 1;
  }
  found->samples.push_back(value);
}

void Results::Fact(const std::string& name, nlohmann::json value) {
  facts_[name] = std::move(value);
}

void Results::Skip(const std::string& test_case, const std::string& subject,
                   const std::string& why) {
  nlohmann::json skipped = {
      {"case", test_case}, {"subject", subject}, {"why", why}};
  for (const auto& known : skipped_) {
    if (known == skipped) return;
  }
  skipped_.push_back(std::move(skipped));
}

bool Results::WriteTo(const std::string& path, std::string* error) const {
  nlohmann::json all = {{"benchmark", benchmark_},
                        {"facts", facts_},
                        {"skipped", skipped_},
                        {"series", nlohmann::json::array()}};
  for (const Series& series : series_) {
    all["series"].push_back(
        {{"case", series.test_case},
         {"subject", series.subject},
         {"unit", series.unit},
         {"better", series.better == Better::kLess ? "less" : "more"},
         {"samples", series.samples}});
  }
  std::ofstream file(path, std::ios::trunc);
  file << all.dump() << "\n";
  file.close();
  if (file.good()) return true;
  *error = "write " + path;
  return false;
}

UniqueFd EnableRunTime() {
  return UniqueFd(
      Check(bpf_enable_stats(BPF_STATS_RUN_TIME), "enable statistics"));
}

RunTime ReadRunTime(int program_fd) {
  bpf_prog_info info = {};
  uint32_t size = sizeof(info);
  Check(bpf_obj_get_info_by_fd(program_fd, &info, &size), "program info");
  RunTime time;
  time.ns = info.run_time_ns;
  time.runs = info.run_cnt;
  return time;
}

double NsPerRun(const RunTime& before, const RunTime& after) {
  if (after.runs == before.runs) Die("the program did not run");
  return static_cast<double>(after.ns - before.ns) /
         static_cast<double>(after.runs - before.runs);
}

double Memory(const std::string& field) {
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  double kib = 0;
  while (file >> name >> kib) {
    std::getline(file, unit);
    if (name == field + ":") return kib * 1024;
  }
  Die("no " + field + " in /proc/meminfo");
}

}  // namespace internal
}  // namespace netmeter
