// SPDX-License-Identifier: BSD-3-Clause
// What is loaded, by whom, how full it is and what was lost: what
// `netmeter-loader status` says, as data and as text.
//
// Threads: any.

#ifndef NETMETER_LIB_LOADER_STATUS_H_
#define NETMETER_LIB_LOADER_STATUS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "netmeter/abi.h"

namespace netmeter {
namespace internal {

enum class MeterState {
  kLoaded,
  kNotLoaded,
  kDamaged,  // a load or an unload was killed, or pins were removed
};

// An optional part.
struct FeatureStatus {
  const char* name;
  bool active;
  std::string reason;  // why not, or what is to be known of it
};

struct TableStatus {
  const char* name;
  uint64_t used;
  uint64_t limit;
  bool known;  // whether `used` could be read: that of some only by root
};

// Numbers of nm_stats.
struct LossStatus {
  const char* reason;
  uint64_t count;
  const char* unit;  // of what `count` is a number
  const char* meaning;
  const char* table = nullptr;  // the advice holds while this one is full
  const char* advice = "";
};

struct EventStatus {
  const char* name;
  uint64_t count;
  const char* meaning;
};

struct MeterStatus {
  MeterState state = MeterState::kNotLoaded;
  std::string pin_dir;
  bool unfinished = false;  // a load was killed, or failed for good
  // ... or one takes long: what seems to be damaged may be what it does just now.
  bool loader_at_work = false;
  // ... or this caller cannot tell: he may not look at its lock, or not from here.
  bool loader_unknown = false;
  std::string cgroup;  // that it counts for; "" where nobody knows

  // Whether there is an info; without it, all below is empty but for this: why
  // a load would be refused, if it would.
  bool has_info = false;
  absl::Status load_refusal;

  nm_info info = {};
  // Readers are told that there is no meter: an unload was killed, or failed, before it
  // had removed all. The next load makes a new one.
  bool closed = false;
  bool cgroup_gone = false;        // was removed, and its links with it
  bool cgroup_was_remade = false;  // ... and another one has its path
  // Whether the caller may look for pins. Otherwise nothing is known to be missing.
  bool sees_pins = true;
  std::vector<std::string> missing_links;
  std::vector<std::string> missing_maps;
  // Of these, the ones that no load makes again, so that none can go on: unload first.
  std::vector<std::string> lost_maps;
  bool config_is_lost = false;  // nobody knows it: the lock file is not there
  std::vector<FeatureStatus> features;
  // How packets are added to a CPU's own cell (adds.h): "plain", "claimed",
  // "atomic"; "unknown" where the load was another version's.
  const char* adds_received = "";
  const char* adds_sent = "";
  std::vector<TableStatus> tables;
  std::vector<LossStatus> lost;
  std::vector<EventStatus> seen;
};

// PermissionDenied where the pins cannot be read; FailedPrecondition where
// they are of another ABI version. Needs the group for most, root for all. Root waits
// up to 3 s for a loader that is at work, before a meter is called damaged.
absl::StatusOr<MeterStatus> GetStatus(const std::string& pin_dir);

// The whole configuration of what is loaded, or was before it was damaged, as YAML that
// ParseConfig() reads. NotFound if nothing is loaded; FailedPrecondition if it is not
// known what; PermissionDenied for others than root.
absl::StatusOr<std::string> LoadedConfig(const std::string& pin_dir);

// Some twenty lines.
std::string StatusAsText(const MeterStatus& status);

// One object.
std::string StatusAsJson(const MeterStatus& status);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_STATUS_H_
