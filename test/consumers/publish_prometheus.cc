// SPDX-License-Identifier: BSD-3-Clause
// publish_prometheus PIN-DIR: publishes the service `consumer` by its own
// prometheus-cpp, as consumer.cc sends it, and prints the page. Without a meter the
// page says so, and it ends with 2.
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <stdio.h>

#include <memory>
#include <string>
#include <utility>

#include "netmeter/prometheus.h"

int main(int argc, char** argv) {
  if (argc != 2) return 1;
  netmeter::MeterOptions options;
  options.pin_dir = argv[1];
  options.wait_for_loader = true;
  auto meter = netmeter::Meter::Open(options);
  if (!meter.ok()) return 1;
  netmeter::PublishOptions publish;
  publish.scope = netmeter::Scope::kHost;
  const auto families = netmeter::FamilySet::Parse(
      "magma_bytes_sent_total,netmeter_tcp_rtt_seconds");
  if (!families.ok() || families->Contains("netmeter_series")) return 1;
  publish.families = *families;
  const netmeter::PrometheusCollectable collectable(std::move(*meter), publish);
  const std::string page =
      prometheus::TextSerializer().Serialize(collectable.Collect());
  printf("%s", page.c_str());
  return page.find("netmeter_up 1\n") != std::string::npos ? 0 : 2;
}
