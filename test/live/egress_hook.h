// SPDX-License-Identifier: BSD-3-Clause
// Programs of the tests' own at the hook for what the sockets of a cgroup send. The
// kernel runs each program there for each packet, whatever the others decide.

#ifndef NETMETER_TEST_LIVE_EGRESS_HOOK_H_
#define NETMETER_TEST_LIVE_EGRESS_HOOK_H_

#include <linux/bpf.h>

#include <cstdint>

#include "lib/base/unique_fd.h"
#include "test/live/lab.h"

namespace netmeter {
namespace internal {

// A map of one element of two numbers, for such programs. `type` is that of an array.
UniqueFd MapOfTwoNumbers(bpf_map_type type);

// Until it is closed.
UniqueFd AttachToEgress(const Cgroup& cgroup, const bpf_insn* program,
                        uint32_t count);

// Counts what leaves the sockets of a cgroup, by a map of its own. `header` is the length
// of the headers that each segment of a GSO packet after the first adds.
class EgressCounter {
 public:
  EgressCounter(const Cgroup& cgroup, int header);

  // tx_bytes and tx_packets.
  Totals Read() const;

 private:
  UniqueFd map_;
  UniqueFd link_;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_TEST_LIVE_EGRESS_HOOK_H_
