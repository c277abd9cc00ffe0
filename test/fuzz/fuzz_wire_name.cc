// SPDX-License-Identifier: BSD-3-Clause
// lib/reader/wire_name.h: one byte of options, then a name as it stood on the
// wire, raw or in the Huffman code.

#include <nghttp2/nghttp2.h>

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "lib/reader/wire_name.h"
#include "netmeter/abi.h"
#include "test/fuzz/check.h"

namespace netmeter {
namespace fuzz {
namespace {

constexpr char kPort[] = ":443";

// There is one code of a text (RFC 7541 section 5.2): what nghttp2 makes of
// the decoded text is what was decoded.
void CheckEncodesTo(const std::string& text, std::string_view code) {
  nghttp2_hd_deflater* deflater = nullptr;
  FUZZ_CHECK(nghttp2_hd_deflate_new(&deflater, 4096) == 0);
  uint8_t name[] = "x";
  nghttp2_nv field = {};
  field.name = name;
  field.namelen = 1;
  field.value = reinterpret_cast<uint8_t*>(const_cast<char*>(text.data()));
  field.valuelen = text.size();
  field.flags = NGHTTP2_NV_FLAG_NO_INDEX;
  uint8_t block[512];
  const ssize_t size =
      nghttp2_hd_deflate_hd(deflater, block, sizeof(block), &field, 1);
  nghttp2_hd_deflate_del(deflater);
  // 0x10, a length of 1, "x", the value's length, the value.
  FUZZ_CHECK(size > 4);
  if (!(block[3] & 0x80)) return;  // the code would not be shorter
  FUZZ_CHECK(code == std::string_view(reinterpret_cast<char*>(block) + 4,
                                      static_cast<size_t>(size) - 4));
}

void CheckLabel(const std::string& text, const std::string& label, bool fold,
                const std::vector<std::string>& suffixes) {
  FUZZ_CHECK(label == "other" || label.size() <= text.size());
  for (char c : label) FUZZ_CHECK(c != '\0' && (c < 'A' || c > 'Z'));
  if (text.empty() || text.find('\0') != std::string::npos) return;
  FUZZ_CHECK(!label.empty());
  // Capitals, a port and the root's dot make no difference.
  std::string other = text;
  for (char& c : other) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  FUZZ_CHECK(internal::LabelOfWireName(other, false, suffixes, fold) == label);
  // ... except if one spelling has NM_NAME_BYTES, as a name that was cut has, and the
  // other has not.
  if (text.find(':') != std::string::npos ||
      text.size() + strlen(kPort) >= NM_NAME_BYTES) {
    return;
  }
  FUZZ_CHECK(internal::LabelOfWireName(text + kPort, false, suffixes, fold) ==
             label);
  if (text.back() == '.') return;
  FUZZ_CHECK(internal::LabelOfWireName(text + ".", false, suffixes, fold) ==
             label);
}

void One(std::string_view input) {
  static const auto* const suffixes = new std::vector<std::string>{
      "-cloud.example", ".local", "-controller.magma.test"};
  const bool huffman = input[0] & 1, fold = input[0] & 2;
  const std::string bytes(input.substr(1));
  const std::string label =
      internal::LabelOfWireName(bytes, huffman, *suffixes, fold);
  if (!huffman) {
    CheckLabel(bytes, label, fold, *suffixes);
    return;
  }
  std::string text = "unchanged";
  if (!internal::DecodeHuffman(bytes, &text)) {
    FUZZ_CHECK(text == "unchanged" && label == "other");
    return;
  }
  FUZZ_CHECK(!bytes.empty() && bytes.size() <= NM_NAME_BYTES);
  FUZZ_CHECK(text.size() <= bytes.size() * 8 / 5);
  if (!text.empty()) CheckEncodesTo(text, bytes);
  if (text.size() == NM_NAME_BYTES) return;  // without the code it may be cut
  CheckLabel(text, label, fold, *suffixes);
  FUZZ_CHECK(internal::LabelOfWireName(text, false, *suffixes, fold) == label);
}

}  // namespace
}  // namespace fuzz
}  // namespace netmeter

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size) {
    netmeter::fuzz::One({reinterpret_cast<const char*>(data), size});
  }
  return 0;
}
