// SPDX-License-Identifier: BSD-3-Clause
// gRPC's public way to reach a channel's sockets is SetSocketMutator(), but
// what it takes is in a header that is not installed:
// src/core/lib/iomgr/socket_mutator.h. Its beginning has been the same since
// 1.15 (and mutate_fd_2, which is in the table since 1.35, may be null), so it
// is repeated here. The reference count is gRPC's own function's work.
#include <errno.h>
#include <grpc/support/sync.h>
#include <grpcpp/version_info.h>
#include <stdint.h>

#include <string>

#include "lib/core/control.h"
#include "netmeter/grpc.h"
#include "netmeter/meter.h"

struct grpc_mutate_socket_info;

struct grpc_socket_mutator_vtable {
  bool (*mutate_fd)(int fd, grpc_socket_mutator* mutator);
  int (*compare)(grpc_socket_mutator* a, grpc_socket_mutator* b);
  void (*destroy)(grpc_socket_mutator* mutator);
  bool (*mutate_fd_2)(const grpc_mutate_socket_info* info,
                      grpc_socket_mutator* mutator);
};

struct grpc_socket_mutator {
  const grpc_socket_mutator_vtable* vtable;
  gpr_refcount refcount;
};

void grpc_socket_mutator_init(grpc_socket_mutator* mutator,
                              const grpc_socket_mutator_vtable* vtable);

namespace netmeter {
namespace {

struct Tagger {
  grpc_socket_mutator base;  // first: gRPC has a pointer to it
  std::string destination;
};

const std::string& DestinationOf(grpc_socket_mutator* mutator) {
  return reinterpret_cast<Tagger*>(mutator)->destination;
}

bool MutateFd(int fd, grpc_socket_mutator* mutator) {
  const int saved = errno;
  TagSocket(fd, DestinationOf(mutator)).IgnoreError();
  errno = saved;
  return true;  // else gRPC gives up the connection
}

// Both are ours: gRPC compares the tables first.
int Compare(grpc_socket_mutator* a, grpc_socket_mutator* b) {
  return DestinationOf(a).compare(DestinationOf(b));
}

void Destroy(grpc_socket_mutator* mutator) {
  delete reinterpret_cast<Tagger*>(mutator);
}

constexpr grpc_socket_mutator_vtable kVtable = {MutateFd, Compare, Destroy,
                                                nullptr};

}  // namespace

bool SetChannelTag(absl::string_view destination,
                   grpc::ChannelArguments* arguments) {
  if (!internal::CheckName("destination", destination).ok()) return false;
  if (GRPC_CPP_VERSION_MAJOR == 1 && GRPC_CPP_VERSION_MINOR < 15) return false;
  auto* tagger = new Tagger;
  tagger->destination = std::string(destination);
  grpc_socket_mutator_init(&tagger->base, &kVtable);
  arguments->SetSocketMutator(&tagger->base);  // takes the one reference
  return true;
}

}  // namespace netmeter
