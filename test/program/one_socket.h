// SPDX-License-Identifier: BSD-3-Clause
// Several packets on one socket. The kernel makes a new socket for each run of a program.
// But the cookie of the next socket is known in advance, so this file gives the entry of
// the table to that cookie before each run. The programs then see one socket.
//
// Threads: none.

#ifndef NETMETER_TEST_PROGRAM_ONE_SOCKET_H_
#define NETMETER_TEST_PROGRAM_ONE_SOCKET_H_

#include <bpf/bpf.h>
#include <sched.h>
#include <unistd.h>

#include <cstdint>
#include <vector>

#include "test/program/fixture.h"

namespace netmeter {
namespace internal {

// Stays on one CPU as long as it lives.
class OnOneCpu {
 public:
  OnOneCpu() : cpus_(AllowedCpus()) {
    EXPECT_TRUE(!cpus_.empty() && PinToCpu(cpus_.front()));
  }
  ~OnOneCpu() {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int cpu : cpus_) CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof(set), &set);
  }

 private:
  const std::vector<int> cpus_;
};

// A series as nm_slot_of_series() would leave it.
inline void WriteHead(const Programs& programs, uint32_t slot, uint16_t service,
                      nm_kind kind, nm_transport transport) {
  for (uint32_t cpu = 0; cpu < programs.cells_per_series(); ++cpu) {
    const uint32_t index = slot * programs.cells_per_series() + cpu;
    nm_cell cell = {};
    cell.service = service;
    cell.kind = static_cast<nm_u8>(kind);
    cell.transport = static_cast<nm_u8>(transport);
    ASSERT_EQ(
        bpf_map__update_elem(programs.skeleton()->maps.nm_counters, &index,
                             sizeof(index), &cell, sizeof(cell), BPF_ANY),
        0);
  }
}

// Runs a packet on the socket, and stores the socket's new state. Returns what the packet
// counted, by slot.
inline Counters PassOn(const Programs& programs, nm_socket* socket,
                       Direction direction, const Packet& packet,
                       const RunOptions& options = RunOptions()) {
  const uint32_t mask = programs.options().max_sockets - 1;
  for (int attempt = 0; attempt < 50; ++attempt) {
    const Counters before = programs.ReadCounters();
    const uint64_t cookie = NextCookie();
    const uint32_t index = static_cast<uint32_t>(cookie) & mask;
    nm_socket entry = *socket;
    entry.word = NM_COOKIE(cookie) | NM_WORD_SLOT(socket->word);
    EXPECT_TRUE(programs.WriteSocket(index, entry));
    const RunResult result = programs.Run(direction, packet, options);
    EXPECT_EQ(result.error, 0);
    EXPECT_EQ(result.retval, 1u);
    entry = programs.ReadSocket(index);
    EXPECT_TRUE(programs.WriteSocket(index, nm_socket()));
    // This run took the cookie, if it asked for one. Did another socket?
    if (NextCookie() > cookie + 2) {
      usleep(110000);  // until then a duplicate: NM_DUPLICATES_NS
      continue;
    }
    EXPECT_EQ(NM_WORD_COOKIE(entry.word), NM_COOKIE(cookie));
    *socket = entry;
    return Difference(before, programs.ReadCounters());
  }
  ADD_FAILURE() << "50 times another socket was faster";
  return Counters();
}

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_TEST_PROGRAM_ONE_SOCKET_H_
