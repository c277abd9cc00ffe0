// SPDX-License-Identifier: BSD-3-Clause
// The words for kinds, transports and paths: KindName(), TransportName() and
// PathName() of sample.h, and what goes the other way. They are the values of labels,
// of `netmeter list --json`, of options and of the history. A new kind has its place
// here, and a compiler that warns where a switch forgets it.
//
// Threads: any; nothing here changes.

#ifndef NETMETER_LIB_READER_WORDS_H_
#define NETMETER_LIB_READER_WORDS_H_

#include <string>
#include <vector>

#include "netmeter/sample.h"

namespace netmeter {
namespace internal {

// All there are, in the order in which help texts list them.
constexpr Kind kAllKinds[] = {
    Kind::kService, Kind::kBinary,       Kind::kUnit,     Kind::kContainer,
    Kind::kPending, Kind::kUnattributed, Kind::kOverflow, Kind::kRetired};
constexpr Transport kAllTransports[] = {Transport::kTcp, Transport::kUdp,
                                        Transport::kSctp, Transport::kIcmp,
                                        Transport::kOther};

// Their words.
std::vector<std::string> KindNames();

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_READER_WORDS_H_
