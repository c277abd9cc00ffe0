// SPDX-License-Identifier: BSD-3-Clause
#include "lib/core/wire_name.h"

#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <memory>
#include <new>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "netmeter/abi.h"

namespace netmeter {
namespace internal {
namespace {

constexpr char kOther[] = "other";

// An authority without its port (RFC 3986, section 3.2): the host of
// "host:443", of "[::1]:443", and of what has no port. A colon alone does not
// tell, since "fe80::1:443" is an address.
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

// How many bytes at the end of `host` are the beginning of a suffix: of a name that
// the kernel part has cut, the rest of the suffix is not known.
size_t BeginsSuffix(absl::string_view host,
                    const std::vector<std::string>& suffixes) {
  size_t longest = 0;
  for (const std::string& suffix : suffixes) {
    size_t length = std::min(suffix.size(), host.size());
    // A host that is nothing but a suffix keeps it, as below.
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

}  // namespace

bool DecodeHuffman(absl::string_view code, std::string* text) {
  // nghttp2 decodes header blocks, and its decoder of strings is not public. So
  // the code is put into a block of one field (RFC 7541, section 6.2.2), and
  // the value of that field is the text. The kernel part never stores the
  // beginning of a longer code, as that would be no code.
  if (code.empty() || code.size() > NM_NAME_BYTES) return false;
  std::string block("\0\1x", 3);  // literal, not indexed, named "x"
  block.push_back(static_cast<char>(0x80 | code.size()));
  block.append(code.data(), code.size());
  nghttp2_hd_inflater* inflater = nullptr;
  // It fails without memory only, which says nothing of the name.
  if (nghttp2_hd_inflate_new(&inflater) != 0) throw std::bad_alloc();
  const std::unique_ptr<nghttp2_hd_inflater, void (*)(nghttp2_hd_inflater*)>
      owner(inflater, nghttp2_hd_inflate_del);
  nghttp2_nv field = {};
  int flags = 0;
  const ssize_t used = nghttp2_hd_inflate_hd2(
      inflater, &field, &flags, reinterpret_cast<const uint8_t*>(block.data()),
      block.size(), 1);
  if (used == NGHTTP2_ERR_NOMEM) throw std::bad_alloc();
  // Padding that is none, or a code that ends within a character, is an error
  // there (section 5.2), and a name that cannot be trusted.
  const bool decoded = used == static_cast<ssize_t>(block.size()) &&
                       (flags & NGHTTP2_HD_INFLATE_EMIT) != 0;
  if (decoded) {
    text->assign(reinterpret_cast<const char*>(field.value), field.valuelen);
  }
  return decoded;
}

std::string LabelOfWireName(absl::string_view bytes, bool huffman,
                            const std::vector<std::string>& suffixes,
                            bool fold_unknown) {
  std::string text(bytes);
  if (huffman && !DecodeHuffman(bytes, &text)) return kOther;
  // In what a client sends anything may stand. Labels are C strings elsewhere.
  if (text.find('\0') != std::string::npos) return kOther;
  absl::AsciiStrToLower(&text);
  absl::string_view host = HostOf(text);
  // The dot of the root: the same host (RFC 1034, section 3.1).
  if (host.size() > 1 && host.back() == '.') host.remove_suffix(1);
  for (const std::string& suffix : suffixes) {
    // A host that is nothing but a suffix keeps it: no label is empty.
    if (host.size() > suffix.size() && absl::EndsWithIgnoreCase(host, suffix)) {
      return std::string(host.substr(0, host.size() - suffix.size()));
    }
  }
  // Longer names are stored as far as there is room. Without this a deployment with a
  // long domain had `streamer-controller.a-long-dom` for `streamer`.
  if (!huffman && bytes.size() == NM_NAME_BYTES) {
    if (host.back() == ':') host.remove_suffix(1);  // cut between host and port
    const size_t cut = BeginsSuffix(host, suffixes);
    if (cut > 0) return std::string(host.substr(0, host.size() - cut));
  }
  return fold_unknown ? kOther : std::string(host);
}

}  // namespace internal
}  // namespace netmeter
