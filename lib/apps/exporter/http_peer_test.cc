// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/exporter/http_peer.h"

#include <gtest/gtest.h>

#include <string>

namespace netmeter {
namespace internal {
namespace {

HttpParse Parse(const std::string& text) {
  HttpRequest request;
  return ParseHttpRequest(text, &request);
}

TEST(HttpRequest, IsReadAsPrometheusAndCurlWriteIt) {
  HttpRequest request;
  ASSERT_EQ(ParseHttpRequest("GET /metrics?x=1 HTTP/1.1\r\n"
                             "Host: 127.0.0.1:9384\r\n"
                             "aCCept:   text/plain \r\n"
                             "Accept-Encoding: gzip\r\n"
                             "Accept: */*;q=0.1\r\n"
                             "\r\nbody",
                             &request),
            HttpParse::kComplete);
  EXPECT_EQ(request.method, "GET");
  EXPECT_EQ(request.path, "/metrics");
  EXPECT_EQ(request.accept, "text/plain,*/*;q=0.1");
  EXPECT_EQ(request.accept_encoding, "gzip");
  EXPECT_TRUE(request.keep_alive);
  ASSERT_EQ(ParseHttpRequest("HEAD / HTTP/1.0\n\n", &request),
            HttpParse::kComplete);
  EXPECT_EQ(request.method, "HEAD");
  EXPECT_EQ(request.accept, "");
}

// What names the host as for a proxy had the reply 404.
TEST(HttpRequest, MayNameTheHost) {
  const struct {
    const char *target, *path;
  } kTargets[] = {
      {"http://127.0.0.1:9384/metrics", "/metrics"},
      {"HTTP://host/metrics?x=http://y/", "/metrics"},
      {"http://host", "/"},
      {"http://host?x/y", "/"},
      {"http://", "/"},
      {"/http://host/metrics", "/http://host/metrics"},
      {"ftp://host/metrics", "ftp://host/metrics"},
      {"*", "*"},
  };
  for (const auto& one : kTargets) {
    HttpRequest request;
    ASSERT_EQ(
        ParseHttpRequest(std::string("GET ") + one.target + " HTTP/1.1\r\n\r\n",
                         &request),
        HttpParse::kComplete);
    EXPECT_EQ(request.path, one.path) << one.target;
  }
}

TEST(HttpRequest, IsIncompleteUntilItsLastByte) {
  const std::string text = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
  for (size_t length = 0; length < text.size(); ++length) {
    EXPECT_EQ(Parse(text.substr(0, length)), HttpParse::kIncomplete) << length;
  }
  EXPECT_EQ(Parse(text), HttpParse::kComplete);
}

TEST(HttpRequest, IsRefusedWhereItIsNone) {
  for (const char* text : {
           "GET /metrics\r\n\r\n",                         // HTTP/0.9
           "GET /metrics HTTP/2.0\r\n\r\n",                //
           "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",             //
           "GET  /metrics HTTP/1.1\r\n\r\n",               //
           "GET /metrics HTTP/1.1 \r\n\r\n",               //
           "G(T /metrics HTTP/1.1\r\n\r\n",                //
           "GET /metrics HTTP/1.1\r\nno colon\r\n\r\n",    //
           "GET /metrics HTTP/1.1\r\n folded: x\r\n\r\n",  //
           "GET /metrics HTTP/1.1\r\nname : x\r\n\r\n",    //
           "\r\n\r\n",                                     //
           "\x16\x03\x01\x02",                             // TLS
           "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
       }) {
    EXPECT_EQ(Parse(text), HttpParse::kBad) << text;
  }
}

TEST(HttpRequest, IsTooLargeFromEightKibibytesOn) {
  const std::string start = "GET / HTTP/1.1\r\nx: ";
  const std::string end = "\r\n\r\n";
  const std::string fits =
      start + std::string(kMaxHttpHeadBytes - start.size() - end.size(), 'x') +
      end;
  EXPECT_EQ(Parse(fits), HttpParse::kComplete);
  EXPECT_EQ(Parse("G" + fits), HttpParse::kTooLarge);
}

TEST(HttpRequest, SaysWhetherAnotherMayFollow) {
  const struct {
    const char* request;
    bool keep_alive;
  } kRequests[] = {
      {"GET / HTTP/1.1\r\n", true},
      {"GET / HTTP/1.1\r\nConnection: keep-alive\r\n", true},
      {"GET / HTTP/1.1\r\nContent-Length: 0\r\n", true},
      {"GET / HTTP/1.1\r\nConnection: te, Close\r\n", false},
      {"GET / HTTP/1.1\r\nconnection: te\r\nconnection: close\r\n", false},
      {"GET / HTTP/1.1\r\nContent-Length: 1\r\n", false},
      {"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n", false},
      {"GET / HTTP/1.0\r\n", false},
      {"GET / HTTP/1.0\r\nConnection: keep-alive\r\n", false},
  };
  for (const auto& one : kRequests) {
    const std::string head = one.request + std::string("\r\n");
    HttpRequest request;
    ASSERT_EQ(ParseHttpRequest(head + "more", &request), HttpParse::kComplete);
    EXPECT_EQ(request.keep_alive, one.keep_alive) << head;
    EXPECT_EQ(request.bytes, head.size());
  }
}

TEST(HttpReply, SaysWhetherTheConnectionStaysOpen) {
  HttpReply reply;
  reply.status = 404;
  reply.extra_header = "Vary: Accept\r\n";
  const std::string head =
      "HTTP/1.1 404 Not Found\r\n"
      "Content-Type: text/plain; charset=utf-8\r\n"
      "Content-Length: 5\r\n"
      "Vary: Accept\r\n";
  EXPECT_EQ(FormatHttpHead(reply, 5, true), head + "\r\n");
  EXPECT_EQ(FormatHttpHead(reply, 5, false),
            head + "Connection: close\r\n\r\n");
}

}  // namespace

}  // namespace internal
}  // namespace netmeter
