// SPDX-License-Identifier: BSD-3-Clause
// The destinations of forwarded connections by their first bytes: SNI, or the host of
// HTTP. The programs hand over the first payload of the client, and this reads it with
// the parser that they use for sockets.
//
//   FirstBytes names(config, 262144);
//   names.Add(bytes);                  // each NM_EVENT_BYTES
//   names.Take(id, /*ends=*/true);     // for the record
//
// Threads: one at a time.

#ifndef NETMETER_LIB_APPS_CONNECTIONS_FIRST_BYTES_H_
#define NETMETER_LIB_APPS_CONNECTIONS_FIRST_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>

#include "bpf/config.h"
#include "bpf/flows.h"
#include "bpf/wire_name.bpf.h"

namespace netmeter {
namespace internal {

class FirstBytes {
 public:
  // `config` must outlive this. If `most` connections have bytes and no record yet, their
  // names are forgotten.
  FirstBytes(const nm_config& config, size_t most);

  // Bytes that do not follow the former ones end the reading.
  void Add(const nm_flow_bytes& bytes);

  // The name, as it was sent; "": none. `ends`: forgets it.
  std::string Take(uint64_t id, bool ends);

 private:
  struct Reading {
    nm_naming naming;
    uint32_t next;  // sequence number
  };

  const nm_config& config_;
  const size_t most_;
  std::unordered_map<uint64_t, Reading> readings_;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_CONNECTIONS_FIRST_BYTES_H_
