// SPDX-License-Identifier: BSD-3-Clause
// Who may be a service: the key `register_by` of the configuration.
//
//   register_by:
//     mme: uid:magma        a user of this host, by name or number
//     policydb: group:998   a group
//     state: anyone         as without a line
//
// It holds for registering (NM_REGISTER), for giving a socket to the service
// (NM_SERVICE), and for every way in which a process gets the service's name
// without asking: its executable, its command line, its unit. The real user and
// group ids of the process count, those of the initial user namespace; of its
// supplementary groups the kernel part knows nothing. Root may be any service.
//
// Threads: any.

#ifndef NETMETER_LIB_LOADER_REGISTRANTS_H_
#define NETMETER_LIB_LOADER_REGISTRANTS_H_

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bpf/internal.h"

namespace netmeter {
namespace internal {

// By the name of the service; those of anyone are left out.
using Registrants = std::map<std::string, nm_registrant>;

// What the configuration says, by its form. InvalidArgument.
absl::Status CheckRegisterBy(const std::map<std::string, std::string>& lines);

// Finds the users and groups. NotFound, and which one.
absl::StatusOr<Registrants> FindRegistrants(
    const std::map<std::string, std::string>& lines);

// As may_be_service() of bpf/names.bpf.h: with these real ids.
bool MayBeService(const Registrants& registrants, const std::string& service,
                  uid_t uid, gid_t gid);

struct RealIds {
  uint32_t uid;
  uint32_t gid;
};

// Of a process; nothing where it has ended.
std::optional<RealIds> RealIdsOf(uint32_t tgid);

// As MayBeService(), of a process that runs. False where it has ended.
bool MayProcessBeService(const Registrants& registrants,
                         const std::string& service, uint32_t tgid);

// One text for all, to compare two of them.
std::string TextOf(const Registrants& registrants);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_REGISTRANTS_H_
