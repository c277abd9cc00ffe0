// SPDX-License-Identifier: BSD-3-Clause
// What is loaded, by which version, how full it is and what was misattributed: the output
// of `netmeter-loader status`, as data and as text.
//
// Threads: any.

#ifndef NETMETER_LIB_LOADER_STATUS_H_
#define NETMETER_LIB_LOADER_STATUS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/loader/meter_state.h"

namespace netmeter {
namespace internal {

// An optional feature.
struct FeatureStatus {
  const char* name;
  bool active;
  std::string reason;  // why it is off, or a remark
};

struct TableStatus {
  const char* name;
  uint64_t used;
  uint64_t limit;
  bool known;  // whether `used` could be read; some need root
};

// A counter of nm_stats.
struct CountStatus {
  const char* name;
  uint64_t count;
  const char* meaning;
  const char* unit = "";  // "packets", if `name` is a reason
};

struct MeterStatus : FoundMeter {
  std::string pin_dir;
  // A load takes long, so apparent damage may be its work in progress.
  bool loader_at_work = false;
  bool config_is_lost = false;  // the lock file is missing
  absl::Status load_refusal;    // why a load would be refused, if not loaded
  // All below is empty unless can_be_read().
  std::vector<FeatureStatus> features;
  // How packets are added to a CPU's own cell (object.h): "plain", "claimed", "atomic";
  // "unknown" if another version loaded the meter.
  const char* adds_received = "";
  const char* adds_sent = "";
  std::vector<TableStatus> tables;
  std::vector<CountStatus> misattributed;
  std::vector<CountStatus> seen;
};

// PermissionDenied if the pins cannot be read; FailedPrecondition if they are of another
// ABI version. Most of it needs the group, and all of it needs root. For root this waits
// up to 3 s for a working loader before it calls a meter damaged.
absl::StatusOr<MeterStatus> GetStatus(const std::string& pin_dir);

// The whole configuration of the loaded meter, or of one that is damaged now, as YAML for
// ParseConfig(). NotFound if nothing is loaded; FailedPrecondition if the configuration
// is not known; PermissionDenied unless root calls.
absl::StatusOr<std::string> LoadedConfig(const std::string& pin_dir);

// Some twenty lines.
std::string StatusAsText(const MeterStatus& status);

// One object.
std::string StatusAsJson(const MeterStatus& status);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_STATUS_H_
