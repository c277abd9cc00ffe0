// SPDX-License-Identifier: BSD-3-Clause
#include "lib/exporter/gzip.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <string>

namespace netmeter {
namespace internal {
namespace {

std::string Gunzip(const std::string& bytes, size_t size) {
  z_stream stream = {};
  EXPECT_EQ(inflateInit2(&stream, 15 + 16), Z_OK);
  std::string result(size + 1, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(&result[0]);
  stream.avail_out = static_cast<uInt>(result.size());
  EXPECT_EQ(inflate(&stream, Z_FINISH), Z_STREAM_END);
  result.resize(stream.total_out);
  inflateEnd(&stream);
  return result;
}

TEST(Gzip, GivesBackWhatItWas) {
  std::string page;  // more than a buffer of output
  for (uint32_t i = 0; i < 100000; ++i) {
    page += "netmeter_wire_bytes_total{name=\"" +
            std::to_string(i * 2654435761u) + "\"}\n";
  }
  for (const std::string& text : {std::string(), std::string("x"), page}) {
    EXPECT_EQ(Gunzip(Gzip(text), text.size()), text);
  }
  EXPECT_LT(Gzip(page).size(), page.size() / 3);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
