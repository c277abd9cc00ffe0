// SPDX-License-Identifier: BSD-3-Clause
#include "lib/metrics/families.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <string>
#include <unordered_set>
#include <utility>

#include "lib/core/text.h"
#include "netmeter/abi.h"

namespace netmeter {
namespace internal {
namespace {

using Labels = std::vector<Label>;

// Compares the labels of one family, whose names are the same.
int CompareValues(const Labels& a, const Labels& b) {
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    const int order = a[i].value.compare(b[i].value);
    if (order != 0) return order;
  }
  return 0;
}

// Makes one family: sums what has equal labels, and puts it in order.
class Builder {
 public:
  Builder(const char* name, const char* help, Family::Type type) {
    family_.name = name;
    family_.help = help;
    family_.type = type;
  }

  void Add(Labels labels, uint64_t value,
           std::vector<uint64_t> buckets = {}) {
    family_.metrics.emplace_back();
    family_.metrics.back().labels = std::move(labels);
    family_.metrics.back().value = value;
    family_.metrics.back().buckets = std::move(buckets);
  }

  void MoveTo(std::vector<Family>* families) {
    std::vector<Metric>& metrics = family_.metrics;
    if (metrics.empty()) return;
    std::sort(metrics.begin(), metrics.end(),
              [](const Metric& a, const Metric& b) {
                return CompareValues(a.labels, b.labels) < 0;
              });
    size_t last = 0;
    for (size_t i = 1; i < metrics.size(); ++i) {
      if (CompareValues(metrics[last].labels, metrics[i].labels) == 0) {
        metrics[last].value += metrics[i].value;
        for (size_t b = 0; b < metrics[last].buckets.size(); ++b) {
          metrics[last].buckets[b] += metrics[i].buckets[b];
        }
      } else if (++last != i) {
        metrics[last] = std::move(metrics[i]);
      }
    }
    metrics.resize(last + 1);
    families->push_back(std::move(family_));
  }

 private:
  Family family_;
};

void AddUp(uint64_t value, std::vector<Family>* families) {
  Builder up("netmeter_up",
             "Whether the maps can be read: 1, or 0 if not loaded or refused.",
             Family::Type::kGauge);
  up.Add({}, value);
  up.MoveTo(families);
}

// The payload of all samples that have labels, in both directions; `labels_of`
// returns false for those that have none.
template <typename LabelsOf>
void AddPayload(const std::vector<Sample>& samples, Builder sent,
                Builder received, LabelsOf labels_of,
                std::vector<Family>* families) {
  for (const Sample& sample : samples) {
    Labels labels;
    if (!labels_of(sample, &labels)) continue;
    sent.Add(labels, sample.tx_payload_bytes);
    received.Add(labels, sample.rx_payload_bytes);
  }
  sent.MoveTo(families);
  received.MoveTo(families);
}

void AddServices(const std::vector<Sample>& samples,
                 std::vector<Family>* families) {
  AddPayload(
      samples,
      Builder("magma_bytes_sent_total",
              "Payload bytes that services sent, by destination service; TCP "
              "retransmissions not included.",
              Family::Type::kCounter),
      Builder("magma_bytes_received_total",
              "Payload bytes that services received, by destination service; "
              "TCP retransmissions not included.",
              Family::Type::kCounter),
      [](const Sample& sample, Labels* labels) {
        if (sample.kind != Kind::kService) return false;
        *labels = {{"service_name", ToUtf8(sample.name)},
                   {"dest_service", ToUtf8(sample.destination)}};
        return true;
      },
      families);
}

void AddBinaries(const std::vector<Sample>& samples,
                 std::vector<Family>* families) {
  AddPayload(
      samples,
      Builder("linux_bytes_sent_total",
              "Payload bytes that programs other than services sent, not over "
              "loopback; TCP retransmissions not included.",
              Family::Type::kCounter),
      Builder("linux_bytes_received_total",
              "Payload bytes that programs other than services received, not "
              "over loopback; TCP retransmissions not included.",
              Family::Type::kCounter),
      [](const Sample& sample, Labels* labels) {
        if (sample.kind != Kind::kBinary || sample.path != Path::kDirect) {
          return false;
        }
        *labels = {{"binary_name", ToUtf8(sample.name)}};
        return true;
      },
      families);
}

void AddWire(const std::vector<Sample>& samples,
             std::vector<Family>* families) {
  Builder bytes("netmeter_wire_bytes_total",
                "Network-layer bytes as on the link: IP header, transport "
                "header and payload, TCP retransmissions included, link header "
                "not.",
                Family::Type::kCounter);
  Builder packets("netmeter_wire_packets_total",
                  "Packets as on the link: segments of an offloaded packet "
                  "count each.",
                  Family::Type::kCounter);
  Builder retransmitted("netmeter_tcp_retransmitted_bytes_total",
                        "TCP payload bytes that were sent again.",
                        Family::Type::kCounter);
  Builder pending("netmeter_pending_bytes",
                  "Network-layer bytes of connections that have not named "
                  "their destination yet; they move to the totals when they "
                  "have.",
                  Family::Type::kGauge);
  for (const Sample& sample : samples) {
    if (sample.kind == Kind::kPending) {
      Labels labels = {{"name", ToUtf8(sample.name)},
                       {"path", PathName(sample.path)},
                       {"direction", "tx"}};
      pending.Add(labels, sample.tx_bytes);
      labels.back().value = "rx";
      pending.Add(labels, sample.rx_bytes);
      continue;
    }
    const Labels series = {{"kind", KindName(sample.kind)},
                           {"name", ToUtf8(sample.name)},
                           {"destination", ToUtf8(sample.destination)}};
    Labels labels = series;
    labels.push_back({"transport", TransportName(sample.transport)});
    labels.push_back({"path", PathName(sample.path)});
    labels.push_back({"direction", "tx"});
    bytes.Add(labels, sample.tx_bytes);
    packets.Add(labels, sample.tx_packets);
    labels.back().value = "rx";
    bytes.Add(labels, sample.rx_bytes);
    packets.Add(labels, sample.rx_packets);
    if (sample.transport == Transport::kTcp) {
      retransmitted.Add(series, sample.tx_retransmit_bytes);
    }
  }
  bytes.MoveTo(families);
  packets.MoveTo(families);
  retransmitted.MoveTo(families);
  pending.MoveTo(families);
}

void AddTcp(const std::vector<Sample>& samples,
            std::vector<Family>* families) {
  Builder opened("netmeter_tcp_connections_opened_total",
                 "TCP connections that were opened by this host, the handshake "
                 "done.",
                 Family::Type::kCounter);
  Builder accepted("netmeter_tcp_connections_accepted_total",
                   "TCP connections that were opened by a peer, the handshake "
                   "done.",
                   Family::Type::kCounter);
  Builder closed("netmeter_tcp_connections_closed_total",
                 "TCP connections, opened or accepted, that ended.",
                 Family::Type::kCounter);
  Builder failed("netmeter_tcp_connections_failed_total",
                 "TCP connections that this host could not open: refused, timed "
                 "out or given up.",
                 Family::Type::kCounter);
  Builder rtt("netmeter_tcp_rtt_seconds",
              "Smoothed round-trip times of TCP connections, not over loopback: "
              "one value for each round trip in which data was acknowledged, and "
              "one at the end of the connection.",
              Family::Type::kHistogram);
  for (const Sample& sample : samples) {
    const TcpConnections& tcp = sample.tcp;
    if (!tcp.known) continue;
    const Labels labels = {{"kind", KindName(sample.kind)},
                           {"name", ToUtf8(sample.name)},
                           {"destination", ToUtf8(sample.destination)}};
    opened.Add(labels, tcp.opened);
    accepted.Add(labels, tcp.accepted);
    closed.Add(labels, tcp.closed);
    failed.Add(labels, tcp.failed);
    // Of the path that costs: what never had a round trip is left out.
    if (tcp.rtt_us == 0) continue;
    rtt.Add(labels, tcp.rtt_us,
            {tcp.rtt_buckets.begin(), tcp.rtt_buckets.end()});
  }
  opened.MoveTo(families);
  accepted.MoveTo(families);
  closed.MoveTo(families);
  failed.MoveTo(families);
  rtt.MoveTo(families);
}

void AddHealth(const Health& health, std::vector<Family>* families) {
  Builder series("netmeter_series",
                 "Series in use, without the reserved ones; at most "
                 "netmeter_series_limit.",
                 Family::Type::kGauge);
  series.Add({}, health.series);
  series.MoveTo(families);
  Builder limit("netmeter_series_limit",
                "Series that the meter has room for, without the reserved ones, "
                "as netmeter-loader status shows.",
                Family::Type::kGauge);
  limit.Add({}, std::max<uint32_t>(health.max_series, NM_SLOT_FIRST) -
                    NM_SLOT_FIRST);
  limit.MoveTo(families);
  Builder lost("netmeter_lost_total",
               "What was counted, but not under its own name, by reason: "
               "packets, except names_full and names_capped (names) and "
               "processes_full (processes).",
               Family::Type::kCounter);
  lost.Add({{"reason", "series_full"}}, health.series_full_packets);
  lost.Add({{"reason", "names_full"}}, health.names_full);
  lost.Add({{"reason", "names_capped"}}, health.names_capped);
  lost.Add({{"reason", "series_capped"}}, health.series_capped_packets);
  lost.Add({{"reason", "processes_full"}}, health.processes_full);
  lost.Add({{"reason", "storage_failed"}}, health.storage_failed_packets);
  lost.Add({{"reason", "header_error"}}, health.header_error_packets);
  lost.MoveTo(families);
}

}  // namespace

double BucketBound(size_t bucket) {
  constexpr auto kBounds = TcpConnections::RttBoundsUs();
  return bucket < kBounds.size() ? kBounds[bucket] / 1e6
                                 : std::numeric_limits<double>::infinity();
}

std::vector<Family> FamiliesOfError() {
  std::vector<Family> families;
  AddUp(0, &families);
  return families;
}

std::vector<Family> FamiliesOfService(const std::vector<Sample>& samples) {
  std::vector<Family> families;
  AddUp(1, &families);
  AddServices(samples, &families);
  AddWire(samples, &families);
  AddTcp(samples, &families);
  return families;
}

std::vector<Family> FamiliesOfHost(const std::vector<Sample>& samples,
                                   const Health& health) {
  std::vector<Family> families;
  AddUp(1, &families);
  AddServices(samples, &families);
  AddBinaries(samples, &families);
  AddWire(samples, &families);
  AddTcp(samples, &families);
  AddHealth(health, &families);
  return families;
}

void MarkRegistered(std::vector<Sample>* samples) {
  const auto of_service = [](const Sample& sample) {
    return sample.kind == Kind::kService || sample.kind == Kind::kPending;
  };
  std::unordered_set<std::string> names;
  for (const Sample& sample : *samples) {
    if (sample.registered && of_service(sample)) names.insert(sample.name);
  }
  if (names.empty()) return;
  for (Sample& sample : *samples) {
    if (of_service(sample) && names.count(sample.name) != 0) {
      sample.registered = true;
    }
  }
}

void RemoveRegistered(std::vector<Sample>* samples) {
  samples->erase(std::remove_if(samples->begin(), samples->end(),
                                [](const Sample& s) { return s.registered; }),
                 samples->end());
}

std::vector<Sample> Unregistered(std::vector<Sample> samples) {
  MarkRegistered(&samples);
  RemoveRegistered(&samples);
  return samples;
}

namespace {

std::vector<Family> CollectOrThrow(const Meter* meter, FamilyScope scope) {
  if (meter == nullptr) return FamiliesOfError();
  if (scope == FamilyScope::kService) {
    const auto samples = meter->ReadService();
    return samples.ok() ? FamiliesOfService(*samples) : FamiliesOfError();
  }
  auto samples = meter->ReadHost();
  if (!samples.ok()) return FamiliesOfError();
  const auto health = meter->ReadHealth();
  if (!health.ok()) return FamiliesOfError();
  if (scope == FamilyScope::kUnregistered) {
    *samples = Unregistered(*std::move(samples));
  }
  return FamiliesOfHost(*samples, *health);
}

}  // namespace

std::vector<Family> Collect(const Meter* meter, FamilyScope scope) noexcept {
  try {
    return CollectOrThrow(meter, scope);
  } catch (const std::exception&) {
  }
  try {
    return FamiliesOfError();
  } catch (const std::exception&) {
  }
  return {};
}

}  // namespace internal
}  // namespace netmeter
