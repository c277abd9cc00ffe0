// SPDX-License-Identifier: BSD-3-Clause
// Service303 and SetChannelTag() (grpc.h), compiled with the program's own gRPC. A
// program that links an installed libnetmeter compiles this file itself, and
// //:netmeter_grpc compiles it in lib/publish/grpc.cc.
//
// Usually protoc generates a service and its messages. Here, generated messages for
// Magma's package names would register a second descriptor in the host's process, and
// protobuf ends a process that has two. So this file does by hand what generated code
// does: it adds each method to grpc::Service by its path, with a handler that takes and
// returns bytes (ByteBuffer). The library makes these bytes without protobuf.
//
// All methods use the callback API, which needs no thread and no completion queue of
// the host. A handler reads the meter, which is plain memory loads under the meter's
// mutexes, and finishes the call. It waits, in a thread of gRPC, as long as
// Meter::ReadHost() does: usually microseconds, and up to 2 s while the meter is being
// replaced or after it was unloaded. A reply that a peer does not read stays in gRPC's
// memory, as with the host's own methods. A host with hostile peers sets a
// grpc::ResourceQuota for all of them.
//
// gRPC's public way to reach a channel's sockets is SetSocketMutator(), but its argument
// type is in a header that is not installed: src/core/lib/iomgr/socket_mutator.h. The
// beginning of that type has not changed since 1.15 (mutate_fd_2, in the table since
// 1.35, may be null), so it is declared here again. gRPC's own functions maintain the
// reference count.

#ifndef NETMETER_GRPC_INLINE_H_
#define NETMETER_GRPC_INLINE_H_

#include <errno.h>
#include <grpc/support/sync.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/rpc_service_method.h>
#include <grpcpp/version_info.h>
#if __has_include(<grpcpp/impl/server_callback_handlers.h>)
#include <grpcpp/impl/server_callback_handlers.h>  // its later location
#else
#include <grpcpp/impl/codegen/server_callback_handlers.h>
#endif

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "netmeter/abi.h"
#include "netmeter/grpc.h"
#include "netmeter/magma.h"
#include "netmeter/meter.h"
#include "netmeter/service303_wire.h"
#ifndef NETMETER_FROM_SOURCE
#include "netmeter/magma_inline.h"
#endif

#ifdef NETMETER_FROM_SOURCE
#define NETMETER_INLINE
#else
#define NETMETER_INLINE inline
#endif

// gRPC's type, which its header may also declare.
struct grpc_socket_mutator;
struct grpc_socket_mutator_vtable;
struct grpc_mutate_socket_info;
void grpc_socket_mutator_init(grpc_socket_mutator* mutator,
                              const grpc_socket_mutator_vtable* vtable);

namespace netmeter {
NETMETER_NAMESPACE_BEGIN
namespace internal {

// The reply to GetServiceInfo; empty if memory runs out.
std::string SerializeServiceInfo(const Meter* meter, const std::string& name,
                                 const std::string& version,
                                 uint64_t start_time_s);

#ifndef NETMETER_FROM_SOURCE
inline std::string SerializeServiceInfo(const Meter* meter,
                                        const std::string& name,
                                        const std::string& version,
                                        uint64_t start_time_s) {
  netmeter_metrics* const metrics = netmeter_metrics_new();
  const char* bytes = nullptr;
  size_t length = 0;
  std::string info;
  if (metrics != nullptr &&
      netmeter_serialize_service_info(
          MeterAccess::Get(meter), name.data(), name.size(), version.data(),
          version.size(), start_time_s, metrics, &bytes, &length,
          nullptr) == NETMETER_OK) {
    info = CopyBytes(bytes, length);
  }
  netmeter_metrics_free(metrics);
  return info;
}
#endif

// Sends `bytes` without copying them.
inline grpc::ByteBuffer ToByteBuffer(std::string bytes) {
  auto* kept = new std::string(std::move(bytes));
  const grpc::Slice slice(
      const_cast<char*>(kept->data()), kept->size(),
      [](void* string) { delete static_cast<std::string*>(string); }, kept);
  return grpc::ByteBuffer(&slice, 1);
}

// No exception may reach gRPC.
template <typename Function>
grpc::Status WithoutThrowingIntoGrpc(const Function& function) {
  // Short enough to be stored inside the string object, so it needs no memory.
  const auto no_memory = [] {
    return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "out of memory");
  };
#ifdef __cpp_exceptions
  try {
    return function() ? grpc::Status::OK : no_memory();
  } catch (const std::exception&) {
    return no_memory();
  }
#else
  return function() ? grpc::Status::OK : no_memory();
#endif
}

// For a reply that is never empty: an empty one means that memory ran out.
template <typename Function>
grpc::Status ReplyOf(const Function& make, grpc::ByteBuffer* response) {
  return WithoutThrowingIntoGrpc([&] {
    std::string bytes = make();
    if (bytes.empty()) return false;
    *response = ToByteBuffer(std::move(bytes));
    return true;
  });
}

inline grpc::Status ReplyConstant(const char* bytes,
                                  grpc::ByteBuffer* response) {
  return WithoutThrowingIntoGrpc([&] {
    *response = ToByteBuffer(bytes);
    return true;
  });
}

}  // namespace internal

class Service303::Impl {
 public:
  Impl(std::shared_ptr<const Meter> meter, const Service303Options& options)
      : meter_(meter),
        metrics_(std::move(meter), options.metrics),
        name_(options.name),
        version_(options.version),
        start_time_s_(static_cast<uint64_t>(
            std::chrono::duration_cast<std::chrono::seconds>(
                std::chrono::system_clock::now().time_since_epoch())
                .count())) {}

  std::string Metrics() const { return metrics_.Serialize(); }
  std::string Info() const {
    return internal::SerializeServiceInfo(meter_.get(), name_, version_,
                                          start_time_s_);
  }

 private:
  const std::shared_ptr<const Meter> meter_;
  const MagmaMetrics metrics_;
  const std::string name_;
  const std::string version_;
  const uint64_t start_time_s_;
};

NETMETER_INLINE Service303::Service303(std::shared_ptr<const Meter> meter,
                                       const Service303Options& options)
    : impl_(new Impl(std::move(meter), options)) {
  using grpc::ByteBuffer;
  using grpc::internal::RpcMethod;
  using Handler = grpc::internal::CallbackUnaryHandler<ByteBuffer, ByteBuffer>;
  int index = 0;
  // All paths are constants, because gRPC keeps the pointers.
  const auto add = [this, &index](const char* path, auto answer) {
    AddMethod(new grpc::internal::RpcServiceMethod(path, RpcMethod::NORMAL_RPC,
                                                   nullptr));
    MarkMethodRawCallback(
        index++, new Handler([answer](grpc::CallbackServerContext* context,
                                      const ByteBuffer*, ByteBuffer* response) {
          grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
          reactor->Finish(answer(response));
          return reactor;
        }));
  };
  const Impl* const impl = impl_.get();
  add("/magma.orc8r.Service303/GetMetrics", [impl](ByteBuffer* response) {
    return internal::ReplyOf([impl] { return impl->Metrics(); }, response);
  });
  add("/magma.orc8r.Service303/GetServiceInfo", [impl](ByteBuffer* response) {
    return internal::ReplyOf([impl] { return impl->Info(); }, response);
  });
  add("/magma.orc8r.Service303/GetOperationalStates", [](ByteBuffer* response) {
    return internal::ReplyConstant(internal::kNoOperationalStates, response);
  });
  add("/magma.orc8r.Service303/ReloadServiceConfig", [](ByteBuffer* response) {
    return internal::ReplyConstant(internal::kReloadUnsupported, response);
  });
  const auto refuse = [&add](const char* path) {
    const std::string name = path + sizeof(internal::kService303Path) - 1;
    add(path, [name](ByteBuffer*) {
      return grpc::Status(grpc::StatusCode::UNIMPLEMENTED,
                          name + " is not implemented");
    });
  };
  // magmad has commands that call these, so one that does nothing must say so.
  const char* const stop_path = "/magma.orc8r.Service303/StopService";
  if (options.stop) {
    const std::function<void()> stop = options.stop;
    add(stop_path, [stop](ByteBuffer* response) {
      stop();
      return internal::ReplyConstant("", response);
    });
  } else {
    refuse(stop_path);
  }
  refuse("/magma.orc8r.Service303/SetLogLevel");
  refuse("/magma.orc8r.Service303/SetLogVerbosity");
}

NETMETER_INLINE Service303::~Service303() = default;

namespace internal {

struct SocketMutatorTable {
  bool (*mutate_fd)(int fd, grpc_socket_mutator* mutator);
  int (*compare)(grpc_socket_mutator* a, grpc_socket_mutator* b);
  void (*destroy)(grpc_socket_mutator* mutator);
  bool (*mutate_fd_2)(const grpc_mutate_socket_info* info,
                      grpc_socket_mutator* mutator);
};

// Begins like grpc_socket_mutator, because gRPC uses it through such a pointer.
struct Tagger {
  const SocketMutatorTable* table;
  gpr_refcount refcount;
  std::string destination;
};

inline const std::string& DestinationOf(grpc_socket_mutator* mutator) {
  return reinterpret_cast<Tagger*>(mutator)->destination;
}

inline bool MutateFd(int fd, grpc_socket_mutator* mutator) {
  const int saved = errno;
  TagSocket(fd, DestinationOf(mutator)).IgnoreError();
  errno = saved;
  return true;  // on false gRPC drops the connection
}

// Both are Taggers, because gRPC compares the tables first.
inline int CompareTags(grpc_socket_mutator* a, grpc_socket_mutator* b) {
  return DestinationOf(a).compare(DestinationOf(b));
}

inline void DestroyTagger(grpc_socket_mutator* mutator) {
  delete reinterpret_cast<Tagger*>(mutator);
}

}  // namespace internal

NETMETER_INLINE bool SetChannelTag(absl::string_view destination,
                                   grpc::ChannelArguments* arguments) {
  static const internal::SocketMutatorTable table = {
      internal::MutateFd, internal::CompareTags, internal::DestroyTagger,
      nullptr};
  if (destination.empty() || destination.size() > NM_NAME_BYTES ||
      destination.find('\0') != absl::string_view::npos) {
    return false;
  }
  if (GRPC_CPP_VERSION_MAJOR == 1 && GRPC_CPP_VERSION_MINOR < 15) return false;
  auto* const tagger = new internal::Tagger;
  tagger->destination = std::string(destination);
  auto* const mutator = reinterpret_cast<grpc_socket_mutator*>(tagger);
  grpc_socket_mutator_init(
      mutator, reinterpret_cast<const grpc_socket_mutator_vtable*>(&table));
  arguments->SetSocketMutator(mutator);  // takes over the only reference
  return true;
}

NETMETER_NAMESPACE_END
}  // namespace netmeter

#undef NETMETER_INLINE

#endif  // NETMETER_GRPC_INLINE_H_
