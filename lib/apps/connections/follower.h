// SPDX-License-Identifier: BSD-3-Clause
// Follows the connections of a meter: loads the programs of bpf/flows.bpf.c, attaches
// them beside the meter's own, and reads the records that they write.
//
//   auto follower = Follower::Start(options);
//   while (...) (*follower)->Poll(100, [](const nm_flow_record& record) { ... });
//   (*follower)->Stop([](const nm_flow_record& record) { ... });
//
// Nothing is pinned: when the process ends for any reason, the kernel removes the
// programs. Several processes may follow one meter independently.
//
// Threads: one at a time.

#ifndef NETMETER_LIB_APPS_CONNECTIONS_FOLLOWER_H_
#define NETMETER_LIB_APPS_CONNECTIONS_FOLLOWER_H_

#include <bpf/libbpf.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bpf/flows.h"
#include "lib/apps/connections/filter.h"
#include "lib/apps/connections/first_bytes.h"
#include "lib/base/unique_fd.h"
#include "lib/reader/shared_maps.h"

struct flows_bpf;

namespace netmeter {
namespace internal {

struct FollowOptions {
  std::string pin_dir;
  // The maximum of concurrent flows. Each uses 512 bytes of the kernel's memory
  // while it exists. Handshakes, and flows other than TCP's that the peer began, use at
  // most half of them, because any host can make these.
  uint32_t max_flows = 262144;
  // Size of the ring buffer: a power of two, and a multiple of the page size.
  uint32_t buffer_bytes = 8 << 20;
  // A flow without an explicit end is over after this time without a packet: a handshake,
  // a flow other than TCP's, or a connection whose end no hook reports.
  std::chrono::milliseconds idle{60000};
  // Not 0: a flow that is no handshake gets a record each time when it has packets that
  // are this old.
  std::chrono::milliseconds active{0};
  // Only records with one of its ports and one of its addresses, if it has any. Other
  // fields are not used.
  SocketFilter filter;
  bool refuses = false;  // Refuse() is called
  // Also flows that this host forwards, if the meter counts forwarded packets.
  bool forwarded = false;
};

// Traffic of one series that is in no record, for one reason. A series may have several,
// with other keys.
struct FlowUnrecorded {
  nm_unrecorded_key key;
  nm_unrecorded value;
};

class Follower {
 public:
  using Body = std::function<void(const nm_flow_record&)>;

  // NotFound without a meter. PermissionDenied for every user except root.
  // FailedPrecondition if the meter has another version, its cgroup cannot be found, or
  // forwarded flows are in another network namespace. Unimplemented if the meter does not
  // count forwarded packets.
  // Loads and attaches, which takes about half a second.
  static absl::StatusOr<std::unique_ptr<Follower>> Start(
      const FollowOptions& options);
  ~Follower();
  Follower(const Follower&) = delete;
  Follower& operator=(const Follower&) = delete;

  // Waits up to `wait_ms` for records, and calls body(record) for each. After some
  // thousands of records it returns, and the others wait for the next call. Several times
  // a second it ends idle flows. Aborted if the meter was unloaded, or loaded anew: this
  // follower cannot continue then. Returns early after a signal.
  absl::Status Poll(int wait_ms, const Body& body);

  // Detaches the programs, ends all remaining flows, and calls body(record) for each.
  // After it, the records and Unrecorded() contain everything that was counted.
  absl::Status Stop(const Body& body);

  // The name of a forwarded connection's destination by its first bytes, as it was sent.
  // Valid within body(record) alone.
  std::string WireNameOf(const nm_flow_record& record);

  // No more records of this series. `moves`: nm_stats.moves before its name was read; the
  // next move ends the refusal.
  void Refuse(uint32_t slot, uint64_t moves);

  nm_flow_stats Stats() const;
  absl::StatusOr<std::vector<FlowUnrecorded>> Unrecorded() const;
  const std::shared_ptr<const SharedMaps>& maps() const { return maps_; }

 private:
  Follower(const FollowOptions& options,
           std::shared_ptr<const SharedMaps> maps);

  absl::Status Load();
  void SetFilter();
  absl::Status AddPrefixes();
  absl::Status ReuseMaps();
  absl::Status PrepareForwarded();
  absl::Status Attach();
  absl::Status AttachForwarded();
  void Detach();
  void Tell(uint32_t amount);
  void ForgetTheKilled();
  static int OnEvent(void* follower, void* data, size_t size);
  void Take(const void* data, size_t size);
  absl::Status TakeSome(int wait_ms, int most);
  using Ends =
      std::vector<std::pair<nm_flow_key, std::pair<uint32_t, uint64_t>>>;
  // Aborted if there is another meter, or none, by now.
  absl::Status CheckMeter() const;
  absl::Status ScanSome(bool all, Ends* ends);
  absl::Status Scan(bool all);
  uint32_t EndOf(const nm_flow_key& key, const nm_flow_state& state,
                 uint64_t now_ns, bool all) const;
  bool End(const nm_flow_key& key, uint32_t end, uint64_t last_ns);

  const FollowOptions options_;
  const std::shared_ptr<const SharedMaps> maps_;
  const uint64_t loaded_ns_;
  flows_bpf* skeleton_ = nullptr;
  UniqueFd cgroup_;
  uint32_t* followers_ = nullptr;  // nm_followers of the meter
  uint32_t told_ = 0;              // the part of it that is this follower's
  std::vector<bpf_link*> links_;
  UniqueFd forward_links_[2];  // IPv4, IPv6
  std::optional<FirstBytes> first_bytes_;
  ring_buffer* events_ = nullptr;
  const Body* body_ = nullptr;  // of the running call
  int left_ = 0;                // records that this call may still read
  std::chrono::steady_clock::time_point next_scan_;
  // Cookies of sockets other than TCP's: released in this round through the table, and
  // before.
  std::unordered_set<uint64_t> released_, released_before_;
  std::optional<uint32_t> position_;  // in the table; none: at its beginning
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_CONNECTIONS_FOLLOWER_H_
