// SPDX-License-Identifier: BSD-3-Clause
// The service that protoc would generate, on bytes: with messages of our own
// package names a second descriptor would be registered in the host's process.
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/rpc_service_method.h>
#if __has_include(<grpcpp/impl/server_callback_handlers.h>)
#include <grpcpp/impl/server_callback_handlers.h>  // where it moved later
#else
#include <grpcpp/impl/codegen/server_callback_handlers.h>
#endif

#include <chrono>
#include <list>
#include <mutex>
#include <new>
#include <protozero/pbf_writer.hpp>
#include <string>
#include <utility>

#include "lib/core/text.h"
#include "netmeter/grpc.h"

namespace netmeter {
namespace {

using grpc::ByteBuffer;
using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;
using grpc::internal::RpcMethod;

constexpr char kPrefix[] = "/magma.orc8r.Service303/";

// Field numbers: package magma.orc8r, service303.proto (proto3).
enum ServiceInfoField : uint32_t {
  kInfoName = 1,
  kInfoVersion = 2,
  kInfoState = 3,
  kInfoStatus = 4,
  kInfoHealth = 5,
  kInfoStartTimeSecs = 6,
};
enum ServiceStatusField : uint32_t { kStatusMeta = 2 };
enum MapEntryField : uint32_t { kEntryKey = 1, kEntryValue = 2 };
constexpr int32_t kStateAlive = 2;
constexpr int32_t kHealthAppHealthy = 2;

// Sends `bytes` without copying them.
ByteBuffer ToByteBuffer(std::string bytes) {
  auto* kept = new std::string(std::move(bytes));
  const grpc::Slice slice(
      const_cast<char*>(kept->data()), kept->size(),
      [](void* string) { delete static_cast<std::string*>(string); }, kept);
  return ByteBuffer(&slice, 1);
}

}  // namespace

class Service303::Impl {
 public:
  Impl(std::shared_ptr<const Meter> meter, const Service303Options& options)
      : meter_(meter),
        options_(options),
        metrics_(std::move(meter), options.metrics),
        start_time_secs_(
            std::chrono::duration_cast<std::chrono::seconds>(
                std::chrono::system_clock::now().time_since_epoch())
                .count()) {}

  ServerUnaryReactor* GetMetrics(CallbackServerContext* context,
                                 ByteBuffer* response) {
    return WithoutThrowing(context, [&]() -> ServerUnaryReactor* {
      std::string bytes = metrics_.Serialize();
      const size_t size = bytes.size();
      ByteBuffer buffer = ToByteBuffer(std::move(bytes));
      auto* reply = new Reply(this, context, size);
      response->Swap(&buffer);
      reply->Finish(grpc::Status::OK);
      return reply;
    });
  }

  ServerUnaryReactor* GetServiceInfo(CallbackServerContext* context,
                                     ByteBuffer* response) {
    return WithoutThrowing(context, [&]() -> ServerUnaryReactor* {
      *response = ToByteBuffer(ServiceInfo());
      ServerUnaryReactor* reactor = context->DefaultReactor();
      reactor->Finish(grpc::Status::OK);
      return reactor;
    });
  }

 private:
  template <typename Function>
  static ServerUnaryReactor* WithoutThrowing(CallbackServerContext* context,
                                             const Function& answer) {
    try {
      return answer();
    } catch (const std::bad_alloc&) {
      ServerUnaryReactor* reactor = context->DefaultReactor();
      reactor->Finish(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                                   "not enough memory"));
      return reactor;
    }
  }

  // One call of GetMetrics, from its answer until the peer has it.
  class Reply : public ServerUnaryReactor {
   public:
    Reply(Impl* impl, CallbackServerContext* context, size_t bytes)
        : impl_(impl), context_(context), bytes_(bytes) {
      impl_->Add(this);
    }
    void OnDone() override {
      impl_->Remove(this);
      delete this;
    }

   private:
    friend class Impl;
    Impl* const impl_;  // outlives its server's calls
    CallbackServerContext* const context_;
    const size_t bytes_;
    bool cancelled_ = false;
    std::list<Reply*>::iterator place_;
  };

  void Add(Reply* reply) {
    const std::lock_guard<std::mutex> lock(mutex_);
    reply->place_ = pending_.insert(pending_.end(), reply);
    pending_bytes_ += reply->bytes_;
    // A cancelled call gives its memory back soon, so it no longer counts. It
    // stays in the list, as its context lives, until OnDone.
    for (Reply* oldest : pending_) {
      if (pending_bytes_ <= options_.max_pending_bytes || oldest == reply) break;
      if (oldest->cancelled_) continue;
      oldest->cancelled_ = true;
      pending_bytes_ -= oldest->bytes_;
      oldest->context_->TryCancel();
    }
  }

  void Remove(Reply* reply) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!reply->cancelled_) pending_bytes_ -= reply->bytes_;
    pending_.erase(reply->place_);
  }

  std::string ServiceInfo() const {
    std::string meter_state = "no meter";
    if (meter_ != nullptr) {
      const auto health = meter_->ReadHealth();
      meter_state =
          health.ok()
              ? "ok"
              : internal::ToUtf8(std::string(health.status().message()));
    }
    std::string bytes;
    protozero::pbf_writer info(bytes);
    info.add_string(kInfoName, internal::ToUtf8(options_.name));
    info.add_string(kInfoVersion, internal::ToUtf8(options_.version));
    info.add_enum(kInfoState, kStateAlive);
    {
      protozero::pbf_writer status(info, kInfoStatus);
      protozero::pbf_writer entry(status, kStatusMeta);
      entry.add_string(kEntryKey, "netmeter");
      entry.add_string(kEntryValue, meter_state);
    }
    info.add_enum(kInfoHealth, kHealthAppHealthy);
    info.add_uint64(kInfoStartTimeSecs, start_time_secs_);
    return bytes;
  }

  const std::shared_ptr<const Meter> meter_;
  const Service303Options options_;
  const MagmaMetrics metrics_;
  const uint64_t start_time_secs_;

  std::mutex mutex_;
  // Both guarded by mutex_; oldest first.
  std::list<Reply*> pending_;
  size_t pending_bytes_ = 0;  // of those that are not cancelled
};

Service303::Service303(std::shared_ptr<const Meter> meter,
                       const Service303Options& options)
    : impl_(new Impl(std::move(meter), options)) {
  using Handler = grpc::internal::CallbackUnaryHandler<ByteBuffer, ByteBuffer>;
  int index = 0;
  const auto add = [this, &index](const char* name, auto answer) {
    // gRPC keeps the pointer: the names are constants.
    AddMethod(new grpc::internal::RpcServiceMethod(name, RpcMethod::NORMAL_RPC,
                                                   nullptr));
    MarkMethodRawCallback(index++, new Handler(answer));
  };
  Impl* const impl = impl_.get();
  add("/magma.orc8r.Service303/GetMetrics",
      [impl](CallbackServerContext* context, const ByteBuffer*,
             ByteBuffer* response) {
        return impl->GetMetrics(context, response);
      });
  add("/magma.orc8r.Service303/GetServiceInfo",
      [impl](CallbackServerContext* context, const ByteBuffer*,
             ByteBuffer* response) {
        return impl->GetServiceInfo(context, response);
      });
  for (const char* name : {"/magma.orc8r.Service303/StopService",
                           "/magma.orc8r.Service303/SetLogLevel",
                           "/magma.orc8r.Service303/SetLogVerbosity",
                           "/magma.orc8r.Service303/ReloadServiceConfig",
                           "/magma.orc8r.Service303/GetOperationalStates"}) {
    add(name,
        [name](CallbackServerContext* context, const ByteBuffer*, ByteBuffer*) {
          ServerUnaryReactor* reactor = context->DefaultReactor();
          reactor->Finish(grpc::Status(
              grpc::StatusCode::UNIMPLEMENTED,
              std::string(name + sizeof(kPrefix) - 1) + " is not implemented"));
          return reactor;
        });
  }
}

Service303::~Service303() = default;

}  // namespace netmeter
