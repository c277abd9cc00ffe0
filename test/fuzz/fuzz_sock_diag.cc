// SPDX-License-Identifier: BSD-3-Clause
// lib/netlink/diag_message.h: a datagram of netlink(7), as sock_diag(7) answers.
// The seeds are dumps of Linux 6.18: tcp, udp and mptcp, and an error (raw).

#include <netinet/in.h>

#include "lib/netlink/diag_message.h"
#include "lib/netlink/number_fields.h"
#include "test/fuzz/check.h"

namespace {

// That a view is within the datagram, by reading all of it.
unsigned Touch(absl::string_view view, absl::string_view datagram) {
  unsigned sum = 0;
  if (!view.empty()) {
    FUZZ_CHECK(view.data() >= datagram.data());
    FUZZ_CHECK(view.data() + view.size() <= datagram.data() + datagram.size());
  }
  for (const char c : view) sum += static_cast<unsigned char>(c);
  return sum;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace netmeter::internal;  // NOLINT
  const absl::string_view datagram(reinterpret_cast<const char*>(data), size);
  NetlinkMessages messages(datagram);
  NetlinkMessage message;
  unsigned sum = 0;
  while (messages.Next(&message)) {
    FUZZ_CHECK(ErrorOf(message) >= 0);
    sum += Touch(message.payload, datagram);
    DiagSocket socket;
    if (!ParseDiagSocket(message.payload, IPPROTO_TCP, &socket)) continue;
    FUZZ_CHECK(!AddressText(socket.family, socket.local_address).empty());
    FUZZ_CHECK(!StateName(socket.state).empty());
    DiagSocket sctp;
    FUZZ_CHECK(ParseDiagSocket(message.payload, IPPROTO_SCTP, &sctp));
    FUZZ_CHECK(!StateName(sctp.state).empty());
    for (const absl::string_view view :
         {socket.info, socket.skmeminfo, socket.vegas, socket.dctcp, socket.bbr,
          socket.congestion, socket.ulp, socket.owner}) {
      sum += Touch(view, message.payload);
    }
    for (const auto* fields :
         {&TcpInfoFields(), &MptcpInfoFields(), &SctpInfoFields()}) {
      for (const NumberField& field : *fields) {
        uint64_t value = 0;
        if (!ReadNumber(socket.info, field, &value)) continue;
        FUZZ_CHECK(field.bits == 0 || value < (uint64_t{1} << field.bits));
        FUZZ_CHECK(field.size == 8 || value < (uint64_t{1} << 8 * field.size));
      }
      sum += Touch(RestOf(socket.info, *fields), message.payload);
    }
  }
  // Without it nothing would have to be read.
  volatile unsigned result = sum;
  (void)result;
  return 0;
}
