// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/exporter/server.h"

namespace netmeter {
namespace internal {

Server::MakePeer MakeGrpcPeers(const GrpcService*) { return nullptr; }

}  // namespace internal
}  // namespace netmeter
