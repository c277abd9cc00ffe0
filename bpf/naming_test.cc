// SPDX-License-Identifier: BSD-3-Clause
// naming.bpf.h on the host: what each first byte sequence of a connection
// names, wherever it is cut.
#include <gtest/gtest.h>
#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "bpf/naming.bpf.h"
#include "lib/core/wire_name.h"

namespace netmeter {
namespace internal {
namespace {

constexpr char kName[] = "streamer-cloud.example";
constexpr uint8_t kEndHeaders = NM_H2_FLAG_END_HEADERS;
constexpr uint8_t kPadded = NM_H2_FLAG_PADDED;
constexpr uint8_t kPriority = NM_H2_FLAG_PRIORITY;

void Feed(nm_naming* n, const std::string& bytes) {
  for (char c : bytes) {
    if (n->result) return;
    nm_naming_byte(n, static_cast<nm_u8>(c));
  }
}

// "none", "more", or the name; one in the Huffman code with "huffman:" and
// decoded.
std::string Show(const nm_naming& n) {
  if (n.result == NM_NAMING_MORE) return "more";
  if (n.result == NM_NAMING_NONE) return "none";
  const std::string name(reinterpret_cast<const char*>(n.name), n.name_length);
  if (n.encoding == NM_ENCODING_RAW) return name;
  std::string text;
  return DecodeHuffman(name, &text) ? "huffman:" + text : "no code";
}

// Reads all at once, and with a cut at every position, behind which the state
// is elsewhere in memory.
std::string Read(nm_u8 protocol, const std::string& bytes) {
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

std::string ReadH2(const std::string& bytes) {
  return Read(NM_NAMING_H2, bytes);
}
std::string ReadTls(const std::string& bytes) {
  return Read(NM_NAMING_TLS, bytes);
}

std::string Number(size_t value, int bytes) {
  std::string text;
  while (bytes--) text.push_back(static_cast<char>(value >> (8 * bytes)));
  return text;
}

// A file of the corpus: see test/fuzz/record_client.py.
std::string Recorded(const std::string& name) {
  std::ifstream file("test/fuzz/corpus/" + name, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  EXPECT_FALSE(bytes.str().empty()) << name;
  return bytes.str();
}

// --- HTTP/2 ----------------------------------------------------------------

const char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

std::string Frame(uint8_t type, uint8_t flags, const std::string& payload) {
  return Number(payload.size(), 3) + Number(type, 1) + Number(flags, 1) +
         Number(1, 4) + payload;
}

std::string Settings() { return Frame(4, 0, Number(3, 2) + Number(100, 4)); }

// A connection whose first request has this header block.
std::string Request(const std::string& block) {
  return kPreface + Settings() + Frame(1, kEndHeaders, block);
}

// An integer behind `first`, the bits in front of it (RFC 7541 section 5.1).
std::string Integer(uint8_t first, int prefix, size_t value) {
  const size_t mask = (1u << prefix) - 1;
  if (value < mask) return Number(first | value, 1);
  std::string text = Number(first | mask, 1);
  for (value -= mask; value >= 128; value >>= 7) {
    text += Number((value & 127) | 128, 1);
  }
  return text + Number(value, 1);
}

std::string String(const std::string& text) {
  return Integer(0, 7, text.size()) + text;
}
std::string HuffmanString(const std::string& code) {
  return Integer(0x80, 7, code.size()) + code;
}

// The Huffman code of a text, by nghttp2; empty if nghttp2 finds it no shorter.
std::string HuffmanOf(const std::string& text) {
  nghttp2_hd_deflater* deflater = nullptr;
  EXPECT_EQ(nghttp2_hd_deflate_new(&deflater, 4096), 0);
  nghttp2_nv field = {};
  std::string name = "x", value = text;
  field.name = reinterpret_cast<uint8_t*>(&name[0]);
  field.namelen = 1;
  field.value = reinterpret_cast<uint8_t*>(&value[0]);
  field.valuelen = value.size();
  field.flags = NGHTTP2_NV_FLAG_NO_INDEX;
  std::string block(nghttp2_hd_deflate_bound(deflater, &field, 1), 0);
  const ssize_t size = nghttp2_hd_deflate_hd(
      deflater, reinterpret_cast<uint8_t*>(&block[0]), block.size(), &field, 1);
  nghttp2_hd_deflate_del(deflater);
  EXPECT_GT(size, 4);
  if (!(block[3] & 0x80)) return std::string();
  block.resize(size);
  return block.substr(static_cast<uint8_t>(block[3]) == 0xff ? 5 : 4);
}

const char kAuthorityCode[] = "\xb8\x3b\x53\x39\xec\x32\x7d\x7f";

// :authority in every form that a literal has.
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
  for (const std::string& form : Forms(HuffmanString(HuffmanOf(kName)))) {
    EXPECT_EQ(ReadH2(Request(form)), std::string("huffman:") + kName);
  }
}

TEST(H2NamingTest, TheNameInHuffmanCodeIsRfc7541s) {
  EXPECT_EQ(HuffmanOf(":authority"), kAuthorityCode);
}

TEST(H2NamingTest, AnyOrderOfFieldsNames) {
  std::vector<std::string> fields = {
      "\x83",                                        // :method POST
      "\x86",                                        // :scheme http
      "\x44" + String("/magma.orc8r.Streamer/Get"),  // :path, indexed name
      "\x41" + String(kName),                        // :authority
      std::string(1, 0) + String("te") + String("trailers"),
      "\x10" + HuffmanString(HuffmanOf("grpc-timeout")) + String("199m")};
  std::sort(fields.begin(), fields.end());
  int orders = 0;
  do {
    std::string block;
    for (const std::string& field : fields) block += field;
    nm_naming n;
    nm_naming_start(&n, NM_NAMING_H2);
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
      Frame(0xfe, 0xff, std::string(300, '\x41')),  // of nobody
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
    // No fields at all in front of the padding; they come in CONTINUATION.
    EXPECT_EQ(ReadH2(kPreface + Frame(1, kPadded, Number(padding, 1) + pad) +
                     Frame(9, kEndHeaders, block)),
              kName);
  }
  EXPECT_EQ(
      ReadH2(kPreface + Frame(1, kEndHeaders | kPriority, priority + block)),
      kName);
  // More padding than there is room for.
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
  for (const std::string& value :
       {String(kName), HuffmanString(HuffmanOf(kName)),
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
            nm_naming_start(&n, NM_NAMING_H2);
            Feed(&n, kPreface + Settings() + headers + more);
            ASSERT_EQ(Show(n), expected) << cut;
          }
        }
      }
      // A byte in each frame, and cut there, too.
      std::string bytes = kPreface + Frame(1, 0, block.substr(0, 1));
      for (char c : block.substr(1)) bytes += Frame(9, 0, std::string(1, c));
      nm_naming n;
      nm_naming_start(&n, NM_NAMING_H2);
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

// nm_h2_byte() took a HEADERS frame without a byte for the end of the block.
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
  // The same 8 bytes, not said to be a code; the text, said to be one.
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

// nm_h2_byte() gave up on an integer of more than 21 bits. A server may allow
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
  // The block ends in the middle of one.
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
  // 'a' is five bits, 64 bytes are 102 of them.
  for (size_t length : {1, 8, 64, 102, 103, 200}) {
    const std::string name = "a" + std::string(length - 1, 'o');
    const std::string code = HuffmanOf(name);
    if (code.empty()) continue;
    EXPECT_EQ(ReadH2(Request("\x41" + HuffmanString(code))),
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
    // Without END_HEADERS more would come.
    EXPECT_EQ(ReadH2(kPreface + Frame(1, 0, field.substr(0, end))), "more")
        << end;
  }
  // What makes the name complete is enough, END_HEADERS or not.
  EXPECT_EQ(ReadH2(kPreface + Frame(1, 0, field)), kName);
  EXPECT_EQ(ReadH2(kPreface + Frame(1, 0, field + "\xff")), kName);
}

TEST(H2NamingTest, AnyPrefixOfARequestWaits) {
  const std::string request = Request("\x82\x41" + String(kName));
  for (size_t end = 0; end < request.size(); end++) {
    EXPECT_EQ(ReadH2(request.substr(0, end)), "more") << end;
  }
}

TEST(H2NamingTest, WhatNghttp2WritesIsRead) {
  const std::string names[] = {kName,
                               "a",
                               "127.0.0.1:8443",
                               "[::1]:8443",
                               "UPPER.example",
                               std::string(64, 'x'),
                               std::string(90, '~'),
                               "metricsd-controller.magma.test:7443",
                               "xn--bcher-kva.example",
                               "*&^%$#@!"};
  for (const std::string& name : names) {
    for (size_t position = 0; position < 6; position++) {
      for (uint8_t flags : {0, int{NGHTTP2_NV_FLAG_NO_INDEX}}) {
        for (size_t table : {0, 64, 4096, 1 << 20}) {
          std::vector<std::pair<std::string, std::string>> fields = {
              {":method", "POST"},
              {":scheme", "http"},
              {":path", "/magma.orc8r.Streamer/GetUpdates"},
              {"user-agent", "grpc-c++/1.51.1"},
              {"cookie", std::string(200, 'c')}};
          fields.insert(fields.begin() + position, {":authority", name});
          std::vector<nghttp2_nv> list;
          for (auto& field : fields) {
            nghttp2_nv nv = {};
            nv.name = reinterpret_cast<uint8_t*>(&field.first[0]);
            nv.namelen = field.first.size();
            nv.value = reinterpret_cast<uint8_t*>(&field.second[0]);
            nv.valuelen = field.second.size();
            nv.flags = flags;
            list.push_back(nv);
          }
          nghttp2_hd_deflater* deflater = nullptr;
          ASSERT_EQ(nghttp2_hd_deflate_new(&deflater, 4096), 0);
          ASSERT_EQ(nghttp2_hd_deflate_change_table_size(deflater, table), 0);
          std::string block(
              nghttp2_hd_deflate_bound(deflater, list.data(), list.size()), 0);
          const ssize_t size = nghttp2_hd_deflate_hd(
              deflater, reinterpret_cast<uint8_t*>(&block[0]), block.size(),
              list.data(), list.size());
          nghttp2_hd_deflate_del(deflater);
          ASSERT_GT(size, 0);
          block.resize(size);
          nm_naming n;
          nm_naming_start(&n, NM_NAMING_H2);
          Feed(&n, Request(block));
          const std::string shown = Show(n);
          ASSERT_TRUE(shown == "huffman:" + name || shown == name.substr(0, 64))
              << name << " is " << shown;
        }
      }
    }
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

// --- TLS -------------------------------------------------------------------

std::string Record(const std::string& payload) {
  return "\x16\3" + Number(1, 1) + Number(payload.size(), 2) + payload;
}

std::string Extension(uint16_t type, const std::string& content) {
  return Number(type, 2) + Number(content.size(), 2) + content;
}

std::string Sni(const std::string& name) {
  return Extension(0, Number(name.size() + 3, 2) + Number(0, 1) +
                          Number(name.size(), 2) + name);
}

// The handshake message. `extensions` with its length, or nothing.
std::string Message(const std::string& extensions, size_t session = 32,
                    size_t ciphers = 16) {
  const std::string body = "\3\3" + std::string(32, 'r') + Number(session, 1) +
                           std::string(session, 's') + Number(2 * ciphers, 2) +
                           std::string(2 * ciphers, '\x13') + Number(1, 1) +
                           Number(0, 1) + extensions;
  return Number(1, 1) + Number(body.size(), 3) + body;
}

std::string Hello(const std::string& extensions, size_t session = 32,
                  size_t ciphers = 16) {
  return Message(Number(extensions.size(), 2) + extensions, session, ciphers);
}

const uint16_t kGrease[] = {0x0a0a, 0x7a7a, 0xfafa};

TEST(TlsNamingTest, ServerNameIsFound) {
  EXPECT_EQ(ReadTls(Record(Hello(Sni(kName)))), kName);
  EXPECT_EQ(ReadTls(Record(Hello(Sni(kName) + Extension(16, "h2")))), kName);
  for (size_t session : {0, 1, 32, 255}) {
    for (size_t ciphers : {1, 16, 120}) {
      EXPECT_EQ(ReadTls(Record(Hello(Sni(kName), session, ciphers))), kName);
    }
  }
}

TEST(TlsNamingTest, AnyOrderOfExtensionsIsRead) {
  std::vector<std::string> extensions = {Sni(kName),
                                         Extension(kGrease[0], ""),
                                         Extension(kGrease[1], "\1"),
                                         Extension(43, "\4\3\4\3\3"),
                                         Extension(21, std::string(100, 0)),
                                         Extension(51, std::string(70, '\0'))};
  std::sort(extensions.begin(), extensions.end());
  do {
    std::string all;
    for (const std::string& extension : extensions) all += extension;
    nm_naming n;
    nm_naming_start(&n, NM_NAMING_TLS);
    Feed(&n, Record(Hello(all)));
    ASSERT_EQ(Show(n), kName);
  } while (std::next_permutation(extensions.begin(), extensions.end()));
}

TEST(TlsNamingTest, RecordsMaySplitAnywhere) {
  const std::string hello =
      Hello(Extension(kGrease[2], "") + Sni(kName) + Extension(16, "\3\2h2"));
  for (size_t cut = 1; cut < hello.size(); cut++) {
    nm_naming n;
    nm_naming_start(&n, NM_NAMING_TLS);
    Feed(&n, Record(hello.substr(0, cut)) + Record(hello.substr(cut)));
    ASSERT_EQ(Show(n), kName) << cut;
  }
  std::string bytes;
  for (char c : hello) bytes += Record(std::string(1, c));
  EXPECT_EQ(ReadTls(bytes), kName);
}

TEST(TlsNamingTest, AHelloWithoutTheNameIsNone) {
  EXPECT_EQ(ReadTls(Record(Hello(Extension(16, "h2")))), "none");
  EXPECT_EQ(ReadTls(Record(Hello(""))), "none");
  EXPECT_EQ(ReadTls(Record(Hello(Extension(kGrease[0], "")))), "none");
}

// nm_tls_byte() did not know where a hello ends: one without extensions waited
// for what the client sends next, and looked for a name in that.
TEST(TlsNamingTest, NothingBehindTheHelloIsRead) {
  const std::string plain = Record(Message(""));
  EXPECT_EQ(ReadTls(plain), "none");
  const std::string next = Number(Sni(kName).size(), 2) + Sni(kName);
  EXPECT_EQ(ReadTls(plain + Record(next)), "none");
  // Lengths that lead beyond the end of the hello.
  std::string hello = Hello(Sni(kName));
  hello[3] = static_cast<char>(hello[3] - 1);
  EXPECT_EQ(ReadTls(Record(hello)), "none");
  hello[3] = static_cast<char>(hello[3] + 2);
  EXPECT_EQ(ReadTls(Record(hello)), kName);
  for (size_t size = 1; size < 60; size++) {
    EXPECT_EQ(ReadTls(Record(Number(1, 1) + Number(size, 3) +
                             std::string(size, '\xff'))),
              "none")
        << size;
  }
}

// nm_tls_byte() read the name's length where an empty server_name had been,
// out of the extension behind it.
TEST(TlsNamingTest, AServerNameThatHasNoRoomIsNone) {
  const std::string behind = Extension(0x0b00, std::string(1, 0) + "wrong");
  EXPECT_EQ(ReadTls(Record(Hello(Extension(0, "") + behind))), "none");
  EXPECT_EQ(ReadTls(Record(Hello(Extension(0, std::string("\0\0", 2)) +
                                 std::string("\0\0\4nope", 7)))),
            "none");
  std::string longer = Sni(kName);
  longer[8] = static_cast<char>(longer[8] + 1);
  EXPECT_EQ(ReadTls(Record(Hello(longer + behind))), "none");
  // No bytes of a name; a name of another type.
  EXPECT_EQ(ReadTls(Record(Hello(Sni("") + behind))), "none");
  std::string other = Sni(kName);
  other[6] = 1;
  EXPECT_EQ(ReadTls(Record(Hello(other))), "none");
}

TEST(TlsNamingTest, LongNamesAreCut) {
  for (size_t length : {1, 63, 64, 65, 255, 1000}) {
    const std::string name(length, 'n');
    EXPECT_EQ(ReadTls(Record(Hello(Sni(name)))), name.substr(0, 64));
  }
}

TEST(TlsNamingTest, AnyPrefixOfAHelloWaits) {
  const std::string bytes = Record(Hello(Extension(16, "h2") + Sni(kName)));
  for (size_t end = 0; end < bytes.size(); end++) {
    EXPECT_EQ(ReadTls(bytes.substr(0, end)), "more") << end;
  }
}

TEST(TlsNamingTest, WhatIsNoClientHelloIsNone) {
  const std::string hello = Hello(Sni(kName));
  for (int type : {0, 20, 21, 23, 24, 0x47, 0x80}) {
    std::string bytes = Record(hello);
    bytes[0] = static_cast<char>(type);
    EXPECT_EQ(ReadTls(bytes), "none") << type;
  }
  std::string version = Record(hello);
  version[1] = 2;
  EXPECT_EQ(ReadTls(version), "none");
  for (int message : {0, 2, 11, 16, 20}) {
    std::string other = hello;
    other[0] = static_cast<char>(message);
    EXPECT_EQ(ReadTls(Record(other)), "none") << message;
  }
  EXPECT_EQ(ReadTls("GET / HTTP/1.1\r\n\r\n"), "none");
  // Records and messages of no size, or of more than there can be.
  EXPECT_EQ(ReadTls(Record("")), "none");
  EXPECT_EQ(ReadTls(Record(hello.substr(0, 50)) + Record("") +
                    Record(hello.substr(50))),
            "none");
  EXPECT_EQ(ReadTls(std::string("\x16\3\1\x40\1", 5)), "none");
  EXPECT_EQ(ReadTls(std::string("\x16\3\1\x40\0", 5)), "more");
  EXPECT_EQ(ReadTls(Record(std::string("\1\0\0\0", 4))), "none");
  EXPECT_EQ(ReadTls(Record(std::string("\1\1\0\1", 4))), "none");
  // Another record in the middle of the hello.
  EXPECT_EQ(ReadTls(Record(hello.substr(0, 50)) + "\x15\3\3"), "none");
}

TEST(TlsNamingTest, RealClientsAreRead) {
  const std::pair<const char*, std::string> clients[] = {
      {"curl", kName},           {"openssl", kName},
      {"openssl_tls1_2", kName}, {"openssl_noservername", "none"},
      {"python_ssl", kName},     {"go", kName},
      {"go_post_quantum", kName}};
  for (const auto& client : clients) {
    const std::string bytes = Recorded(std::string("tls/") + client.first);
    EXPECT_EQ(ReadTls(bytes), client.second) << client.first;
    // The same message in other records.
    const std::string message = bytes.substr(5);
    for (size_t cut = 1; cut < message.size(); cut++) {
      nm_naming n;
      nm_naming_start(&n, NM_NAMING_TLS);
      Feed(&n, Record(message.substr(0, cut)) + Record(message.substr(cut)));
      ASSERT_EQ(Show(n), client.second) << client.first << ", " << cut;
    }
  }
}

// Larger than a segment, and its name may stand at its end: a key share of
// X25519MLKEM768 has 1216 bytes.
TEST(TlsNamingTest, APostQuantumHelloIsReadToItsEnd) {
  EXPECT_GT(Recorded("tls/go_post_quantum").size(), 1460u);
  const std::string share = Extension(51, std::string(1250, '\x5a'));
  EXPECT_EQ(ReadTls(Record(Hello(share + Sni(kName)))), kName);
  EXPECT_EQ(ReadTls(Record(Hello(share + share + share))), "none");
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
