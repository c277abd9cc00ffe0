// SPDX-License-Identifier: BSD-3-Clause
// lib/apps/exporter/http_peer.h: what a client of /metrics sends. However the bytes come
// in pieces, the answer is that for all of them; and once it is an answer, more bytes
// do not change it.

#include <string>

#include "lib/apps/exporter/http_peer.h"
#include "test/fuzz/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace netmeter::internal;  // NOLINT
  const absl::string_view all(reinterpret_cast<const char*>(data), size);
  HttpRequest request;
  const HttpParse result = ParseHttpRequest(all, &request);
  HttpParse earlier = HttpParse::kIncomplete;
  for (size_t length = 0; length <= size; length += 1 + size / 64) {
    HttpRequest part;
    earlier = ParseHttpRequest(all.substr(0, length), &part);
    if (earlier == HttpParse::kIncomplete) continue;
    FUZZ_CHECK(earlier == result || result == HttpParse::kTooLarge);
    break;
  }
  FUZZ_CHECK(size <= kMaxHttpHeadBytes || result != HttpParse::kIncomplete);
  if (result != HttpParse::kComplete) return 0;
  FUZZ_CHECK(!request.method.empty());
  FUZZ_CHECK(request.path.find('?') == std::string::npos);
  FUZZ_CHECK(request.method.size() + request.path.size() +
                 request.accept.size() + request.accept_encoding.size() <=
             size);
  FUZZ_CHECK(request.bytes > 0 && request.bytes <= size);
  return 0;
}
