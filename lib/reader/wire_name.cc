// SPDX-License-Identifier: BSD-3-Clause
#include "lib/reader/wire_name.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "netmeter/abi.h"

namespace netmeter {
namespace internal {
namespace {

constexpr char kOther[] = "other";

// An authority without its port (RFC 3986, section 3.2). Returns the host of "host:443",
// of "[::1]:443", and of an authority without a port. A colon alone does not mark a port,
// because "fe80::1:443" is an address.
absl::string_view HostOf(absl::string_view authority) {
  const size_t colon = authority.rfind(':');
  if (colon == absl::string_view::npos || colon == 0) return authority;
  const absl::string_view port = authority.substr(colon + 1);
  if (port.empty() ||
      port.find_first_not_of("0123456789") != absl::string_view::npos) {
    return authority;
  }
  const absl::string_view host = authority.substr(0, colon);
  // An IPv6 address without brackets has no port.
  if (host.find(':') != absl::string_view::npos && host.back() != ']') {
    return authority;
  }
  return host;
}

// The number of bytes at the end of `host` that are the beginning of a suffix. For a name
// that the kernel part has cut, the end of the suffix is missing.
size_t BeginsSuffix(absl::string_view host,
                    const std::vector<std::string>& suffixes) {
  size_t longest = 0;
  for (const std::string& suffix : suffixes) {
    size_t length = std::min(suffix.size(), host.size());
    // A host that equals a suffix keeps it, as below.
    if (length > 0 && length == host.size()) length--;
    while (length > longest &&
           !absl::EndsWithIgnoreCase(
               host, absl::string_view(suffix).substr(0, length))) {
      length--;
    }
    longest = std::max(longest, length);
  }
  return longest;
}

// The lengths of the codes of all 256 bytes, in bits: RFC 7541, appendix B. The lengths
// suffice because the code is canonical: codes of one length are in the order of the
// bytes.
constexpr uint8_t kCodeBits[256] = {
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28,
    28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28, 6,  10, 10, 12, 13, 6,
    8,  11, 10, 10, 8,  11, 8,  6,  6,  6,  5,  5,  5,  6,  6,  6,  6,  6,  6,
    6,  7,  8,  15, 6,  12, 10, 13, 6,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,
    7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  8,  7,  8,  13, 19, 13, 14,
    6,  15, 5,  6,  5,  6,  5,  6,  6,  6,  5,  7,  7,  6,  6,  6,  5,  6,  7,
    6,  5,  5,  6,  7,  7,  7,  7,  7,  15, 11, 14, 13, 28, 20, 22, 20, 20, 22,
    22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23,
    23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22,
    24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22,
    22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19,
    21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21,
    22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27,
    27, 27, 28, 27, 27, 27, 27, 27, 26,
};
constexpr int kLongestCode = 30;

struct HuffmanCode {
  HuffmanCode() {
    for (int bits = 1; bits <= kLongestCode; bits++) {
      for (int byte = 0; byte < 256; byte++) {
        if (kCodeBits[byte] != bits) continue;
        count[bits]++;
        bytes += static_cast<char>(byte);
      }
    }
  }
  uint32_t count[kLongestCode + 1] = {};  // number of codes of each length
  std::string bytes;                      // in the order of their codes
};

}  // namespace

bool DecodeHuffman(absl::string_view code, std::string* text) {
  // The kernel part stores no part of a longer code, because it could not be decoded.
  if (code.empty() || code.size() > NM_NAME_BYTES) return false;
  static const auto* const huffman = new HuffmanCode;
  std::string decoded;
  // `value` has the `bits` bits that are not decoded yet. `first` is the lowest code of
  // that length, and `index` its place in huffman->bytes.
  uint32_t value = 0, first = 0, index = 0;
  int bits = 0;
  for (size_t i = 0; i < 8 * code.size(); i++) {
    value = value << 1 | (static_cast<uint8_t>(code[i / 8]) >> (7 - i % 8) & 1);
    first <<= 1;
    // Only EOS is longer, which is an error in a string (section 5.2).
    if (++bits > kLongestCode) return false;
    const uint32_t count = huffman->count[bits];
    if (value - first < count) {
      decoded += huffman->bytes[index + (value - first)];
      value = first = index = 0;
      bits = 0;
    } else {
      first += count;
      index += count;
    }
  }
  // Padding is the beginning of EOS, all ones, and less than a byte (section 5.2).
  if (bits > 7 || value != (1u << bits) - 1) return false;
  *text = std::move(decoded);
  return true;
}

std::string LabelOfWireName(absl::string_view bytes, bool huffman,
                            const std::vector<std::string>& suffixes,
                            bool fold_unknown) {
  std::string text(bytes);
  if (huffman && !DecodeHuffman(bytes, &text)) return kOther;
  // A client may send any byte, but labels are C strings in other places.
  if (text.find('\0') != std::string::npos) return kOther;
  absl::AsciiStrToLower(&text);
  absl::string_view host = HostOf(text);
  // Removes the dot of the root: it does not change the host (RFC 1034, section 3.1).
  if (host.size() > 1 && host.back() == '.') host.remove_suffix(1);
  for (const std::string& suffix : suffixes) {
    // A host that equals a suffix keeps it: no label is empty.
    if (host.size() > suffix.size() && absl::EndsWithIgnoreCase(host, suffix)) {
      return std::string(host.substr(0, host.size() - suffix.size()));
    }
  }
  // A long name is cut at NM_NAME_BYTES. Without this step a deployment with a long
  // domain had `streamer-controller.a-long-dom` instead of `streamer`.
  if (!huffman && bytes.size() == NM_NAME_BYTES) {
    if (host.back() == ':') host.remove_suffix(1);  // cut between host and port
    const size_t cut = BeginsSuffix(host, suffixes);
    if (cut > 0) return std::string(host.substr(0, host.size() - cut));
  }
  return fold_unknown ? kOther : std::string(host);
}

}  // namespace internal
}  // namespace netmeter
