// SPDX-License-Identifier: BSD-3-Clause
// A FamilySet is one word, with a bit for each row of the table below. The names of sets
// are not rows. Each set is a rule about rows, so a new family is at once in the sets
// that it belongs to. CONTRIBUTING.md lists the other steps for a new metric. Tests
// compare the table with the header, with the Python package and with docs/metrics.md.
#include "lib/publish/family_table.h"

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "lib/base/no_throw.h"
#include "lib/base/text.h"

namespace netmeter {
namespace internal {
namespace {

constexpr int kFamilies = static_cast<int>(FamilyId::kCount);
static_assert(kFamilies <= 64, "a FamilySet has a bit for each family");

// The texts appear in user interfaces of Prometheus, so each explains a value without
// this documentation.
constexpr FamilyInfo kTable[] = {
    {FamilyId::kUp, "netmeter_up",
     "Whether the maps can be read: 1, or 0 if not loaded or refused.",
     FamilyType::kGauge},
    {FamilyId::kBuildInfo, "netmeter_build_info",
     "Always 1. Version of the loader, ABI of the maps, and kernel on which "
     "they were loaded.",
     FamilyType::kGauge},
    {FamilyId::kConfigInfo, "netmeter_config_info",
     "Always 1. Hash of the loaded configuration, as netmeter-loader check "
     "prints it for a file, and version of the loader.",
     FamilyType::kGauge},
    {FamilyId::kStartTime, "netmeter_start_time_seconds",
     "When counting began, in seconds since 1970.", FamilyType::kGauge},
    {FamilyId::kOmittedServices, "netmeter_omitted_services",
     "Registered services that are left out here, as they publish their own "
     "series.",
     FamilyType::kGauge},
    {FamilyId::kMagmaSent, "magma_bytes_sent_total",
     "Payload bytes that services sent, by destination service; TCP "
     "retransmissions not included.",
     FamilyType::kCounter},
    {FamilyId::kMagmaReceived, "magma_bytes_received_total",
     "Payload bytes that services received, by destination service; TCP "
     "retransmissions not included.",
     FamilyType::kCounter},
    {FamilyId::kLinuxSent, "linux_bytes_sent_total",
     "Payload bytes that programs other than services sent, not over loopback; "
     "TCP retransmissions not included.",
     FamilyType::kCounter},
    {FamilyId::kLinuxReceived, "linux_bytes_received_total",
     "Payload bytes that programs other than services received, not over "
     "loopback; TCP retransmissions not included.",
     FamilyType::kCounter},
    {FamilyId::kWireBytes, "netmeter_wire_bytes_total",
     "Network-layer bytes as on the link: IP header, transport header and "
     "payload, TCP retransmissions included, layer-2 header not. With the "
     "host's "
     "series all published, the sum, plus those of netmeter_pending_bytes and "
     "netmeter_evicted_bytes_total, is what the interfaces counted less link "
     "headers.",
     FamilyType::kCounter},
    {FamilyId::kWirePackets, "netmeter_wire_packets_total",
     "Packets as on the link: segments of an offloaded packet count each.",
     FamilyType::kCounter},
    {FamilyId::kPendingBytes, "netmeter_pending_bytes",
     "Network-layer bytes of connections that have not named their destination "
     "yet; they move to netmeter_wire_bytes_total when they have.",
     FamilyType::kGauge},
    {FamilyId::kEvictedBytes, "netmeter_evicted_bytes_total",
     "Network-layer bytes of series that were idle and are no longer "
     "published: they were in netmeter_wire_bytes_total.",
     FamilyType::kCounter},
    {FamilyId::kProxyBytes, "netmeter_proxy_bytes_total",
     "Network-layer bytes over loopback, from or to a proxy on this host: on "
     "no "
     "link, so on no bill. The proxy's own traffic to the cloud is in "
     "netmeter_wire_bytes_total.",
     FamilyType::kCounter},
    {FamilyId::kProxyPackets, "netmeter_proxy_packets_total",
     "Packets over loopback, from or to a proxy on this host.",
     FamilyType::kCounter},
    {FamilyId::kProxyPendingBytes, "netmeter_proxy_pending_bytes",
     "Network-layer bytes over loopback of connections that have not named "
     "their destination yet; they move to netmeter_proxy_bytes_total when they "
     "have.",
     FamilyType::kGauge},
    {FamilyId::kProxyEvictedBytes, "netmeter_proxy_evicted_bytes_total",
     "Network-layer bytes over loopback of series that were idle and are no "
     "longer published: they were in netmeter_proxy_bytes_total.",
     FamilyType::kCounter},
    {FamilyId::kRetransmitBytes, "netmeter_tcp_retransmit_bytes_total",
     "TCP payload bytes that were retransmitted.", FamilyType::kCounter},
    {FamilyId::kConnectionsOpened, "netmeter_tcp_connections_opened_total",
     "TCP connections that were opened by this host, the handshake done.",
     FamilyType::kCounter},
    {FamilyId::kConnectionsAccepted, "netmeter_tcp_connections_accepted_total",
     "TCP connections that were opened by a peer, the handshake done.",
     FamilyType::kCounter},
    {FamilyId::kConnectionsClosed, "netmeter_tcp_connections_closed_total",
     "TCP connections, opened or accepted, that ended.", FamilyType::kCounter},
    {FamilyId::kConnectionsFailed, "netmeter_tcp_connections_failed_total",
     "TCP connections that this host could not open: refused, timed out or "
     "given up.",
     FamilyType::kCounter},
    {FamilyId::kResetsSent, "netmeter_tcp_resets_sent_total",
     "TCP connections that a RST of this host's socket ended.",
     FamilyType::kCounter},
    {FamilyId::kResetsReceived, "netmeter_tcp_resets_received_total",
     "TCP connections that a RST of the peer ended; refused ones are in "
     "netmeter_tcp_connections_failed_total.",
     FamilyType::kCounter},
    {FamilyId::kTimeouts, "netmeter_tcp_timeouts_total",
     "Expiries of the retransmission timer of TCP connections, of SYNs, too.",
     FamilyType::kCounter},
    {FamilyId::kRetransmittedSegments,
     "netmeter_tcp_retransmitted_segments_total",
     "TCP segments that were retransmitted for any reason, SYNs included.",
     FamilyType::kCounter},
    {FamilyId::kRtt, "netmeter_tcp_rtt_seconds",
     "Smoothed round-trip times of TCP connections, not over loopback: a "
     "sample, with about each 64th packet with payload that a CPU sends, and "
     "one at the end of the connection.",
     FamilyType::kHistogram},
    {FamilyId::kSeries, "netmeter_series",
     "Series in use, without the reserved ones; at most netmeter_series_limit.",
     FamilyType::kGauge},
    {FamilyId::kSeriesLimit, "netmeter_series_limit",
     "Series that the meter has room for, without the reserved ones, as "
     "netmeter-loader status shows.",
     FamilyType::kGauge},
    {FamilyId::kMisattributedPackets, "netmeter_misattributed_packets_total",
     "Packets that are counted, but not under their own name: no room for "
     "another series, no memory in the kernel, or a header that is cut short. "
     "The totals have them.",
     FamilyType::kCounter},
    {FamilyId::kMisattributedNames, "netmeter_misattributed_names_total",
     "Names that found no room: their traffic is counted as overflow, or the "
     "registration or tag was refused.",
     FamilyType::kCounter},
    {FamilyId::kMisattributedProcesses,
     "netmeter_misattributed_processes_total",
     "Processes that found no room: named when they open a socket, not when "
     "they start.",
     FamilyType::kCounter},
    {FamilyId::kMisattributedSockets, "netmeter_misattributed_sockets_total",
     "Sockets for which the kernel had no memory: their traffic is counted, "
     "but as unattributed.",
     FamilyType::kCounter},
    {FamilyId::kUplink, "netmeter_uplink_bytes_total",
     "Network-layer bytes that an interface of an uplink counted: the bill.",
     FamilyType::kCounter},
    {FamilyId::kForwarded, "netmeter_forwarded_bytes_total",
     "Network-layer bytes of an uplink that this host forwarded, by the "
     "interface at the other side.",
     FamilyType::kCounter},
    {FamilyId::kBudgetLimit, "netmeter_budget_limit_bytes",
     "Network-layer bytes that a budget may use in its billing period. The "
     "other labels are what it selects: an empty one stands for any.",
     FamilyType::kGauge},
    {FamilyId::kBudgetUsed, "netmeter_budget_used_bytes",
     "Network-layer bytes that a budget has used in its billing period, as of "
     "the last netmeter record.",
     FamilyType::kGauge},
    {FamilyId::kCost, "netmeter_cost_micros",
     "Millionths of the currency that a plan costs in its billing period, as "
     "of "
     "the last netmeter record. The fee is that of the whole period.",
     FamilyType::kGauge},
    {FamilyId::kBudgetError, "netmeter_budget_error",
     "1 if a budget or a plan is not measured: its file or the history cannot "
     "be read, or there is no such uplink. stderr says why. Otherwise 0.",
     FamilyType::kGauge},
};
static_assert(sizeof(kTable) / sizeof(kTable[0]) == kFamilies,
              "a row for each FamilyId");

constexpr bool RowsAreInOrder() {
  for (int i = 0; i < kFamilies; ++i) {
    if (kTable[i].id != static_cast<FamilyId>(i)) return false;
  }
  return true;
}
static_assert(RowsAreInOrder(), "InfoOf() takes an id for the row's number");

constexpr uint64_t Bit(FamilyId id) {
  return uint64_t{1} << static_cast<int>(id);
}

constexpr uint64_t kAll = (uint64_t{1} << kFamilies) - 1;
constexpr uint64_t kDefault =
    kAll & ~(Bit(FamilyId::kResetsSent) | Bit(FamilyId::kResetsReceived) |
             Bit(FamilyId::kTimeouts) | Bit(FamilyId::kRetransmittedSegments) |
             Bit(FamilyId::kRtt));
constexpr uint64_t kMagma =
    Bit(FamilyId::kMagmaSent) | Bit(FamilyId::kMagmaReceived) |
    Bit(FamilyId::kLinuxSent) | Bit(FamilyId::kLinuxReceived);
constexpr uint64_t kKernsnoopd =
    Bit(FamilyId::kMagmaSent) | Bit(FamilyId::kLinuxSent);

// What a bill needs, and the budgets and costs of it.
constexpr uint64_t kBill =
    Bit(FamilyId::kWireBytes) | Bit(FamilyId::kPendingBytes) |
    Bit(FamilyId::kEvictedBytes) | Bit(FamilyId::kUplink) |
    Bit(FamilyId::kForwarded) | Bit(FamilyId::kBudgetLimit) |
    Bit(FamilyId::kBudgetUsed) | Bit(FamilyId::kCost) |
    Bit(FamilyId::kBudgetError);

// Always published: without these a reader could not distinguish a count of zero from a
// failed read, or from an omission.
constexpr uint64_t kAlways =
    Bit(FamilyId::kUp) | Bit(FamilyId::kOmittedServices);

// The rule of the set `bytes`. Prometheus wants the unit in the name. Magma's names count
// the same bytes a second time, so they are not in the set.
uint64_t FamiliesThatCountBytes() {
  uint64_t families = 0;
  for (int i = 0; i < kFamilies; ++i) {
    if (absl::StrContains(kTable[i].name, "_bytes")) {
      families |= uint64_t{1} << i;
    }
  }
  return families & ~kMagma;
}

// The families for a name of a list; 0 if the name is unknown.
uint64_t FamiliesCalled(absl::string_view name) {
  if (name == "default") return kDefault;
  if (name == "netmeter") return kDefault & ~kMagma;
  if (name == "all") return kAll;
  if (name == "bytes") return FamiliesThatCountBytes();
  if (name == "bill") return kBill;
  if (name == "kernsnoopd") return kKernsnoopd;
  for (int i = 0; i < kFamilies; ++i) {
    if (name == kTable[i].name) return uint64_t{1} << i;
  }
  return 0;
}

// The name may come from a command line, and the message may go to a terminal.
absl::Status UnknownName(absl::string_view name) {
  std::vector<std::string> known = {"default", "netmeter", "all",
                                    "bytes",   "bill",     "kernsnoopd"};
  for (const FamilyInfo& info : kTable) known.emplace_back(info.name);
  return absl::InvalidArgumentError(
      absl::StrCat("families: unknown family or set '", ToTerminal(name), "'",
                   DidYouMean(name, known),
                   ": the sets are default, netmeter, all, bytes, bill and "
                   "kernsnoopd"));
}

}  // namespace

const FamilyInfo& InfoOf(FamilyId id) { return kTable[static_cast<int>(id)]; }

bool FamilySetAccess::IsSet(uint64_t families) {
  return (families & ~kAll) == 0 && (families & kAlways) == kAlways;
}

const char* NameWithoutTotal(const char* name) {
  static const auto* const names = [] {
    auto* all = new std::map<std::string, std::string, std::less<>>;
    for (const FamilyInfo& info : kTable) {
      (*all)[info.name] = std::string(absl::StripSuffix(info.name, "_total"));
    }
    return all;
  }();
  const auto found = names->find(absl::string_view(name));
  return found == names->end() ? name : found->second.c_str();
}

}  // namespace internal

FamilySet::FamilySet() : families_(internal::kDefault) {}

absl::StatusOr<FamilySet> FamilySet::Parse(absl::string_view list) {
  uint64_t families = internal::kAlways;
  const absl::Status status = internal::WithoutThrowing([&] {
    // StrSplit() returns no part for a null text, and one part for any other empty text.
    if (list.empty()) return internal::UnknownName(list);
    for (absl::string_view name : absl::StrSplit(list, ',')) {
      name = absl::StripAsciiWhitespace(name);
      const uint64_t called = internal::FamiliesCalled(name);
      if (called == 0) return internal::UnknownName(name);
      families |= called;
    }
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return internal::FamilySetAccess::Of(families);
}

FamilySet FamilySet::Kernsnoopd() {
  return internal::FamilySetAccess::Of(internal::kAlways |
                                       internal::kKernsnoopd);
}

bool FamilySet::Contains(absl::string_view family) const {
  for (int i = 0; i < internal::kFamilies; ++i) {
    if (family == internal::kTable[i].name) {
      return (families_ >> i & 1) != 0;
    }
  }
  return false;
}

const char* ScopeName(Scope scope) {
  switch (scope) {
    case Scope::kService:
      return "service";
    case Scope::kHost:
      return "host";
    case Scope::kUnregistered:
      return "unregistered";
  }
  return "unknown";
}

}  // namespace netmeter
