// SPDX-License-Identifier: BSD-3-Clause
// Makes families from samples.
//
// A sample is one series of the kernel, with some ten numbers. A family has one of these
// numbers, for all series that have it. Most families have fewer labels than a series has
// keys: magma_bytes_sent_total has neither transport nor path. So a Builder collects the
// pairs of labels and value of one family, sorts them, and adds up those with equal
// labels. Prometheus refuses a page with equal labels. The order is the same on every
// page.
//
// Traffic on links (path direct) and traffic through a proxy on this host (path proxy)
// are in separate families. Bytes that a service sends through the proxy leave the host
// as bytes of the proxy, so a sum over both would count them twice.
#include "lib/publish/families.h"

#include <string.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <string>
#include <unordered_set>
#include <utility>

#include "absl/strings/string_view.h"
#include "lib/base/clock.h"
#include "lib/base/text.h"
#include "lib/netlink/uplink_names.h"
#include "lib/reader/meter_access.h"
#include "netmeter/abi.h"

namespace netmeter {
namespace internal {
namespace {

// A sample with the values of its labels.
struct Row {
  const Sample& sample;
  std::string name;  // valid UTF-8
  std::string destination;
  std::string uplink;
};

// Sorts in the order of most families, which then need no further sorting.
std::vector<Row> RowsOf(const std::vector<Sample>& samples) {
  std::vector<const Sample*> order;
  order.reserve(samples.size());
  for (const Sample& sample : samples) order.push_back(&sample);
  std::sort(order.begin(), order.end(), [](const Sample* a, const Sample* b) {
    int less = strcmp(KindName(a->kind), KindName(b->kind));
    if (less == 0) less = a->name.compare(b->name);
    if (less == 0) less = a->destination.compare(b->destination);
    if (less == 0) {
      less = strcmp(TransportName(a->transport), TransportName(b->transport));
    }
    if (less == 0) less = a->uplink.compare(b->uplink);
    return less < 0;
  });
  std::vector<Row> rows;
  rows.reserve(order.size());
  for (const Sample* sample : order) {
    rows.push_back({*sample, ToTerminal(sample->name),
                    ToTerminal(sample->destination),
                    ToTerminal(sample->uplink)});
  }
  return rows;
}

// Makes one family: sorts metrics, and sums those with equal labels. Does nothing for a
// family that is not chosen.
class Builder {
 public:
  Builder(FamilyId id, const FamilySet& chosen)
      : chosen_(FamilySetAccess::Has(chosen, id)) {
    const FamilyInfo& info = InfoOf(id);
    family_.name = info.name;
    family_.help = info.help;
    family_.type = info.type;
  }

  void Add(const Labels& labels, uint64_t value,
           std::vector<uint64_t> buckets = {}) {
    if (!chosen_) return;
    family_.metrics.emplace_back();
    family_.metrics.back().labels = labels;
    family_.metrics.back().value = value;
    family_.metrics.back().buckets = std::move(buckets);
  }

  void MoveTo(std::vector<Family>* families) {
    std::vector<Metric>& metrics = family_.metrics;
    if (metrics.empty()) return;
    if (!AddEquals()) {
      std::sort(metrics.begin(), metrics.end(),
                [](const Metric& a, const Metric& b) {
                  return a.labels.Compare(b.labels) < 0;
                });
      AddEquals();
    }
    families->push_back(std::move(family_));
  }

 private:
  // Sums neighbours with equal labels. Returns false if the metrics are not sorted, so
  // that others may be equal, too.
  bool AddEquals() {
    std::vector<Metric>& metrics = family_.metrics;
    bool in_order = true;
    // Works in place: [0, last] is done, and equal metrics are added to `last`.
    size_t last = 0;
    for (size_t i = 1; i < metrics.size(); ++i) {
      const int order = metrics[last].labels.Compare(metrics[i].labels);
      if (order == 0) {
        metrics[last].value += metrics[i].value;
        for (size_t b = 0; b < metrics[last].buckets.size(); ++b) {
          metrics[last].buckets[b] += metrics[i].buckets[b];
        }
        continue;
      }
      if (order > 0) in_order = false;
      if (++last != i) metrics[last] = std::move(metrics[i]);
    }
    metrics.resize(last + 1);
    return in_order;
  }

  const bool chosen_;
  Family family_;
};

// A family of one metric without labels.
void AddNumber(FamilyId id, uint64_t value, const FamilySet& chosen,
               std::vector<Family>* families) {
  Builder family(id, chosen);
  family.Add({}, value);
  family.MoveTo(families);
}

// The configuration of the meter, and when it began to count. Prometheus needs the start
// time to distinguish a restarted counter from a new one.
void AddMeter(const Health& health, const FamilySet& chosen,
              std::vector<Family>* families) {
  Builder info(FamilyId::kBuildInfo, chosen);
  info.Add({{"version", ToUtf8(health.version)},
            {"abi", ToUtf8(health.abi)},
            {"kernel", ToUtf8(health.kernel)}},
           1);
  info.MoveTo(families);
  Builder config(FamilyId::kConfigInfo, chosen);
  if (!health.config_hash.empty()) {
    config.Add({{"hash", ToUtf8(health.config_hash)},
                {"version", ToUtf8(health.version)}},
               1);
  }
  config.MoveTo(families);
  AddNumber(FamilyId::kStartTime, UnixTimeNs(health.start_time_ns) / 1000000000,
            chosen, families);
}

// Two families, for the payload sent and received. `labels_of` sets the labels of a
// sample, or returns false if the sample is not in these families.
template <typename LabelsOf>
void AddPayload(const std::vector<Row>& rows, Builder sent, Builder received,
                LabelsOf labels_of, std::vector<Family>* families) {
  for (const Row& row : rows) {
    Labels labels;
    if (!labels_of(row, &labels)) continue;
    sent.Add(labels, row.sample.tx_payload_bytes);
    received.Add(labels, row.sample.rx_payload_bytes);
  }
  sent.MoveTo(families);
  received.MoveTo(families);
}

// kernsnoopd's family of services. Both paths: a service's payload is its own, through
// the proxy or not, and the proxy is not a service.
void AddServices(const std::vector<Row>& rows, const FamilySet& chosen,
                 std::vector<Family>* families) {
  AddPayload(
      rows, Builder(FamilyId::kMagmaSent, chosen),
      Builder(FamilyId::kMagmaReceived, chosen),
      [](const Row& row, Labels* labels) {
        if (row.sample.kind != Kind::kService) return false;
        *labels = {{"service_name", row.name},
                   {"dest_service", row.destination}};
        return true;
      },
      families);
}

// kernsnoopd's family of other programs. Path direct only: one of these programs is the
// proxy, and its traffic is already in the family of services.
void AddBinaries(const std::vector<Row>& rows, const FamilySet& chosen,
                 std::vector<Family>* families) {
  AddPayload(
      rows, Builder(FamilyId::kLinuxSent, chosen),
      Builder(FamilyId::kLinuxReceived, chosen),
      [](const Row& row, Labels* labels) {
        const Sample& sample = row.sample;
        if ((sample.kind != Kind::kBinary && sample.kind != Kind::kUnit &&
             sample.kind != Kind::kContainer && sample.kind != Kind::kUser) ||
            sample.path != Path::kDirect) {
          return false;
        }
        *labels = {{"binary_name", row.name}};
        return true;
      },
      families);
}

// The four families of one path. A pending sample has no destination yet, and will
// shrink, so it cannot be in a counter. Evicted traffic was in the counters before: a
// program that sums rates would take it for new traffic.
struct PathBuilders {
  Builder bytes;
  Builder packets;
  Builder pending;
  Builder evicted;

  // The path is direct, and some sample has an uplink. So labels of series change only if
  // the configuration has uplinks.
  bool has_uplinks;

  // The labels of the last sample, for received and for sent traffic.
  struct Directions {
    Labels rx, tx;
  };
  Directions WithDirection(const Row& row, Labels labels) const {
    if (has_uplinks) labels = labels.With({"uplink", row.uplink});
    return {labels.With({"direction", "rx"}), labels.With({"direction", "tx"})};
  }

  void AddBytes(const Row& row, const char* label, Builder* family) const {
    const Directions labels = WithDirection(row, {{label, row.name}});
    family->Add(labels.rx, row.sample.rx_bytes);
    family->Add(labels.tx, row.sample.tx_bytes);
  }

  void Add(const Row& row) {
    const Sample& sample = row.sample;
    if (sample.kind == Kind::kPending) return AddBytes(row, "name", &pending);
    if (sample.kind == Kind::kEvicted) return AddBytes(row, "kind", &evicted);
    const Directions labels =
        WithDirection(row, {{"kind", KindName(sample.kind)},
                            {"name", row.name},
                            {"destination", row.destination},
                            {"transport", TransportName(sample.transport)}});
    bytes.Add(labels.rx, sample.rx_bytes);
    packets.Add(labels.rx, sample.rx_packets);
    bytes.Add(labels.tx, sample.tx_bytes);
    packets.Add(labels.tx, sample.tx_packets);
  }

  void MoveTo(std::vector<Family>* families) {
    bytes.MoveTo(families);
    packets.MoveTo(families);
    pending.MoveTo(families);
    evicted.MoveTo(families);
  }
};

void AddWire(const std::vector<Row>& rows, const FamilySet& chosen,
             std::vector<Family>* families) {
  const bool has_uplinks =
      std::any_of(rows.begin(), rows.end(),
                  [](const Row& row) { return !row.uplink.empty(); });
  PathBuilders direct = {Builder(FamilyId::kWireBytes, chosen),
                         Builder(FamilyId::kWirePackets, chosen),
                         Builder(FamilyId::kPendingBytes, chosen),
                         Builder(FamilyId::kEvictedBytes, chosen), has_uplinks};
  PathBuilders proxy = {Builder(FamilyId::kProxyBytes, chosen),
                        Builder(FamilyId::kProxyPackets, chosen),
                        Builder(FamilyId::kProxyPendingBytes, chosen),
                        Builder(FamilyId::kProxyEvictedBytes, chosen), false};
  for (const Row& row : rows) {
    (row.sample.path == Path::kProxy ? proxy : direct).Add(row);
  }
  direct.MoveTo(families);
  proxy.MoveTo(families);
}

// Retransmissions and connections, for both paths. They are not part of the byte totals
// above, so nothing is counted twice.
void AddTcp(const std::vector<Row>& rows, const FamilySet& chosen,
            std::vector<Family>* families) {
  Builder retransmit(FamilyId::kRetransmitBytes, chosen);
  Builder opened(FamilyId::kConnectionsOpened, chosen);
  Builder accepted(FamilyId::kConnectionsAccepted, chosen);
  Builder closed(FamilyId::kConnectionsClosed, chosen);
  Builder failed(FamilyId::kConnectionsFailed, chosen);
  Builder resets_sent(FamilyId::kResetsSent, chosen);
  Builder resets_received(FamilyId::kResetsReceived, chosen);
  Builder timeouts(FamilyId::kTimeouts, chosen);
  Builder again(FamilyId::kRetransmittedSegments, chosen);
  Builder rtt(FamilyId::kRtt, chosen);
  for (const Row& row : rows) {
    const Sample& sample = row.sample;
    if (sample.transport != Transport::kTcp || sample.kind == Kind::kPending ||
        sample.kind == Kind::kEvicted) {
      continue;
    }
    const Labels labels = {{"kind", KindName(sample.kind)},
                           {"name", row.name},
                           {"destination", row.destination}};
    retransmit.Add(labels, sample.tx_retransmit_bytes);
    const TcpConnections& tcp = sample.tcp;
    if (!tcp.known) continue;
    opened.Add(labels, tcp.opened);
    accepted.Add(labels, tcp.accepted);
    closed.Add(labels, tcp.closed);
    failed.Add(labels, tcp.failed);
    resets_sent.Add(labels, tcp.resets_sent);
    resets_received.Add(labels, tcp.resets_received);
    timeouts.Add(labels, tcp.timeouts);
    again.Add(labels, tcp.retransmitted_segments);
    // The kernel measures round-trip times only for path direct. Series without one are
    // left out.
    if (tcp.rtt_us == 0) continue;
    rtt.Add(labels, tcp.rtt_us,
            {tcp.rtt_buckets.begin(), tcp.rtt_buckets.end()});
  }
  for (Builder* family :
       {&retransmit, &opened, &accepted, &closed, &failed, &resets_sent,
        &resets_received, &timeouts, &again, &rtt}) {
    family->MoveTo(families);
  }
}

// Health::misattributed. Packets, names, processes and sockets
// have separate families, because a sum over different units would mean nothing.
void AddMisattributed(const Health& health, const FamilySet& chosen,
                      std::vector<Family>* families) {
  const std::pair<FamilyId, absl::string_view> units[] = {
      {FamilyId::kMisattributedPackets, "packets"},
      {FamilyId::kMisattributedNames, "names"},
      {FamilyId::kMisattributedProcesses, "processes"},
      {FamilyId::kMisattributedSockets, "sockets"}};
  for (const auto& unit : units) {
    Builder family(unit.first, chosen);
    for (const Misattribution& row : health.misattributed) {
      if (row.unit == unit.second) {
        family.Add({{"reason", row.reason}}, row.count);
      }
    }
    family.MoveTo(families);
  }
}

// The bytes without layer-2 headers. Nothing has larger headers of unknown size than
// Ethernet. The value must not depend on whether the size is known: a veth device with
// GRO does not tell it, and GRO can be switched on and off.
uint64_t WireBytes(uint64_t bytes, uint64_t packets, int header) {
  constexpr int kEthernet = 14;
  const uint64_t headers =
      static_cast<uint64_t>(header < 0 ? kEthernet : header) * packets;
  return bytes - std::min(bytes, headers);
}

// The fill level of the meter. The slots of reserved series, which always exist, are in
// neither number.
void AddHealth(const Health& health, const FamilySet& chosen,
               std::vector<Family>* families) {
  AddNumber(FamilyId::kSeries, health.series, chosen, families);
  AddNumber(
      FamilyId::kSeriesLimit,
      std::max<uint32_t>(health.max_series, NM_SLOT_FIRST) - NM_SLOT_FIRST,
      chosen, families);
  AddMisattributed(health, chosen, families);
}

// Removes counters of value 0, and then empty families.
void OmitZeros(std::vector<Family>* families) {
  for (Family& family : *families) {
    if (family.type != FamilyType::kCounter) continue;
    std::vector<Metric>& metrics = family.metrics;
    metrics.erase(std::remove_if(metrics.begin(), metrics.end(),
                                 [](const Metric& m) { return m.value == 0; }),
                  metrics.end());
  }
  families->erase(std::remove_if(families->begin(), families->end(),
                                 [](const Family& family) {
                                   return family.metrics.empty();
                                 }),
                  families->end());
}

}  // namespace

Labels Labels::With(const Label& label) const {
  auto labels = std::make_shared<std::vector<Label>>();
  labels->reserve(size() + 1);
  labels->assign(begin(), end());
  labels->push_back(label);
  Labels more;
  more.labels_ = std::move(labels);
  return more;
}

int Labels::Compare(const Labels& other) const {
  if (labels_ == other.labels_) return 0;
  for (size_t i = 0; i < size() && i < other.size(); ++i) {
    const int order = (*this)[i].value.compare(other[i].value);
    if (order != 0) return order;
  }
  return 0;
}

bool IsDestination(const Label& label) {
  const absl::string_view name = label.name;
  return name == "destination" || name == "dest_service";
}

bool IsUplink(const Label& label) {
  return absl::string_view(label.name) == "uplink";
}

double BucketBound(size_t bucket) {
  constexpr auto kBounds = TcpConnections::RttBoundsUs();
  return bucket < kBounds.size() ? kBounds[bucket] / 1e6
                                 : std::numeric_limits<double>::infinity();
}

std::vector<Family> FamiliesOfError() {
  std::vector<Family> families;
  AddNumber(FamilyId::kUp, 0, FamilySet(), &families);
  return families;
}

// Interfaces in no uplink may have the same packets, such as a bridge and its ports. So
// the first family has only the configuration's uplinks.
std::vector<Family> FamiliesOfUplinks(const std::vector<Uplink>& uplinks,
                                      const PublishOptions& options) {
  Builder counted(FamilyId::kUplink, options.families);
  Builder forwarded(FamilyId::kForwarded, options.families);
  const auto add = [](const std::string& uplink, const std::string& interface,
                      uint64_t tx, uint64_t rx, Builder* family) {
    const Labels labels = {{"uplink", ToTerminal(uplink)},
                           {"interface", ToTerminal(interface)}};
    family->Add(labels.With({"direction", "rx"}), rx);
    family->Add(labels.With({"direction", "tx"}), tx);
  };
  for (const Uplink& uplink : uplinks) {
    for (const UplinkInterface& one : uplink.interfaces) {
      if (uplink.name == kOtherUplink || one.index == 0) continue;
      add(uplink.name, one.name,
          WireBytes(one.tx_bytes, one.tx_packets, one.tx_header_bytes),
          WireBytes(one.rx_bytes, one.rx_packets, one.rx_header_bytes),
          &counted);
    }
    for (const ForwardedTraffic& one : uplink.forwarded) {
      add(uplink.name, one.interface, one.tx_bytes, one.rx_bytes, &forwarded);
    }
  }
  std::vector<Family> families;
  if (options.scope == Scope::kService) return families;
  counted.MoveTo(&families);
  forwarded.MoveTo(&families);
  return families;
}

std::vector<Family> FamiliesOf(const std::vector<Sample>& samples,
                               const Health& health,
                               const PublishOptions& options,
                               size_t omitted_services,
                               const std::vector<Uplink>& uplinks) {
  // A family without metrics is left out, also in Scope::kService. So families that are
  // not chosen, or have no series, need no further care.
  const FamilySet& chosen = options.families;
  const bool host = options.scope != Scope::kService;
  std::vector<Family> families;
  AddNumber(FamilyId::kUp, 1, chosen, &families);
  AddMeter(health, chosen, &families);
  if (options.scope == Scope::kUnregistered) {
    AddNumber(FamilyId::kOmittedServices, omitted_services, chosen, &families);
  }
  const std::vector<Row> rows = RowsOf(samples);
  AddServices(rows, chosen, &families);
  if (host) AddBinaries(rows, chosen, &families);
  AddWire(rows, chosen, &families);
  AddTcp(rows, chosen, &families);
  if (host) AddHealth(health, chosen, &families);
  for (Family& family : FamiliesOfUplinks(uplinks, options)) {
    families.push_back(std::move(family));
  }
  if (options.omit_zeros) OmitZeros(&families);
  if (options.names_without_total) {
    for (Family& family : families) {
      if (family.type == FamilyType::kCounter) {
        family.name = NameWithoutTotal(family.name);
      }
    }
  }
  return families;
}

// The kernel marks a series with the first packet of a socket that was opened after the
// registration. Traffic that the service sent before has no mark, and a binary of that
// name is not the service. Only the reader knows the owner of a pending sample.
size_t MarkRegistered(std::vector<Sample>* samples) {
  std::unordered_set<std::string> names;
  for (const Sample& sample : *samples) {
    if (sample.registered &&
        (sample.kind == Kind::kService || sample.kind == Kind::kPending)) {
      names.insert(sample.name);
    }
  }
  if (names.empty()) return 0;
  for (Sample& sample : *samples) {
    if (sample.kind == Kind::kService && names.count(sample.name) != 0) {
      sample.registered = true;
    }
  }
  return names.size();
}

void RemoveRegistered(std::vector<Sample>* samples) {
  samples->erase(std::remove_if(samples->begin(), samples->end(),
                                [](const Sample& s) { return s.registered; }),
                 samples->end());
}

size_t OmitRegistered(std::vector<Sample>* samples) {
  const size_t services = MarkRegistered(samples);
  RemoveRegistered(samples);
  return services;
}

absl::Status ReadScope(const Meter& meter, Scope scope,
                       std::vector<Sample>* samples) {
  switch (scope) {
    case Scope::kService:
      return meter.ReadService(samples);
    case Scope::kHost:
      return meter.ReadHost(samples);
    case Scope::kUnregistered:
      return MeterAccess::ReadHostByOwner(meter, samples);
  }
  return absl::InternalError("no such scope");
}

absl::StatusOr<std::vector<Uplink>> ReadUplinks(const Meter& meter,
                                                const PublishOptions& options) {
  const FamilySet& chosen = options.families;
  if (options.scope == Scope::kService ||
      (!FamilySetAccess::Has(chosen, FamilyId::kUplink) &&
       !FamilySetAccess::Has(chosen, FamilyId::kForwarded))) {
    return std::vector<Uplink>();
  }
  return MeterAccess::ReadLinks(meter);
}

namespace {

std::vector<Family> CollectOrThrow(const Meter* meter,
                                   const PublishOptions& options,
                                   SampleBuffer* buffer) {
  if (meter == nullptr) return FamiliesOfError();
  const SampleBuffer::Lease samples(buffer);
  if (!ReadScope(*meter, options.scope, samples.get()).ok()) {
    return FamiliesOfError();
  }
  const auto health = meter->ReadHealth();
  if (!health.ok()) return FamiliesOfError();
  const auto uplinks = ReadUplinks(*meter, options);
  const size_t omitted_services =
      options.scope == Scope::kUnregistered ? OmitRegistered(samples.get()) : 0;
  return FamiliesOf(*samples.get(), *health, options, omitted_services,
                    uplinks.ok() ? *uplinks : std::vector<Uplink>());
}

}  // namespace

std::vector<Family> Collect(const Meter* meter, const PublishOptions& options,
                            SampleBuffer* buffer) noexcept {
  try {
    return CollectOrThrow(meter, options, buffer);
  } catch (const std::exception&) {  // not enough memory for all families
  }
  try {
    return FamiliesOfError();
  } catch (const std::exception&) {
  }
  return {};
}

}  // namespace internal
}  // namespace netmeter
