// SPDX-License-Identifier: BSD-3-Clause
// The TLS half of bpf/wire_name.bpf.h. An input that begins with 22 is what a
// connection sends. Any other is two bytes that say how to cut, and the body
// of a ClientHello, which goes into one record, and into two.

#include <string>
#include <string_view>

#include "test/fuzz/wire_parser.h"

namespace netmeter {
namespace fuzz {
namespace {

void Record(std::string* stream, std::string_view payload) {
  if (payload.empty()) return;
  stream->append("\x16\3\1");
  stream->push_back(static_cast<char>(payload.size() >> 8));
  stream->push_back(static_cast<char>(payload.size()));
  stream->append(payload);
}

void ReadHello(std::string_view input) {
  const size_t cut_bits =
      static_cast<uint8_t>(input[0]) << 8 | static_cast<uint8_t>(input[1]);
  const std::string_view body = input.substr(2, 16000);
  std::string message("\1\0", 2);
  message.push_back(static_cast<char>(body.size() >> 8));
  message.push_back(static_cast<char>(body.size()));
  message.append(body);
  const size_t cut = cut_bits % (message.size() + 1);

  std::string whole, split;
  Record(&whole, message);
  Record(&split, std::string_view(message).substr(0, cut));
  Record(&split, std::string_view(message).substr(cut));
  const Expected expected = ReferenceTls(whole);
  // Nothing is waited for after the hello.
  FUZZ_CHECK(expected.result != NM_NAMING_MORE);
  CheckSame(Read(NM_WIRE_TLS, whole, whole.size()), expected);
  CheckSame(Read(NM_WIRE_TLS, split, cut), expected);
}

}  // namespace
}  // namespace fuzz
}  // namespace netmeter

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace netmeter::fuzz;  // NOLINT
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (size == 0 || input[0] == 22) {
    const size_t cut = size ? (data[size - 1] + 7 * size) % (size + 1) : 0;
    CheckSame(Read(NM_WIRE_TLS, input, cut), ReferenceTls(input));
  } else if (size >= 2) {
    ReadHello(input);
  }
  return 0;
}
