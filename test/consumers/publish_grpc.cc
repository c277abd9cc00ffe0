// SPDX-License-Identifier: BSD-3-Clause
// publish_grpc PIN-DIR: serves Service303 by its own gRPC, asks it for metrics over a
// channel that has a tag, and prints how many families there are. Without a meter there
// is one, and it ends with 2.
#include <grpcpp/grpcpp.h>
#include <stdio.h>

#include <memory>
#include <string>
#include <utility>

#include "netmeter/grpc.h"
#include "service303.grpc.pb.h"

int main(int argc, char** argv) {
  if (argc != 2) return 1;
  netmeter::MeterOptions options;
  options.pin_dir = argv[1];
  options.wait_for_loader = true;
  auto meter = netmeter::Meter::Open(options);
  if (!meter.ok()) return 1;
  netmeter::Service303Options service_options;
  service_options.name = "consumer";
  service_options.metrics.scope = netmeter::Scope::kHost;
  netmeter::Service303 service(std::move(*meter), service_options);
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                           &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return 1;

  grpc::ChannelArguments arguments;
  if (!netmeter::SetChannelTag("self", &arguments)) return 1;
  const auto stub = magma::orc8r::Service303::NewStub(
      grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(port),
                                grpc::InsecureChannelCredentials(), arguments));
  grpc::ClientContext first, second;
  magma::orc8r::MetricsContainer container;
  magma::orc8r::ServiceInfo info;
  const bool asked =
      stub->GetMetrics(&first, magma::orc8r::Void(), &container).ok() &&
      stub->GetServiceInfo(&second, magma::orc8r::Void(), &info).ok();
  server->Shutdown();
  if (!asked) return 1;
  printf("%s: %d families\n", info.name().c_str(), container.family_size());
  return info.status().meta().at("netmeter") == "ok" ? 0 : 2;
}
