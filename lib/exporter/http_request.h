// SPDX-License-Identifier: BSD-3-Clause
// As much of HTTP/1.1 as a server of one page needs (RFC 9112).
//
//   HttpRequest request;
//   switch (ParseHttpRequest(received, &request)) { ... }
//
// Threads: any.

#ifndef NETMETER_LIB_EXPORTER_HTTP_REQUEST_H_
#define NETMETER_LIB_EXPORTER_HTTP_REQUEST_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace netmeter {
namespace internal {

struct HttpRequest {
  std::string method;
  std::string path;             // without the query
  std::string accept;           // all Accept headers, joined by commas
  std::string accept_encoding;  // the same of Accept-Encoding
  // Whether the connection may stay open for another request (RFC 9112, 9.3): it is
  // of HTTP/1.1, no "Connection: close" forbids it, and no body follows.
  bool keep_alive = false;
  size_t bytes = 0;  // of the head, with the empty line after it
};

enum class HttpParse { kIncomplete, kComplete, kBad, kTooLarge };

constexpr size_t kMaxHttpHeadBytes = 8192;

// What the bytes received so far are. *request is set if kComplete only. Nothing after
// the head is looked at.
HttpParse ParseHttpRequest(absl::string_view received, HttpRequest* request);

struct HttpReply {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string extra_header;  // such as "Allow: GET, HEAD\r\n"
  std::string body;
};

// The reply's bytes up to its body, which has content_length bytes. Says whether the
// connection stays open.
std::string FormatHttpHead(const HttpReply& reply, size_t content_length,
                           bool keep_alive);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_EXPORTER_HTTP_REQUEST_H_
