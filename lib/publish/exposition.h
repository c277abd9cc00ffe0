// SPDX-License-Identifier: BSD-3-Clause
// Families as the text that Prometheus scrapes.
//
//   const TextFormat format = NegotiateFormat(accept_header);
//   Reply(ContentType(format), ToText(families, format));
//
// Threads: any.

#ifndef NETMETER_LIB_PUBLISH_EXPOSITION_H_
#define NETMETER_LIB_PUBLISH_EXPOSITION_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "lib/publish/families.h"

namespace netmeter {
namespace internal {

enum class TextFormat {
  kPrometheus,   // text format 0.0.4
  kOpenMetrics,  // OpenMetrics 1.0.0
};

const char* ContentType(TextFormat format);

// The format of the answer to a request with this Accept header. OpenMetrics if the
// header gives it at least the weight of text, so never without asking for it. An invalid
// header asks for nothing.
TextFormat NegotiateFormat(absl::string_view accept);

// Whether to compress the answer to a request with this Accept-Encoding header by gzip
// (RFC 9110, 12.5.3): if the header gives gzip at least the weight of no encoding.
bool AcceptsGzip(absl::string_view accept_encoding);

// Values are written as integers, exactly.
std::string ToText(const std::vector<Family>& families, TextFormat format);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_PUBLISH_EXPOSITION_H_
