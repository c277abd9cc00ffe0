// SPDX-License-Identifier: BSD-3-Clause
// lib/reader/series_reader.h: the shared maps, with any contents. A reader believes
// nothing that it reads, whoever wrote it; and contents may change between two reads.
// The input is laid over the maps twice: from its begin, and from its middle.

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "lib/reader/series_buffers.h"
#include "lib/reader/series_reader.h"
#include "test/fuzz/check.h"

namespace netmeter {
namespace internal {
namespace {

constexpr uint32_t kSeries = 40, kNames = 12, kCells = 3;

// The input again and again, with the number of the round mixed in: short inputs fill
// large maps with more than one pattern.
class Pattern {
 public:
  Pattern(const uint8_t* data, size_t size) {
    bytes_.reserve(kRounds * size);
    for (size_t round = 0; round < kRounds; ++round) {
      for (size_t i = 0; i < size; ++i) {
        bytes_.push_back(static_cast<char>(data[i] + round));
      }
    }
    // In pieces of some length: most of the time would go into copying.
    const size_t once = bytes_.size();
    while (bytes_.size() < 4096) bytes_.append(bytes_, 0, once);
  }

  template <typename T>
  void Lay(T* map, size_t count) {
    auto* const to = reinterpret_cast<char*>(map);
    for (size_t done = 0; done < count * sizeof(T);) {
      const size_t length =
          std::min(count * sizeof(T) - done, bytes_.size() - at_);
      memcpy(to + done, bytes_.data() + at_, length);
      done += length;
      at_ = (at_ + length) % bytes_.size();
    }
  }

 private:
  static constexpr size_t kRounds = 7;
  std::string bytes_;
  size_t at_ = 0;
};

void LayAll(const uint8_t* data, size_t size, Buffers* maps) {
  Pattern pattern(data, size);
  pattern.Lay(&maps->stats(), 1);
  // An odd number of moves says that a program is in the middle of one: the reader
  // waits half a second and more for its end, which does not come here, and then reads
  // as it does here (SeriesReader.AMoveThatNeverEndsKeepsNobodyWaiting).
  maps->stats().moves &= ~1ULL;
  pattern.Lay(maps->words().data(), maps->words().size());
  pattern.Lay(maps->names().data(), maps->names().size());
  pattern.Lay(&maps->info(), 1);
  pattern.Lay(&maps->tcp(0), kSeries);
}

void Read(SeriesReader* reader, std::vector<Sample>* samples) {
  reader->ReadAll(samples);
  FUZZ_CHECK(samples->size() <= kSeries);
  size_t bytes = 0;
  for (const Sample& sample : *samples) {
    bytes +=
        sample.name.size() + sample.destination.size() + sample.uplink.size();
    FUZZ_CHECK(KindName(sample.kind) != nullptr);
    FUZZ_CHECK(TransportName(sample.transport) != nullptr);
    FUZZ_CHECK(PathName(sample.path) != nullptr);
  }
  // A Huffman code of HPACK has 5 bits at least.
  FUZZ_CHECK(bytes <= samples->size() * 3 * 2 * NM_NAME_BYTES);
  if (!samples->empty()) {
    std::vector<Sample> of_service;
    reader->ReadService((*samples)[0].name, &of_service);
    FUZZ_CHECK(of_service.size() <= samples->size());
  }
  const Health health = reader->ReadHealth();
  FUZZ_CHECK(health.version.size() <= NM_VERSION_BYTES);
  FUZZ_CHECK(health.cgroup.size() <= NM_PATH_BYTES);
  Sample sample;
  std::string name;
  for (const uint32_t number : {0u, 1u, kNames, kSeries, ~0u}) {
    reader->ReadKey(number, &sample);
    reader->ReadName(number, &name);
  }
}

}  // namespace
}  // namespace internal
}  // namespace netmeter

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace netmeter::internal;  // NOLINT
  if (size < 2) return 0;
  Buffers maps(kCells, kSeries, kNames);
  LayAll(data, size, &maps);
  SeriesReader reader(maps.view());
  std::vector<netmeter::Sample> samples;
  Read(&reader, &samples);
  LayAll(data + size / 2, size - size / 2, &maps);
  Read(&reader, &samples);
  return 0;
}
