// SPDX-License-Identifier: BSD-3-Clause
// wire_http.bpf.h: the host of the first HTTP/1 request.
#include <gtest/gtest.h>

#include <string>

#include "bpf/wire_name_testing.h"

namespace netmeter {
namespace internal {
namespace {

std::string ReadHttp(const std::string& bytes) {
  return Read(NM_WIRE_HTTP, bytes);
}

std::string Request(const std::string& fields) {
  return "GET /x HTTP/1.1\r\n" + fields;
}

TEST(HttpNamingTest, HostIsFound) {
  EXPECT_EQ(ReadHttp(Request("Host: a.example\r\n\r\n")), "a.example");
  EXPECT_EQ(ReadHttp(Request("Accept: */*\r\nHost: a.example\r\n")),
            "a.example");
  // The line is complete before its LF.
  EXPECT_EQ(ReadHttp(Request("Host: a.example\r")), "a.example");
  EXPECT_EQ(ReadHttp(Request("Host: a.example")), "more");
  EXPECT_EQ(ReadHttp("OPTIONS * HTTP/1.1\r\nHost: a.example\r\n"), "a.example");
  EXPECT_EQ(ReadHttp("M-SEARCH /?a=b HTTP/1.0\nHost: a.example\n"),
            "a.example");
}

TEST(HttpNamingTest, NamesOfFieldsHaveNoCase) {
  for (const char* name : {"host", "HOST", "hOsT"}) {
    EXPECT_EQ(ReadHttp(Request(std::string(name) + ": a\r\n")), "a") << name;
  }
  // Names as long as Host, or with Host in them.
  EXPECT_EQ(ReadHttp(Request("Hose: b\r\nHosts: c\r\nX-Host: d\r\nHo: e\r\n"
                             "hosthost: f\r\nhost: a\r\n")),
            "a");
  // '\x08' differs from 'H' in one bit only, but it is no letter.
  EXPECT_EQ(ReadHttp(Request("\x08ost: a\r\n")), "none");
}

TEST(HttpNamingTest, BlanksAroundTheValueAreNone) {
  for (const char* value : {"a", " a", "\ta", " \t  a \t "}) {
    EXPECT_EQ(ReadHttp(Request("Host:" + std::string(value) + "\r\n")), "a");
  }
  EXPECT_EQ(ReadHttp(Request("Host: a b\r\n")), "none");
  EXPECT_EQ(ReadHttp(Request("Host : a\r\n")), "none");  // RFC 9112 section 5.1
  EXPECT_EQ(ReadHttp(Request("Host:\r\n")), "none");
  EXPECT_EQ(ReadHttp(Request("Host: \t\r\n")), "none");
}

// An old client may continue a value on the next line: RFC 9112 section 5.2.
TEST(HttpNamingTest, FoldedLinesAreSkipped) {
  EXPECT_EQ(ReadHttp(Request("X: y\r\n Host: b\r\n\tHost: c\r\nHost: a\r\n")),
            "a");
}

TEST(HttpNamingTest, TargetComesFirst) {
  const std::string rest = " HTTP/1.1\r\nHost: other\r\n\r\n";
  EXPECT_EQ(ReadHttp("GET http://a.example/x" + rest), "a.example");
  EXPECT_EQ(ReadHttp("GET HTTP://a.example" + rest), "a.example");
  EXPECT_EQ(ReadHttp("GET http://a.example?x" + rest), "a.example");
  EXPECT_EQ(ReadHttp("GET http://a.example:8080/x" + rest), "a.example:8080");
  EXPECT_EQ(ReadHttp("GET ftp://user:p@ss@a.example/" + rest), "a.example");
  EXPECT_EQ(ReadHttp("CONNECT a.example:443" + rest), "a.example:443");
  EXPECT_EQ(ReadHttp("CONNECT [2001:db8::1]:443" + rest), "[2001:db8::1]:443");
  for (const char* target :
       {"http:///x", "http:/x", "http:x", "http//x", "example.org:443", "?x",
        "http://user@/x", ":x", ""}) {
    EXPECT_EQ(ReadHttp("GET " + std::string(target) + rest), "none") << target;
  }
  EXPECT_EQ(ReadHttp("connect /x" + rest), "other");  // methods have a case
  EXPECT_EQ(ReadHttp("CONNECTS /x" + rest), "other");
}

TEST(HttpNamingTest, LiteralAddressesAndPortsAreKept) {
  for (const char* host : {"192.0.2.1", "192.0.2.1:8080", "[2001:db8::1]",
                           "[2001:db8::1]:8080", "[fe80::1%25eth0]"}) {
    EXPECT_EQ(ReadHttp(Request("Host: " + std::string(host) + "\r\n")), host);
  }
}

TEST(HttpNamingTest, LongNamesAreCut) {
  const std::string host(NM_NAME_BYTES, 'a');
  EXPECT_EQ(ReadHttp(Request("Host: " + host + "\r\n")), host);
  EXPECT_EQ(ReadHttp(Request("Host: " + host + "bcd:80\r\n")), host);
  EXPECT_EQ(ReadHttp("GET http://" + host + "b@c/ HTTP/1.1\r\n"), "c");
}

TEST(HttpNamingTest, RequestsWithoutAHostNameNothing) {
  EXPECT_EQ(ReadHttp(Request("\r\nHost: a\r\n")), "none");
  EXPECT_EQ(ReadHttp(Request("Accept: */*\r\n\r\n")), "none");
  EXPECT_EQ(ReadHttp(Request("Accept: */*\n\n")), "none");
  EXPECT_EQ(ReadHttp(Request("Accept: */*\r\n")), "more");
}

TEST(HttpNamingTest, WhatIsNoRequestNamesNothing) {
  for (const std::string text :
       {" GET /", "GET / HTTP/2.0\r\nHost: a\r\n", "GET /\r\nHost: a\r\n",
        "GET  / HTTP/1.1\r\nHost: a\r\n", "GET / HTTP/1.x\r\n",
        "GET / HTTP/1.1 \r\n", "GET / HTTP/1.1\rx", "\r\nGET / HTTP/1.1\r\n",
        "SSH-2.0-OpenSSH_9.2\r\n\r\n", "GET / HTTP/1.1\r\nno colon\r\n",
        "GET / HTTP/1.1\r\n: x\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "\x16\3\1\2\0\1\0\1\xfc\3\3"}) {
    EXPECT_EQ(ReadHttp(text), "none") << text;
  }
  EXPECT_EQ(ReadHttp(std::string(33, 'A') + " / HTTP/1.1\r\n"), "none");
  for (const char* bad : {"a\x01", "a\x7f", "a/b", "u@a", "a?b", "a#b"}) {
    EXPECT_EQ(ReadHttp(Request("Host: " + std::string(bad) + "\r\n")), "none");
  }
  EXPECT_EQ(ReadHttp(Request("Host: a" + std::string(1, '\0') + "\r\n")),
            "none");
}

TEST(HttpNamingTest, RealClientsAreRead) {
  for (const char* client : {"curl", "apt", "apt_proxy"}) {
    EXPECT_EQ(ReadHttp(Recorded(std::string("http/") + client)), kName);
  }
  EXPECT_EQ(ReadHttp(Recorded("http/connect")), std::string(kName) + ":443");
}

// For any bytes in any order: no byte leads out of bounds, and a result is final
// (AddressSanitizer and UBSan look on).
TEST(HttpNamingTest, AnyBytesEndWell) {
  uint32_t state = 1;
  for (int round = 0; round < 2000; round++) {
    nm_naming n;
    nm_naming_start(&n, NM_WIRE_HTTP);
    std::string bytes = round % 2 ? "GET / HTTP/1.1\r\n" : "";
    for (int i = 0; i < 100; i++) {
      state = state * 1664525 + 1013904223;
      bytes.push_back("GET http://:@host\r\n\t \0\x7f\xff"[(state >> 16) % 25]);
    }
    Feed(&n, bytes);
    EXPECT_LE(n.name_length, NM_NAME_BYTES);
  }
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
