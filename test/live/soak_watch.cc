// SPDX-License-Identifier: BSD-3-Clause
#include "test/live/soak_watch.h"

#include <bpf/bpf.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "netmeter/abi.h"
#include "netmeter/meter.h"

namespace netmeter {
namespace internal {
namespace {

constexpr useconds_t kPause = 5000;  // between two reads

uint64_t ResidentKib() {
  std::ifstream file("/proc/self/statm");
  uint64_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * 4;
}

using Key =
    std::tuple<Kind, std::string, std::string, Transport, Path, std::string>;
using Values = std::array<uint64_t, 7>;

Values ValuesOf(const Sample& sample) {
  return {sample.tx_bytes,           sample.rx_bytes,
          sample.tx_packets,         sample.rx_packets,
          sample.tx_payload_bytes,   sample.rx_payload_bytes,
          sample.tx_retransmit_bytes};
}

// What one reader has seen last. A series that is evicted is gone, or there again from
// 0 (sample.h). What it had is in kind `evicted`, so that the sum does not go back; nor
// does that kind, nor do those whose series are made at the load. There are no more
// such series than the meter says.
class Watch {
 public:
  // `evicted`: Health::evicted_series, after the read.
  void Compare(const std::vector<Sample>& samples, uint64_t evicted,
               ReaderState* state) {
    Values sum = {}, pending = {};
    std::map<Key, Values> now;
    for (const Sample& sample : samples) {
      const Values values = ValuesOf(sample);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
      // Pending traffic moves to its own series.
      if (sample.kind == Kind::kPending) {
        for (size_t i = 0; i < sum.size(); ++i) pending[i] += values[i];
        continue;
      }
      now[{sample.kind, sample.name, sample.destination, sample.transport,
           sample.path, sample.uplink}] = values;
    }
    CompareSeries(now, evicted, state);
    Check("evicted_series", {evicted_}, {evicted}, state);
    // A read in the middle of such a move may have it twice, and the next one once
    // (bpf/pending.bpf.h). On a busy machine a soak saw a sum that was one packet less
    // at the next read, in a round whose balance was exact.
    Values least = sum_;
    for (size_t i = 0; i < sum.size(); ++i) {
      least[i] -= std::min(least[i], pending_[i]);
    }
    Check("the sum", least, sum, state);
    sum_ = sum;
    pending_ = pending;
    before_ = std::move(now);
    // One that is evicted between a read and this number is gone at the next read.
    evicted_before_ = evicted_;
    evicted_ = evicted;
    ++state->reads;
  }

 private:
  void CompareSeries(const std::map<Key, Values>& now, uint64_t evicted,
                     ReaderState* state) const {
    uint64_t resets = 0;
    for (const auto& series : before_) {
      const Kind kind = std::get<Kind>(series.first);
      const std::string what =
          std::get<1>(series.first) + " to " + std::get<2>(series.first);
      const auto found = now.find(series.first);
      const Values values = found == now.end() ? Values() : found->second;
      if (kind == Kind::kUnattributed || kind == Kind::kOverflow ||
          kind == Kind::kEvicted) {
        Check(what, series.second, values, state);
      } else if (found == now.end() || IsLess(values, series.second)) {
        if (++resets > evicted - evicted_before_) {
          Check(what + " (not evicted)", series.second, values, state);
        }
      }
    }
    state->resets += resets;
  }

  static bool IsLess(const Values& now, const Values& before) {
    for (size_t i = 0; i < now.size(); ++i) {
      if (now[i] < before[i]) return true;
    }
    return false;
  }

  static void Check(const std::string& what, const Values& before,
                    const Values& now, ReaderState* state) {
    for (size_t i = 0; i < now.size(); ++i) {
      if (now[i] >= before[i]) continue;
      ++state->backwards;
      snprintf(state->last, sizeof(state->last),
               "%s: value %zu: %llu, then %llu", what.c_str(), i,
               static_cast<unsigned long long>(before[i]),
               static_cast<unsigned long long>(now[i]));
    }
  }

  std::map<Key, Values> before_;
  Values sum_ = {}, pending_ = {};
  uint64_t evicted_ = 0, evicted_before_ = 0;
};

// Reads once; opens the meter first if there is none.
void ReadOnce(const MeterOptions& options, std::unique_ptr<Meter>* meter,
              Watch* watch, ReaderState* state) {
  absl::Status status;
  if (*meter == nullptr) {
    auto opened = Meter::Open(options);
    status = opened.status();
    if (opened.ok()) *meter = *std::move(opened);
  }
  if (*meter != nullptr) {
    const auto samples = (*meter)->ReadHost();
    const auto health = (*meter)->ReadHealth();
    status = samples.ok() ? health.status() : samples.status();
    if (status.ok()) watch->Compare(*samples, health->evicted_series, state);
  }
  if (status.ok()) return;
  ++state->errors;
  snprintf(state->last, sizeof(state->last), "%s", status.ToString().c_str());
}

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

bool WriteTo(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text << std::flush;
  return file.good();
}

}  // namespace

struct SoakReader::Shared {
  int stop;
  ReaderState state;
};

SoakReader::SoakReader(const std::string& pin_dir, const NetNamespace& network,
                       bool anew)
    : shared_(static_cast<Shared*>(mmap(nullptr, sizeof(Shared),
                                        PROT_READ | PROT_WRITE,
                                        MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
  if (shared_ == MAP_FAILED) DieWithErrno("mmap");
  child_ = std::make_unique<Child>(nullptr, network, [=](Child::Parent&) {
    alarm(0);
    MeterOptions options;
    options.pin_dir = pin_dir;
    std::unique_ptr<Meter> meter;
    Watch watch;
    while (__atomic_load_n(&shared_->stop, __ATOMIC_ACQUIRE) == 0) {
      if (anew) meter.reset();
      ReadOnce(options, &meter, &watch, &shared_->state);
      shared_->state.resident_kib = ResidentKib();
      usleep(kPause);
    }
  });
}

SoakReader::~SoakReader() {
  __atomic_store_n(&shared_->stop, 1, __ATOMIC_RELEASE);
  child_->Join();
  munmap(shared_, sizeof(Shared));
}

ReaderState SoakReader::State() const { return shared_->state; }

namespace {

// The programs of the kernel whose names are ours, each with its maps.
std::map<uint32_t, std::vector<uint32_t>> FindPrograms() {
  std::map<uint32_t, std::vector<uint32_t>> found;
  for (uint32_t id = 0; bpf_prog_get_next_id(id, &id) == 0;) {
    const UniqueFd fd(bpf_prog_get_fd_by_id(id));
    std::vector<uint32_t> maps(256);
    bpf_prog_info about = {};
    about.map_ids = reinterpret_cast<uintptr_t>(maps.data());
    about.nr_map_ids = static_cast<uint32_t>(maps.size());
    uint32_t size = sizeof(about);
    if (!fd.ok() || bpf_obj_get_info_by_fd(fd.get(), &about, &size) != 0 ||
        std::string(about.name).compare(0, 3, "nm_") != 0) {
      continue;
    }
    maps.resize(std::min<size_t>(maps.size(), about.nr_map_ids));
    found[id] = std::move(maps);
  }
  return found;
}

// Those that are attached to another cgroup.
std::set<uint32_t> FindAttachedElsewhere(uint64_t cgroup) {
  std::set<uint32_t> programs;
  for (uint32_t id = 0; bpf_link_get_next_id(id, &id) == 0;) {
    const UniqueFd fd(bpf_link_get_fd_by_id(id));
    bpf_link_info about = {};
    uint32_t size = sizeof(about);
    if (fd.ok() && bpf_obj_get_info_by_fd(fd.get(), &about, &size) == 0 &&
        about.type == BPF_LINK_TYPE_CGROUP &&
        about.cgroup.cgroup_id != cgroup) {
      programs.insert(about.prog_id);
    }
  }
  return programs;
}

}  // namespace

// Reads what belongs to no other meter. A map that shares a program with one that is
// attached to another cgroup belongs to that meter.
KernelState ReadKernelState(uint64_t cgroup) {
  std::map<uint32_t, std::vector<uint32_t>> programs = FindPrograms();
  std::set<uint32_t> others = FindAttachedElsewhere(cgroup), their_maps;
  for (bool more = true; more;) {
    more = false;
    for (auto program = programs.begin(); program != programs.end();) {
      const std::vector<uint32_t>& maps = program->second;
      const bool theirs =
          others.count(program->first) != 0 ||
          std::any_of(maps.begin(), maps.end(),
                      [&](uint32_t map) { return their_maps.count(map) != 0; });
      if (!theirs) {
        ++program;
        continue;
      }
      their_maps.insert(maps.begin(), maps.end());
      program = programs.erase(program);
      more = true;
    }
  }
  KernelState state;
  state.programs = static_cast<int>(programs.size());
  for (uint32_t id = 0; bpf_map_get_next_id(id, &id) == 0;) {
    const UniqueFd fd(bpf_map_get_fd_by_id(id));
    bpf_map_info about = {};
    uint32_t size = sizeof(about);
    if (their_maps.count(id) != 0 || !fd.ok() ||
        bpf_obj_get_info_by_fd(fd.get(), &about, &size) != 0 ||
        std::string(about.name).compare(0, 3, "nm_") != 0) {
      continue;
    }
    ++state.maps;
    std::ifstream file("/proc/self/fdinfo/" + std::to_string(fd.get()));
    for (std::string word; file >> word;) {
      uint64_t bytes = 0;
      if (word == "memlock:" && file >> bytes) state.kib += bytes / 1024;
    }
  }
  return state;
}

MemoryCgroup::MemoryCgroup() {
  const std::string above = CgroupDirectory();
  control_ = above.substr(0, above.rfind('/')) + "/cgroup.subtree_control";
  const bool enabled = FirstLine(control_).find("memory") != std::string::npos;
  if (!enabled && !WriteTo(control_, "+memory")) return;
  enabled_here_ = !enabled;
  path_ = above;
  if (mkdir(path_.c_str(), 0755) != 0 && errno != EEXIST) path_.clear();
}

MemoryCgroup::~MemoryCgroup() {
  Squeeze(false);
  if (enabled_here_) WriteTo(control_, "-memory");
}

void MemoryCgroup::Squeeze(bool on) const {
  if (!exists()) return;
  WriteTo(path_ + "/memory.high",
          on ? FirstLine(path_ + "/memory.current") : "max");
}

}  // namespace internal
}  // namespace netmeter
