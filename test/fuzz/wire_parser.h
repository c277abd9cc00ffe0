// SPDX-License-Identifier: BSD-3-Clause
// bpf/wire_name.bpf.h under the fuzzer: invariants after each byte, the input
// cut in two, and the reference's opinion.
//
// Threads: none.

#ifndef NETMETER_TEST_FUZZ_WIRE_PARSER_H_
#define NETMETER_TEST_FUZZ_WIRE_PARSER_H_

#include <memory>
#include <string>
#include <string_view>

#include "bpf/wire_name.bpf.h"
#include "test/fuzz/check.h"
#include "test/fuzz/reference.h"

namespace netmeter {
namespace fuzz {

// After each byte. Otherwise its comparisons would be half of the fuzzer's coverage.
__attribute__((no_sanitize("coverage"))) inline void CheckInvariants(
    const nm_naming& n) {
  FUZZ_CHECK(n.result <= NM_NAMING_FAILED);
  FUZZ_CHECK(n.state <= NM_TLS_NAME && n.resume <= NM_TLS_NAME);
  FUZZ_CHECK(n.name_length <= NM_NAME_BYTES);
  FUZZ_CHECK(n.encoding <= NM_ENCODING_HUFFMAN);
  FUZZ_CHECK(n.shift <= 35);
  FUZZ_CHECK(n.record < 5 && n.remaining <= 0xffffff);
  if (n.result == NM_NAMING_FOUND) FUZZ_CHECK(n.name_length > 0);
  if (n.result || n.protocol != NM_WIRE_H2) return;
  if (n.state == NM_H2_PREFACE) FUZZ_CHECK(n.position < 24);
  if (n.state == NM_H2_FRAME) FUZZ_CHECK(n.position < 9);
  if (n.state == NM_H2_PRIORITY) FUZZ_CHECK(n.position < 5);
  if (n.state == NM_HPACK_STRING) FUZZ_CHECK(n.position < n.value);
  if (n.state > NM_H2_FRAME) FUZZ_CHECK(n.remaining > 0);
}

inline void Feed(nm_naming* n, std::string_view bytes) {
  for (char c : bytes) {
    if (n->result) return;
    nm_naming_byte(n, static_cast<nm_u8>(c));
    CheckInvariants(*n);
  }
}

// Reads `bytes`, and goes on in another place of memory from `cut` on. It has
// to come to what the reference says of the whole, so all cuts agree.
inline nm_naming Read(nm_u8 protocol, std::string_view bytes, size_t cut) {
  // On the heap, of the exact size, so that asan sees any step out of it.
  auto first = std::make_unique<nm_naming>();
  nm_naming_start(first.get(), protocol);
  Feed(first.get(), bytes.substr(0, cut));
  auto second = std::make_unique<nm_naming>(*first);
  first.reset();
  Feed(second.get(), bytes.substr(cut));
  return *second;
}

inline std::string NameOf(const nm_naming& n) {
  return std::string(reinterpret_cast<const char*>(n.name), n.name_length);
}

inline void CheckSame(const nm_naming& n, const Expected& expected) {
  FUZZ_CHECK(n.result == expected.result);
  if (n.result != NM_NAMING_FOUND) return;
  FUZZ_CHECK(NameOf(n) == expected.name);
  FUZZ_CHECK((n.encoding == NM_ENCODING_HUFFMAN) == expected.huffman);
}

}  // namespace fuzz
}  // namespace netmeter

#endif  // NETMETER_TEST_FUZZ_WIRE_PARSER_H_
