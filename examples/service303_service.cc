// SPDX-License-Identifier: BSD-3-Clause
// A service that magmad polls: serves Service303 with libnetmeter's
// implementation, and reports to the cloud every second, through a channel
// whose traffic is counted under the destination "metricsd".
//
//   service303_service 127.0.0.1:50051 10.0.0.2:9443 [PIN-DIR]
//
// Without a loaded meter it works as before, and netmeter_up is 0. It may be killed at
// any time, because the kernel keeps the totals.

#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <chrono>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include "netmeter/grpc.h"
#include "netmeter/magma.h"
#include "netmeter/meter.h"
#include "service303.grpc.pb.h"

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "usage: service303_service LISTEN CLOUD [PIN-DIR]\n";
    return 2;
  }
  netmeter::MeterOptions options;
  options.service = "subscriberdb";
  options.wait_for_loader = true;
  if (argc > 3) options.pin_dir = argv[3];
  auto opened = netmeter::Meter::Open(options);
  if (!opened.ok()) {
    std::cerr << opened.status() << "\n";
    return 1;
  }
  const std::shared_ptr<const netmeter::Meter> meter = std::move(*opened);

  netmeter::Service303Options service_options;
  service_options.name = options.service;
  service_options.version = "1.0.0";
  netmeter::Service303 service303(meter, service_options);
  grpc::ServerBuilder builder;
  builder.AddListeningPort(argv[1], grpc::InsecureServerCredentials());
  builder.RegisterService(&service303);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) {
    std::cerr << "cannot listen on " << argv[1] << "\n";
    return 1;
  }

  grpc::ChannelArguments arguments;
  netmeter::SetChannelTag("metricsd", &arguments);
  const auto cloud =
      magma::orc8r::MetricsController::NewStub(grpc::CreateCustomChannel(
          argv[2], grpc::InsecureChannelCredentials(), arguments));
  const netmeter::MagmaMetrics metrics(meter);
  while (true) {
    magma::orc8r::MetricsContainer report;
    report.set_gatewayid("gateway");
    report.MergeFromString(metrics.Serialize());
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::seconds(5));
    magma::orc8r::Void none;
    const grpc::Status status = cloud->Collect(&context, report, &none);
    std::cout << (status.ok() ? "reported" : status.error_message())
              << std::endl;
    sleep(1);
  }
}
