// SPDX-License-Identifier: BSD-3-Clause
// The HTTP/2 half of wire_name.bpf.h: :authority of the first request.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "bpf/wire_name_testing.h"

namespace netmeter {
namespace internal {
namespace {

constexpr uint8_t kEndHeaders = NM_H2_FLAG_END_HEADERS;
constexpr uint8_t kPadded = NM_H2_FLAG_PADDED;
constexpr uint8_t kPriority = NM_H2_FLAG_PRIORITY;

std::string ReadH2(const std::string& bytes) { return Read(NM_WIRE_H2, bytes); }

std::string Settings() { return Frame(4, 0, Number(3, 2) + Number(100, 4)); }

// A connection whose first request has this header block.
std::string Request(const std::string& block) {
  return kPreface + Settings() + Frame(1, kEndHeaders, block);
}

std::string HuffmanString(const std::string& code) {
  return Integer(0x80, 7, code.size()) + code;
}

// Huffman codes (RFC 7541, appendix B) of kName, ":authority" and "grpc-timeout".
const char kNameCode[] =
    "\x42\x6c\x28\xe9\x2d\x8b\x12\x83\xdb\x22\xe5\xf2\x3a\x6b\xa0\xbf";
const char kAuthorityCode[] = "\xb8\x3b\x53\x39\xec\x32\x7d\x7f";
const char kTimeoutCode[] = "\x9a\xca\xc8\xb2\x4d\x49\x4f\x6a\x7f";

// The code of "a", and then of `count` times "o": five bits each.
std::string CodeOfA(size_t count) {
  std::string bits = "00011", code;
  for (size_t i = 0; i < count; i++) bits += "00111";
  bits.resize((bits.size() + 7) / 8 * 8, '1');
  for (size_t i = 0; i < bits.size(); i += 8) {
    code += static_cast<char>(std::stoi(bits.substr(i, 8), nullptr, 2));
  }
  return code;
}

// :authority in every form of a literal.
std::vector<std::string> Forms(const std::string& value) {
  std::vector<std::string> forms;
  for (uint8_t kind : {0x40, 0x00, 0x10}) {  // to be, not, never indexed
    forms.push_back(Number(kind | 1, 1) + value);
    forms.push_back(Number(kind, 1) + String(":authority") + value);
    forms.push_back(Number(kind, 1) + HuffmanString(kAuthorityCode) + value);
  }
  return forms;
}

TEST(H2NamingTest, EveryFormOfALiteralNames) {
  for (const std::string& form : Forms(String(kName))) {
    EXPECT_EQ(ReadH2(Request(form)), kName);
  }
  for (const std::string& form : Forms(HuffmanString(kNameCode))) {
    EXPECT_EQ(ReadH2(Request(form)), std::string("huffman:") + kName);
  }
}

TEST(H2NamingTest, AnyOrderOfFieldsNames) {
  std::vector<std::string> fields = {
      "\x83",                                        // :method POST
      "\x86",                                        // :scheme http
      "\x44" + String("/magma.orc8r.Streamer/Get"),  // :path, indexed name
      "\x41" + String(kName),                        // :authority
      std::string(1, 0) + String("te") + String("trailers"),
      "\x10" + HuffmanString(kTimeoutCode) + String("199m")};
  std::sort(fields.begin(), fields.end());
  int orders = 0;
  do {
    std::string block;
    for (const std::string& field : fields) block += field;
    nm_naming n;
    nm_naming_start(&n, NM_WIRE_H2);
    Feed(&n, Request(block));
    ASSERT_EQ(Show(n), kName);
    orders++;
  } while (std::next_permutation(fields.begin(), fields.end()));
  EXPECT_EQ(orders, 720);
}

TEST(H2NamingTest, ThePrefaceIsCompared) {
  const std::string good = Request("\x41" + String(kName));
  for (size_t i = 0; i < 24; i++) {
    std::string bad = good;
    bad[i] ^= 0x20;
    EXPECT_EQ(ReadH2(bad), "none") << i;
    EXPECT_EQ(ReadH2(good.substr(0, i)), "more") << i;
  }
  EXPECT_EQ(ReadH2("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), "none");
  EXPECT_EQ(ReadH2("PRI * HTTP/1.1\r\n"), "none");
}

TEST(H2NamingTest, FramesInFrontOfHeadersAreSkipped) {
  const std::string request = Frame(1, kEndHeaders, "\x41" + String(kName));
  const std::string others[] = {
      Settings(),
      Frame(4, 0, ""),
      Frame(4, 1, ""),                              // SETTINGS, acknowledged
      Frame(8, 0, Number(1 << 20, 4)),              // WINDOW_UPDATE
      Frame(2, 0, Number(3, 4) + Number(16, 1)),    // PRIORITY
      Frame(6, 0, std::string(8, 'p')),             // PING
      Frame(0x10, 0, "u=1, i"),                     // PRIORITY_UPDATE
      Frame(0xfe, 0xff, std::string(300, '\x41')),  // unknown type
      Frame(0xfe, 0xff, "")};
  std::string all;
  for (const std::string& other : others) {
    EXPECT_EQ(ReadH2(kPreface + other + request), kName);
    all += other;
  }
  EXPECT_EQ(ReadH2(kPreface + all + all + request), kName);
  EXPECT_EQ(ReadH2(kPreface + all), "more");
}

TEST(H2NamingTest, PaddingAndPriorityAreNoFields) {
  const std::string block = "\x82\x41" + String(kName);
  const std::string priority("\x80\0\0\3\x10", 5);
  for (size_t padding : {0, 1, 7, 255}) {
    const std::string pad(padding, '\x41');
    EXPECT_EQ(ReadH2(kPreface + Frame(1, kEndHeaders | kPadded,
                                      Number(padding, 1) + block + pad)),
              kName);
    EXPECT_EQ(
        ReadH2(kPreface + Frame(1, kEndHeaders | kPadded | kPriority,
                                Number(padding, 1) + priority + block + pad)),
        kName);
    // No fields before the padding. They come in CONTINUATION.
    EXPECT_EQ(ReadH2(kPreface + Frame(1, kPadded, Number(padding, 1) + pad) +
                     Frame(9, kEndHeaders, block)),
              kName);
  }
  EXPECT_EQ(
      ReadH2(kPreface + Frame(1, kEndHeaders | kPriority, priority + block)),
      kName);
  // More padding than the frame has room for.
  EXPECT_EQ(
      ReadH2(kPreface +
             Frame(1, kEndHeaders | kPadded, "\x10" + block).substr(0, 11)),
      "more");
  EXPECT_EQ(ReadH2(kPreface + Frame(1, kEndHeaders | kPadded, "\xff" + block)),
            "none");
  EXPECT_EQ(ReadH2(kPreface + Frame(1, kEndHeaders | kPadded, "")), "none");
  EXPECT_EQ(ReadH2(kPreface + Frame(1, kEndHeaders | kPriority, "")), "none");
}

TEST(H2NamingTest, ContinuationsMaySplitAnywhere) {
  const std::string priority("\x80\0\0\3\x10", 5);
  for (const std::string& value : {String(kName), HuffmanString(kNameCode),
                                   String(std::string(200, 'a'))}) {
    const std::string expected = value[0] & 0x80
                                     ? std::string("huffman:") + kName
                                 : value.size() > 100 ? std::string(64, 'a')
                                                      : std::string(kName);
    for (const std::string& form : Forms(value)) {
      const std::string block =
          "\x83\x86" + Integer(0x20, 5, 4096) + "\x44" + String("/x") + form;
      for (size_t cut = 0; cut <= block.size(); cut++) {
        const std::string start = block.substr(0, cut);
        const std::string rest = block.substr(cut);
        nm_naming n;
        for (const std::string& headers :
             {Frame(1, 0, start), Frame(1, kPriority, priority + start),
              Frame(1, kPadded, "\3" + start + "\x41\x01\x41")}) {
          for (const std::string& more :
               {Frame(9, kEndHeaders, rest),
                Frame(9, 0, "") + Frame(9, kEndHeaders, rest),
                Frame(9, 0, rest) + Frame(9, kEndHeaders, "")}) {
            nm_naming_start(&n, NM_WIRE_H2);
            Feed(&n, kPreface + Settings() + headers + more);
            ASSERT_EQ(Show(n), expected) << cut;
          }
        }
      }
      // One byte in each frame, and also cut there.
      std::string bytes = kPreface + Frame(1, 0, block.substr(0, 1));
      for (char c : block.substr(1)) bytes += Frame(9, 0, std::string(1, c));
      nm_naming n;
      nm_naming_start(&n, NM_WIRE_H2);
      Feed(&n, bytes);
      ASSERT_EQ(Show(n), expected);
    }
  }
  const std::string block = "\x41" + String(kName);
  EXPECT_EQ(ReadH2(kPreface + Frame(1, 0, block.substr(0, 9)) +
                   Frame(9, kEndHeaders, block.substr(9))),
            kName);
}

TEST(H2NamingTest, ABlockIsNotInterrupted) {
  const std::string block = "\x41" + String(kName);
  const std::string start = kPreface + Frame(1, 0, block.substr(0, 9));
  for (uint8_t type : {0, 1, 2, 4, 8, 0xfe}) {
    EXPECT_EQ(ReadH2(start + Frame(type, 0, "")), "none") << int{type};
  }
  EXPECT_EQ(ReadH2(kPreface + Frame(9, kEndHeaders, block)), "none");
  EXPECT_EQ(ReadH2(start), "more");
}

// Regression: nm_h2_byte() took a HEADERS frame without a byte for the end of the block.
TEST(H2NamingTest, HeadersMayBeEmptyWhereAContinuationFollows) {
  const std::string block = "\x41" + String(kName);
  EXPECT_EQ(ReadH2(kPreface + Frame(1, 0, "") + Frame(9, kEndHeaders, block)),
            kName);
  EXPECT_EQ(ReadH2(kPreface + Frame(1, 0, "") + Frame(9, 0, "") +
                   Frame(9, kEndHeaders, block)),
            kName);
  EXPECT_EQ(ReadH2(kPreface + Frame(1, kEndHeaders, "")), "none");
  EXPECT_EQ(ReadH2(kPreface + Frame(1, 0, "") + Frame(9, kEndHeaders, "")),
            "none");
}

TEST(H2NamingTest, ARequestWithoutAuthorityHasNoName) {
  EXPECT_EQ(ReadH2(Request("\x82\x86\x84")), "none");
  EXPECT_EQ(ReadH2(Request("\x82\x86\x84" + ("\x66" + String("host")))),
            "none");
  // Indexed: the static table's :authority is empty.
  EXPECT_EQ(ReadH2(Request("\x81\x82")), "none");
  // The next request is not the first.
  EXPECT_EQ(
      ReadH2(Request("\x82") + Frame(1, kEndHeaders, "\x41" + String(kName))),
      "none");
}

TEST(H2NamingTest, OthersNamesAreNot) {
  for (const std::string name :
       {":authoritz", "authority:", ":authorit", ":authority2", ":Authority",
        "", "host", "a-name-that-is-longer-than-authority-is"}) {
    const std::string field =
        std::string(1, 0x40) + String(name) + String("wrong");
    EXPECT_EQ(ReadH2(Request(field)), "none") << name;
    EXPECT_EQ(ReadH2(Request(field + "\x41" + String(kName))), kName) << name;
  }
  std::string code = kAuthorityCode;
  for (size_t i = 0; i < code.size(); i++) {
    std::string other = code;
    other[i] ^= 1;
    EXPECT_EQ(ReadH2(Request(std::string(1, 0x40) + HuffmanString(other) +
                             String("wrong"))),
              "none");
  }
  // The 8 bytes, but not marked as a code; the text, but marked as one.
  EXPECT_EQ(ReadH2(Request(std::string(1, 0x40) + String(code) + String("w"))),
            "none");
  EXPECT_EQ(ReadH2(Request(std::string(1, 0x40) + HuffmanString(":authority") +
                           String("w"))),
            "none");
}

TEST(H2NamingTest, IntegersOfSeveralBytesAreRead) {
  const std::string authority = "\x41" + String(kName);
  // Indices: indexed field, and names of literals of every kind.
  for (size_t index : {62, 63, 64, 126, 127, 128, 255, 300, 16000}) {
    EXPECT_EQ(ReadH2(Request(Integer(0x80, 7, index) + authority)), kName);
    EXPECT_EQ(
        ReadH2(Request(Integer(0x40, 6, index) + String("v") + authority)),
        kName);
    EXPECT_EQ(ReadH2(Request(Integer(0, 4, index) + String("v") + authority)),
              kName);
    EXPECT_EQ(
        ReadH2(Request(Integer(0x10, 4, index) + String("v") + authority)),
        kName);
  }
  // Lengths.
  for (size_t length : {0, 1, 126, 127, 128, 254, 255, 256, 700}) {
    EXPECT_EQ(
        ReadH2(Request("\x44" + String(std::string(length, '/')) + authority)),
        kName)
        << length;
    EXPECT_EQ(
        ReadH2(Request(std::string(1, 0) + String(std::string(length, 'n')) +
                       String(std::string(length, 'v')) + authority)),
        kName)
        << length;
  }
}

// Regression: nm_h2_byte() gave up on an integer of more than 21 bits. A server may allow
// a table of up to 2^32 - 1 bytes, and the client then names its size first.
TEST(H2NamingTest, TheTableMayChangeItsSize) {
  const std::string authority = "\x41" + String(kName);
  for (size_t size : {size_t{0}, size_t{30}, size_t{31}, size_t{4096},
                      size_t{1} << 21, size_t{1} << 28, size_t{0xffffffff}}) {
    EXPECT_EQ(ReadH2(Request(Integer(0x20, 5, size) + authority)), kName)
        << size;
    EXPECT_EQ(ReadH2(Request("\x20" + Integer(0x20, 5, size) + authority)),
              kName)
        << size;
  }
}

TEST(H2NamingTest, IntegersWithoutEndAreNone) {
  for (const char* first : {"\xff", "\x7f", "\x3f", "\x0f", "\x1f"}) {
    EXPECT_EQ(ReadH2(Request(first + std::string(20, '\xff'))), "none");
    EXPECT_EQ(ReadH2(Request(first + std::string(20, '\x80'))), "none");
  }
  EXPECT_EQ(ReadH2(Request("\x41\x7f" + std::string(20, '\xff'))), "none");
  EXPECT_EQ(ReadH2(Request("\x41\xff" + std::string(20, '\x80'))), "none");
  // The block ends in the middle of an integer.
  EXPECT_EQ(ReadH2(Request("\x41\x7f\x80")), "none");
  EXPECT_EQ(ReadH2(Request("\x7f")), "none");
}

TEST(H2NamingTest, LongNamesAreCutButCodesAreNot) {
  for (size_t length : {1, 63, 64, 65, 126, 127, 300}) {
    const std::string name(length, 'W');
    for (const std::string& form : Forms(String(name))) {
      EXPECT_EQ(ReadH2(Request(form)), name.substr(0, 64)) << length;
    }
  }
  // 'a' has five bits, so 64 bytes have 102 of them.
  for (size_t length : {1, 8, 64, 102, 103, 200}) {
    const std::string name = "a" + std::string(length - 1, 'o');
    EXPECT_EQ(ReadH2(Request("\x41" + HuffmanString(CodeOfA(length - 1)))),
              length <= 102 ? "huffman:" + name : "none")
        << length;
  }
}

TEST(H2NamingTest, AnEmptyAuthorityIsNone) {
  for (const std::string& form : Forms(String(""))) {
    EXPECT_EQ(ReadH2(Request("\x82" + form + "\x41" + String(kName))), "none");
  }
  EXPECT_EQ(ReadH2(Request("\x41\x80")), "none");
}

TEST(H2NamingTest, ABlockThatEndsWithinAFieldIsNone) {
  const std::string field = "\x40" + String(":authority") + String(kName);
  for (size_t end = 0; end < field.size(); end++) {
    EXPECT_EQ(ReadH2(Request(field.substr(0, end))), "none") << end;
    // Without END_HEADERS, more could follow.
    EXPECT_EQ(ReadH2(kPreface + Frame(1, 0, field.substr(0, end))), "more")
        << end;
  }
  // The complete name is enough, with or without END_HEADERS.
  EXPECT_EQ(ReadH2(kPreface + Frame(1, 0, field)), kName);
  EXPECT_EQ(ReadH2(kPreface + Frame(1, 0, field + "\xff")), kName);
}

TEST(H2NamingTest, AnyPrefixOfARequestWaits) {
  const std::string request = Request("\x82\x41" + String(kName));
  for (size_t end = 0; end < request.size(); end++) {
    EXPECT_EQ(ReadH2(request.substr(0, end)), "more") << end;
  }
}

TEST(H2NamingTest, RealClientsAreRead) {
  const std::string huffman = std::string("huffman:") + kName;
  const std::pair<const char*, std::string> clients[] = {
      {"grpcio_1.49", kName},
      {"grpcio_current", kName},
      {"grpc_cpp", kName},
      {"grpc_go", huffman},
      {"go", huffman}};
  for (const auto& client : clients) {
    EXPECT_EQ(ReadH2(Recorded(std::string("h2/") + client.first)),
              client.second)
        << client.first;
  }
  // With its port.
  const std::string curl = ReadH2(Recorded("h2/curl"));
  EXPECT_EQ(curl.substr(0, huffman.size() + 1), huffman + ":");
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
