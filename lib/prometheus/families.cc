// SPDX-License-Identifier: BSD-3-Clause
#include "lib/prometheus/families.h"

#include <prometheus/client_metric.h>
#include <prometheus/metric_type.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "lib/core/text.h"

namespace netmeter {
namespace internal {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

// One family. Sums in integers what has equal labels; a double comes last.
class Family {
 public:
  Family(const char* name, const char* help, MetricType type)
      : name_(name), help_(help), type_(type) {}

  void Add(Labels labels, uint64_t value) {
    for (ClientMetric::Label& label : labels) label.value = ToUtf8(label.value);
    values_[std::move(labels)] += value;
  }

  void MoveTo(std::vector<MetricFamily>* families) {
    if (values_.empty()) return;
    families->emplace_back();
    MetricFamily& family = families->back();
    family.name = name_;
    family.help = help_;
    family.type = type_;
    for (const auto& entry : values_) {
      family.metric.emplace_back();
      ClientMetric& metric = family.metric.back();
      metric.label = entry.first;
      const double value = static_cast<double>(entry.second);
      if (type_ == MetricType::Gauge) {
        metric.gauge.value = value;
      } else {
        metric.counter.value = value;
      }
    }
  }

 private:
  const char* name_;
  const char* help_;
  MetricType type_;
  std::map<Labels, uint64_t> values_;
};

void AddUp(uint64_t value, std::vector<MetricFamily>* families) {
  Family up("netmeter_up",
            "Whether the meter could be read: 1, or 0 if not loaded or "
            "refused.",
            MetricType::Gauge);
  up.Add({}, value);
  up.MoveTo(families);
}

void AddServices(const std::vector<Sample>& samples,
                 std::vector<MetricFamily>* families) {
  Family sent("magma_bytes_sent_total",
              "Payload bytes that services sent, by destination service; TCP "
              "retransmissions not included.",
              MetricType::Counter);
  Family received("magma_bytes_received_total",
                  "Payload bytes that services received, by destination "
                  "service; TCP retransmissions not included.",
                  MetricType::Counter);
  for (const Sample& sample : samples) {
    if (sample.kind != Kind::kService) continue;
    const Labels labels = {{"service_name", sample.name},
                           {"dest_service", sample.destination}};
    sent.Add(labels, sample.tx_payload_bytes);
    received.Add(labels, sample.rx_payload_bytes);
  }
  sent.MoveTo(families);
  received.MoveTo(families);
}

void AddBinaries(const std::vector<Sample>& samples,
                 std::vector<MetricFamily>* families) {
  Family sent("linux_bytes_sent_total",
              "Payload bytes that programs other than services sent, not over "
              "loopback; TCP retransmissions not included.",
              MetricType::Counter);
  Family received("linux_bytes_received_total",
                  "Payload bytes that programs other than services received, "
                  "not over loopback; TCP retransmissions not included.",
                  MetricType::Counter);
  for (const Sample& sample : samples) {
    if (sample.kind != Kind::kBinary || sample.path != Path::kDirect) continue;
    const Labels labels = {{"binary_name", sample.name}};
    sent.Add(labels, sample.tx_payload_bytes);
    received.Add(labels, sample.rx_payload_bytes);
  }
  sent.MoveTo(families);
  received.MoveTo(families);
}

void AddWire(const std::vector<Sample>& samples,
             std::vector<MetricFamily>* families) {
  Family bytes("netmeter_wire_bytes_total",
               "Network-layer bytes as on the link: IP header, transport "
               "header and payload, TCP retransmissions included, link header "
               "not.",
               MetricType::Counter);
  Family packets("netmeter_wire_packets_total",
                 "Packets as on the link: segments of an offloaded packet "
                 "count each.",
                 MetricType::Counter);
  Family retransmitted("netmeter_tcp_retransmitted_bytes_total",
                       "TCP payload bytes that were sent again.",
                       MetricType::Counter);
  for (const Sample& sample : samples) {
    const Labels series = {{"kind", KindName(sample.kind)},
                           {"name", sample.name},
                           {"destination", sample.destination}};
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
}

void AddHealth(const Health& health, std::vector<MetricFamily>* families) {
  Family series("netmeter_series",
                "Series in use, without the reserved ones; at most "
                "netmeter_series_limit.",
                MetricType::Gauge);
  series.Add({}, health.series);
  series.MoveTo(families);
  Family limit("netmeter_series_limit",
               "Series that the meter has room for, the reserved ones "
               "included.",
               MetricType::Gauge);
  limit.Add({}, health.max_series);
  limit.MoveTo(families);
  Family lost("netmeter_lost_total",
              "What was counted, but not under its own name, by reason: "
              "packets, except names_full (names) and processes_full "
              "(processes).",
              MetricType::Counter);
  lost.Add({{"reason", "series_full"}}, health.series_full_packets);
  lost.Add({{"reason", "names_full"}}, health.names_full);
  lost.Add({{"reason", "processes_full"}}, health.processes_full);
  lost.Add({{"reason", "storage_failed"}}, health.storage_failed_packets);
  lost.Add({{"reason", "header_error"}}, health.header_error_packets);
  lost.MoveTo(families);
}

}  // namespace

std::vector<MetricFamily> FamiliesOfError() {
  std::vector<MetricFamily> families;
  AddUp(0, &families);
  return families;
}

std::vector<MetricFamily> FamiliesOfService(
    const std::vector<Sample>& samples) {
  std::vector<MetricFamily> families;
  AddUp(1, &families);
  AddServices(samples, &families);
  AddWire(samples, &families);
  return families;
}

std::vector<MetricFamily> FamiliesOfHost(const std::vector<Sample>& samples,
                                         const Health& health) {
  std::vector<MetricFamily> families;
  AddUp(1, &families);
  AddServices(samples, &families);
  AddBinaries(samples, &families);
  AddWire(samples, &families);
  AddHealth(health, &families);
  return families;
}

}  // namespace internal
}  // namespace netmeter
