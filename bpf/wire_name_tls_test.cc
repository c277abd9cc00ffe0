// SPDX-License-Identifier: BSD-3-Clause
// The TLS half of wire_name.bpf.h: server_name of the ClientHello.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "bpf/wire_name_testing.h"

namespace netmeter {
namespace internal {
namespace {

std::string ReadTls(const std::string& bytes) {
  return Read(NM_WIRE_TLS, bytes);
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
    nm_naming_start(&n, NM_WIRE_TLS);
    Feed(&n, Record(Hello(all)));
    ASSERT_EQ(Show(n), kName);
  } while (std::next_permutation(extensions.begin(), extensions.end()));
}

TEST(TlsNamingTest, RecordsMaySplitAnywhere) {
  const std::string hello =
      Hello(Extension(kGrease[2], "") + Sni(kName) + Extension(16, "\3\2h2"));
  for (size_t cut = 1; cut < hello.size(); cut++) {
    nm_naming n;
    nm_naming_start(&n, NM_WIRE_TLS);
    Feed(&n, Record(hello.substr(0, cut)) + Record(hello.substr(cut)));
    ASSERT_EQ(Show(n), kName) << cut;
  }
  EXPECT_EQ(ReadTls(Records(hello, 1)), kName);
}

TEST(TlsNamingTest, AHelloWithoutTheNameIsNone) {
  EXPECT_EQ(ReadTls(Record(Hello(Extension(16, "h2")))), "none");
  EXPECT_EQ(ReadTls(Record(Hello(""))), "none");
  EXPECT_EQ(ReadTls(Record(Hello(Extension(kGrease[0], "")))), "none");
}

// Regression: nm_tls_byte() did not know the end of a hello. After a hello without
// extensions it waited for the client's next bytes, and looked for a name in them.
TEST(TlsNamingTest, NothingBehindTheHelloIsRead) {
  const std::string plain = Record(Message(""));
  EXPECT_EQ(ReadTls(plain), "none");
  const std::string next = Number(Sni(kName).size(), 2) + Sni(kName);
  EXPECT_EQ(ReadTls(plain + Record(next)), "none");
  // Lengths beyond the end of the hello.
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

// Regression: after an empty server_name, nm_tls_byte() read the name's length from the
// next extension.
TEST(TlsNamingTest, AServerNameThatHasNoRoomIsNone) {
  const std::string behind = Extension(0x0b00, std::string(1, 0) + "wrong");
  EXPECT_EQ(ReadTls(Record(Hello(Extension(0, "") + behind))), "none");
  EXPECT_EQ(ReadTls(Record(Hello(Extension(0, std::string("\0\0", 2)) +
                                 std::string("\0\0\4nope", 7)))),
            "none");
  std::string longer = Sni(kName);
  longer[8] = static_cast<char>(longer[8] + 1);
  EXPECT_EQ(ReadTls(Record(Hello(longer + behind))), "none");
  // A name without bytes; a name of another type.
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
  // Records and messages that are empty, or larger than the maximum.
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
    // The message in other records.
    const std::string message = bytes.substr(5);
    for (size_t cut = 1; cut < message.size(); cut++) {
      nm_naming n;
      nm_naming_start(&n, NM_WIRE_TLS);
      Feed(&n, Record(message.substr(0, cut)) + Record(message.substr(cut)));
      ASSERT_EQ(Show(n), client.second) << client.first << ", " << cut;
    }
  }
}

// This hello is larger than a segment, and the name may be at its end: a key share of
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
