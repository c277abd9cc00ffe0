// SPDX-License-Identifier: BSD-3-Clause
// The traffic of the throughput and churn benchmarks.
//
//   tcp_rr        64 bytes there and back on one connection; trips
//   udp_N         64 bytes there, N flows in turn, 16 packets at a time; packets
//   churn         connect, 64 bytes there and back, close; connections
//   download      one connection, from the server to the client; megabytes
//
// One thread plays both parts: no time goes into waking another one, and no packet
// is ever dropped.

#ifndef NETMETER_TEST_BENCHMARK_WORKLOAD_H_
#define NETMETER_TEST_BENCHMARK_WORKLOAD_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "test/benchmark/network.h"

namespace netmeter {
namespace internal {

class Workload {
 public:
  virtual ~Workload() = default;
  // Sockets are made anew for each phase, with what is measured in place.
  virtual void Open(TestNetwork* network, const Place& place) = 0;
  virtual void Close() = 0;
  // So long; how many operations, of which one is a trip, a packet,
  // a connection or a megabyte.
  virtual double Run(double seconds) = 0;
  // A batch by the calling thread; how many operations.
  virtual int RunBatch() = 0;
  // How many operations there were in all.
  uint64_t operations() const { return operations_; }

  const std::string& name() const { return name_; }
  const std::string& unit() const { return unit_; }

 protected:
  Workload(std::string name, std::string unit)
      : name_(std::move(name)), unit_(std::move(unit)) {}

  uint64_t operations_ = 0;

 private:
  const std::string name_, unit_;
};

std::unique_ptr<Workload> MakeTcpRequests();
std::unique_ptr<Workload> MakeSmallUdp(int flows);
std::unique_ptr<Workload> MakeChurn();
std::unique_ptr<Workload> MakeDownload();

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_TEST_BENCHMARK_WORKLOAD_H_
