// SPDX-License-Identifier: BSD-3-Clause
// How the reader gets exact totals from memory that the kernel is writing, without a lock
// and without a system call.
//
// The map `counters` is an array of slots, and each slot has a cell per CPU and a shared
// one. A slot is one series. Its cells begin with the series' key, in one word: ids of
// two names, kind, transport, path and uplink. The counters follow. Each CPU adds to its
// own cell. If another program could run on the same CPU in between (bpf/add.bpf.h), it
// adds to the last cell. So the value of a series is the sum over the cells.
//
// A read needs no lock, for three reasons:
// - Every word is loaded once, as a whole: the maps are aligned, and an aligned load of
//   eight bytes is never torn.
// - A counter only grows, and two loads of one word by one thread never go back in time.
//   So no sum decreases either. Two counters may differ in age: a packet may be in
//   tx_packets and not yet in tx_bytes. This does not matter to a reader of totals,
//   because the next read has both.
// - The head of a cell is written once, before the counters. Only its flags change,
//   unless the series is evicted (see below). The length of a name is written after its
//   bytes. So a valid key is right, and the next read looks again at an invalid one.
//
// Series of kind pending are the exception. Their bytes move to the series of the
// destination, so they shrink. A move subtracts the bytes of one CPU's cell in another
// cell, so a cell may be negative. Only the sum over the cells has a meaning. A read in
// the middle of a move may see a negative sum, which counts as zero.
//
// The reader learns the name of a slot's series once. It keeps slots by key, and keys by
// service. A read then only loads the cells and checks the slots that are new.
// stats->slots_allocated says how many slots have been handed out. Slots freed by a sweep
// are checked again only if a head was written since (stats->heads). Several slots may
// have one key, because different names on the wire may decode to one: they are summed.
//
// An idle series is evicted: its totals move to another series, and its slot and its
// names become free for reuse. The kernel part makes a number odd before the move, and
// even after it (nm_stats.moves). A read starts again if the number is odd, or differs
// between its beginning and its end. After each change of the number the reader forgets
// what it has learned. A load that keeps the tables also writes `info` in such a move,
// because the labels of names on the wire depend on it. A move takes some microseconds.
// It is a program in the kernel, which always runs to its end, so no process can die in
// the middle of it.
//
// Tables that grow get further extents, and existing data does not move. Before a slot of
// a new extent is handed out, `info` announces the extent, between two moves. The read
// that sees it maps the new extents.
#include "lib/reader/series_reader.h"

#include <string.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lib/base/misattributions.h"
#include "lib/base/no_throw.h"
#include "lib/reader/wire_name.h"

namespace netmeter {
namespace internal {
namespace {

// A move takes less time than a pause.
constexpr std::chrono::microseconds kPause(50);
constexpr int kMostPauses = 10000;

constexpr size_t kWordsPerCell = sizeof(nm_cell) / sizeof(nm_u64);

static_assert(sizeof(nm_cell) % sizeof(nm_u64) == 0, "cells are words");
static_assert(offsetof(nm_cell, tx_bytes) == sizeof(nm_u64),
              "the head of a cell is one word");
static_assert(static_cast<int>(Kind::kService) == NM_KIND_SERVICE &&
                  static_cast<int>(Kind::kBinary) == NM_KIND_BINARY &&
                  static_cast<int>(Kind::kUnattributed) ==
                      NM_KIND_UNATTRIBUTED &&
                  static_cast<int>(Kind::kOverflow) == NM_KIND_OVERFLOW &&
                  static_cast<int>(Kind::kPending) == NM_KIND_PENDING &&
                  static_cast<int>(Kind::kUnit) == NM_KIND_UNIT &&
                  static_cast<int>(Kind::kContainer) == NM_KIND_CONTAINER &&
                  static_cast<int>(Kind::kEvicted) == NM_KIND_EVICTED &&
                  static_cast<int>(Kind::kUser) == NM_KIND_USER,
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

constexpr bool BoundsAreThoseOfTheMap() {
  constexpr nm_u32 kBoundsUs[] = NM_RTT_BOUNDS_US;
  constexpr size_t kCount = sizeof(kBoundsUs) / sizeof(kBoundsUs[0]);
  constexpr auto kOurs = TcpConnections::RttBoundsUs();
  if (kOurs.size() != kCount) return false;
  for (size_t i = 0; i < kCount; ++i) {
    if (kOurs[i] != kBoundsUs[i]) return false;
  }
  return true;
}
static_assert(BoundsAreThoseOfTheMap(),
              "the bounds of TcpConnections are those of nm_tcp");

// Other CPUs add during the read: see the top of the file. Relaxed order suffices,
// because no word has to be newer than another.
nm_u64 Load(const nm_u64* word) {
  return __atomic_load_n(word, __ATOMIC_RELAXED);
}

// Loads before this call are done before loads after it. The thread sanitizer does not
// support fences. On x86, where it is used here, the processor keeps the order of loads.
void AcquireFence() {
#ifdef __SANITIZE_THREAD__
  __asm__ volatile("" : : : "memory");
#else
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
#endif
}

// A cell that has only its first word.
nm_cell HeadOf(nm_u64 word) {
  nm_cell head = {};
  memcpy(&head, &word, sizeof(word));
  return head;
}

// The extent of an index that is not in the first one.
uint32_t ExtentOf(uint32_t first, uint32_t index) {
  uint32_t extent = 1;
  while (extent < NM_MAX_EXTENTS - 1 &&
         index >= nm_extent_start(first, extent + 1)) {
    ++extent;
  }
  return extent;
}

// A level has 64 bits in the map, which may hold any value, and 32 in Health.
uint32_t Saturated(nm_u64 value) {
  return static_cast<uint32_t>(
      std::min<nm_u64>(value, std::numeric_limits<uint32_t>::max()));
}

// Text of the map `info`. It should end with a NUL, but this is not guaranteed.
std::string BoundedString(const char* text, size_t size) {
  return std::string(text, strnlen(text, size));
}

// An expansion instead of a loop: the sums stay in registers.
template <typename Body, size_t... i>
void ForEach(const Body& body, std::index_sequence<i...>) {
  (body(i), ...);
}
template <size_t end, typename Body>
void ForEachBelow(const Body& body) {
  ForEach(body, std::make_index_sequence<end>());
}

// `is_first`: the first slot of a series. Most series have only one.
template <bool is_first>
void Take(nm_u64 value, uint64_t* sum) {
  *sum = is_first ? value : *sum + value;
}

// nm_tcp has no cell per CPU: such events are rare, so the kernel adds atomically.
template <bool is_first>
void TakeConnections(const nm_tcp& tcp, Sample* sample) {
  TcpConnections* const sum = &sample->tcp;
  sum->known = true;
  Take<is_first>(Load(&tcp.opened), &sum->opened);
  Take<is_first>(Load(&tcp.accepted), &sum->accepted);
  Take<is_first>(Load(&tcp.closed), &sum->closed);
  Take<is_first>(Load(&tcp.failed), &sum->failed);
  Take<is_first>(Load(&tcp.rtt_us), &sum->rtt_us);
  Take<is_first>(Load(&tcp.resets_sent), &sum->resets_sent);
  Take<is_first>(Load(&tcp.resets_received), &sum->resets_received);
  Take<is_first>(Load(&tcp.timeouts), &sum->timeouts);
  Take<is_first>(Load(&tcp.retransmitted_segments),
                 &sum->retransmitted_segments);
  ForEachBelow<NM_RTT_BUCKETS>([&](size_t i) {
    Take<is_first>(Load(&tcp.rtt_buckets[i]), &sum->rtt_buckets[i]);
  });
}

template <bool is_first>
void TakeConnections(const nm_tcp& tcp, netmeter_sample* row) {
  row->tcp_known = 1;
  Take<is_first>(Load(&tcp.opened), &row->tcp_opened);
  Take<is_first>(Load(&tcp.accepted), &row->tcp_accepted);
  Take<is_first>(Load(&tcp.closed), &row->tcp_closed);
  Take<is_first>(Load(&tcp.failed), &row->tcp_failed);
  Take<is_first>(Load(&tcp.rtt_us), &row->tcp_rtt_us);
  Take<is_first>(Load(&tcp.resets_sent), &row->tcp_resets_sent);
  Take<is_first>(Load(&tcp.resets_received), &row->tcp_resets_received);
  Take<is_first>(Load(&tcp.timeouts), &row->tcp_timeouts);
  Take<is_first>(Load(&tcp.retransmitted_segments),
                 &row->tcp_retransmitted_segments);
  ForEachBelow<NM_RTT_BUCKETS>([&](size_t i) {
    Take<is_first>(Load(&tcp.rtt_buckets[i]), &row->tcp_rtt_buckets[i]);
  });
}

void ForgetConnections(Sample* sample) { sample->tcp = TcpConnections(); }
void ForgetConnections(netmeter_sample* row) {
  TakeConnections<true>(nm_tcp(), row);
  row->tcp_known = 0;
}

uint64_t LoadBytes(const char* at) {
  uint64_t word;
  memcpy(&word, at, sizeof(word));
  return word;
}

// Like operator==. Most names have 8 to 16 bytes: this compares two words, which may
// overlap, without a call. Each series needs three comparisons, and calls would be slow.
bool Equal(const std::string& a, const std::string& b) {
  constexpr size_t kWord = sizeof(uint64_t);
  const size_t size = a.size();
  if (size != b.size()) return false;
  if (size < kWord || size > 2 * kWord) {
    return size == 0 || memcmp(a.data(), b.data(), size) == 0;
  }
  return LoadBytes(a.data()) == LoadBytes(b.data()) &&
         LoadBytes(a.data() + size - kWord) ==
             LoadBytes(b.data() + size - kWord);
}

// Copies nothing if the name is already there from the previous read.
inline void Assign(const std::string& name, std::string* to) {
  if (!Equal(*to, name)) *to = name;
}

// Cleans up a pending sample. Returns whether it is empty: all connections of that
// service have named their destinations.
template <typename Out>
bool TidyPending(Out* sample) {
  // The read may see half of a move.
  for (uint64_t* value :
       {&sample->tx_bytes, &sample->rx_bytes, &sample->tx_packets,
        &sample->rx_packets, &sample->tx_payload_bytes,
        &sample->rx_payload_bytes, &sample->tx_retransmit_bytes}) {
    if (static_cast<int64_t>(*value) < 0) *value = 0;
  }
  return sample->tx_packets == 0 && sample->rx_packets == 0;
}

}  // namespace

bool IsBehind(const MapView& view) {
  return view.first_series != UINT32_MAX &&
         (__atomic_load_n(&view.info->max_series, __ATOMIC_RELAXED) >
              view.max_series ||
          __atomic_load_n(&view.info->max_names, __ATOMIC_RELAXED) >
              view.max_names);
}

SeriesReader::SeriesReader(const MapView& view, Extend extend)
    : view_(view), extend_(std::move(extend)) {
  ReadNaming();
}

inline const nm_u64* SeriesReader::Cell(uint32_t slot, uint32_t number) const {
  return CellAt(view_, slot, number);
}

const nm_u64* FurtherCell(const MapView& view, uint32_t slot, uint32_t number) {
  const uint32_t extent = ExtentOf(view.first_series, slot);
  slot -= nm_extent_start(view.first_series, extent);
  return view.more_counters[extent - 1] +
         (size_t{slot} * view.cells_per_series + number) * kWordsPerCell;
}

const nm_tcp& FurtherTcp(const MapView& view, uint32_t slot) {
  const uint32_t extent = ExtentOf(view.first_series, slot);
  return view
      .more_tcp[extent - 1][slot - nm_extent_start(view.first_series, extent)];
}

const nm_name& FurtherName(const MapView& view, uint32_t id) {
  const uint32_t extent = ExtentOf(view.first_names, id);
  return view
      .more_names[extent - 1][id - nm_extent_start(view.first_names, extent)];
}

bool SeriesReader::DecodeName(uint32_t id, std::string* name) const {
  name->clear();
  if (id == NM_NAME_EMPTY) return true;
  if (id >= view_.max_names) return false;
  const nm_name& entry = NameAt(view_, id);
  // The kernel writes the length last, so a reader that sees the length sees all bytes.
  const nm_u16 length = __atomic_load_n(&entry.length, __ATOMIC_ACQUIRE);
  if (length == 0 || length > NM_NAME_BYTES) return false;
  name->assign(entry.bytes, length);
  if (entry.kind == NM_KIND_WIRE) {
    *name = LabelOf(*name, entry.encoding == NM_ENCODING_HUFFMAN);
  }
  return name->find('\0') == std::string::npos;
}

std::string SeriesReader::LabelOf(absl::string_view wire_name,
                                  bool huffman) const {
  return LabelOfWireName(wire_name, huffman, suffixes_, fold_unknown_);
}

// A load writes the names of uplinks into `info` after it has begun to count by them.
// Until then their series are unknown.
bool SeriesReader::DecodeUplink(uint32_t number, std::string* uplink) const {
  uplink->clear();
  if (number == NM_UPLINK_NONE) return true;
  if (number == NM_UPLINK_OTHER) {
    *uplink = "other";
    return true;
  }
  const nm_u16 id =
      __atomic_load_n(&view_.info->uplinks[number - 1], __ATOMIC_RELAXED);
  return id != NM_NAME_EMPTY && DecodeName(id, uplink);
}

bool SeriesReader::DecodeIdentity(uint32_t slot, Identity* identity) const {
  // A CPU that has not counted for this series has no head. All existing heads are equal,
  // except for their flags.
  nm_u64 word = 0;
  for (uint32_t i = 0; i < view_.cells_per_series && word == 0; ++i) {
    word = Load(Cell(slot, i));
  }
  const nm_cell head = HeadOf(word);
  // A kind, transport or path of a newer meter is no error: the sum needs its bytes.
  if (head.service == NM_NAME_EMPTY || head.kind == NM_KIND_NONE ||
      head.kind == NM_KIND_DESTINATION || head.kind == NM_KIND_WIRE ||
      head.kind == NM_KIND_UPLINK ||
      !DecodeUplink(NM_UPLINK_OF(head.path), &identity->uplink)) {
    return false;
  }
  identity->kind = static_cast<Kind>(head.kind);
  identity->transport = static_cast<Transport>(head.transport);
  identity->path = static_cast<Path>(NM_PATH_OF(head.path));
  if (identity->kind == Kind::kEvicted) {
    identity->name = KindName(static_cast<Kind>(head.destination));
    return true;
  }
  if (!DecodeName(head.service, &identity->name)) return false;
  // A program has pending bytes, too. The kind of the name is known, because its length
  // is.
  identity->of_service = head.kind == NM_KIND_SERVICE ||
                         (head.kind == NM_KIND_PENDING &&
                          NameAt(view_, head.service).kind == NM_KIND_SERVICE);
  return DecodeName(head.destination, &identity->destination);
}

bool SeriesReader::ReadKey(uint32_t slot, Sample* sample) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  Identity identity;
  if (slot == 0 || slot >= view_.max_series ||
      !DecodeIdentity(slot, &identity)) {
    return false;
  }
  sample->kind = identity.kind;
  sample->name = std::move(identity.name);
  sample->destination = std::move(identity.destination);
  sample->transport = identity.transport;
  sample->path = identity.path;
  sample->uplink = std::move(identity.uplink);
  return true;
}

bool SeriesReader::ReadName(uint32_t id, std::string* name) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return DecodeName(id, name);
}

// Returns the only copy of a word.
const std::string* SeriesReader::Word(std::string word) {
  if (words_ == nullptr) words_ = std::make_shared<std::set<std::string>>();
  return &*words_->insert(std::move(word)).first;
}

// Learns the series of a slot. Returns false if it cannot be known yet.
bool SeriesReader::Learn(uint32_t slot) {
  Identity identity;
  if (!DecodeIdentity(slot, &identity)) return false;
  Series series;
  series.name = Word(std::move(identity.name));
  series.destination = Word(std::move(identity.destination));
  series.uplink = Word(std::move(identity.uplink));
  series.slot = slot;
  series.kind = identity.kind;
  series.transport = identity.transport;
  series.path = identity.path;
  series.of_service = identity.of_service;
  const Key key(series.kind, series.name, series.destination, series.transport,
                series.path, series.uplink, series.of_service);
  const auto inserted = by_key_.emplace(key, series_.size());
  const size_t index = inserted.first->second;
  if (!inserted.second) {
    Series& first = series_[index];
    if (first.more_slots == nullptr) {
      first.more_slots = std::make_unique<std::vector<uint32_t>>();
    }
    first.more_slots->push_back(slot);
    return true;
  }
  if (series.of_service) by_service_[*series.name].push_back(index);
  if (series.kind == Kind::kPending) {
    Key other = key;
    std::get<bool>(other) = !series.of_service;
    const auto twin = by_key_.find(other);
    if (twin != by_key_.end()) {
      series.twin = static_cast<uint32_t>(twin->second);
      series_[twin->second].twin = static_cast<uint32_t>(index);
    }
  }
  series_.push_back(std::move(series));
  return true;
}

void SeriesReader::Forget() {
  next_slot_ = 1;
  unknown_.clear();
  series_.clear();
  by_key_.clear();
  by_service_.clear();
  words_.reset();  // not clear(): rows may hold them
}

void SeriesReader::Update() {
  try {
    Learn();
  } catch (...) {
    // Memory ran out in the middle of it. The learned data may be incomplete, such as a
    // slot without its key. So the reader forgets everything, and the next read starts
    // anew.
    Forget();
    throw;
  }
}

// Reads how names on the wire become labels, and whether connections are counted. A load
// may change both.
void SeriesReader::ReadNaming() {
  const nm_info& info = *view_.info;
  suffixes_ =
      absl::StrSplit(BoundedString(info.suffixes, sizeof(info.suffixes)), '\n',
                     absl::SkipEmpty());
  fold_unknown_ = info.fold_unknown != 0;
  // Without its hook the map would say that there are no connections.
  tcp_ = (info.features & NM_FEATURE_SOCKET_TABLE) != 0 ? view_.tcp : nullptr;
}

// If the number stays odd, the memory does not belong to a meter, and is read as it is.
template <typename Body>
void SeriesReader::BetweenMoves(const Body& body) const {
  for (int i = 0;; ++i) {
    const nm_u64 moves = __atomic_load_n(&view_.stats->moves, __ATOMIC_ACQUIRE);
    const bool patient = i < kMostPauses;
    if (moves % 2 == 0 || !patient) {
      body(moves);
      AcquireFence();
      if (Load(&view_.stats->moves) == moves || !patient) return;
    }
    const WithoutCancellation guard;
    std::this_thread::sleep_for(kPause);
  }
}

// A body that runs again has already written to *out.
template <typename Out, typename Body>
void SeriesReader::ReadSeries(std::vector<Out>* out, const Body& body) {
  bool written = false;
  try {
    BetweenMoves([&](nm_u64 moves) {
      if (moves != moves_) {
        if (extend_ && IsBehind(view_)) extend_(&view_);
        Forget();
        ReadNaming();
        moves_ = moves;
      }
      Update();
      written = true;
      body();
    });
  } catch (...) {
    if (written) out->clear();
    throw;
  }
}

void SeriesReader::Learn() {
  // Loaded before any slot is checked: the next read sees whatever is written later.
  const nm_u64 heads = __atomic_load_n(&view_.stats->heads, __ATOMIC_ACQUIRE);
  const nm_u64 allocated = Load(&view_.stats->slots_allocated);
  // First the slots that had no head at the last check: a CPU was about to write the
  // head, or the slot was free. After a sweep there are thousands of free slots.
  if (heads == 0 || heads != heads_ || allocated != slots_allocated_) {
    unknown_.erase(
        std::remove_if(unknown_.begin(), unknown_.end(),
                       [this](uint32_t slot) { return Learn(slot); }),
        unknown_.end());
  }
  heads_ = heads;
  slots_allocated_ = allocated;
  // Then the slots handed out since. The kernel sets the number, but the bound is ours:
  // it was checked against the maps' sizes when they were opened.
  const nm_u64 taken = std::min<nm_u64>(allocated, view_.max_series);
  const uint32_t end = static_cast<uint32_t>(
      std::min<nm_u64>(NM_SLOT_FIRST + taken, view_.max_series));
  for (; next_slot_ < end; ++next_slot_) {
    if (!Learn(next_slot_)) unknown_.push_back(next_slot_);
  }
}

// Sums of a slot are computed in registers, and stored once.
template <bool is_first, typename Out>
void SeriesReader::TakeSlot(const Series& series, uint32_t slot,
                            Out* out) const {
  nm_u64 heads = 0, sums[kWordsPerCell] = {};
  const nm_u64* cell = Cell(slot, 0);
  for (uint32_t i = 0; i < view_.cells_per_series; ++i) {
    heads |= Load(cell);
    ForEachBelow<kWordsPerCell>(
        [&](size_t word) { sums[word] += Load(cell + word); });
    cell += kWordsPerCell;
  }
  const auto take = [&sums](size_t offset, uint64_t* sum) {
    Take<is_first>(sums[offset / sizeof(nm_u64)], sum);
  };
  // Heads differ only in their flags. This is one of the flags.
  if (HeadOf(heads).flags & NM_FLAG_REGISTERED) out->registered = true;
  take(offsetof(nm_cell, tx_bytes), &out->tx_bytes);
  take(offsetof(nm_cell, rx_bytes), &out->rx_bytes);
  take(offsetof(nm_cell, tx_packets), &out->tx_packets);
  take(offsetof(nm_cell, rx_packets), &out->rx_packets);
  take(offsetof(nm_cell, tx_payload_bytes), &out->tx_payload_bytes);
  take(offsetof(nm_cell, rx_payload_bytes), &out->rx_payload_bytes);
  take(offsetof(nm_cell, tx_retransmit_bytes), &out->tx_retransmit_bytes);
  if (tcp_ != nullptr && series.transport == Transport::kTcp &&
      series.kind != Kind::kPending) {
    TakeConnections<is_first>(TcpAt(view_, slot), out);
  } else if (is_first) {
    ForgetConnections(out);
  }
}

// Overwrites or adds to all members of *out except the strings, which may allocate.
template <bool is_first, typename Out>
inline void SeriesReader::Sum(const Series& series, Out* out) const {
  if (is_first) {
    out->kind = static_cast<decltype(out->kind)>(series.kind);
    out->transport = static_cast<decltype(out->transport)>(series.transport);
    out->path = static_cast<decltype(out->path)>(series.path);
    out->registered = false;
  }
  TakeSlot<is_first>(series, series.slot, out);
  if (series.more_slots == nullptr) return;
  for (const uint32_t slot : *series.more_slots) {
    TakeSlot<false>(series, slot, out);
  }
}

// Whether any series of the service has the flag.
bool SeriesReader::IsRegistered(const std::string& service) const {
  const auto is_registered = [this](uint32_t slot) {
    for (uint32_t i = 0; i < view_.cells_per_series; ++i) {
      if (HeadOf(Load(Cell(slot, i))).flags & NM_FLAG_REGISTERED) return true;
    }
    return false;
  };
  const auto found = by_service_.find(service);
  if (found == by_service_.end()) return false;
  for (const size_t index : found->second) {
    const Series& series = series_[index];
    if (is_registered(series.slot)) return true;
    if (series.more_slots != nullptr &&
        std::any_of(series.more_slots->begin(), series.more_slots->end(),
                    is_registered)) {
      return true;
    }
  }
  return false;
}

// Reuses the memory of the sample's strings.
void SeriesReader::Name(const Series& series, Sample* sample) {
  Assign(*series.name, &sample->name);
  Assign(*series.destination, &sample->destination);
  Assign(*series.uplink, &sample->uplink);
}

void SeriesReader::Name(const Series& series, netmeter_sample* row) {
  row->size = sizeof(*row);
  row->name = series.name->c_str();
  row->name_length = static_cast<uint32_t>(series.name->size());
  row->destination = series.destination->c_str();
  row->destination_length = static_cast<uint32_t>(series.destination->size());
  row->uplink = series.uplink->c_str();
  row->uplink_length = static_cast<uint32_t>(series.uplink->size());
}

// If a service has few slots, the cache lines of a slot are far from those of the
// previous one.
inline void SeriesReader::Prefetch(uint32_t slot) const {
  const nm_u64* cell = Cell(slot, 0);
  for (uint32_t i = 0; i < view_.cells_per_series; ++i) {
    __builtin_prefetch(cell + i * kWordsPerCell);
  }
  if (tcp_ == nullptr) return;
  const nm_u64* const tcp =
      reinterpret_cast<const nm_u64*>(&TcpAt(view_, slot));
  __builtin_prefetch(tcp);
  __builtin_prefetch(tcp + kWordsPerCell);
}

// Sums up `count` series, which next(0) and so on return. Skips series that are pending
// and empty. Twins become one sample, in the place of the first, or two.
template <typename Out, typename Next>
void SeriesReader::Fill(Twins twins, size_t count, const Next& next,
                        std::vector<Out>* out) const {
  constexpr size_t kAhead =
      4;  // summing 4 series takes as long as one memory access
  size_t filled = 0;
  out->reserve(count);
  for (size_t i = 0; i < count; ++i) {
    if (i + kAhead < count) Prefetch(next(i + kAhead).slot);
    const Series& series = next(i);
    const bool with_twin = twins == Twins::kOne && series.twin != kNoTwin;
    // In FillAll() `i` is the series' own number.
    if (with_twin && series.twin < i) continue;
    if (filled == out->size()) out->emplace_back();
    Out* const one = &(*out)[filled];
    Sum<true>(series, one);
    if (with_twin) Sum<false>(series_[series.twin], one);
    if (series.kind == Kind::kPending && TidyPending(one)) continue;
    if (twins == Twins::kMarked && series.kind == Kind::kPending &&
        series.of_service && !one->registered) {
      one->registered = IsRegistered(*series.name);
    }
    Name(series, one);
    ++filled;
  }
  out->resize(filled);
}

template <typename Out>
void SeriesReader::FillAll(Twins twins, std::vector<Out>* out) const {
  Fill(
      twins, series_.size(),
      [this](size_t i) -> const Series& { return series_[i]; }, out);
}

template <typename Out>
void SeriesReader::FillService(absl::string_view service,
                               std::vector<Out>* out) const {
  const auto found = by_service_.find(service);
  if (found == by_service_.end()) return out->clear();
  const std::vector<size_t>& own = found->second;
  Fill(
      Twins::kApart, own.size(),
      [&](size_t i) -> const Series& { return series_[own[i]]; }, out);
}

// The mutex protects learned data between threads of this process. Nothing here waits for
// the kernel.
void SeriesReader::ReadAll(std::vector<Sample>* samples) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ReadSeries(samples, [&] { FillAll(Twins::kOne, samples); });
}

void SeriesReader::ReadAllByOwner(std::vector<Sample>* samples) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ReadSeries(samples, [&] { FillAll(Twins::kMarked, samples); });
}

void SeriesReader::ReadService(absl::string_view service,
                               std::vector<Sample>* samples) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ReadSeries(samples, [&] { FillService(service, samples); });
}

// Rows keep the words of an earlier read until they get others.
template <typename Body>
void SeriesReader::ReadRows(SampleRows* rows, const Body& body) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ReadSeries(&rows->rows, [&] {
    body(&rows->rows);
    if (rows->words != words_) rows->words = words_;
  });
}

void SeriesReader::ReadAll(SampleRows* rows) {
  ReadRows(rows, [this](auto* out) { FillAll(Twins::kOne, out); });
}

void SeriesReader::ReadService(absl::string_view service, SampleRows* rows) {
  ReadRows(rows, [&](auto* out) { FillService(service, out); });
}

std::vector<Sample> SeriesReader::ReadAll() {
  std::vector<Sample> samples;
  ReadAll(&samples);
  return samples;
}

std::vector<Sample> SeriesReader::ReadService(absl::string_view service) {
  std::vector<Sample> samples;
  ReadService(service, &samples);
  return samples;
}

Health SeriesReader::ReadHealth() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  Health health;
  BetweenMoves([&](nm_u64) { health = ReadHealthOnce(); });
  return health;
}

Health SeriesReader::ReadHealthOnce() const {
  const nm_info& info = *view_.info;
  const nm_stats& stats = *view_.stats;
  Health health;
  health.version = BoundedString(info.version, sizeof(info.version));
  health.abi = absl::StrCat(info.abi_major, ".", info.abi_minor);
  health.kernel = BoundedString(info.kernel, sizeof(info.kernel));
  if (const nm_u64 hash = Load(&info.config_hash)) {
    health.config_hash = absl::StrCat(absl::Hex(hash, absl::kZeroPad16));
  }
  health.cgroup = BoundedString(info.cgroup, sizeof(info.cgroup));
  health.start_time_ns = Load(&info.created_ns);
  health.load_time_ns = Load(&info.loaded_ns);
  health.series = Saturated(Load(&stats.series_used));
  health.max_series = view_.max_series;
  health.names = Saturated(Load(&stats.names_used));
  health.max_names = view_.max_names;
  health.evicted_series = Load(&stats.series_evicted);
  health.evicted_names = Load(&stats.names_evicted);
  for (const MisattributionRow& row : kMisattributions) {
    health.misattributed.push_back(
        {row.unit, row.reason, Load(&(stats.*row.count))});
  }
  return health;
}

}  // namespace internal
}  // namespace netmeter
