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
// Brings no generated code: a host may have its own io.prometheus.client and
// magma.orc8r. If it also serves magma.orc8r.Service303 itself, two of them on
// one server are one too many: add MagmaMetrics' bytes to its GetMetrics then
// (magma.h).
//
// Threads: a Service303 is called by gRPC's threads, as many as there are.

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
  // What GetServiceInfo answers.
  std::string name;
  std::string version;

  // What GetMetrics answers.
  MagmaOptions metrics;

  // What StopService calls, in a thread of gRPC: it must not wait for the server to
  // end. Empty: UNIMPLEMENTED.
  std::function<void()> stop;
};

// magma.orc8r.Service303. GetMetrics answers with MagmaMetrics::Serialize(),
// GetServiceInfo with name, version, ALIVE, APP_HEALTHY, the time of this
// object's construction and, in status.meta under "netmeter", "ok" or why the
// meter cannot be read; both RESOURCE_EXHAUSTED where there is no memory for the
// reply. GetOperationalStates answers that there are none, ReloadServiceConfig
// RELOAD_UNSUPPORTED, as Magma's services in C++ that have nothing to say. StopService
// calls `stop`. SetLogLevel and SetLogVerbosity answer UNIMPLEMENTED: there is no log.
// Nobody looks at what is in a request.
//
// Cost: a call of GetMetrics is one read of the meter and its Serialize(), in the
// thread of gRPC that brings the call, and takes time in proportion to the series of
// its scope; docs/performance.md has the time of a full table, of netmeter-exporter.
// No method waits, takes a lock or keeps a thread (callback API), whatever API the
// host's services use. Replies that peers do not take are gRPC's memory,
// as the replies of the host's own methods are: grpc::ResourceQuota bounds them.
class Service303 : public grpc::Service {
 public:
  // Cannot fail; a null meter is a meter that cannot be read.
  explicit Service303(std::shared_ptr<const Meter> meter,
                      const Service303Options& options = Service303Options());

  // After the server was shut down, as for every grpc::Service.
  ~Service303() override;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

// Names the destination of all traffic of a channel made with these arguments:
// every connection that it ever opens is tagged by TagSocket() before it
// connects. Where that fails, as without a loaded meter, the connection is
// made and simply has no tag. Channels with different tags never share a
// connection, as those of equal arguments else do. Replaces a socket mutator
// that was set before. Returns false, and does nothing, if `destination` is no
// name (meter.h, TagSocket) or if gRPC is of a version for which this is not
// known to work: before 1.15.
bool SetChannelTag(absl::string_view destination,
                   grpc::ChannelArguments* arguments);

NETMETER_NAMESPACE_END
}  // namespace netmeter

#ifndef NETMETER_FROM_SOURCE  // see the end of meter.h
#include "netmeter/grpc_inline.h"
#endif

#endif  // NETMETER_GRPC_H_
