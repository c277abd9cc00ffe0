// SPDX-License-Identifier: BSD-3-Clause
// What may watch the traffic of a benchmark: netmeter, nothing at all, and
// others, each put in place and taken away again for every phase.
//
//   off            nothing
//   empty          programs that do nothing, at the hooks of netmeter's
//   netmeter       all programs of a meter
//   netmeter, followed
//                  the same, as netmeter-loader loads it, and netmeter flows --follow
//   shared hash    the proposal of Magma p018 at the same hooks
//   kernsnoopd     each call of tcp_sendmsg(), for the whole machine
//   systemd        IPAccounting of the cgroup
//   Skydive        a socket filter on the interface
//   netobserv      traffic control of the interface; on a router, of both
//   tcpdump        -w /dev/null on the interface
//   nethogs        on the interface
//
// On a router also:
//   netmeter, uplinks
//                  as netmeter-loader loads it, with its two interfaces as uplinks
//   netmeter, clients
//                  the same, and counts by address in forwarded_clients
//   netmeter, forwarded flows
//                  the same, and netmeter flows --follow --forwarded
//   netobserv, its own
//                  netobserv's compiled programs, if --netobserv names their file
//   tc             traffic control of both interfaces, both directions: the least that
//                  would count forwarded traffic there
//   tc, egress     packets that leave by them and came in by an interface

#ifndef NETMETER_TEST_BENCHMARK_OBSERVER_H_
#define NETMETER_TEST_BENCHMARK_OBSERVER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "test/benchmark/harness.h"
#include "test/benchmark/network.h"
#include "test/program/programs.h"

namespace netmeter {
namespace internal {

class Observer {
 public:
  virtual ~Observer() = default;
  // Returns why it cannot be had here, or "".
  virtual std::string Start(int cgroup_fd, const Place& place) = 0;
  virtual void Stop() = 0;
  // The CPU time of processes of its own, since Start().
  virtual double CpuNs() const { return 0; }

  const std::string& name() const { return name_; }
  // Its BPF programs, if this process loaded them.
  const std::vector<bpf_program*>& programs() const { return programs_; }

 protected:
  explicit Observer(std::string name, std::vector<bpf_program*> programs = {})
      : programs_(std::move(programs)), name_(std::move(name)) {}

  std::vector<bpf_program*> programs_;

 private:
  const std::string name_;
};

// All observers, in the order above, and builds of netmeter. Loads the programs; ends the
// process if that fails. Takes the run's directory. `router`: its two interfaces, if
// there is one. `paired`: only those that see no more than the cgroup for threads or the
// interface of the place. Empty programs are at more of netmeter's hooks then: at all six
// ("empty, 6 hooks"), at five or four, and at six with socket storage.
std::vector<std::unique_ptr<Observer>> MakeObservers(
    Run* run, const std::vector<std::string>& router = {}, bool paired = false);

// How often and how long netmeter's two programs for packets ran, while EnableRunTime()
// is open.
RunTime PacketRuns(const Programs& programs);

// The CPU time of this process and of the kernel's softirq threads.
double OwnCpuNs();

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_TEST_BENCHMARK_OBSERVER_H_
