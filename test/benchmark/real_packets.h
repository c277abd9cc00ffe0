// SPDX-License-Identifier: BSD-3-Clause
// What a packet costs in real traffic. The programs to compare take each other's
// places on one cgroup while a ping-pong goes over a Link, and two clocks are
// read:
//
//   run time    the kernel's own clock around each run of a program
//               (BPF_ENABLE_STATS), which sees the program alone
//   round trip  the time that the ping-pong takes, by the number of program runs
//               in it: the whole way of a packet through the kernel
//
// A meter has programs at hooks of sockets, too, which run at each round-trip
// time that TCP measures. They are attached while their meter is measured, and
// not while others are.

#ifndef NETMETER_TEST_BENCHMARK_REAL_PACKETS_H_
#define NETMETER_TEST_BENCHMARK_REAL_PACKETS_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "lib/base/unique_fd.h"
#include "test/benchmark/link.h"
#include "test/benchmark/measure.h"

namespace netmeter {
namespace internal {

class RealPackets {
 public:
  // All must outlive this. `meters`: nullptr for a subject that is none.
  // Attaches the empty programs to the cgroup, and the socket hooks of all
  // meters, so that each of them sees the sockets that are made.
  RealPackets(const Settings& settings, const Hooks (&hooks)[kSubjects],
              Programs* const (&meters)[kSubjects], Link* link, int cgroup_fd);

  // Puts other programs into the places of those that count packets.
  void SwapPacketHooks(int subject);

  // Prints a table of run times and one of round trips. The link is connected.
  void Run(const std::vector<int>& cpus);

 private:
  // Nothing but this subject's programs is attached, at any hook.
  void Use(int subject);

  void WarmUp();
  void PrintRunTimes(const std::vector<int>& cpus);
  void PrintRoundTrips();

  // Two columns, sent and received, of what `work` takes the programs.
  // Returns the number of runs of both.
  uint64_t AddRunTimes(const char* tx_title, const char* rx_title,
                       const std::function<void()>& work,
                       std::vector<Column>* columns);
  uint64_t RunTimes(int subject, const std::function<void()>& work, Column* tx,
                    Column* rx);

  void PingPong(bool is_tcp) const;
  void SendOnAll(const std::vector<int>& cpus) const;

  const Settings& settings_;
  const Hooks (&hooks_)[kSubjects];
  Programs* const (&meters_)[kSubjects];
  Link* const link_;
  const int cgroup_fd_;
  const int rounds_;
  UniqueFd egress_, ingress_;
  // Of UDP and of TCP: how often the programs run in one round trip.
  double runs_per_trip_[2] = {};
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_TEST_BENCHMARK_REAL_PACKETS_H_
