// SPDX-License-Identifier: BSD-3-Clause
#include "test/benchmark/observer.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "comparison.skel.h"
#include "peers.skel.h"
#include "test/benchmark/harness.h"
#include "test/program/programs.h"

namespace netmeter {
namespace internal {
namespace {

// Programs of others, loaded once, shared by those who attach them.
using Comparison = std::shared_ptr<comparison_bpf>;
using Peers = std::shared_ptr<peers_bpf>;

std::string Errno(const std::string& what) {
  return what + ": " + std::strerror(errno);
}

std::vector<pid_t> FindSoftirqThreads() {
  std::vector<pid_t> found;
  DIR* proc = opendir("/proc");
  if (proc == nullptr) return found;
  while (const dirent* entry = readdir(proc)) {
    const int pid = std::atoi(entry->d_name);
    if (pid <= 0) continue;
    std::ifstream file("/proc/" + std::to_string(pid) + "/comm");
    std::string name;
    std::getline(file, name);
    if (name.compare(0, 10, "ksoftirqd/") == 0) found.push_back(pid);
  }
  closedir(proc);
  return found;
}

class Off : public Observer {
 public:
  Off() : Observer("off") {}
  std::string Start(int, const Place&) override { return ""; }
  void Stop() override {}
};

// Programs at hooks of a cgroup.
class AtCgroup : public Observer {
 public:
  AtCgroup(std::string name, std::shared_ptr<void> owner,
           std::vector<bpf_program*> programs)
      : Observer(std::move(name), std::move(programs)),
        owner_(std::move(owner)) {}

  std::string Start(int cgroup_fd, const Place&) override {
    for (bpf_program* program : programs_) {
      links_.push_back(bpf_program__attach_cgroup(program, cgroup_fd));
      if (links_.back() == nullptr) return Errno("attach");
    }
    return "";
  }
  void Stop() override {
    for (bpf_link* link : links_) bpf_link__destroy(link);
    links_.clear();
  }

 private:
  const std::shared_ptr<void> owner_;
  std::vector<bpf_link*> links_;
};

class Netmeter : public Observer {
 public:
  // `file`: of another build's object.
  explicit Netmeter(const std::string& name = "netmeter",
                    const std::string& file = "")
      : Observer(name) {
    std::ostringstream elf;
    if (!file.empty() && !(elf << std::ifstream(file).rdbuf())) {
      Die("read " + file);
    }
    const std::string text = elf.str();
    ProgramOptions options = DefaultOptions();
    options.elf = text;
    std::string error;
    meter_ = Programs::Load(options, &error);
    if (meter_ == nullptr) Die(name + ": " + error);
    bpf_program* program;
    bpf_object__for_each_program(program, meter_->skeleton()->obj) {
      if (bpf_program__fd(program) >= 0) programs_.push_back(program);
    }
  }
  std::string Start(int cgroup_fd, const Place&) override {
    std::string error;
    return meter_->AttachSocketHooks(cgroup_fd, &error) &&
                   meter_->AttachPacketHooks(cgroup_fd, &error)
               ? ""
               : error;
  }
  void Stop() override { meter_->Detach(); }

 private:
  std::unique_ptr<Programs> meter_;
};

class Kernsnoopd : public Observer {
 public:
  explicit Kernsnoopd(const Peers& peers)
      : Observer("kernsnoopd"), peers_(peers) {}
  std::string Start(int, const Place&) override {
    for (bpf_program* program :
         {peers_->progs.bm_snoop_call, peers_->progs.bm_snoop_point}) {
      if (bpf_program__fd(program) < 0) continue;
      link_ = bpf_program__attach(program);
      if (link_ != nullptr) return "";
    }
    return "neither fentry nor the tracepoint sock_send_length";
  }
  void Stop() override { bpf_link__destroy(std::exchange(link_, nullptr)); }

 private:
  const Peers peers_;
  bpf_link* link_ = nullptr;
};

class Skydive : public Observer {
 public:
  explicit Skydive(const Peers& peers)
      : Observer("Skydive", {peers->progs.bm_skydive_filter}), peers_(peers) {}
  std::string Start(int, const Place& place) override {
    socket_ =
        UniqueFd(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL)));
    sockaddr_ll address = {};
    address.sll_family = AF_PACKET;
    address.sll_protocol = htons(ETH_P_ALL);
    address.sll_ifindex =
        static_cast<int>(if_nametoindex(place.interface.c_str()));
    const int filter = bpf_program__fd(peers_->progs.bm_skydive_filter);
    if (!socket_.ok() ||
        setsockopt(socket_.get(), SOL_SOCKET, SO_ATTACH_BPF, &filter,
                   sizeof(filter)) != 0 ||
        bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address),
             sizeof(address)) != 0) {
      return Errno("packet socket");
    }
    return "";
  }
  void Stop() override { socket_ = UniqueFd(); }

 private:
  const Peers peers_;
  UniqueFd socket_;
};

// Programs of traffic control.
class TrafficControl : public Observer {
 public:
  // `interfaces`: empty for that of the place. `ingress`: may be null.
  TrafficControl(const std::string& name, Peers peers, bpf_program* egress,
                 bpf_program* ingress, std::vector<std::string> interfaces)
      : Observer(name, {egress, ingress}),
        peers_(std::move(peers)),
        egress_(egress),
        ingress_(ingress),
        interfaces_(std::move(interfaces)) {}
  std::string Start(int, const Place& place) override {
    const auto names = interfaces_.empty()
                           ? std::vector<std::string>{place.interface}
                           : interfaces_;
    for (const std::string& interface : names) {
      bpf_tc_hook hook = {};
      hook.sz = sizeof(hook);
      hook.ifindex = static_cast<int>(if_nametoindex(interface.c_str()));
      hook.attach_point =
          static_cast<bpf_tc_attach_point>(BPF_TC_INGRESS | BPF_TC_EGRESS);
      if (int error = bpf_tc_hook_create(&hook)) {
        errno = -error;
        return Errno("traffic control");
      }
      hooks_.push_back(hook);
      if (!Attach(hook, BPF_TC_EGRESS, egress_) ||
          (ingress_ != nullptr && !Attach(hook, BPF_TC_INGRESS, ingress_))) {
        return Errno("attach to traffic control");
      }
    }
    return "";
  }
  void Stop() override {
    for (bpf_tc_hook& hook : hooks_) bpf_tc_hook_destroy(&hook);
    hooks_.clear();
  }

 private:
  static bool Attach(bpf_tc_hook hook, bpf_tc_attach_point point,
                     bpf_program* program) {
    hook.attach_point = point;
    LIBBPF_OPTS(bpf_tc_opts, options);
    options.prog_fd = bpf_program__fd(program);
    const int error = bpf_tc_attach(&hook, &options);
    errno = -error;
    return error == 0;
  }

  const Peers peers_;
  bpf_program* const egress_;
  bpf_program* const ingress_;
  const std::vector<std::string> interfaces_;
  std::vector<bpf_tc_hook> hooks_;
};

// For a command: its text has the interface's name at this place.
constexpr char kInterface[] = "INTERFACE";

// A program that reads packets, or events, by itself.
class Process : public Observer {
 public:
  // `ready`: what it says on stderr when it is; "": a third of a second.
  Process(const std::string& name, std::vector<std::string> command,
          std::string ready)
      : Observer(name),
        command_(std::move(command)),
        ready_(std::move(ready)) {}
  ~Process() override { Stop(); }

  std::string Start(int, const Place& place) override {
    int pipe_fds[2];
    Check(pipe2(pipe_fds, O_CLOEXEC), "pipe");
    UniqueFd from(pipe_fds[0]);
    {
      const UniqueFd to(pipe_fds[1]);
      pid_ = Check(fork(), "fork");
      if (pid_ == 0) Exec(place, to.get());
    }
    const double deadline = NowNs() + (ready_.empty() ? 0.33e9 : 10e9);
    std::string said;
    while (true) {
      const int left = static_cast<int>((deadline - NowNs()) / 1e6);
      pollfd poll_fd = {from.get(), POLLIN, 0};
      if (left <= 0 || poll(&poll_fd, 1, left) <= 0) break;
      char buffer[512];
      const ssize_t got = read(from.get(), buffer, sizeof(buffer));
      if (got <= 0) {  // it has ended
        Stop();
        return said.empty() ? "is not installed" : said;
      }
      said.append(buffer, static_cast<size_t>(got));
      if (!ready_.empty() && said.find(ready_) != std::string::npos) break;
    }
    stderr_ = std::move(from);
    start_ns_ = CpuNsOf(pid_);
    return "";
  }

  void Stop() override {
    if (pid_ <= 0) return;
    kill(pid_, SIGTERM);
    for (int i = 0; i < 200 && waitpid(pid_, nullptr, WNOHANG) == 0; ++i) {
      usleep(5000);
      if (i == 150) kill(pid_, SIGKILL);
    }
    pid_ = -1;
    stderr_ = UniqueFd();
  }

  double CpuNs() const override { return CpuNsOf(pid_) - start_ns_; }

 private:
  [[noreturn]] void Exec(const Place& place, int error_fd) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    dup2(error_fd, STDERR_FILENO);
    std::vector<char*> arguments;
    for (std::string& word : command_) {
      if (word == kInterface) word = place.interface;
      arguments.push_back(&word[0]);
    }
    arguments.push_back(nullptr);
    execvp(arguments[0], arguments.data());
    _exit(127);
  }

  std::vector<std::string> command_;
  const std::string ready_;
  pid_t pid_ = -1;
  UniqueFd stderr_;
  double start_ns_ = 0;
};

// netmeter-loader's own meter.
class Loaded : public Observer {
 public:
  Loaded(const std::string& name, const std::string& cgroup,
         const std::string& pin_dir, const std::string& options,
         const std::string& loader = kLoader)
      : Observer(name),
        load_(loader + " load --quiet --group '' --cgroup " + cgroup +
              " --pin-dir " + pin_dir + options),
        unload_(loader + " unload --quiet --pin-dir " + pin_dir) {}
  ~Loaded() override { Loaded::Stop(); }

  std::string Start(int, const Place&) override {
    std::string error;
    loaded_ = RunCommand(load_, &error);
    if (!loaded_) Die(error);
    return "";
  }
  void Stop() override {
    std::string error;
    if (std::exchange(loaded_, false) && !RunCommand(unload_, &error))
      Die(error);
  }

 private:
  static constexpr char kLoader[] = "lib/netmeter_loader/netmeter-loader";
  const std::string load_, unload_;
  bool loaded_ = false;
};

// It, and netmeter flows --follow, which reads each record.
class Followed : public Loaded {
 public:
  Followed(const std::string& cgroup, const std::string& pin_dir)
      : Loaded("netmeter, followed", cgroup, pin_dir, ""),
        follower_("",
                  {"lib/apps/netmeter/netmeter", "flows", "--follow", "--json",
                   "--pin-dir", pin_dir},
                  "") {}

  std::string Start(int cgroup_fd, const Place& place) override {
    Loaded::Start(cgroup_fd, place);
    const uint32_t alone = ProgramsOf(cgroup_fd);
    const std::string error = follower_.Start(cgroup_fd, place);
    if (!error.empty()) Die(error);
    for (int i = 0; ProgramsOf(cgroup_fd) == alone; ++i) {
      if (i == 1000) Die("netmeter flows does not follow");
      usleep(10000);
    }
    return "";
  }
  void Stop() override {
    follower_.Stop();
    Loaded::Stop();
  }
  double CpuNs() const override { return follower_.CpuNs(); }

 private:
  static uint32_t ProgramsOf(int cgroup_fd) {
    uint32_t ids[64], count = 64;
    if (bpf_prog_query(cgroup_fd, BPF_CGROUP_INET_EGRESS, 0, nullptr, ids,
                       &count) != 0) {
      DieWithErrno("list the programs of the cgroup");
    }
    return count;
  }

  Process follower_;
};

// With the best of the hooks that the kernel lets kernsnoopd have. Which one is
// only known by trying.
Peers LoadPeers() {
  const libbpf_print_fn_t print = libbpf_set_print(nullptr);
  for (int attempt = 0; attempt < 3; ++attempt) {
    Peers peers(peers_bpf__open(), peers_bpf__destroy);
    if (peers == nullptr) DieWithErrno("open the programs of others");
    bpf_program__set_autoload(peers->progs.bm_snoop_call, attempt == 0);
    bpf_program__set_autoload(peers->progs.bm_snoop_point, attempt == 1);
    if (attempt == 2) libbpf_set_print(print);
    if (peers_bpf__load(peers.get()) == 0) {
      libbpf_set_print(print);
      return peers;
    }
  }
  DieWithErrno("load the programs of others");
}

}  // namespace

uint64_t PacketRuns(const Programs& programs) {
  return ReadRunTime(programs.ProgramFd(Direction::kEgress)).runs +
         ReadRunTime(programs.ProgramFd(Direction::kIngress)).runs;
}

double OwnCpuNs() {
  static const std::vector<pid_t> threads = FindSoftirqThreads();
  double ns = NowNs(CLOCK_PROCESS_CPUTIME_ID);
  for (pid_t thread : threads) ns += CpuNsOf(thread);
  return ns;
}

std::vector<std::unique_ptr<Observer>> MakeObservers(
    Run* run, const std::vector<std::string>& router, bool paired) {
  const std::string cgroup =
      run->CgroupPath() +
      (paired ? std::string("/") + OwnCgroup::kThreads : "");
  const std::string pins = run->directory() + "/pins";
  run->MountDirectory();
  const Comparison comparison(comparison_bpf__open_and_load(),
                              comparison_bpf__destroy);
  if (comparison == nullptr) DieWithErrno("load the programs to compare with");
  const Peers peers = LoadPeers();
  const auto& progs = comparison->progs;
  std::vector<std::unique_ptr<Observer>> all;
  const auto add = [&](const std::string& name,
                       std::vector<bpf_program*> programs) {
    all.push_back(
        std::make_unique<AtCgroup>(name, comparison, std::move(programs)));
  };
  bpf_program* const tx = progs.bm_empty_tx;
  bpf_program* const rx = progs.bm_empty_rx;
  bpf_program* const create = progs.bm_create;
  bpf_program* const release = progs.bm_release;
  bpf_program* const option = progs.bm_setsockopt;
  bpf_program* const state = progs.bm_sockops_state;
  all.push_back(std::make_unique<Off>());
  add("empty", {tx, rx});
  if (paired) {
    add("empty, 6 hooks", {tx, rx, create, release, option, state});
    add("no STATE", {tx, rx, create, release, option, progs.bm_sockops});
    add("no sockops", {tx, rx, create, release, option});
    add("no release, setsockopt", {tx, rx, create, state});
    add("6 hooks, storage",
        {tx, rx, progs.bm_create_storage, release, option, state});
  }
  all.push_back(std::make_unique<Netmeter>());
  for (const Build& build : run->builds()) {
    if (build.is_loader) {
      all.push_back(
          std::make_unique<Loaded>(build.name, cgroup, pins, "", build.file));
    } else {
      all.push_back(std::make_unique<Netmeter>(build.name, build.file));
    }
  }
  if (!paired) all.push_back(std::make_unique<Followed>(cgroup, pins));
  add("shared hash", {progs.bm_hash_tx, progs.bm_hash_rx});
  if (!paired) all.push_back(std::make_unique<Kernsnoopd>(peers));
  all.push_back(std::make_unique<AtCgroup>(
      "systemd", peers,
      std::vector<bpf_program*>{peers->progs.bm_systemd_tx,
                                peers->progs.bm_systemd_rx}));
  all.push_back(std::make_unique<Skydive>(peers));
  all.push_back(std::make_unique<TrafficControl>(
      "netobserv", peers, peers->progs.bm_observe_tx,
      peers->progs.bm_observe_rx, std::vector<std::string>()));
  if (paired) return all;
  all.push_back(std::make_unique<Process>(
      "tcpdump",
      std::vector<std::string>{"tcpdump", "-Z", "root", "-n", "-w", "/dev/null",
                               "-i", kInterface},
      "listening on"));
  all.push_back(std::make_unique<Process>(
      "nethogs", std::vector<std::string>{"nethogs", "-a", "-t", kInterface},
      ""));
  if (router.empty()) return all;
  const std::string config = run->directory() + "/uplinks.yml";
  std::ofstream(config) << "uplinks: {a: [" << router.at(0) << "], b: ["
                        << router.at(1) << "]}\n";
  all.push_back(std::make_unique<Loaded>("netmeter, uplinks", cgroup, pins,
                                         " --config " + config));
  all.push_back(std::make_unique<TrafficControl>(
      "tc", peers, peers->progs.bm_tc_tx, peers->progs.bm_tc_rx, router));
  all.push_back(std::make_unique<TrafficControl>(
      "tc, egress", peers, peers->progs.bm_tc_forwarded, nullptr, router));
  return all;
}

}  // namespace internal
}  // namespace netmeter
