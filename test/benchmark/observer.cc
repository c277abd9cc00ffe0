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

// Links of tcx (Linux 6.6) at both directions of each interface.
class Tcx : public Observer {
 public:
  Tcx(const std::string& name, std::shared_ptr<void> owner, bpf_program* egress,
      bpf_program* ingress, std::vector<std::string> interfaces)
      : Observer(name, {egress, ingress}),
        owner_(std::move(owner)),
        interfaces_(std::move(interfaces)) {}
  std::string Start(int, const Place&) override {
    // Newer than libbpf's enum.
    constexpr int kIngress = 46, kEgress = 47;
    for (const std::string& name : interfaces_) {
      const int index = static_cast<int>(if_nametoindex(name.c_str()));
      for (const int direction : {kEgress, kIngress}) {
        const bpf_program* program = programs_[direction == kIngress];
        links_.emplace_back(
            bpf_link_create(bpf_program__fd(program), index,
                            static_cast<bpf_attach_type>(direction), nullptr));
        if (!links_.back().ok()) return Errno("attach to tcx");
      }
    }
    return "";
  }
  void Stop() override { links_.clear(); }

 private:
  const std::shared_ptr<void> owner_;
  const std::vector<std::string> interfaces_;
  std::vector<UniqueFd> links_;
};

// netobserv's compiled programs, as its agent loads them: without optional features, with
// room for 5,000 flows, and with the least for tables that are not used then.
std::unique_ptr<Observer> LoadNetobserv(const std::string& file,
                                        std::vector<std::string> interfaces) {
  const std::shared_ptr<bpf_object> object(
      bpf_object__open_file(file.c_str(), nullptr), bpf_object__close);
  if (object == nullptr) DieWithErrno("open " + file);
  bpf_program* program;
  bpf_object__for_each_program(program, object.get()) {
    const std::string name = bpf_program__name(program);
    bpf_program__set_autoload(program, name == "tcx_egress_flow_parse" ||
                                           name == "tcx_ingress_flow_parse");
    // Its agent's library knows sections that libbpf does not.
    bpf_program__set_type(program, BPF_PROG_TYPE_SCHED_CLS);
  }
  bpf_map* map;
  bpf_object__for_each_map(map, object.get()) {
    bpf_map__set_pin_path(map, nullptr);
    const bool is_used =
        std::strcmp(bpf_map__name(map), "aggregated_flows") == 0;
    switch (bpf_map__type(map)) {
      case BPF_MAP_TYPE_HASH:
      case BPF_MAP_TYPE_PERCPU_HASH:
        bpf_map__set_max_entries(map, is_used ? 5000 : 1);
        break;
      case BPF_MAP_TYPE_RINGBUF:
        bpf_map__set_max_entries(map, static_cast<uint32_t>(getpagesize()));
        break;
      default:
        break;
    }
  }
  if (bpf_object__load(object.get()) != 0) DieWithErrno("load " + file);
  const auto find = [&](const char* name) {
    return bpf_object__find_program_by_name(object.get(), name);
  };
  return std::make_unique<Tcx>(
      "netobserv, its own", object, find("tcx_egress_flow_parse"),
      find("tcx_ingress_flow_parse"), std::move(interfaces));
}

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
  pid_t pid() const { return pid_; }

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
  // `forwarded`: also the records of forwarded flows.
  Followed(const std::string& name, const std::string& cgroup,
           const std::string& pin_dir, const std::string& options,
           bool forwarded)
      : Loaded(name, cgroup, pin_dir, options),
        follower_("", Command(pin_dir, forwarded), ""),
        forwarded_(forwarded) {}

  std::string Start(int cgroup_fd, const Place& place) override {
    Loaded::Start(cgroup_fd, place);
    const uint32_t alone = ProgramsOf(cgroup_fd);
    const std::string error = follower_.Start(cgroup_fd, place);
    if (!error.empty()) Die(error);
    for (int i = 0; ProgramsOf(cgroup_fd) == alone ||
                    (forwarded_ && NetfilterLinksOf(follower_.pid()) < 2);
         ++i) {
      if (i == 6000) Die("netmeter flows does not follow");
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
  static std::vector<std::string> Command(const std::string& pin_dir,
                                          bool forwarded) {
    std::vector<std::string> command = {"lib/apps/netmeter/netmeter",
                                        "flows",
                                        "--follow",
                                        "--json",
                                        "--pin-dir",
                                        pin_dir};
    if (forwarded) command.push_back("--forwarded");
    return command;
  }

  static uint32_t ProgramsOf(int cgroup_fd) {
    uint32_t ids[64], count = 64;
    if (bpf_prog_query(cgroup_fd, BPF_CGROUP_INET_EGRESS, 0, nullptr, ids,
                       &count) != 0) {
      DieWithErrno("list the programs of the cgroup");
    }
    return count;
  }

  static int NetfilterLinksOf(pid_t pid) {
    const std::string folder = "/proc/" + std::to_string(pid) + "/fdinfo/";
    int links = 0;
    for (int fd = 0; fd < 1024; ++fd) {
      std::ifstream file(folder + std::to_string(fd));
      std::string line;
      while (std::getline(file, line)) links += line == "link_type:\tnetfilter";
    }
    return links;
  }

  Process follower_;
  const bool forwarded_;
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

RunTime PacketRuns(const Programs& programs) {
  const RunTime sent = ReadRunTime(programs.ProgramFd(Direction::kEgress));
  const RunTime received = ReadRunTime(programs.ProgramFd(Direction::kIngress));
  return {sent.ns + received.ns, sent.runs + received.runs};
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
  if (!paired) {
    all.push_back(std::make_unique<Followed>("netmeter, followed", cgroup, pins,
                                             "", false));
  }
  add("shared hash", {progs.bm_hash_tx, progs.bm_hash_rx});
  if (!paired) all.push_back(std::make_unique<Kernsnoopd>(peers));
  all.push_back(std::make_unique<AtCgroup>(
      "systemd", peers,
      std::vector<bpf_program*>{peers->progs.bm_systemd_tx,
                                peers->progs.bm_systemd_rx}));
  all.push_back(std::make_unique<Skydive>(peers));
  all.push_back(std::make_unique<TrafficControl>(
      "netobserv", peers, peers->progs.bm_observe_tx,
      peers->progs.bm_observe_rx, router));
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
  const std::string uplinks = run->directory() + "/uplinks.yml";
  const std::string clients = run->directory() + "/clients.yml";
  for (const std::string& file : {uplinks, clients}) {
    std::ofstream(file) << "uplinks: {a: [" << router.at(0) << "], b: ["
                        << router.at(1) << "]}\n"
                        << (file == clients ? "forwarded_clients: [a]\n" : "");
  }
  all.push_back(std::make_unique<Loaded>("netmeter, uplinks", cgroup, pins,
                                         " --config " + uplinks));
  all.push_back(std::make_unique<Loaded>("netmeter, clients", cgroup, pins,
                                         " --config " + clients));
  all.push_back(std::make_unique<Followed>("netmeter, forwarded flows", cgroup,
                                           pins, " --config " + clients, true));
  if (!run->netobserv().empty()) {
    all.push_back(LoadNetobserv(run->netobserv(), router));
  }
  all.push_back(std::make_unique<TrafficControl>(
      "tc", peers, peers->progs.bm_tc_tx, peers->progs.bm_tc_rx, router));
  all.push_back(std::make_unique<TrafficControl>(
      "tc, egress", peers, peers->progs.bm_tc_forwarded, nullptr, router));
  return all;
}

}  // namespace internal
}  // namespace netmeter
