// SPDX-License-Identifier: BSD-3-Clause
// The metric families that netmeter/publish.h lists. Only this table has their names,
// their texts and their types.
//
//   if (FamilySetAccess::Has(options.families, FamilyId::kUp))
//     std::puts(InfoOf(FamilyId::kUp).help);
//
// Threads: any.

#ifndef NETMETER_LIB_PUBLISH_FAMILY_TABLE_H_
#define NETMETER_LIB_PUBLISH_FAMILY_TABLE_H_

#include "netmeter/publish.h"

namespace netmeter {
namespace internal {

// In the order of netmeter/publish.h.
enum class FamilyId {
  kUp,
  kBuildInfo,
  kConfigInfo,
  kStartTime,
  kOmittedServices,
  kMagmaSent,
  kMagmaReceived,
  kLinuxSent,
  kLinuxReceived,
  kWireBytes,
  kWirePackets,
  kPendingBytes,
  kEvictedBytes,
  kProxyBytes,
  kProxyPackets,
  kProxyPendingBytes,
  kProxyEvictedBytes,
  kRetransmitBytes,
  kConnectionsOpened,
  kConnectionsAccepted,
  kConnectionsClosed,
  kConnectionsFailed,
  kResetsSent,
  kResetsReceived,
  kTimeouts,
  kRetransmittedSegments,
  kRtt,
  kSeries,
  kSeriesLimit,
  kMisattributedPackets,
  kMisattributedNames,
  kMisattributedProcesses,
  kMisattributedSockets,
  kUplink,
  kForwarded,
  kBudgetLimit,  // these four only from netmeter-exporter
  kBudgetUsed,
  kCost,
  kBudgetError,
  kCount,
};

enum class FamilyType { kCounter, kGauge, kHistogram };

struct FamilyInfo {
  FamilyId id;
  const char* name;  // counters: ends with _total
  const char* help;  // one line of ASCII without quotes and backslashes
  FamilyType type;
};

const FamilyInfo& InfoOf(FamilyId id);

// The name of a counter of the table, without _total. Lives as long as the process.
const char* NameWithoutTotal(const char* name);

// Access to the number inside a FamilySet.
class FamilySetAccess {
 public:
  static bool Has(const FamilySet& set, FamilyId id) {
    return (set.families_ >> static_cast<int>(id) & 1) != 0;
  }
  static uint64_t Get(const FamilySet& set) { return set.families_; }
  // Whether Get() returns this number for some set.
  static bool IsSet(uint64_t families);
  static FamilySet Of(uint64_t families) {
    FamilySet set;
    set.families_ = families;
    return set;
  }
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_PUBLISH_FAMILY_TABLE_H_
