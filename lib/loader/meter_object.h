// SPDX-License-Identifier: BSD-3-Clause
// The BPF object: the only place that knows the skeleton. Opens it, sizes its
// maps, sets its configuration, loads it into the kernel and fills what must
// not be empty. Pins nothing and attaches nothing: the loader does, and the
// program tests do without.
//
//   auto object = MeterObject::Open(options);
//   (*object)->Reuse("stats", fd, pin_dir);  // an upgrade keeps its maps
//   (*object)->Load();
//   (*object)->FillReserved();
//
// Between open and load libbpf has the programs and maps in memory only. What
// is set there the verifier takes as constant: it follows no branch that this
// kernel or this configuration does not need (nm_config in bpf/internal.h).
//
// After the load the shared maps are frozen, and not even root can write them.
// The program nm_command can. It is attached nowhere: the loader runs it with
// BPF_PROG_TEST_RUN, the command as the packet, and takes its return value as
// the answer.
//
// Threads: one at a time.

#ifndef NETMETER_LIB_LOADER_METER_OBJECT_H_
#define NETMETER_LIB_LOADER_METER_OBJECT_H_

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "bpf/internal.h"
#include "lib/base/kernel_object.h"
#include "lib/base/map_elements.h"
#include "lib/base/status_util.h"
#include "lib/base/unique_fd.h"
#include "lib/loader/adds.h"
#include "lib/loader/config.h"
#include "lib/reader/pins.h"

struct netmeter_bpf;

namespace netmeter {
namespace internal {

constexpr char kInterfacesMap[] = "nm_interfaces";

// Of nm_info.uplinks.
using UplinkIds = std::array<nm_u16, NM_MAX_UPLINKS>;

// Whether programs may read kernel memory, bpf_probe_read_kernel(): not with
// lockdown=confidentiality.
bool MayReadKernelMemory();

struct MeterObjectOptions {
  // For tests: another build of the object.
  absl::string_view elf;
  // Of a kernel that shows none of its own (lib/loader/probes.h): a file with its
  // types. The kernel then gives programs no pointer to a task either.
  std::string types_file;
  TableSizes sizes;
  Adds adds;
  // Without the tracing programs, where they cannot be loaded, a process is
  // looked at when it opens a socket.
  bool tracing = true;
  uint32_t destination_kinds = 0;  // bits 1 << nm_kind: have destinations
  uint32_t rules_count = 0;
  uint32_t rules_port_first = 0;  // as in nm_config
  uint32_t rules_ports = 0;
  SourceRanks ranks = RanksOf(Config().names_from);
  bool units = false;                 // the configuration has some
  std::vector<uint16_t> proxy_ports;  // up to NM_MAX_PROXY_PORTS
  std::vector<uint16_t> sni_ports;    // up to NM_MAX_SNI_PORTS
  std::vector<uint16_t> http_ports;   // up to NM_MAX_HTTP_PORTS
  uint32_t registrants = 0;           // services that are not for everybody
  bool uplinks = false;  // packets count by uplink (bpf/uplink.bpf.h)
  // Only what a sweep for idle series takes (lib/loader/retire.h): nm_command and
  // nm_scan. Otherwise all but nm_scan.
  bool only_sweeps = false;
};

// What changes sizes and layouts that an upgrade keeps: a part of error messages.
std::string RestartCommand(absl::string_view pin_dir);

// Of the object that this program carries.
uint64_t BuildId();

// 1 for 0.
uint32_t RoundUpToPowerOfTwo(uint32_t value);

// What NameId() says without room for a name, and nothing else.
bool IsNoRoom(const absl::Status& status);

class MeterObject {
 public:
  static absl::StatusOr<std::unique_ptr<MeterObject>> Open(
      const MeterObjectOptions& options);
  ~MeterObject();
  MeterObject(const MeterObject&) = delete;
  MeterObject& operator=(const MeterObject&) = delete;

  // For tests: what they set between Open() and Load(), and what they look at.
  netmeter_bpf* skeleton() const { return skeleton_; }
  bpf_object* bpf() const;

  // Whether programs can read where a process runs: not with
  // lockdown=confidentiality, nor without tracing programs.
  bool may_read_places() const { return may_read_places_; }

  // Whether subflows of MPTCP get their owner: not on every kernel.
  bool follows_mptcp() const;

  // --- Between Open() and Load() ---------------------------------------------

  // Takes this map instead of making one. FailedPrecondition if its layout is
  // another one; `pin_dir` is for the message. `fd` stays the caller's.
  absl::Status Reuse(absl::string_view pin, int fd, const std::string& pin_dir);

  // The same of a map that is not pinned, by its name in the object.
  absl::Status ReuseUnpinned(const char* name, int fd);

  // Into the kernel, through the verifier. The message of an error says which
  // program was refused.
  absl::Status Load();

  // --- After Load() ----------------------------------------------------------

  // Null: none, or an extent that is not there.
  bpf_map* map(absl::string_view pin) const;
  int MapFd(absl::string_view pin) const;
  // Of `link_egress` the variant that is loaded.
  bpf_program* program(absl::string_view link_pin) const;

  // The map of who may be which service.
  int RegistrantsFd() const;

  // The map of interfaces, which lib/loader/uplinks.h fills.
  int InterfacesFd() const;
  // What packets of an interface count under, until the programs see its name.
  void SetUplinkWord(uint32_t ifindex, uint32_t number);
  // What WriteInfo() puts into nm_info.uplinks.
  void SetUplinks(const UplinkIds& ids) { uplinks_ = ids; }

  // The names and series that always exist.
  absl::Status FillReserved();
  // Puts the ids that no program has had yet into their queues, up to the sizes: once
  // all programs know these. Each once, whenever a call before was killed.
  absl::Status PushFreeIds() const;
  // The services that the configuration makes of units.
  absl::Status FillUnits(const std::map<std::string, std::string>& units) const;
  // `times`: so often, by one system call; the result is that of the last one.
  absl::StatusOr<uint32_t> RunCommand(nm_command_code code, const void* payload,
                                      size_t size, uint32_t times = 1) const;

  // The id of a name, which is made if it is new, for `user` (nm_user_of_uid()).
  // Where there is no room, what IsNoRoom() is true of.
  absl::StatusOr<uint32_t> NameId(nm_kind kind, absl::string_view name,
                                  uint16_t user = 0) const;

  absl::Status WriteInfo(const nm_info& info) const;

  // With only_sweeps: what the owners of all sockets hold, NM_MARK_* by the id of
  // the name or the slot. What a listener hands on while it is closed may be
  // missed: a second call sees it.
  absl::StatusOr<std::vector<uint32_t>> ScanSockets() const;

 private:
  explicit MeterObject(netmeter_bpf* skeleton);
  absl::Status SizeMaps(const TableSizes& sizes);
  absl::Status Configure(const MeterObjectOptions& options, bool confidential);

  netmeter_bpf* const skeleton_;
  bool may_read_places_ = false;
  const char* egress_ = "";  // the name of that variant
  UplinkIds uplinks_ = {};
  // In the order of MapPins() and of ExtentPins().
  std::array<bpf_map*, kMapPins> maps_;
  std::array<bpf_map*, kExtentPins> extents_;
};

// Marks an info as closed, so that readers that hold it open again. It may be
// of a meter that another version loaded: its programs have to do nothing.
absl::Status CloseInfo(int info_fd);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_METER_OBJECT_H_
