// SPDX-License-Identifier: BSD-3-Clause
// lib/netlink/interfaces.h: a datagram of rtnetlink(7), as RTM_GETLINK answers. The
// seeds are answers of Linux 6.18 in network namespaces of their own: with a bridge and
// a veth (links), and the end of the dump (done).

#include <string.h>

#include "lib/netlink/interfaces.h"
#include "test/fuzz/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace netmeter::internal;  // NOLINT
  const absl::string_view datagram(reinterpret_cast<const char*>(data), size);
  // The sequence number of the first message, so that the others may have another.
  uint32_t sequence = 1;
  if (size >= 12) memcpy(&sequence, data + 8, sizeof(sequence));
  bool changed = false;
  std::vector<Interface> all;
  const auto taken = TakeInterfaces(datagram, sequence, &changed, &all);
  FUZZ_CHECK(taken.ok() || !taken.status().message().empty());
  FUZZ_CHECK(!taken.ok() || changed == (*taken == LinkDump::kChanged) ||
             *taken == LinkDump::kMore);
  // An interface takes 32 bytes: the header of a message, and its own.
  FUZZ_CHECK(all.size() * 32 <= size);
  size_t names = 0;
  for (const Interface& interface : all) {
    FUZZ_CHECK(interface.name.find('\0') == std::string::npos);
    FUZZ_CHECK(interface.header == kUnknownHeader || interface.header >= 0);
    names += interface.name.size();
  }
  FUZZ_CHECK(names <= size);
  return 0;
}
