// SPDX-License-Identifier: BSD-3-Clause
// The bytes that an export takes on the link.
//
// Threads: as Database.

#ifndef NETMETER_LIB_APPS_EXPORT_ESTIMATE_H_
#define NETMETER_LIB_APPS_EXPORT_ESTIMATE_H_

#include <string>

#include "absl/status/statusor.h"
#include "lib/apps/export/rows.h"

namespace netmeter {
namespace internal {

// A table for people, from the rows of the last 30 days in the history, as many pieces as
// a call each hour, or each day, sends. Errors as ReadPiece(), and FailedPrecondition: no
// hour, or day, is over yet.
absl::StatusOr<std::string> EstimateExport(Database* history,
                                           const ExportOptions& options);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_EXPORT_ESTIMATE_H_
