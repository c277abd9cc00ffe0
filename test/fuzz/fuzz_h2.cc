// SPDX-License-Identifier: BSD-3-Clause
// The HTTP/2 half of bpf/wire_name.bpf.h. An input that begins with "P" is what a
// connection sends. Any other is two bytes that say how to cut, and a header
// block, which goes into a stream and to nghttp2's inflater.

#include <nghttp2/nghttp2.h>

#include <string>
#include <string_view>

#include "lib/reader/wire_name.h"
#include "test/fuzz/wire_parser.h"

namespace netmeter {
namespace fuzz {
namespace {

void Frame(std::string* stream, uint8_t type, uint8_t flags,
           std::string_view payload) {
  const size_t size = payload.size();
  for (size_t byte : {size >> 16, size >> 8, size}) {
    stream->push_back(static_cast<char>(byte));
  }
  stream->push_back(static_cast<char>(type));
  stream->push_back(static_cast<char>(flags));
  stream->append("\0\0\0\1", 4);
  stream->append(payload);
}

std::string Preface() {
  std::string stream = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  Frame(&stream, 4, 0, "");
  return stream;
}

// Where nghttp2 finds :authority, there must we.
void CheckAgainstNghttp2(std::string_view block, const nm_naming& n,
                         const Expected& expected) {
  nghttp2_hd_inflater* inflater = nullptr;
  FUZZ_CHECK(nghttp2_hd_inflate_new(&inflater) == 0);
  auto* at = reinterpret_cast<const uint8_t*>(block.data());
  size_t left = block.size();
  for (;;) {
    nghttp2_nv field = {};
    int flags = 0;
    const ssize_t used =
        nghttp2_hd_inflate_hd2(inflater, &field, &flags, at, left, 1);
    if (used < 0) break;
    at += used;
    left -= used;
    if (flags & NGHTTP2_HD_INFLATE_EMIT) {
      const std::string_view name(reinterpret_cast<char*>(field.name),
                                  field.namelen);
      const std::string_view value(reinterpret_cast<char*>(field.value),
                                   field.valuelen);
      if (name != ":authority") continue;
      if (value.empty()) {
        // Indexed, from the static table: we read on. A literal: we don't.
        if (n.result == NM_NAMING_FAILED) break;
        continue;
      }
      if (expected.limit) break;
      FUZZ_CHECK(n.result == NM_NAMING_FOUND);
      std::string text = NameOf(n);
      if (n.encoding == NM_ENCODING_HUFFMAN) {
        FUZZ_CHECK(internal::DecodeHuffman(NameOf(n), &text));
        FUZZ_CHECK(text == value);
      } else {
        FUZZ_CHECK(text == value.substr(0, NM_NAME_BYTES));
      }
      break;
    }
    if ((flags & NGHTTP2_HD_INFLATE_FINAL) || left == 0) break;
  }
  nghttp2_hd_inflate_del(inflater);
}

void ReadBlock(std::string_view input) {
  const size_t cut_bits =
      static_cast<uint8_t>(input[0]) << 8 | static_cast<uint8_t>(input[1]);
  const std::string_view block = input.substr(2);
  const size_t cut = (cut_bits & 0x3fff) % (block.size() + 1);

  std::string whole = Preface();
  Frame(&whole, NM_H2_HEADERS, NM_H2_FLAG_END_HEADERS, block);
  const nm_naming n = Read(NM_WIRE_H2, whole, whole.size());
  const Expected expected = ReferenceHpack(block, true);
  CheckSame(n, expected);
  CheckAgainstNghttp2(block, n, expected);

  // Sends it in two frames, padded and with a priority if told so.
  std::string first;
  uint8_t flags = 0;
  const size_t padding = cut_bits & 0x8000 ? cut_bits & 0xff : 0;
  if (cut_bits & 0x8000) {
    flags |= NM_H2_FLAG_PADDED;
    first.push_back(static_cast<char>(padding));
  }
  if (cut_bits & 0x4000) {
    flags |= NM_H2_FLAG_PRIORITY;
    first.append("\x80\0\0\3\x10", 5);
  }
  first.append(block.substr(0, cut));
  first.append(padding, '@');
  std::string split = Preface();
  Frame(&split, NM_H2_HEADERS, flags, first);
  Frame(&split, NM_H2_CONTINUATION, 0, "");
  Frame(&split, NM_H2_CONTINUATION, NM_H2_FLAG_END_HEADERS, block.substr(cut));
  CheckSame(Read(NM_WIRE_H2, split, cut_bits % (split.size() + 1)), expected);
}

}  // namespace
}  // namespace fuzz
}  // namespace netmeter

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace netmeter::fuzz;  // NOLINT
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (size == 0 || input[0] == 'P') {
    const size_t cut = size ? (data[size - 1] + 7 * size) % (size + 1) : 0;
    CheckSame(Read(NM_WIRE_H2, input, cut), ReferenceH2(input));
  } else if (size >= 2) {
    ReadBlock(input);
  }
  return 0;
}
