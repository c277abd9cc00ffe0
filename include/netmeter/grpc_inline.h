// SPDX-License-Identifier: BSD-3-Clause
// Service303 and SetChannelTag() (grpc.h), by the program's own gRPC. A program that
// links an installed libnetmeter compiles this itself; //:netmeter_grpc is made of it,
// too (lib/publish/grpc.cc).
//
// magma.orc8r.Service303 for a host that has a gRPC server: protoc would generate the
// service and its messages. With messages of our own for package names of Magma, a
// second descriptor would be registered in the host's process, and protobuf ends a
// process that has two. So this file does by hand what generated code does: it adds
// each method to grpc::Service by its path, with a handler that takes and gives bytes
// (ByteBuffer), which the library makes without protobuf.
//
// All methods are of the callback API, which needs no thread and no completion
// queue of the host. A handler reads the meter, which is plain memory loads under the
// meter's mutexes, and finishes the call. It waits, in a thread of gRPC's, as long as
// Meter::ReadHost() may: microseconds as a rule, and up to 2 s where the meter is being
// replaced or was unloaded. What peers do not take of a reply is gRPC's memory, as it
// is for the host's own methods; a host that has hostile peers sets a
// grpc::ResourceQuota for all of them.
//
// gRPC's public way to reach a channel's sockets is SetSocketMutator(), but what it
// takes is in a header that is not installed: src/core/lib/iomgr/socket_mutator.h. Its
// beginning has been the same since 1.15 (and mutate_fd_2, which is in the table since
// 1.35, may be null), so it is repeated here. The reference count is gRPC's own
// function's work.

#ifndef NETMETER_GRPC_INLINE_H_
#define NETMETER_GRPC_INLINE_H_

#include <errno.h>
#include <grpc/support/sync.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/rpc_service_method.h>
#include <grpcpp/version_info.h>
#if __has_include(<grpcpp/impl/server_callback_handlers.h>)
#include <grpcpp/impl/server_callback_handlers.h>  // where it moved later
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

// gRPC's, which its header may have declared, too.
struct grpc_socket_mutator;
struct grpc_socket_mutator_vtable;
struct grpc_mutate_socket_info;
void grpc_socket_mutator_init(grpc_socket_mutator* mutator,
                              const grpc_socket_mutator_vtable* vtable);

namespace netmeter {
NETMETER_NAMESPACE_BEGIN
namespace internal {

// The reply to GetServiceInfo; empty where there is no memory.
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

// Nothing may be thrown into gRPC.
template <typename Function>
grpc::Status WithoutThrowingIntoGrpc(const Function& function) {
  // So short a text lies within its string.
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

// A reply that has to have something in it: empty means that there was no memory.
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
  // gRPC keeps the pointer to a path, so all paths are constants.
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
  // magmad has commands that call these, and must hear what does nothing.
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

// Begins as grpc_socket_mutator: gRPC has a pointer to it.
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
  return true;  // else gRPC gives up the connection
}

// Both are ours: gRPC compares the tables first.
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
  arguments->SetSocketMutator(mutator);  // takes the one reference
  return true;
}

NETMETER_NAMESPACE_END
}  // namespace netmeter

#undef NETMETER_INLINE

#endif  // NETMETER_GRPC_INLINE_H_
