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
#include <condition_variable>
#include <list>
#include <mutex>
#include <new>
#include <protozero/pbf_writer.hpp>
#include <string>
#include <system_error>
#include <thread>
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

// Calls of GetMetrics that wait for one to be answered; more are refused.
constexpr size_t kMaxWaiting = 4096;

// At least so long from one reply to the next, where replies that nobody takes
// are more than half of max_pending_bytes.
constexpr std::chrono::seconds kLongBatch(1);

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

  // No call is left: the server was shut down before.
  ~Impl() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stop_ = true;
    }
    wake_.notify_one();
    if (thread_.joinable()) thread_.join();
  }

  ServerUnaryReactor* GetMetrics(CallbackServerContext* context,
                                 ByteBuffer* response) {
    return WithoutThrowing(context, [&]() -> ServerUnaryReactor* {
      auto* reply = new Reply(this, context, response);
      Answer(reply);
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
  class Reply;
  using Replies = std::list<Reply*>;

  // Without memory of its own: so short a text lies within its string.
  static grpc::Status Refused(const char* why) {
    return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, why);
  }

  template <typename Function>
  static ServerUnaryReactor* WithoutThrowing(CallbackServerContext* context,
                                             const Function& answer) {
    try {
      return answer();
    } catch (const std::bad_alloc&) {
      ServerUnaryReactor* reactor = context->DefaultReactor();
      reactor->Finish(Refused("out of memory"));
      return reactor;
    }
  }

  // Calls of GetMetrics that came together and have the same answer. They share
  // its memory, which is given back with the last of them.
  struct Batch {
    Replies replies;  // not taken yet
    size_t bytes = 0;
    bool finishing = true;  // replies are still to be added
    bool cancelled = false;
  };
  using Batches = std::list<Batch>;

  // One call of GetMetrics, until the peer has its answer.
  class Reply : public ServerUnaryReactor {
   public:
    Reply(Impl* impl, CallbackServerContext* context, ByteBuffer* response)
        : impl_(impl),
          context_(context),
          response_(response),
          node_(1, this),
          place_(node_.begin()),
          batch_(impl->batches_.end()) {}
    void OnDone() override {
      impl_->Remove(this);
      delete this;
    }

   private:
    friend class Impl;
    Impl* const impl_;  // outlives its server's calls
    CallbackServerContext* const context_;
    ByteBuffer* const response_;
    Replies node_;  // what lists take, so that they allocate nothing
    const Replies::iterator place_;
    Batches::iterator batch_;  // the end if it has none
  };

  // Leaves a call to the thread that answers, which is started by the first.
  // Not answered here: gRPC sends nothing of a call before its handler has
  // returned, and this one would have to go on answering what comes meanwhile.
  void Answer(Reply* reply) {
    const char* refused = nullptr;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (waiting_.size() >= kMaxWaiting) {
        refused = "too many calls";
      } else if (!StartThread()) {
        refused = "out of memory";
      } else {
        waiting_.splice(waiting_.end(), reply->node_);
      }
    }
    if (refused == nullptr) {
      wake_.notify_one();
    } else {
      reply->Finish(Refused(refused));
    }
  }

  bool StartThread() {
    if (thread_.joinable()) return true;
    try {
      thread_ = std::thread([this] { Run(); });
    } catch (const std::system_error&) {
      return false;
    } catch (const std::bad_alloc&) {
      return false;
    }
    return true;
  }

  // One answer after the other, each for all calls that came before it was
  // begun: however many peers call without end, nobody waits for more than two.
  void Run() {
    std::chrono::steady_clock::time_point begun;
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      wake_.wait(lock, [this] { return stop_ || !waiting_.empty(); });
      // Peers that take nothing hold one reply a second then, not one a call:
      // else those that take theirs slowly would be the oldest before long.
      wake_.wait_until(lock, begun + kLongBatch, [this] {
        return stop_ || pending_bytes_ <= options_.max_pending_bytes / 2;
      });
      if (stop_) return;
      begun = std::chrono::steady_clock::now();
      Replies calls;
      calls.swap(waiting_);
      lock.unlock();
      AnswerTogether(&calls);
      lock.lock();
    }
  }

  void AnswerTogether(Replies* calls) {
    Batches batch;
    ByteBuffer answer;
    try {
      batch.emplace_back();
      std::string bytes = metrics_.Serialize();
      batch.front().bytes = bytes.size();
      answer = ToByteBuffer(std::move(bytes));
    } catch (const std::bad_alloc&) {
      while (!calls->empty()) {
        Reply* const reply = calls->front();
        reply->node_.splice(reply->node_.end(), *calls, reply->place_);
        reply->Finish(Refused("out of memory"));
      }
      return;
    }
    const auto added = batch.begin();
    std::unique_lock<std::mutex> lock(mutex_);
    batches_.splice(batches_.end(), batch);
    pending_bytes_ += added->bytes;
    CancelOldest();
    while (!calls->empty()) {
      Reply* const reply = calls->front();
      reply->batch_ = added;
      added->replies.splice(added->replies.end(), *calls, reply->place_);
      lock.unlock();
      *reply->response_ = answer;
      reply->Finish(grpc::Status::OK);  // from here on it may be gone
      lock.lock();
    }
    added->finishing = false;
    RemoveIfTaken(added);
  }

  // With mutex_ held, as the next two. All but the newest.
  void CancelOldest() {
    for (Batch& oldest : batches_) {
      if (pending_bytes_ <= options_.max_pending_bytes ||
          &oldest == &batches_.back()) {
        break;
      }
      if (oldest.cancelled) continue;
      // A cancelled call gives its memory back soon, so it no longer counts. It
      // stays in the list, as its context lives, until OnDone.
      oldest.cancelled = true;
      pending_bytes_ -= oldest.bytes;
      for (Reply* reply : oldest.replies) reply->context_->TryCancel();
    }
  }

  void RemoveIfTaken(Batches::iterator batch) {
    if (batch->finishing || !batch->replies.empty()) return;
    if (!batch->cancelled) pending_bytes_ -= batch->bytes;
    batches_.erase(batch);
  }

  void Remove(Reply* reply) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (reply->batch_ == batches_.end()) return;
    reply->node_.splice(reply->node_.end(), reply->batch_->replies,
                        reply->place_);
    RemoveIfTaken(reply->batch_);
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

  std::condition_variable wake_;
  std::mutex mutex_;
  // All guarded by mutex_; oldest first.
  Replies waiting_;  // calls that thread_ has not taken yet
  std::thread thread_;
  bool stop_ = false;
  Batches batches_;
  size_t pending_bytes_ = 0;  // of batches that are not cancelled
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
