// SPDX-License-Identifier: BSD-3-Clause
#include "lib/core/series_reader.h"

#include <string.h>

#include <algorithm>
#include <limits>

#include "absl/strings/str_split.h"
#include "lib/core/wire_name.h"

namespace netmeter {
namespace internal {
namespace {

constexpr size_t kWordsPerCell = sizeof(nm_cell) / sizeof(nm_u64);

static_assert(sizeof(nm_cell) % sizeof(nm_u64) == 0, "cells are words");
static_assert(offsetof(nm_cell, tx_bytes) == sizeof(nm_u64),
              "the head of a cell is one word");
static_assert(static_cast<int>(Kind::kService) == NM_KIND_SERVICE &&
                  static_cast<int>(Kind::kBinary) == NM_KIND_BINARY &&
                  static_cast<int>(Kind::kUnattributed) ==
                      NM_KIND_UNATTRIBUTED &&
                  static_cast<int>(Kind::kOverflow) == NM_KIND_OVERFLOW &&
                  static_cast<int>(Kind::kPending) == NM_KIND_PENDING,
              "Kind is nm_kind");
static_assert(static_cast<int>(Transport::kOther) == NM_TRANSPORT_OTHER &&
                  static_cast<int>(Transport::kTcp) == NM_TRANSPORT_TCP &&
                  static_cast<int>(Transport::kUdp) == NM_TRANSPORT_UDP &&
                  static_cast<int>(Transport::kSctp) == NM_TRANSPORT_SCTP &&
                  static_cast<int>(Transport::kIcmp) == NM_TRANSPORT_ICMP,
              "Transport is nm_transport");
static_assert(static_cast<int>(Path::kDirect) == NM_PATH_DIRECT &&
                  static_cast<int>(Path::kProxy) == NM_PATH_PROXY,
              "Path is nm_path");

constexpr nm_u32 kBoundsUs[] = NM_RTT_BOUNDS_US;
static_assert(TcpConnections::RttBoundsUs().size() ==
                  sizeof(kBoundsUs) / sizeof(kBoundsUs[0]) &&
              TcpConnections::RttBoundsUs()[0] == kBoundsUs[0] &&
              TcpConnections::RttBoundsUs()[8] == kBoundsUs[8],
              "the bounds of TcpConnections are those of nm_tcp");

// Other CPUs add while we read. Each word is read whole and only grows, and
// two loads of one word never go back in time, so neither do the sums.
nm_u64 Load(const nm_u64* word) {
  return __atomic_load_n(word, __ATOMIC_RELAXED);
}

// A cell of which the first word is set, and nothing else.
nm_cell HeadOf(nm_u64 word) {
  nm_cell head = {};
  memcpy(&head, &word, sizeof(word));
  return head;
}

uint32_t Saturated(nm_u64 value) {
  return static_cast<uint32_t>(
      std::min<nm_u64>(value, std::numeric_limits<uint32_t>::max()));
}

std::string BoundedString(const char* text, size_t size) {
  return std::string(text, strnlen(text, size));
}

void AddConnections(const nm_tcp& tcp, TcpConnections* sum) {
  sum->known = true;
  sum->opened += Load(&tcp.opened);
  sum->accepted += Load(&tcp.accepted);
  sum->closed += Load(&tcp.closed);
  sum->failed += Load(&tcp.failed);
  sum->rtt_us += Load(&tcp.rtt_us);
  for (size_t i = 0; i < sum->rtt_buckets.size(); ++i) {
    sum->rtt_buckets[i] += Load(&tcp.rtt_buckets[i]);
  }
}

// A service that holds nothing is not pending.
void Append(Sample sample, std::vector<Sample>* samples) {
  if (sample.kind == Kind::kPending) {
    // Between two CPUs' cells, a move may be seen half: never below 0.
    for (uint64_t* value :
         {&sample.tx_bytes, &sample.rx_bytes, &sample.tx_packets,
          &sample.rx_packets, &sample.tx_payload_bytes,
          &sample.rx_payload_bytes, &sample.tx_retransmit_bytes}) {
      if (static_cast<int64_t>(*value) < 0) *value = 0;
    }
  }
  if (sample.kind == Kind::kPending && sample.tx_packets == 0 &&
      sample.rx_packets == 0) {
    return;
  }
  samples->push_back(std::move(sample));
}

}  // namespace

SeriesReader::SeriesReader(const MapView& view)
    : view_(view),
      suffixes_(absl::StrSplit(
          BoundedString(view.info->suffixes, sizeof(view.info->suffixes)), '\n',
          absl::SkipEmpty())),
      fold_unknown_(view.info->fold_unknown != 0) {}

const nm_u64* SeriesReader::Cell(uint32_t slot, uint32_t cpu) const {
  return view_.counters + (size_t{slot} * view_.num_cpus + cpu) * kWordsPerCell;
}

bool SeriesReader::DecodeName(uint32_t id, std::string* name) const {
  name->clear();
  if (id == NM_NAME_EMPTY) return true;
  if (id >= view_.max_names) return false;
  const nm_name& entry = view_.names[id];
  // The kernel writes the length last.
  const nm_u16 length = __atomic_load_n(&entry.length, __ATOMIC_ACQUIRE);
  if (length == 0 || length > NM_NAME_BYTES) return false;
  name->assign(reinterpret_cast<const char*>(entry.bytes), length);
  if (entry.kind == NM_KIND_WIRE) {
    *name = LabelOfWireName(*name, entry.encoding == NM_ENCODING_HUFFMAN,
                            suffixes_, fold_unknown_);
  }
  return name->find('\0') == std::string::npos;
}

bool SeriesReader::DecodeIdentity(uint32_t slot, Sample* identity) const {
  // A CPU that has not counted for this series has no head; all heads that
  // are there are equal, but for flags.
  nm_u64 word = 0;
  for (uint32_t cpu = 0; cpu < view_.num_cpus && word == 0; ++cpu) {
    word = Load(Cell(slot, cpu));
  }
  const nm_cell head = HeadOf(word);
  if (head.service == NM_NAME_EMPTY || head.kind < NM_KIND_SERVICE ||
      (head.kind > NM_KIND_OVERFLOW && head.kind != NM_KIND_PENDING) ||
      head.transport >= NM_TRANSPORT_COUNT ||
      head.path >= NM_PATH_COUNT) {
    return false;
  }
  identity->kind = static_cast<Kind>(head.kind);
  identity->transport = static_cast<Transport>(head.transport);
  identity->path = static_cast<Path>(head.path);
  return DecodeName(head.service, &identity->name) &&
         DecodeName(head.destination, &identity->destination);
}

bool SeriesReader::Learn(uint32_t slot) {
  Sample identity;
  if (!DecodeIdentity(slot, &identity)) return false;
  const auto inserted =
      by_key_.emplace(Key(identity.kind, identity.name, identity.destination,
                          identity.transport, identity.path),
                      series_.size());
  const size_t index = inserted.first->second;
  if (inserted.second) {
    series_.emplace_back();
    series_.back().identity = identity;
    if (identity.kind == Kind::kService || identity.kind == Kind::kPending) {
      by_service_[identity.name].push_back(index);
    }
  }
  series_[index].slots.push_back(slot);
  return true;
}

void SeriesReader::Update() {
  try {
    Learn();
  } catch (...) {
    // No memory, and what was learned is half learned: all of it again, then.
    next_slot_ = 1;
    unknown_.clear();
    series_.clear();
    by_key_.clear();
    by_service_.clear();
    throw;
  }
}

void SeriesReader::Learn() {
  unknown_.erase(std::remove_if(unknown_.begin(), unknown_.end(),
                                [this](uint32_t slot) { return Learn(slot); }),
                 unknown_.end());
  const nm_u64 taken =
      std::min<nm_u64>(Load(&view_.stats->slots_taken), view_.max_series);
  const uint32_t end = static_cast<uint32_t>(
      std::min<nm_u64>(NM_SLOT_FIRST + taken, view_.max_series));
  for (; next_slot_ < end; ++next_slot_) {
    if (!Learn(next_slot_)) unknown_.push_back(next_slot_);
  }
}

Sample SeriesReader::Sum(const Series& series) const {
  Sample sample = series.identity;
  const auto at = [](const nm_u64* cell, size_t offset) {
    return Load(cell + offset / sizeof(nm_u64));
  };
  for (const uint32_t slot : series.slots) {
    for (uint32_t cpu = 0; cpu < view_.num_cpus; ++cpu) {
      const nm_u64* cell = Cell(slot, cpu);
      if (HeadOf(Load(cell)).flags & NM_FLAG_REGISTERED) {
        sample.registered = true;
      }
      sample.tx_bytes += at(cell, offsetof(nm_cell, tx_bytes));
      sample.rx_bytes += at(cell, offsetof(nm_cell, rx_bytes));
      sample.tx_packets += at(cell, offsetof(nm_cell, tx_packets));
      sample.rx_packets += at(cell, offsetof(nm_cell, rx_packets));
      sample.tx_payload_bytes += at(cell, offsetof(nm_cell, tx_payload_bytes));
      sample.rx_payload_bytes += at(cell, offsetof(nm_cell, rx_payload_bytes));
      sample.tx_retransmit_bytes +=
          at(cell, offsetof(nm_cell, tx_retransmit_bytes));
    }
    if (view_.tcp != nullptr && sample.transport == Transport::kTcp &&
        sample.kind != Kind::kPending) {
      AddConnections(view_.tcp[slot], &sample.tcp);
    }
  }
  return sample;
}

std::vector<Sample> SeriesReader::ReadAll() {
  const std::lock_guard<std::mutex> lock(mutex_);
  Update();
  std::vector<Sample> samples;
  samples.reserve(series_.size());
  for (const Series& series : series_) Append(Sum(series), &samples);
  return samples;
}

std::vector<Sample> SeriesReader::ReadService(absl::string_view service) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Update();
  std::vector<Sample> samples;
  const auto found = by_service_.find(std::string(service));
  if (found == by_service_.end()) return samples;
  samples.reserve(found->second.size());
  for (const size_t index : found->second) {
    Append(Sum(series_[index]), &samples);
  }
  return samples;
}

Health SeriesReader::ReadHealth() const {
  const nm_info& info = *view_.info;
  const nm_stats& stats = *view_.stats;
  Health health;
  health.version = BoundedString(info.version, sizeof(info.version));
  health.cgroup = BoundedString(info.cgroup, sizeof(info.cgroup));
  health.created_ns = Load(&info.created_ns);
  health.loaded_ns = Load(&info.loaded_ns);
  health.series = Saturated(Load(&stats.series_used));
  health.max_series = view_.max_series;
  health.names = Saturated(Load(&stats.names_used));
  health.max_names = view_.max_names;
  health.series_full_packets = Load(&stats.series_full);
  health.names_full = Load(&stats.names_full);
  health.processes_full = Load(&stats.processes_full);
  health.storage_failed_packets = Load(&stats.storage_failed);
  health.header_error_packets = Load(&stats.header_errors);
  health.names_capped = Load(&stats.names_capped);
  health.series_capped_packets = Load(&stats.series_capped);
  return health;
}

}  // namespace internal
}  // namespace netmeter
