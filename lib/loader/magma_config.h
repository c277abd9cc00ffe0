// SPDX-License-Identifier: BSD-3-Clause
// Reads what a Magma gateway knows already: its services, the port of its
// control proxy and the address of its cloud.
//
// Threads: any.

#ifndef NETMETER_LIB_LOADER_MAGMA_CONFIG_H_
#define NETMETER_LIB_LOADER_MAGMA_CONFIG_H_

#include <string>

#include "absl/status/statusor.h"
#include "lib/loader/config.h"

namespace netmeter {
namespace internal {

// Adds to `config` what service_registry.yml and control_proxy.yml in
// `directory` say. A file of the same name in `overrides`, which need not
// exist, replaces whole top-level keys, as Magma reads them.
//   services              every service of the registry, mme and sctpd
//   aliases               oai_mme and agw_of are mme, gateway_health is health
//   proxy_ports           local_port of the control proxy
//   sni_ports             443, cloud_port and bootstrap_port
//   destination_suffixes  "-<cloud_address>", ".local"
// and to Config::sources, which file each of them came from.
// NotFound if neither file is there; InvalidArgument with file and key.
absl::StatusOr<Config> ImportMagmaConfig(const std::string& directory,
                                         const std::string& overrides,
                                         const Config& config);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_MAGMA_CONFIG_H_
