// SPDX-License-Identifier: BSD-3-Clause
// The BPF programs of one meter, loaded as the loader loads them
// (lib/loader/object.h), but neither pinned nor attached to anything: for
// the program tests and the benchmark.
//
//   std::string error;
//   auto programs = Programs::Load(ProgramOptions(), &error);
//   programs->Run(Direction::kEgress, Packet::Ipv4().Udp(1, 2).Payload(9));
//
// Everything goes away with the object. Threads: Run() may be called by
// several at once.

#ifndef NETMETER_TEST_PROGRAM_PROGRAMS_H_
#define NETMETER_TEST_PROGRAM_PROGRAMS_H_

#include <bpf/libbpf.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "bpf/internal.h"
#include "lib/base/unique_fd.h"
#include "lib/loader/config.h"
#include "lib/loader/object.h"
// After the types that it names.
#include "netmeter.skel.h"
#include "test/program/packet.h"

namespace netmeter {
namespace internal {

enum class Direction { kEgress, kIngress };

// By the name of a program: what the verifier says at its end, in numbers.
using VerifierLogs = std::map<std::string, std::string>;

struct ProgramOptions {
  uint32_t max_series = 64;
  uint32_t max_names = 64;
  uint32_t max_processes = 64;
  uint32_t max_sockets = 1024;  // a power of two
  std::vector<uint16_t> proxy_ports;
  std::vector<uint16_t> sni_ports;
  std::vector<uint16_t> http_ports;
  // Bits 1 << nm_kind: those that have destinations.
  uint32_t destination_kinds = BitsOfKinds(Config().destinations_of);
  // Rules that name destinations, or, if there are none, what nm_config says about them.
  std::vector<DestinationRule> rules;
  uint32_t rules_count = 0;
  PortRange rules_ports;
  // Patterns of interfaces of the test's namespace, an uplink each: numbers from 1.
  std::vector<std::string> uplinks;
  uint32_t registrants = 0;  // services that are not for everybody
  std::vector<std::string> names_from = Config().names_from;
  // Load all programs, the tracing ones too, not only those that
  // BPF_PROG_TEST_RUN can run.
  bool tracing = false;
  bool socket_hooks = false;
  bool sweeps = false;  // nm_scan, too
  nm_ways ways = NM_WAYS_BOTH;
  absl::string_view elf;       // another build of the object
  uint32_t first_series = 0;   // of the first extent; 0: all
  const Adds* adds = nullptr;  // null: as the loader would on this kernel
  VerifierLogs* verifier_logs = nullptr;  // filled by the load
};

// As the loader's configuration without a file has them, with socket hooks.
ProgramOptions DefaultOptions();

// What BPF_PROG_TEST_RUN may set of a socket buffer. Every call has a socket
// of its own, of no protocol and in no state, which ends with the call.
struct RunOptions {
  uint32_t ifindex = 0;  // 0: the first that is not loopback
  uint32_t gso_segs = 0;
  uint32_t gso_size = 0;
  uint32_t repeat = 1;  // the same packet again, on the same socket
};

struct RunResult {
  int error = 0;  // negative errno of the call
  uint32_t retval = 0;
};

// The sum over the CPUs, by slot; the first eight bytes are those of any CPU
// that has them. Slots that nothing was counted in are left out.
using Counters = std::map<uint32_t, nm_cell>;

class Programs {
 public:
  static constexpr uint32_t kLoopback = 1;

  // nullptr: *error says why.
  static std::unique_ptr<Programs> Load(const ProgramOptions& options,
                                        std::string* error);

  netmeter_bpf* skeleton() const;
  const ProgramOptions& options() const { return options_; }
  uint32_t cells_per_series() const { return cells_per_series_; }
  uint32_t ethernet_ifindex() const { return ethernet_ifindex_; }

  int ProgramFd(Direction direction) const;
  RunResult Run(Direction direction, const Packet& packet,
                const RunOptions& options = RunOptions()) const;

  // Attach to a cgroup, until Detach() or the object's end: what knows of
  // sockets (needs the option socket_hooks), and what counts packets. False:
  // *error says why.
  bool AttachSocketHooks(int cgroup_fd, std::string* error);
  bool AttachPacketHooks(int cgroup_fd, std::string* error);
  void Detach();

  Counters ReadCounters() const;
  nm_stats ReadStats() const;
  nm_info ReadInfo() const;
  // What nm_command returns for a command with this payload.
  RunResult Command(uint16_t code, const void* payload, size_t size,
                    uint32_t times = 1) const;

  // The socket table. A socket that is written has no owner there.
  nm_entry ReadEntry(uint32_t index) const;
  nm_socket ReadSocket(uint32_t index) const;
  bool WriteSocket(uint32_t index, const nm_socket& socket) const;

  ~Programs();

 private:
  explicit Programs(const ProgramOptions& options);
  absl::Status LoadObject();
  absl::Status FillRules();
  void AskForLogs();
  bool Attach(const std::vector<bpf_program*>& programs, int cgroup_fd,
              std::string* error);

  const ProgramOptions options_;
  uint32_t cells_per_series_ = 0;
  uint32_t ethernet_ifindex_ = 0;
  std::unique_ptr<MeterObject> object_;
  std::vector<bpf_link*> links_;
};

// The cookie that the kernel will give to the next socket that asks for one on
// this CPU, if no other socket is faster: cookies are handed out to each CPU
// in rows (include/linux/cookie.h). The caller is pinned to a CPU and sees
// afterwards whether it came true.
uint64_t NextCookie();

// Pins the calling thread to a CPU. False if there is no such CPU.
bool PinToCpu(int cpu);
// The CPUs that the calling thread may run on.
std::vector<int> AllowedCpus();

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_TEST_PROGRAM_PROGRAMS_H_
