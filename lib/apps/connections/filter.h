// SPDX-License-Identifier: BSD-3-Clause
// The filter of `netmeter sockets`: the options of its command line.
//
// Threads: any.

#ifndef NETMETER_LIB_APPS_CONNECTIONS_FILTER_H_
#define NETMETER_LIB_APPS_CONNECTIONS_FILTER_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lib/apps/connections/fields.h"

namespace netmeter {
namespace internal {

// Each list that is not empty must have an element that matches.
struct SocketFilter {
  struct Prefix {
    std::array<uint8_t, 16> address = {};  // IPv4 as ::ffff:a.b.c.d
    int bits = 128;
  };

  std::vector<std::string> services;
  std::vector<std::string> destinations;
  std::vector<std::string> uplinks;  // "": none
  std::vector<Prefix> addresses;     // of either end
  std::vector<uint16_t> ports;       // of either end
  uint32_t states = ~uint32_t{0};    // bits; the kernel applies them

  bool Matches(const SocketRow& row) const;
  bool MatchesNames(const std::string& service, const std::string& destination,
                    const std::string& uplink) const;
  bool MatchesEnds(const DiagSocket& socket) const;
};

// These add a value to *filter. InvalidArgument has the option's name.
absl::Status AddState(absl::string_view name, SocketFilter* filter);
absl::Status AddAddress(const std::string& prefix, SocketFilter* filter);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_CONNECTIONS_FILTER_H_
