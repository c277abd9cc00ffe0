// SPDX-License-Identifier: BSD-3-Clause
// A C++14 service of Magma that has its own Service303, its own generated
// io.prometheus.client and its own metrics, and adds libnetmeter's to them:
// one line in GetMetrics, and one in main() to be counted by name.
//
//   service 127.0.0.1:50061 [PIN-DIR]

#include <grpcpp/grpcpp.h>

#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include "netmeter/magma.h"
#include "netmeter/meter.h"
#include "service303.grpc.pb.h"

static_assert(__cplusplus == 201402L, "this is for C++14");

namespace {

using magma::orc8r::MetricsContainer;
using magma::orc8r::Void;

class MmeService final : public magma::orc8r::Service303::Service {
 public:
  explicit MmeService(std::shared_ptr<const netmeter::Meter> meter)
      : metrics_(std::move(meter)) {}

  grpc::Status GetMetrics(grpc::ServerContext*, const Void*,
                          MetricsContainer* response) override {
    // The service's own metrics.
    auto* family = response->add_family();
    family->set_name("ue_attached");
    family->set_type(io::prometheus::client::GAUGE);
    family->add_metric()->mutable_gauge()->set_value(3);
    // libnetmeter's metrics.
    response->MergeFromString(metrics_.Serialize());
    return grpc::Status::OK;
  }

 private:
  const netmeter::MagmaMetrics metrics_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: service LISTEN [PIN-DIR]\n";
    return 2;
  }
  netmeter::MeterOptions options;
  options.service = "mme";
  options.wait_for_loader = true;
  if (argc > 2) options.pin_dir = argv[2];
  auto meter = netmeter::Meter::Open(options);
  if (!meter.ok()) {
    std::cerr << meter.status() << "\n";
    return 1;
  }
  MmeService service(std::move(*meter));
  grpc::ServerBuilder builder;
  builder.AddListeningPort(argv[1], grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) {
    std::cerr << "cannot listen on " << argv[1] << "\n";
    return 1;
  }
  std::cout << "serving" << std::endl;
  server->Wait();
}
