// SPDX-License-Identifier: BSD-3-Clause
// How samples become families.
//
// A sample is one series of the kernel, with some ten numbers. A family is one of
// these numbers, of all series that have it. Most families have fewer labels than
// a series has keys: magma_bytes_sent_total has neither transport nor path. So a
// Builder collects the pairs of labels and value of one family, sorts them, and
// adds up those with equal labels. Prometheus refuses a page on which equal labels
// appear twice, and the order is the same on every page.
//
// What links carried (path direct) and what went through a proxy on this host
// (path proxy) are in families of their own: bytes that a service sends through
// the proxy leave the host as bytes of the proxy, so a sum over both would count
// them twice.
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
#include "lib/reader/meter_access.h"
#include "netmeter/abi.h"

namespace netmeter {
namespace internal {
namespace {

// A sample with what its labels say.
struct Row {
  const Sample& sample;
  std::string name;  // valid UTF-8
  std::string destination;
  std::string uplink;
};

// In the order of most families, which have nothing left to sort then.
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

// Makes one family: sums what has equal labels, and puts it in order. Makes
// nothing of a family that is not chosen.
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
  // Sums neighbours with equal labels. Returns false where the metrics are not in
  // order, so that others may be equal, too.
  bool AddEquals() {
    std::vector<Metric>& metrics = family_.metrics;
    bool in_order = true;
    // In place: [0, last] is done, and last takes what equals it.
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

// What kind of a meter this is, and since when it counts. Prometheus needs the
// time of the start to tell a counter that began again from one that it sees for
// the first time.
void AddMeter(const Health& health, const FamilySet& chosen,
              std::vector<Family>* families) {
  Builder info(FamilyId::kBuildInfo, chosen);
  info.Add({{"version", ToUtf8(health.version)},
            {"abi", ToUtf8(health.abi)},
            {"kernel", ToUtf8(health.kernel)}},
           1);
  info.MoveTo(families);
  AddNumber(FamilyId::kStartTime, UnixTimeNs(health.start_time_ns) / 1000000000,
            chosen, families);
}

// Two families, of the payload sent and received. `labels_of` sets the labels of a
// sample, or returns false if the families are not about it.
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

// kernsnoopd's family of services. Both paths: a service's payload is its own,
// whether it goes through the proxy or not, and the proxy is no service.
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

// kernsnoopd's family of other programs. Path direct only: one of them is the
// proxy, which has what services sent in the services' family already.
void AddBinaries(const std::vector<Row>& rows, const FamilySet& chosen,
                 std::vector<Family>* families) {
  AddPayload(
      rows, Builder(FamilyId::kLinuxSent, chosen),
      Builder(FamilyId::kLinuxReceived, chosen),
      [](const Row& row, Labels* labels) {
        const Sample& sample = row.sample;
        if ((sample.kind != Kind::kBinary && sample.kind != Kind::kUnit &&
             sample.kind != Kind::kContainer) ||
            sample.path != Path::kDirect) {
          return false;
        }
        *labels = {{"binary_name", row.name}};
        return true;
      },
      families);
}

// The four families of one path. A pending sample has no destination yet, and its
// numbers will shrink, so it cannot be in a counter. What was retired has been in
// the counters before: there it would look like new traffic to whoever sums rates.
struct PathBuilders {
  Builder bytes;
  Builder packets;
  Builder pending;
  Builder retired;

  // Of path direct, and some sample has one: so the names of series change only where
  // the configuration has uplinks.
  bool has_uplinks;

  // The last ones, those of what was received and of what was sent.
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
    if (sample.kind == Kind::kRetired) return AddBytes(row, "kind", &retired);
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
    retired.MoveTo(families);
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
                         Builder(FamilyId::kRetiredBytes, chosen), has_uplinks};
  PathBuilders proxy = {Builder(FamilyId::kProxyBytes, chosen),
                        Builder(FamilyId::kProxyPackets, chosen),
                        Builder(FamilyId::kProxyPendingBytes, chosen),
                        Builder(FamilyId::kProxyRetiredBytes, chosen), false};
  for (const Row& row : rows) {
    (row.sample.path == Path::kProxy ? proxy : direct).Add(row);
  }
  direct.MoveTo(families);
  proxy.MoveTo(families);
}

// Retransmissions and connections, of both paths: they are no bytes of the
// totals above, so nothing is counted twice.
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
        sample.kind == Kind::kRetired) {
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
    // The kernel takes round-trip times of path direct only. What never had one
    // is left out.
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

// The fields lost_UNIT_REASON of Health. Packets, names, processes and sockets are
// families of their own: a sum over different units would mean nothing.
void AddLosses(const Health& health, const FamilySet& chosen,
               std::vector<Family>* families) {
  Builder packets(FamilyId::kLostPackets, chosen);
  packets.Add({{"reason", "series_full"}}, health.lost_packets_series_full);
  packets.Add({{"reason", "series_capped"}}, health.lost_packets_series_capped);
  packets.Add({{"reason", "storage_failed"}},
              health.lost_packets_storage_failed);
  packets.Add({{"reason", "header_errors"}}, health.lost_packets_header_errors);
  packets.MoveTo(families);
  Builder names(FamilyId::kLostNames, chosen);
  names.Add({{"reason", "full"}}, health.lost_names_full);
  names.Add({{"reason", "capped"}}, health.lost_names_capped);
  names.MoveTo(families);
  Builder processes(FamilyId::kLostProcesses, chosen);
  processes.Add({{"reason", "full"}}, health.lost_processes_full);
  processes.MoveTo(families);
  Builder sockets(FamilyId::kLostSockets, chosen);
  sockets.Add({{"reason", "storage_failed"}},
              health.lost_sockets_storage_failed);
  sockets.MoveTo(families);
}

// How full the meter is. The slots of reserved series, which always exist, are no
// part of either number.
void AddHealth(const Health& health, const FamilySet& chosen,
               std::vector<Family>* families) {
  AddNumber(FamilyId::kSeries, health.series, chosen, families);
  AddNumber(
      FamilyId::kSeriesLimit,
      std::max<uint32_t>(health.max_series, NM_SLOT_FIRST) - NM_SLOT_FIRST,
      chosen, families);
  AddLosses(health, chosen, families);
}

// Takes out the counters that are 0, and what is empty then.
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

std::vector<Family> FamiliesOf(const std::vector<Sample>& samples,
                               const Health& health,
                               const PublishOptions& options,
                               size_t omitted_services) {
  // A family without metrics is left out, also in Scope::kService: so what is not
  // chosen and what has no series need no further care.
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

// The kernel marks a series with the first packet of a socket that was opened after
// the registration. What the same service sent before has no mark, and a binary of
// the same name is another thing. Whose a pending sample is, only its reader knows.
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
  const size_t omitted_services =
      options.scope == Scope::kUnregistered ? OmitRegistered(samples.get()) : 0;
  return FamiliesOf(*samples.get(), *health, options, omitted_services);
}

}  // namespace

std::vector<Family> Collect(const Meter* meter, const PublishOptions& options,
                            SampleBuffer* buffer) noexcept {
  try {
    return CollectOrThrow(meter, options, buffer);
  } catch (const std::exception&) {  // no memory for all, but for an error?
  }
  try {
    return FamiliesOfError();
  } catch (const std::exception&) {
  }
  return {};
}

}  // namespace internal
}  // namespace netmeter
