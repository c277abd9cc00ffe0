// SPDX-License-Identifier: BSD-3-Clause
#include "lib/reader/words.h"

namespace netmeter {

const char* KindName(Kind kind) {
  switch (kind) {
    case Kind::kService:
      return "service";
    case Kind::kBinary:
      return "binary";
    case Kind::kUnattributed:
      return "unattributed";
    case Kind::kOverflow:
      return "overflow";
    case Kind::kPending:
      return "pending";
    case Kind::kUnit:
      return "unit";
    case Kind::kContainer:
      return "container";
    case Kind::kUser:
      return "user";
    case Kind::kEvicted:
      return "evicted";
  }
  return kind == internal::kForwardedRow ? "forwarded" : "unknown";
}

const char* TransportName(Transport transport) {
  switch (transport) {
    case Transport::kOther:
      return "other";
    case Transport::kTcp:
      return "tcp";
    case Transport::kUdp:
      return "udp";
    case Transport::kSctp:
      return "sctp";
    case Transport::kIcmp:
      return "icmp";
  }
  return "unknown";
}

const char* PathName(Path path) {
  switch (path) {
    case Path::kDirect:
      return "direct";
    case Path::kProxy:
      return "proxy";
  }
  return "unknown";
}

namespace internal {

std::vector<std::string> KindNames() {
  std::vector<std::string> names;
  for (const Kind kind : kAllKinds) names.emplace_back(KindName(kind));
  return names;
}

}  // namespace internal
}  // namespace netmeter
