// SPDX-License-Identifier: BSD-3-Clause
// The words for kinds, transports and paths: KindName(), TransportName() and PathName()
// of sample.h, and the reverse functions. They are the values of labels, of `netmeter
// list --json`, of options and of the history. A new kind is added here; the compiler
// warns about a switch that lacks it.
//
// Threads: any; nothing here changes.

#ifndef NETMETER_LIB_READER_WORDS_H_
#define NETMETER_LIB_READER_WORDS_H_

#include <string>
#include <vector>

#include "netmeter/sample.h"

namespace netmeter {
namespace internal {

// All kinds, in the order in which help texts list them.
constexpr Kind kAllKinds[] = {
    Kind::kService,      Kind::kBinary,   Kind::kUnit,
    Kind::kContainer,    Kind::kUser,     Kind::kPending,
    Kind::kUnattributed, Kind::kOverflow, Kind::kEvicted};
constexpr Transport kAllTransports[] = {Transport::kTcp, Transport::kUdp,
                                        Transport::kSctp, Transport::kIcmp,
                                        Transport::kOther};
constexpr Path kAllPaths[] = {Path::kDirect, Path::kProxy};

// The words of all kinds.
std::vector<std::string> KindNames();

// The kind of a row of `netmeter list` with forwarded traffic, which is no series.
constexpr Kind kForwardedRow = static_cast<Kind>(255);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_READER_WORDS_H_
