// SPDX-License-Identifier: BSD-3-Clause
// Compares the decoder of names on the wire with nghttp2.

#include <gtest/gtest.h>
#include <nghttp2/nghttp2.h>
#include <sys/types.h>

#include <cstdint>
#include <string>

#include "lib/reader/wire_name.h"

namespace netmeter {
namespace internal {
namespace {

// nghttp2 decodes only header blocks: the code becomes the value of a literal field named
// "x" (RFC 7541, section 6.2.2).
bool DecodeWithNghttp2(const std::string& code, std::string* text) {
  std::string block("\0\1x", 3);
  block += static_cast<char>(0x80 | code.size());
  block += code;
  nghttp2_hd_inflater* inflater = nullptr;
  EXPECT_EQ(nghttp2_hd_inflate_new(&inflater), 0);
  nghttp2_nv field = {};
  int flags = 0;
  const ssize_t used = nghttp2_hd_inflate_hd2(
      inflater, &field, &flags, reinterpret_cast<const uint8_t*>(block.data()),
      block.size(), 1);
  const bool decoded = used == static_cast<ssize_t>(block.size()) &&
                       (flags & NGHTTP2_HD_INFLATE_EMIT) != 0;
  if (decoded) {
    text->assign(reinterpret_cast<const char*>(field.value), field.valuelen);
  }
  nghttp2_hd_inflate_del(inflater);
  return decoded;
}

// The code of any text. A text has only one code.
std::string EncodeWithNghttp2(const std::string& text) {
  nghttp2_hd_deflater* deflater = nullptr;
  EXPECT_EQ(nghttp2_hd_deflate_new(&deflater, 4096), 0);
  // nghttp2 uses the code only if it is shorter. Zeros have the shortest code.
  const std::string value = text + std::string(1000, '0');
  std::string name = "x";
  nghttp2_nv field = {
      reinterpret_cast<uint8_t*>(&name[0]),
      reinterpret_cast<uint8_t*>(const_cast<char*>(value.data())), name.size(),
      value.size(), NGHTTP2_NV_FLAG_NO_INDEX};
  std::string block(2000, 0);
  const ssize_t size = nghttp2_hd_deflate_hd(
      deflater, reinterpret_cast<uint8_t*>(&block[0]), block.size(), &field, 1);
  nghttp2_hd_deflate_del(deflater);
  EXPECT_GT(size, 6);
  // Skips 0x10, the name's length and code, and two more bytes of the value's length.
  return block.substr(6, static_cast<size_t>(size) - 6);
}

TEST(HuffmanTest, EachByteIsDecodedAsByNghttp2) {
  for (int byte = 0; byte < 256; byte++) {
    // Twice, so that the second code begins at any bit of a byte.
    const std::string text(2, static_cast<char>(byte));
    const std::string code = EncodeWithNghttp2(text).substr(0, 64);
    std::string ours, theirs;
    // The text may end within a code; both decoders must agree.
    ASSERT_EQ(DecodeHuffman(code, &ours), DecodeWithNghttp2(code, &theirs));
    EXPECT_EQ(ours, theirs) << byte;
    // 64 bytes are 512 bits, so the code fits exactly with some number of zeros.
    std::string whole;
    for (size_t length = 9; length <= code.size() && whole.empty(); length++) {
      DecodeHuffman(code.substr(0, length), &whole);
    }
    EXPECT_EQ(whole.substr(0, 2), text) << byte;
  }
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
