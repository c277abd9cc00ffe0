// SPDX-License-Identifier: BSD-3-Clause
#include "lib/testing/fake_meter.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

namespace netmeter {
namespace internal {
namespace {

std::string Failed(const std::string& what) {
  return absl::StrCat(what, ": ", strerror(errno));
}

}  // namespace

std::string MountBpffs(const std::string& directory) {
  if (unshare(CLONE_NEWNS) != 0) return Failed("unshare (root is needed)");
  if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    return Failed("make mounts private");
  }
  if (mount("bpf", directory.c_str(), "bpf", 0, "mode=0755") != 0) {
    return Failed("mount a bpffs");
  }
  return "";
}

FakeMeter::FakeMeter(const Options& options) : options_(options) {
  TableSizes sizes;
  sizes.cells_per_series = options.cells_per_series;
  sizes.max_series = options.max_series;
  sizes.max_names = options.max_names;
  for (const SharedMap map : OpeningOrder()) {
    value_sizes_[map] = ValueSizeOf(map);
    entries_[map] = static_cast<uint32_t>(CountEntries(EntriesOf(map), sizes));
  }
  if (options.counters_entries != 0) {
    entries_[kCounters] = options.counters_entries;
  }
  for (const SharedMap i : OpeningOrder()) {
    LIBBPF_OPTS(bpf_map_create_opts, create);
    create.map_flags = BPF_F_MMAPABLE;
    fds_[i] =
        UniqueFd(bpf_map_create(BPF_MAP_TYPE_ARRAY, PinOf(i), sizeof(uint32_t),
                                value_sizes_[i], entries_[i], &create));
    if (!fds_[i].ok()) {
      error_ = Failed("create a map");
      return;
    }
    void* memory = mmap(nullptr, size_t{value_sizes_[i]} * entries_[i],
                        PROT_READ | PROT_WRITE, MAP_SHARED, fds_[i].get(), 0);
    if (memory == MAP_FAILED) {
      error_ = Failed("map a map");
      return;
    }
    memory_[i] = memory;
  }
  nm_info* info = this->info();
  info->magic = NM_MAGIC;
  info->abi_major = NM_ABI_MAJOR;
  info->abi_minor = NM_ABI_MINOR;
  info->info_size = sizeof(nm_info);
  info->cell_size = sizeof(nm_cell);
  info->name_size = sizeof(nm_name);
  info->stats_size = sizeof(nm_stats);
  info->tcp_size = sizeof(nm_tcp);
  info->features = NM_FEATURE_SOCKET_TABLE;
  info->cells_per_series = options.cells_per_series;
  info->max_series = options.max_series;
  info->max_names = options.max_names;
  SetName(NM_NAME_UNATTRIBUTED, NM_KIND_UNATTRIBUTED, "unattributed");
  SetName(NM_NAME_OVERFLOW, NM_KIND_OVERFLOW, "overflow");
}

FakeMeter::~FakeMeter() {
  for (size_t i = 0; i < kSharedMaps; ++i) {
    if (memory_[i] != nullptr) {
      munmap(memory_[i], size_t{value_sizes_[i]} * entries_[i]);
    }
  }
}

void FakeMeter::SetName(uint32_t id, uint8_t kind, const std::string& name) {
  nm_name* entry = static_cast<nm_name*>(memory_[kNames]) + id;
  entry->kind = kind;
  memcpy(entry->bytes, name.data(), name.size());
  entry->length = static_cast<nm_u16>(name.size());
}

std::string FakeMeter::Freeze() {
  for (size_t i = 0; i < kSharedMaps; ++i) {
    munmap(memory_[i], size_t{value_sizes_[i]} * entries_[i]);
    memory_[i] = nullptr;
    if (bpf_map_freeze(fds_[i].get()) != 0) return Failed("freeze");
  }
  return "";
}

std::string FakeMeter::Pin(const std::string& directory, gid_t group,
                           mode_t mode) {
  for (const MapPin& map : MapPins()) {
    if (!map.shared()) continue;
    const std::string path = absl::StrCat(directory, "/", map.pin);
    unlink(path.c_str());
    if (bpf_obj_pin(fds_[map.reader].get(), path.c_str()) != 0)
      return Failed("pin");
    if (chown(path.c_str(), 0, group) != 0) return Failed("chown");
    if (chmod(path.c_str(), mode) != 0) return Failed("chmod");
  }
  return "";
}

std::string FakeMeter::SendTo(int connection) const {
  int fds[kSharedMaps];
  for (size_t i = 0; i < kSharedMaps; ++i) fds[i] = fds_[i].get();
  unsigned char bytes[1 + kSharedMaps] = {kDescriptorProtocol};
  for (unsigned char i = 0; i < kSharedMaps; ++i) bytes[1 + i] = i;
  iovec data = {bytes, sizeof(bytes)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(fds))] = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* const part = CMSG_FIRSTHDR(&message);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(sizeof(fds));
  memcpy(CMSG_DATA(part), fds, sizeof(fds));
  return sendmsg(connection, &message, MSG_NOSIGNAL) == sizeof(bytes)
             ? ""
             : Failed("sendmsg");
}

}  // namespace internal
}  // namespace netmeter
