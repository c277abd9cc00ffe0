// SPDX-License-Identifier: BSD-3-Clause
// The destinations of forwarded connections by their first bytes: SNI, or the host of
// HTTP. The programs hand over the first payload of the client, and this reads it with
// the parser that they use for sockets.
//
//   FirstBytes names(config, 262144);
//   names.Add(bytes);                  // each NM_EVENT_BYTES
//   names.Take(record);                // for each record
//
// Threads: one at a time.

#ifndef NETMETER_LIB_APPS_CONNECTIONS_FIRST_BYTES_H_
#define NETMETER_LIB_APPS_CONNECTIONS_FIRST_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

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

  // Bytes that do not follow the former ones, or the first SYN, end the reading.
  void Add(const nm_flow_bytes& bytes);

  // The name, as it was sent; "": none. The last record of a flow forgets it.
  std::string Take(const nm_flow_record& record);

 private:
  struct Reading {
    nm_naming naming;
    uint32_t next;  // sequence number
  };

  const nm_config& config_;
  const size_t most_;
  // By birth and id of the flow. The record of a flow may be lost.
  std::map<std::pair<uint64_t, uint64_t>, Reading> readings_;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_CONNECTIONS_FIRST_BYTES_H_
