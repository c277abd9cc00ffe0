// SPDX-License-Identifier: BSD-3-Clause
// For programs with gRPC: a Service303 server, which magmad polls for metrics,
// and names for the destinations of channels.
//
//   netmeter::Service303Options options;
//   options.name = "subscriberdb";
//   options.version = "1.9.0";
//   netmeter::Service303 service303(meter, options);  // see meter.h
//   grpc::ServerBuilder builder;
//   builder.RegisterService(&service303);  // beside the host's own services
//
//   grpc::ChannelArguments arguments;
//   netmeter::SetChannelTag("streamer", &arguments);
//   auto channel = grpc::CreateCustomChannel(target, credentials, arguments);
//
// It has no generated code, so it does not clash with a host's own io.prometheus.client
// and magma.orc8r. A server can have only one magma.orc8r.Service303: a host that serves
// one itself appends the bytes of MagmaMetrics (magma.h) to its GetMetrics instead.
//
// May change before 2.0.
//
// Threads: any number of gRPC threads may call a Service303 at the same time.

#ifndef NETMETER_GRPC_H_
#define NETMETER_GRPC_H_

#include <grpcpp/impl/service_type.h>
#include <grpcpp/support/channel_arguments.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "netmeter/magma.h"
#include "netmeter/meter.h"

namespace netmeter {
NETMETER_NAMESPACE_BEGIN

struct Service303Options {
  // The answer to GetServiceInfo.
  std::string name;
  std::string version;

  // The content and form of the answer to GetMetrics.
  MagmaOptions metrics;

  // StopService calls this in a thread of gRPC, so it must not wait for the server to
  // end. If empty, StopService answers UNIMPLEMENTED.
  std::function<void()> stop;
};

// magma.orc8r.Service303. Its methods ignore the content of requests, and answer:
//   GetMetrics             MagmaMetrics::Serialize()
//   GetServiceInfo         name, version, ALIVE, APP_HEALTHY, the time of this object's
//                          construction and, in status.meta under "netmeter", "ok" or
//                          why the meter cannot be read
//   GetOperationalStates   no states
//   ReloadServiceConfig    RELOAD_UNSUPPORTED, like Magma's C++ services that have no
//                          configuration to reload
//   StopService            calls `stop`
//   SetLogLevel            UNIMPLEMENTED: there is no log
//   SetLogVerbosity        UNIMPLEMENTED
// The first two answer RESOURCE_EXHAUSTED if there is no memory for the reply.
//
// Cost: a call of GetMetrics reads the meter once and serializes the result, in the
// gRPC thread of the call. It takes time in proportion to the series of its scope;
// docs/performance.md has the time that netmeter-exporter takes for a full table. No
// method waits, takes a lock or keeps a thread (callback API), whichever API the host's
// services use. Replies that a peer does not read stay in gRPC's memory, like those of
// the host's own methods: grpc::ResourceQuota bounds them.
class Service303 : public grpc::Service {
 public:
  // Cannot fail; a null meter is a meter that cannot be read.
  explicit Service303(std::shared_ptr<const Meter> meter,
                      const Service303Options& options = Service303Options());

  // The server must have been shut down, as for every grpc::Service.
  ~Service303() override;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

// Names the destination of all traffic of a channel made with these arguments:
// TagSocket() tags every connection of the channel before it connects. If that fails,
// for example because no meter is loaded, the connection is made without a tag.
// Channels with different tags never share a connection, although gRPC shares
// connections between channels with equal arguments. Replaces any socket mutator of
// `arguments`. Returns false, with `arguments` unchanged, if `destination` is not a
// valid name (see TagSocket in meter.h) or if gRPC is older than 1.15, for which this is
// not known to work.
bool SetChannelTag(absl::string_view destination,
                   grpc::ChannelArguments* arguments);

NETMETER_NAMESPACE_END
}  // namespace netmeter

#ifndef NETMETER_FROM_SOURCE  // see the end of meter.h
#include "netmeter/grpc_inline.h"
#endif

#endif  // NETMETER_GRPC_H_
