// SPDX-License-Identifier: BSD-3-Clause
// What the soak sends: one worker process for each kind of traffic, all at once,
// between the client and the server of a Lab. A kind is run in pieces, such as one
// call of RunTcp(), each with other sizes, and both families in turn.
//
//   SoakTraffic traffic(lab, meter.cgroup());
//   traffic.Start();   // every worker begins
//   ...
//   traffic.Stop();    // ... has ended its piece: nothing is under way
//   traffic.Counts();  // what some of them sent, and under which name

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

// The name of a process that keeps it as long as the traffic runs, with a destination of
// its own and with none: series that had room at the beginning are never idle.
extern const char kSoakWitness[];
extern const char kSoakWitnessDestination[];
// The names of processes that each have their own.
extern const char kSoakServices[];  // registered, with a number
extern const char kSoakPrograms[];  // executed, with a number

constexpr int kSoakServiceProgram =
    1;  // the configuration says that it is a service

// What the workers know, since they began: payload, in bytes, and answers.
struct SoakCounts {
  int64_t registered = 0, refused = 0;       // as NM_REGISTER answered
  int64_t witnessed = 0;                     // ... and the witness
  int64_t services_tx = 0, services_rx = 0;  // of registered processes
  int64_t witness_tx = 0, witness_rx = 0;
  int64_t witness_named_tx = 0, witness_named_rx = 0;  // ... to its destination
  int64_t program_tx = 0;                              // of kSoakServiceProgram
  // Of who has, or asks for, a name or a destination that may be new.
  int64_t newcomers_tx = 0, newcomers_rx = 0;
};
SoakCounts operator-(const SoakCounts& a, const SoakCounts& b);

class SoakTraffic {
 public:
  // `few`: four kinds only, which wait for nothing, and the witness: the load of many
  // upgrades.
  SoakTraffic(Lab& lab, const Cgroup* cgroup, bool few);
  ~SoakTraffic();

  void Start();
  void Stop();

  // Pieces that each kind has run so far.
  std::vector<std::pair<std::string, uint64_t>> Pieces() const;
  // After Stop().
  SoakCounts Counts() const;

 private:
  struct Shared;
  struct Worker {
    const char* kind;
    std::unique_ptr<Child> child;
    uint64_t pieces = 0;
  };

  Shared* shared_;
  std::unique_ptr<Child> sink_, witness_;
  std::vector<Worker> workers_;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_TEST_LIVE_SOAK_TRAFFIC_H_
