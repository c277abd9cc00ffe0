// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/connections/filter.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace netmeter {
namespace internal {
namespace {

using Address = std::array<uint8_t, 16>;

constexpr int kMappedBits = 96;

Address Mapped(const uint8_t* ipv4) {
  Address address = {};
  address[10] = address[11] = 0xff;
  memcpy(&address[12], ipv4, 4);
  return address;
}

bool IsIn(const Address& address, const SocketFilter::Prefix& prefix) {
  for (int bit = 0; bit < prefix.bits; bit += 8) {
    const int left = std::min(8, prefix.bits - bit);
    const uint8_t mask = static_cast<uint8_t>(0xff << (8 - left));
    const size_t byte = static_cast<size_t>(bit / 8);
    if (((address[byte] ^ prefix.address[byte]) & mask) != 0) return false;
  }
  return true;
}

template <typename Value>
bool Allows(const std::vector<Value>& list, const Value& value) {
  return list.empty() ||
         std::find(list.begin(), list.end(), value) != list.end();
}

}  // namespace

bool SocketFilter::Matches(const SocketRow& row) const {
  const SocketOwner& owner = *row.owner;
  return MatchesNames(owner.service, owner.destination, owner.uplink) &&
         MatchesEnds(*row.socket);
}

bool SocketFilter::MatchesNames(const std::string& service,
                                const std::string& destination,
                                const std::string& uplink) const {
  return Allows(services, service) && Allows(destinations, destination) &&
         Allows(uplinks, uplink);
}

bool SocketFilter::MatchesEnds(const DiagSocket& socket) const {
  if (!ports.empty() && !Allows(ports, socket.local_port) &&
      !Allows(ports, socket.remote_port)) {
    return false;
  }
  if (addresses.empty()) return true;
  for (const Address* end : {&socket.local_address, &socket.remote_address}) {
    const Address address =
        socket.family == AF_INET ? Mapped(end->data()) : *end;
    for (const Prefix& prefix : addresses) {
      if (IsIn(address, prefix)) return true;
    }
  }
  return false;
}

absl::Status AddState(absl::string_view name, SocketFilter* filter) {
  const uint8_t state = StateOfName(name);
  if (state == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--state: unknown state '", name,
                     "' (such as established, listen, time-wait)"));
  }
  if (filter->states == ~uint32_t{0}) filter->states = 0;
  filter->states |= uint32_t{1} << state;
  return absl::OkStatus();
}

absl::Status AddAddress(const std::string& prefix, SocketFilter* filter) {
  const size_t slash = prefix.find('/');
  const std::string text = prefix.substr(0, slash);
  SocketFilter::Prefix parsed;
  uint8_t ipv4[4];
  int most = 128;
  if (inet_pton(AF_INET, text.c_str(), ipv4) == 1) {
    parsed.address = Mapped(ipv4);
    most = 32;
  } else if (inet_pton(AF_INET6, text.c_str(), parsed.address.data()) != 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--address: expected an address or a prefix, not '", prefix, "'"));
  }
  int bits = most;
  if (slash != std::string::npos &&
      (!absl::SimpleAtoi(prefix.substr(slash + 1), &bits) || bits < 0 ||
       bits > most)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--address: expected a prefix length from 0 to ", most,
                     ", not '", prefix, "'"));
  }
  parsed.bits = most == 32 ? kMappedBits + bits : bits;
  filter->addresses.push_back(parsed);
  return absl::OkStatus();
}

}  // namespace internal
}  // namespace netmeter
