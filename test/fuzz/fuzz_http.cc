// SPDX-License-Identifier: BSD-3-Clause
// bpf/wire_http.bpf.h. An input that begins with a letter is what a connection
// sends. Any other is a byte that says where to cut, and a host, in each form
// in which a request may name one: all of them have to name the same.

#include <string>
#include <string_view>

#include "test/fuzz/wire_parser.h"

namespace netmeter {
namespace fuzz {
namespace {

void ReadHost(std::string_view host, size_t cut) {
  const std::string text(host);
  for (const std::string& request :
       {"GET / HTTP/1.1\r\nhOsT:" + text + "\r\n\r\n",
        "M-SEARCH * HTTP/1.0\nx: y\n folded\nHost: \t" + text + " \n\n",
        "CONNECT " + text + " HTTP/1.1\r\n",
        "GET HTTP://u:p@" + text + "/x HTTP/1.1\r\nHost: other\r\n"}) {
    const Expected expected = ReferenceHttp(request);
    CheckSame(Read(NM_WIRE_HTTP, request, cut % (request.size() + 1)),
              expected);
    // If a host has no such bytes, each form names it.
    if (host.empty() || host.find_first_of("/?#@ ") != host.npos) continue;
    if (std::any_of(host.begin(), host.end(), IsControl)) continue;
    FUZZ_CHECK(expected.result == NM_NAMING_FOUND);
    FUZZ_CHECK(expected.name == host.substr(0, NM_NAME_BYTES));
  }
}

}  // namespace
}  // namespace fuzz
}  // namespace netmeter

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace netmeter::fuzz;  // NOLINT
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (size == 0 || (input[0] >= 'A' && input[0] <= 'Z')) {
    const size_t cut = size ? (data[size - 1] + 7 * size) % (size + 1) : 0;
    CheckSame(Read(NM_WIRE_HTTP, input, cut), ReferenceHttp(input));
  } else {
    ReadHost(input.substr(1), data[0]);
  }
  return 0;
}
