// SPDX-License-Identifier: BSD-3-Clause
// What the soak sends: one worker process for each kind of traffic, all at once,
// between the client and the server of a Lab. A kind is run in pieces, such as one
// call of RunTcp(), each with other sizes, and both families in turn.
//
//   SoakTraffic traffic(lab, meter.cgroup());
//   traffic.Start();   // every worker begins
//   ...
//   traffic.Stop();    // ... has ended its piece: nothing is under way

#ifndef NETMETER_TEST_LIVE_SOAK_TRAFFIC_H_
#define NETMETER_TEST_LIVE_SOAK_TRAFFIC_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "test/live/child.h"
#include "test/live/lab.h"
#include "test/live/measurement.h"

namespace netmeter {
namespace internal {

// What the link sees of these kinds and no hook does, by its name in
// docs/counting.md. It takes all packets of a round, in their order.
Classify SoakRemainders();

class SoakTraffic {
 public:
  // `few`: four kinds only, which wait for nothing: the load of many upgrades.
  SoakTraffic(Lab& lab, const Cgroup* cgroup, bool few);
  ~SoakTraffic();

  void Start();
  void Stop();

  // Pieces that each kind has run so far.
  std::vector<std::pair<std::string, uint64_t>> Pieces() const;

 private:
  struct Shared;
  struct Worker {
    const char* kind;
    std::unique_ptr<Child> child;
    uint64_t pieces = 0;
  };

  Shared* shared_;
  std::unique_ptr<Child> sink_;
  std::vector<Worker> workers_;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_TEST_LIVE_SOAK_TRAFFIC_H_
