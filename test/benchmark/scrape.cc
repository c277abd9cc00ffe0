// SPDX-License-Identifier: BSD-3-Clause
// What a scrape of a full meter costs netmeter-exporter: /metrics by HTTP and
// GetMetrics by gRPC, each on a connection of its own, with 4,096 series. How
// long the client waits, and the CPU time of the exporter. TCP histograms, which
// no series here has, are not in it.
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <string>

#include "lib/tools/exporter_process.h"
#include "test/benchmark/full_meter.h"
#include "test/benchmark/harness.h"

namespace netmeter {
namespace internal {
namespace {

size_t GetMetrics(magma::orc8r::Service303::Stub* stub) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::seconds(30));
  magma::orc8r::MetricsContainer container;
  const grpc::Status status =
      stub->GetMetrics(&context, magma::orc8r::Void(), &container);
  if (!status.ok()) Die("GetMetrics: " + status.error_message());
  return container.ByteSizeLong();
}

void Measure(int rounds, Run* run) {
  const FullMeter full(run->directory());
  ExporterProcess exporter({"--pin-dir", full.pin_dir()});
  if (exporter.http_port() == 0) Die("netmeter-exporter did not start");
  const auto stub = exporter.Stub();
  Results* results = run->results();
  results->Fact("series", kFullMeterSeries);
  // Once for the first time: connections, and what is made once.
  results->Fact("/metrics: bytes", exporter.Get("/metrics").size());
  results->Fact("GetMetrics: bytes", GetMetrics(stub.get()));
  for (int round = 0; round < rounds; ++round) {
    for (const bool http : {true, false}) {
      const char* name = http ? "/metrics" : "GetMetrics";
      const double cpu = CpuNsOf(exporter.pid()), start = NowNs();
      if (http) {
        exporter.Get("/metrics");
      } else {
        GetMetrics(stub.get());
      }
      results->Add(name, "netmeter-exporter", "ms", Better::kLess,
                   (NowNs() - start) / 1e6);
      results->Add(name, "netmeter-exporter", "CPU ms", Better::kLess,
                   (CpuNsOf(exporter.pid()) - cpu) / 1e6);
    }
  }
  results->Fact("resident KiB", exporter.MemoryKib());
  if (exporter.Stop() != 0) Die("netmeter-exporter did not stop well");
}

}  // namespace
}  // namespace internal
}  // namespace netmeter

int main(int argc, char** argv) {
  using namespace netmeter::internal;
  int rounds = 41;
  Benchmark benchmark("scrape", "ms of a scrape of netmeter-exporter");
  benchmark.Number("rounds", &rounds, 3, "rounds of every measurement");
  return benchmark.Main(argc, argv, [&](Run* run) { Measure(rounds, run); });
}
