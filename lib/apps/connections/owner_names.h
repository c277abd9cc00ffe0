// SPDX-License-Identifier: BSD-3-Clause
// The names of the processes that made sockets. A process id is used again, so an id from
// the past is compared with the time at which its process started: the owner has both.
//
// Threads: one at a time.

#ifndef NETMETER_LIB_APPS_CONNECTIONS_OWNER_NAMES_H_
#define NETMETER_LIB_APPS_CONNECTIONS_OWNER_NAMES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

namespace netmeter {
namespace internal {

class OwnerNames {
 public:
  // The present name of the process; empty if it has ended, or if its start is unknown
  // (0). An answer is kept for 100 ms: a busy process ends thousands of flows in a
  // second, and the files of /proc cost more than the rest of a record. The reference is
  // valid until the next call.
  const std::optional<std::string>& Find(uint32_t pid, uint32_t start);

 private:
  std::unordered_map<uint64_t, std::optional<std::string>> names_;
  uint64_t since_ns_ = 0;  // CLOCK_MONOTONIC of its first entry
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_CONNECTIONS_OWNER_NAMES_H_
