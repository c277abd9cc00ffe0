// SPDX-License-Identifier: BSD-3-Clause
// A program that uses the public headers; compiled as C++14, C++17 and C++20.
#include "netmeter/grpc.h"
#include "netmeter/magma.h"
#include "netmeter/prometheus.h"

size_t Families(std::shared_ptr<const netmeter::Meter> meter) {
  netmeter::PublishOptions options;
  options.scope = netmeter::Scope::kHost;
  const auto families = netmeter::FamilySet::Parse("bytes");
  if (families.ok()) options.families = *families;
  const netmeter::PrometheusCollectable collectable(meter, options);
  return collectable.Collect().size();
}

void IncrementCounter(const char* name, double value, size_t labels);

size_t Publish(std::shared_ptr<const netmeter::Meter> meter) {
  netmeter::DeltaVisitor visitor(meter);
  const absl::Status visited = visitor.Visit([](const netmeter::Delta& delta) {
    IncrementCounter(delta.name, static_cast<double>(delta.value),
                     delta.labels.size());
    return absl::OkStatus();
  });
  if (!visited.ok()) return 0;
  return netmeter::MagmaMetrics(meter).Serialize().size();
}

std::unique_ptr<grpc::Service> MakeService(
    std::shared_ptr<const netmeter::Meter> meter,
    grpc::ChannelArguments* arguments) {
  netmeter::Service303Options options;
  options.name = "subscriberdb";
  if (!netmeter::SetChannelTag("streamer", arguments)) return nullptr;
  return std::unique_ptr<grpc::Service>(
      new netmeter::Service303(meter, options));
}
