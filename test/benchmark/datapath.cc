// SPDX-License-Identifier: BSD-3-Clause
// What one packet costs: netmeter's programs beside an empty program, beside a
// hash that all CPUs share, and beside a program that does the least that a meter
// by sockets could. Everything is paired: in each round every
// program runs, in turn, and what is printed is the median over the rounds of
// the difference to the empty program of the same round.
//
// Three ways, since each hides something:
//   BPF_PROG_TEST_RUN   one packet again and again: everything is in the cache
//   run time            real packets, by the kernel's own clock around each
//                       run (BPF_ENABLE_STATS), which sees one program at work
//   round trip          real packets, by what a ping-pong takes
#include <bpf/bpf.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "comparison.skel.h"
#include "lib/base/unique_fd.h"
#include "test/benchmark/code.h"
#include "test/benchmark/link.h"
#include "test/benchmark/measure.h"
#include "test/benchmark/namespaces.h"
#include "test/benchmark/real_packets.h"
#include "test/benchmark/test_runs.h"
#include "test/program/programs.h"
#include "test/program/sandbox.h"
// After the types that it names.
#include "always_new.skel.h"

namespace netmeter {
namespace internal {
namespace {

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string CpuModel() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (line.compare(0, 10, "model name") == 0) {
      return line.substr(line.find(':') + 2);
    }
  }
  return "unknown CPU";
}

void PrintConditions(const Settings& settings, const std::vector<int>& cpus) {
  utsname system = {};
  uname(&system);
  std::printf(
      "netmeter datapath, ns per packet, medians of %d paired rounds\n"
      "  %s %s, %zu x %s, JIT %s, load average %s\n"
      "  %d runs per BPF_PROG_TEST_RUN, %d round trips per round\n",
      settings.rounds, system.sysname, system.release, cpus.size(),
      CpuModel().c_str(),
      FirstLine("/proc/sys/net/core/bpf_jit_enable") == "0" ? "off" : "on",
      FirstLine("/proc/loadavg").substr(0, 4).c_str(), settings.repeat,
      settings.round_trips);
  std::fflush(stdout);
}

// `elf`: another build than the usual one.
std::unique_ptr<Programs> LoadOrDie(
    uint32_t max_sockets, absl::string_view elf = "",
    const std::vector<std::string>& uplinks = {}) {
  ProgramOptions options = DefaultOptions();
  options.uplinks = uplinks;
  options.max_sockets = max_sockets;
  options.elf = elf;
  std::string error;
  std::unique_ptr<Programs> programs = Programs::Load(options, &error);
  if (programs == nullptr) Die(error);
  return programs;
}

// The last one is that of all interfaces here.
const std::vector<std::string> kOne = {"*"};
const std::vector<std::string> kFour = {"sat0", "wwan*", "ppp*", "*"};

Hooks HooksOf(const Programs& programs) {
  return {programs.ProgramFd(Direction::kEgress),
          programs.ProgramFd(Direction::kIngress)};
}

// The code of what is measured, and how many cycles are in a nanosecond.
void DescribeSubjects(const Hooks (&hooks)[kSubjects], Results* results) {
  nlohmann::json all = nlohmann::json::object();
  std::string error;
  for (const int subject : {kTable, kOneUplink, kFloor, kHash, kEmpty}) {
    for (const bool is_egress : {true, false}) {
      const nlohmann::json code = DescribeCode(
          is_egress ? hooks[subject].egress : hooks[subject].ingress, &error);
      if (!code.is_null()) {
        all[std::string(KeyOf(subject)) + (is_egress ? " tx" : " rx")] = code;
      }
    }
  }
  if (!error.empty()) results->Skip("", "code", error);
  if (!all.empty()) results->Fact("code", all);
  if (const double mhz = TimeStampMhz()) {
    results->Fact("MHz of the time-stamp counter", mhz);
  }
}

// A test run has one segment of TCP, which was sent before from its second run
// on: a retransmission, which takes an add less than the data of a connection and
// none of the two stores. This build takes it for new each time.
void MeasureTestRuns(const Settings& settings, const std::vector<int>& cpus,
                     const Hooks (&others)[kSubjects]) {
  size_t size = 0;
  const void* bytes = always_new_bpf__elf_bytes(&size);
  const absl::string_view elf(static_cast<const char*>(bytes), size);
  const auto table = LoadOrDie(DefaultOptions().max_sockets, elf);
  const auto storage = LoadOrDie(1, elf);
  const auto one = LoadOrDie(DefaultOptions().max_sockets, elf, kOne);
  const auto four = LoadOrDie(DefaultOptions().max_sockets, elf, kFour);
  Programs* tables[kSubjects] = {};
  tables[kTable] = table.get();
  tables[kOneUplink] = one.get();
  tables[kFourUplinks] = four.get();
  Hooks hooks[kSubjects];
  std::copy(std::begin(others), std::end(others), hooks);
  hooks[kTable] = HooksOf(*table);
  hooks[kStorage] = HooksOf(*storage);
  hooks[kOneUplink] = HooksOf(*one);
  hooks[kFourUplinks] = HooksOf(*four);
  DescribeSubjects(hooks, settings.results);
  TestRuns test_runs(settings, *table, tables, hooks);
  test_runs.Run("BPF_PROG_TEST_RUN, one CPU", {cpus.front()});
  test_runs.RunLoopback(cpus.front());
  if (cpus.size() > 1) {
    test_runs.Run("BPF_PROG_TEST_RUN, two CPUs at once on one series",
                  {cpus[0], cpus[1]});
  } else {
    std::printf("\nonly one CPU: nothing about two\n");
    settings.results->Skip("test run, two CPUs", "", "only one CPU");
  }
  // Was measured what the columns say?
  nm_cell sum = {};
  for (const auto& slot : table->ReadCounters()) {
    sum.tx_retransmit_bytes += slot.second.tx_retransmit_bytes;
    if (slot.second.transport != NM_TRANSPORT_TCP) continue;
    sum.tx_payload_bytes += slot.second.tx_payload_bytes;
    sum.rx_payload_bytes += slot.second.rx_payload_bytes;
  }
  if (sum.tx_retransmit_bytes != 0 || sum.tx_payload_bytes == 0 ||
      sum.rx_payload_bytes == 0) {
    Die("TCP's segments were not new");
  }
}

// What the machine itself takes, which limits what any program can do.
void MeasureAtomicAdds(const Settings& settings, const std::vector<int>& cpus) {
  std::vector<double> alone, both;
  for (int i = 0; i < 9; ++i) {
    alone.push_back(AtomicAddNs({cpus[0]}));
    settings.results->Add("atomic add/one CPU", "machine", "ns", Better::kLess,
                          alone.back());
    if (cpus.size() == 1) continue;
    both.push_back(AtomicAddNs({cpus[0], cpus[1]}));
    settings.results->Add("atomic add/two CPUs", "machine", "ns", Better::kLess,
                          both.back());
  }
  std::printf(
      "  (the machine itself: an atomic add takes %.1f ns, by both CPUs on one "
      "word %.1f)\n",
      Median(alone), Median(both));
}

void Measure(const Settings& settings, OwnCgroup* cgroup) {
  std::string error;
  const std::vector<int> cpus = AllowedCpus();
  if (cpus.empty()) Die("no CPU to run on");
  PrintConditions(settings, cpus);
  if (!EnterOwnNetwork(&error)) Die(error);

  // Two meters: in one every socket finds a free entry of the socket table, in
  // the other one they all share one entry, which is taken.
  const auto table = LoadOrDie(DefaultOptions().max_sockets);
  const auto storage = LoadOrDie(1);
  const auto one = LoadOrDie(DefaultOptions().max_sockets, "", kOne);
  const auto four = LoadOrDie(DefaultOptions().max_sockets, "", kFour);
  std::unique_ptr<comparison_bpf, void (*)(comparison_bpf*)> comparison(
      comparison_bpf__open_and_load(), comparison_bpf__destroy);
  if (comparison == nullptr) DieWithErrno("load the programs to compare with");
  Hooks hooks[kSubjects];
  hooks[kEmpty] = {bpf_program__fd(comparison->progs.bm_empty_tx),
                   bpf_program__fd(comparison->progs.bm_empty_rx)};
  hooks[kTable] = HooksOf(*table);
  hooks[kStorage] = HooksOf(*storage);
  hooks[kOneUplink] = HooksOf(*one);
  hooks[kFourUplinks] = HooksOf(*four);
  hooks[kHash] = {bpf_program__fd(comparison->progs.bm_hash_tx),
                  bpf_program__fd(comparison->progs.bm_hash_rx)};
  hooks[kFloor] = {bpf_program__fd(comparison->progs.bm_floor_tx),
                   bpf_program__fd(comparison->progs.bm_floor_rx)};

  MeasureTestRuns(settings, cpus, hooks);
  MeasureAtomicAdds(settings, cpus);

  if (!cgroup->Enter(&error)) Die(error);
  Link link;
  Programs* meters[kSubjects] = {};
  meters[kTable] = table.get();
  meters[kStorage] = storage.get();
  meters[kOneUplink] = one.get();
  meters[kFourUplinks] = four.get();
  RealPackets real(settings, hooks, meters, &link, cgroup->fd());
  // The socket that takes the only entry.
  real.SwapPacketHooks(kStorage);
  const UniqueFd hog = link.SocketHere(SOCK_DGRAM);
  const sockaddr_in nobody = At(Link::kThere, 9);
  if (sendto(hog.get(), "", 0, 0, reinterpret_cast<const sockaddr*>(&nobody),
             sizeof(nobody)) != 0) {
    DieWithErrno("take the only entry");
  }
  // Connected with the programs in place, as on a host that runs a meter.
  real.SwapPacketHooks(kTable);
  link.ConnectUdp(4000);
  link.ConnectTcp(4001);
  real.Run(cpus);

  // Was measured what the lines say?
  const nm_stats in_table = table->ReadStats();
  const nm_stats in_storage = storage->ReadStats();
  if (in_table.sockets_claimed < 4 || in_table.socket_collisions != 0) {
    Die("the sockets were not in the socket table");
  }
  if (in_storage.sockets_claimed != 1 || in_storage.socket_collisions < 4) {
    Die("the sockets were not in socket storage");
  }
}

}  // namespace
}  // namespace internal
}  // namespace netmeter

int main(int argc, char** argv) {
  using namespace netmeter::internal;
  Settings settings;
  Benchmark benchmark("datapath", "ns per packet of the programs");
  benchmark.Number("rounds", &settings.rounds, 1,
                   "rounds of every measurement; of those with real packets, "
                   "which are short, five times as many");
  benchmark.Number("repeat", &settings.repeat, 20000,
                   "runs of a packet in one BPF_PROG_TEST_RUN");
  benchmark.Number("round-trips", &settings.round_trips, 50,
                   "ping-pongs of one round with real packets");
  return benchmark.Main(argc, argv, [&](Run* run) {
    settings.results = run->results();
    Measure(settings, run->cgroup());
  });
}
