// SPDX-License-Identifier: BSD-3-Clause
// Sends a piece of an export to an HTTP server.
//
//   const absl::Status sent = Post({.url = "https://centre:8443/"}, rows);
//
// It runs curl(1) instead of linking libcurl: `netmeter` is also linked without shared
// libraries, for which Debian has no libcurl, and `netmeter record` would load TLS each
// minute for nothing. curl's own settings apply, such as HTTPS_PROXY, but no ~/.curlrc.
//
// Threads: any. The caller must not ignore SIGCHLD, because the kernel would reap curl.

#ifndef NETMETER_LIB_APPS_EXPORT_HTTP_H_
#define NETMETER_LIB_APPS_EXPORT_HTTP_H_

#include <chrono>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace netmeter {
namespace internal {

struct HttpReceiver {
  std::string url;  // http:// or https://
  // Has one line: a bearer token, or USER:PASSWORD for basic authentication, as a server
  // of ClickHouse asks for. A token has no colon (RFC 6750, section 2.1). "": neither.
  std::string token_file;
  std::string ca_file;  // trusted instead of the host's authorities; "": those
  std::chrono::seconds timeout{60};  // for connecting, sending and the answer
};

// Whether URL and files can be used, without sending anything: InvalidArgument for a URL
// of another kind, or with a user or a password, for a token that http:// would show to
// others, and for a token that is no line; the errors of open(2) for the token's file.
absl::Status CheckReceiver(const HttpReceiver& receiver);

// Sends `body`, gzipped, by one POST. OK if the receiver has confirmed it, by a status of
// 2xx. Blocks for `timeout` at most. Tries once. An error is one line for a terminal, and
// has no secret:
//   those of CheckReceiver()
//   NotFound            curl is not installed
//   Unauthenticated     401: the receiver does not know the token
//   PermissionDenied    403
//   ResourceExhausted   429: the message has the time of Retry-After
//   FailedPrecondition  other answers below 500, also redirects, which are not followed,
//                       and a confirmation with more than 16 kB, which is no receiver's
//   Unavailable         5xx; no connection, a wrong certificate, no answer, no HTTP
// If this process is killed, curl goes on, for `timeout` at most.
// After an error the receiver may have the body nevertheless, unless CheckReceiver()
// fails, too.
absl::Status Post(const HttpReceiver& receiver, absl::string_view body);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_EXPORT_HTTP_H_
