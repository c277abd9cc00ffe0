// SPDX-License-Identifier: BSD-3-Clause
// gRPC C++ against a Service303: see service303_clients_test.py, which says what
// all these clients do and print.
//
//   service303_client HOST:PORT

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

namespace {

const char kPrefix[] = "/magma.orc8r.Service303/";

struct Call {
  grpc::ClientContext context;
  grpc::ByteBuffer request;
  grpc::ByteBuffer response;
  std::promise<grpc::Status> done;
};

std::unique_ptr<Call> Start(
    grpc::GenericStub* stub, const std::string& path, size_t bytes = 0,
    const std::function<void(grpc::ClientContext*)>& set = nullptr) {
  auto call = std::make_unique<Call>();
  call->context.set_deadline(std::chrono::system_clock::now() +
                             std::chrono::seconds(30));
  if (set) set(&call->context);
  const grpc::Slice slice(std::string(bytes, 'x'));
  call->request = grpc::ByteBuffer(&slice, 1);
  Call* const raw = call.get();
  stub->UnaryCall(&call->context, path, {}, &call->request, &call->response,
                  [raw](grpc::Status status) { raw->done.set_value(status); });
  return call;
}

void Finish(const char* what, Call* call) {
  const grpc::Status status = call->done.get_future().get();
  if (status.ok()) {
    std::printf("%s: %zu bytes\n", what, call->response.Length());
  } else if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    std::printf("%s: code 4\n", what);
  } else {
    std::printf("%s: code %d, %s\n", what, status.error_code(),
                status.error_message().c_str());
  }
}

}  // namespace

int main(int, char** argv) {
  grpc::GenericStub stub(
      grpc::CreateChannel(argv[1], grpc::InsecureChannelCredentials()));
  for (const char* method :
       {"GetServiceInfo", "GetMetrics", "SetLogLevel", "SetLogVerbosity",
        "ReloadServiceConfig", "GetOperationalStates"}) {
    Finish(method, Start(&stub, std::string(kPrefix) + method).get());
  }
  Finish("unknown", Start(&stub, "/other.Service/Method").get());
  const std::string metrics = std::string(kPrefix) + "GetMetrics";
  Finish("gzip", Start(&stub, metrics, 1000, [](grpc::ClientContext* context) {
                   context->set_compression_algorithm(GRPC_COMPRESS_GZIP);
                 }).get());
  Finish("long", Start(&stub, metrics, 100000).get());
  // Not now: gRPC rounds up to a millisecond, in which a kept reply has come.
  Finish("deadline", Start(&stub, metrics, 0, [](grpc::ClientContext* context) {
                       context->set_deadline(std::chrono::system_clock::now() -
                                             std::chrono::seconds(1));
                     }).get());
  std::vector<std::unique_ptr<Call>> calls;
  for (int i = 0; i < 40; ++i) calls.push_back(Start(&stub, metrics));
  for (const auto& call : calls) Finish("at once", call.get());
  return 0;
}
