// SPDX-License-Identifier: BSD-3-Clause
// What the exporter's replies are compressed with, for HTTP and gRPC alike.
//
// Threads: any.

#ifndef NETMETER_LIB_EXPORTER_GZIP_H_
#define NETMETER_LIB_EXPORTER_GZIP_H_

#include <string>

#include "absl/strings/string_view.h"

namespace netmeter {
namespace internal {

// Of RFC 1952, by the fastest level of zlib: our pages become a tenth, and the others
// would make that a twelfth, in several times as long. Throws std::bad_alloc.
std::string Gzip(absl::string_view bytes);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_EXPORTER_GZIP_H_
