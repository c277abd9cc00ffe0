// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/configured_object.h"

#include <bpf/libbpf.h>

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "lib/base/kernel_object.h"
#include "lib/loader/config.h"
#include "lib/loader/step.h"

namespace netmeter {
namespace internal {

MeterObjectOptions ObjectOptionsOf(const Config& config) {
  MeterObjectOptions options;
  options.sizes.max_series = config.max_series;
  options.sizes.max_names = config.max_names;
  options.sizes.max_processes = config.max_processes;
  options.sizes.max_sockets = RoundUpToPowerOfTwo(config.max_sockets);
  options.destination_kinds = BitsOfKinds(config.destinations_of);
  options.rules_count = static_cast<uint32_t>(config.destinations.size());
  const PortRange ports = PortsBeyondTcp(config.destinations);
  options.rules_port_first = ports.first;
  options.rules_ports = ports.count;
  options.ranks = RanksOf(config.names_from);
  options.units = !config.units.empty();
  options.uplinks = !config.uplinks.empty();
  options.proxy_ports = config.proxy_ports;
  options.sni_ports = config.sni_ports;
  options.http_ports = config.http_ports;
  return options;
}

void ReportObject(const MeterObject& object, bool upgrade) {
  if (!StepsAreObserved()) return;
  bpf_object* const all = object.bpf();
  bpf_program* program;
  bpf_object__for_each_program(program, all) {
    const int fd = bpf_program__fd(program);
    if (fd < 0) continue;
    const uint32_t verified = VerifiedInstructions(fd);
    Step("loaded ", Describe(fd),
         verified == 0
             ? ""
             : absl::StrCat(", ", verified, " instructions verified"));
  }
  bpf_map* map;
  bpf_object__for_each_map(map, all) {
    if (bpf_map__fd(map) >= 0) {
      Step(upgrade ? "has " : "made ", Describe(bpf_map__fd(map)), ", ",
           bpf_map__max_entries(map), " entries");
    }
  }
}

}  // namespace internal
}  // namespace netmeter
