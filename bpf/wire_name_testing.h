// SPDX-License-Identifier: BSD-3-Clause
// Runs wire_name.bpf.h on the host: the name in a connection's first bytes, wherever they
// are cut.
//
// Threads: none.

#ifndef NETMETER_BPF_WIRE_NAME_TESTING_H_
#define NETMETER_BPF_WIRE_NAME_TESTING_H_

#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include "bpf/first_bytes_testing.h"
#include "bpf/wire_name.bpf.h"
#include "lib/reader/wire_name.h"

namespace netmeter {
namespace internal {

constexpr char kName[] = "streamer-cloud.example";

inline void Feed(nm_naming* n, const std::string& bytes) {
  for (char c : bytes) {
    if (n->result) return;
    nm_naming_byte(n, static_cast<nm_u8>(c));
  }
}

// "none", "more", or the name. A name in the Huffman code is decoded, after "huffman:".
inline std::string Show(const nm_naming& n) {
  if (n.result == NM_NAMING_MORE) return "more";
  if (n.result == NM_NAMING_FAILED) return "none";
  const std::string name(reinterpret_cast<const char*>(n.name), n.name_length);
  if (n.encoding == NM_ENCODING_RAW) return name;
  std::string text;
  return DecodeHuffman(name, &text) ? "huffman:" + text : "no code";
}

// Reads all at once, and then with a cut at every position. After the cut, the state is
// elsewhere in memory.
inline std::string Read(nm_u8 protocol, const std::string& bytes) {
  nm_naming whole;
  nm_naming_start(&whole, protocol);
  Feed(&whole, bytes);
  for (size_t cut = 0; cut <= bytes.size(); cut++) {
    auto first = std::make_unique<nm_naming>();
    nm_naming_start(first.get(), protocol);
    Feed(first.get(), bytes.substr(0, cut));
    nm_naming second = *first;
    first.reset();
    Feed(&second, bytes.substr(cut));
    EXPECT_EQ(Show(second), Show(whole)) << "cut at " << cut;
  }
  return Show(whole);
}

// A file of the corpus: the first bytes of a real client (test/fuzz/run.sh).
inline std::string Recorded(const std::string& name) {
  std::ifstream file("test/fuzz/corpus/" + name, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  EXPECT_FALSE(bytes.str().empty()) << name;
  return bytes.str();
}

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_BPF_WIRE_NAME_TESTING_H_
