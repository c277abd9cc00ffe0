// SPDX-License-Identifier: BSD-3-Clause
// magma.orc8r.Service303 for a host that has a gRPC server.
//
// protoc would generate the service and its messages. With messages of our own
// for package names of Magma, a second descriptor would be registered in the
// host's process, and protobuf ends a process that has two. So this file does by
// hand what generated code does: it adds each method to grpc::Service by its
// path, with a handler that takes and gives bytes (ByteBuffer), which
// MagmaMetrics and ServiceInfo make without protobuf.
//
// All methods are of the callback API, which needs no thread and no completion
// queue of the host. A handler reads the meter, which is plain memory loads under the
// meter's mutexes, and finishes the call. It waits, in a thread of gRPC's, as long as
// Meter::ReadHost() may: microseconds as a rule, and up to 2 s where the meter is being
// replaced or was unloaded. What peers do not
// take of a reply is gRPC's memory, as it is for the host's own methods; a host
// that has hostile peers sets a grpc::ResourceQuota for all of them.
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/rpc_service_method.h>
#if __has_include(<grpcpp/impl/server_callback_handlers.h>)
#include <grpcpp/impl/server_callback_handlers.h>  // where it moved later
#else
#include <grpcpp/impl/codegen/server_callback_handlers.h>
#endif

#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "lib/magma/service_info.h"
#include "netmeter/grpc.h"

namespace netmeter {
namespace {

using grpc::ByteBuffer;
using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;
using grpc::internal::RpcMethod;

using MakeReply = std::function<std::string()>;

// Sends `bytes` without copying them.
ByteBuffer ToByteBuffer(std::string bytes) {
  auto* kept = new std::string(std::move(bytes));
  const grpc::Slice slice(
      const_cast<char*>(kept->data()), kept->size(),
      [](void* string) { delete static_cast<std::string*>(string); }, kept);
  return ByteBuffer(&slice, 1);
}

// Nothing may be thrown into gRPC.
grpc::Status FillResponse(const MakeReply& make_reply, ByteBuffer* response) {
  try {
    *response = ToByteBuffer(make_reply());
    return grpc::Status::OK;
  } catch (const std::bad_alloc&) {
    // So short a text lies within its string.
    return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "out of memory");
  }
}

}  // namespace

class Service303::Impl {
 public:
  Impl(std::shared_ptr<const Meter> meter, const Service303Options& options)
      : meter_(meter),
        metrics_(std::move(meter), options.metrics),
        info_(options.name, options.version) {}

  std::string Metrics() const {
    std::string bytes = metrics_.Serialize();
    if (bytes.empty()) throw std::bad_alloc();  // what it means by that
    return bytes;
  }
  std::string Info() const { return info_.Serialize(meter_.get()); }

 private:
  const std::shared_ptr<const Meter> meter_;
  const MagmaMetrics metrics_;
  const internal::ServiceInfo info_;
};

Service303::Service303(std::shared_ptr<const Meter> meter,
                       const Service303Options& options)
    : impl_(new Impl(std::move(meter), options)) {
  using Handler = grpc::internal::CallbackUnaryHandler<ByteBuffer, ByteBuffer>;
  int index = 0;
  // gRPC keeps the pointer to a path, so all paths are constants.
  const auto add = [this, &index](const char* path, auto answer) {
    AddMethod(new grpc::internal::RpcServiceMethod(path, RpcMethod::NORMAL_RPC,
                                                   nullptr));
    MarkMethodRawCallback(
        index++, new Handler([answer](CallbackServerContext* context,
                                      const ByteBuffer*, ByteBuffer* response) {
          ServerUnaryReactor* reactor = context->DefaultReactor();
          reactor->Finish(answer(response));
          return reactor;
        }));
  };
  const Impl* const impl = impl_.get();
  add("/magma.orc8r.Service303/GetMetrics", [impl](ByteBuffer* response) {
    return FillResponse([impl] { return impl->Metrics(); }, response);
  });
  add("/magma.orc8r.Service303/GetServiceInfo", [impl](ByteBuffer* response) {
    return FillResponse([impl] { return impl->Info(); }, response);
  });
  add("/magma.orc8r.Service303/GetOperationalStates", [](ByteBuffer* response) {
    return FillResponse(
        [] { return std::string(internal::kNoOperationalStates); }, response);
  });
  add("/magma.orc8r.Service303/ReloadServiceConfig", [](ByteBuffer* response) {
    return FillResponse(
        [] { return std::string(internal::kReloadUnsupported); }, response);
  });
  if (options.stop) {
    add("/magma.orc8r.Service303/StopService",
        [stop = options.stop](ByteBuffer* response) {
          stop();
          return FillResponse([] { return std::string(); }, response);
        });
  }
  // magmad has commands that call these, and must hear that they do nothing.
  for (const char* path : {"/magma.orc8r.Service303/StopService",
                           "/magma.orc8r.Service303/SetLogLevel",
                           "/magma.orc8r.Service303/SetLogVerbosity"}) {
    if (options.stop && absl::EndsWith(path, "/StopService")) continue;
    const std::string name = path + sizeof(internal::kService303Path) - 1;
    add(path, [name](ByteBuffer*) {
      return grpc::Status(grpc::StatusCode::UNIMPLEMENTED,
                          name + " is not implemented");
    });
  }
}

Service303::~Service303() = default;

}  // namespace netmeter
