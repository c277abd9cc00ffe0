// SPDX-License-Identifier: BSD-3-Clause
// What a scrape of a full meter costs netmeter-exporter: /metrics by HTTP and
// GetMetrics by gRPC, each on a connection of its own, with 100 to 10,000 series. How
// long the client waits until it has all bytes, and the CPU time of the exporter,
// which makes each reply anew. What the client then does with them is its own: how
// long libprotobuf takes for that stands beside. TCP histograms, which no series
// here has, are not in it.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"

#include "lib/apps/exporter/exporter_process.h"
#include "test/benchmark/full_meter.h"
#include "test/benchmark/harness.h"

namespace netmeter {
namespace internal {
namespace {

// Calls GetMetrics, and leaves the reply as it came.
grpc::ByteBuffer GetMetrics(grpc::GenericStub* stub) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::seconds(30));
  grpc::CompletionQueue queue;
  const grpc::Slice empty;
  const grpc::ByteBuffer request(&empty, 1);
  const auto call = stub->PrepareUnaryCall(
      &context, "/magma.orc8r.Service303/GetMetrics", request, &queue);
  call->StartCall();
  grpc::ByteBuffer reply;
  grpc::Status status;
  call->Finish(&reply, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  if (!ok || !status.ok()) Die("GetMetrics: " + status.error_message());
  return reply;
}

void Parse(grpc::ByteBuffer* reply) {
  magma::orc8r::MetricsContainer container;
  const grpc::Status status =
      grpc::SerializationTraits<magma::orc8r::MetricsContainer>::Deserialize(
          reply, &container);
  if (!status.ok()) Die("GetMetrics: " + status.error_message());
}

void Measure(size_t series, int rounds, Run* run) {
  const FullMeter full(run->directory(), series);
  ExporterProcess exporter({"--pin-dir", full.pin_dir()});
  if (exporter.http_port() == 0) Die("netmeter-exporter did not start");
  grpc::GenericStub stub(exporter.Channel());
  Results* results = run->results();
  const std::string of =
      series == kFullMeterSeries ? "" : absl::StrCat(", ", series, " series");
  // Once for the first time: connections, and what is made once.
  results->Fact("/metrics" + of + ": bytes", exporter.Get("/metrics").size());
  results->Fact("GetMetrics" + of + ": bytes", GetMetrics(&stub).Length());
  for (int round = 0; round < rounds; ++round) {
    for (const bool http : {true, false}) {
      const std::string name = (http ? "/metrics" : "GetMetrics") + of;
      // The exporter keeps a reply for a tenth of a second, and half a second on a slow
      // machine.
      std::this_thread::sleep_for(std::chrono::milliseconds(run->Of(600, 50)));
      grpc::ByteBuffer reply;
      const double cpu = CpuNsOf(exporter.pid()), start = NowNs();
      if (http) {
        exporter.Get("/metrics");
      } else {
        reply = GetMetrics(&stub);
      }
      const double end = NowNs();
      results->Add(name, "netmeter-exporter", "ms", Better::kLess,
                   (end - start) / 1e6);
      results->Add(name, "netmeter-exporter", "CPU ms", Better::kLess,
                   (CpuNsOf(exporter.pid()) - cpu) / 1e6);
      if (http || series != kFullMeterSeries) continue;
      const double received = NowNs();
      Parse(&reply);
      results->Add("GetMetrics, parsed by protobuf for C++", "the client", "ms",
                   Better::kLess, (NowNs() - received) / 1e6);
    }
  }
  results->Fact("resident KiB" + of, exporter.MemoryKib());
  if (exporter.Stop() != 0) Die("netmeter-exporter did not stop well");
}

}  // namespace
}  // namespace internal
}  // namespace netmeter

int main(int argc, char** argv) {
  using namespace netmeter::internal;
  return RunBenchmark("scrape", argc, argv, [](Run* run) {
    for (const size_t series :
         {size_t{100}, size_t{1000}, kFullMeterSeries, size_t{10000}}) {
      Measure(series, run->Of(41, 3), run);
    }
  });
}
