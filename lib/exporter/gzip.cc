// SPDX-License-Identifier: BSD-3-Clause
#include "lib/exporter/gzip.h"

#include <zlib.h>

#include <new>

namespace netmeter {
namespace internal {
namespace {

// zlib.h, deflateInit2(): 15 bits of window, and 16 more for gzip's header.
constexpr int kGzipWindowBits = 15 + 16;
constexpr int kMemoryLevel = 8;  // zlib's default

// Ends the stream, whatever is thrown.
struct Stream : z_stream {
  Stream() : z_stream() {
    if (deflateInit2(this, Z_BEST_SPEED, Z_DEFLATED, kGzipWindowBits,
                     kMemoryLevel, Z_DEFAULT_STRATEGY) != Z_OK) {
      throw std::bad_alloc();
    }
  }
  ~Stream() { deflateEnd(this); }
};

}  // namespace

std::string Gzip(absl::string_view bytes) {
  Stream stream;
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  std::string result;
  char buffer[16 * 1024];
  int state;
  do {
    stream.next_out = reinterpret_cast<Bytef*>(buffer);
    stream.avail_out = sizeof(buffer);
    state = deflate(&stream, Z_FINISH);
    result.append(buffer, sizeof(buffer) - stream.avail_out);
  } while (state == Z_OK);
  result.shrink_to_fit();
  return result;
}

}  // namespace internal
}  // namespace netmeter
