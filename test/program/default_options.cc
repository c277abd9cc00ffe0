// SPDX-License-Identifier: BSD-3-Clause
#include "test/program/default_options.h"

#include "lib/loader/config.h"

namespace netmeter {
namespace internal {

ProgramOptions DefaultOptions() {
  const Config config;
  ProgramOptions options;
  options.max_series = config.max_series;
  options.max_names = config.max_names;
  options.max_processes = config.max_processes;
  options.max_sockets = config.max_sockets;
  options.proxy_ports = config.proxy_ports;
  options.sni_ports = config.sni_ports;
  options.http_ports = config.http_ports;
  options.destination_kinds = BitsOfKinds(config.destinations_of);
  options.rules = config.destinations;
  options.socket_hooks = true;
  return options;
}

}  // namespace internal
}  // namespace netmeter
