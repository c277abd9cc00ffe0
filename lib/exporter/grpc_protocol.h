// SPDX-License-Identifier: BSD-3-Clause
// What gRPC adds to HTTP/2, as far as a server of unary methods without
// arguments needs it (gRPC's doc/PROTOCOL-HTTP2.md).
//
// Threads: any.

#ifndef NETMETER_LIB_EXPORTER_GRPC_PROTOCOL_H_
#define NETMETER_LIB_EXPORTER_GRPC_PROTOCOL_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace netmeter {
namespace internal {

// gRPC's doc/statuscodes.md.
enum class GrpcCode {
  kOk = 0,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kResourceExhausted = 8,
  kUnimplemented = 12,
  kInternal = 13,
};

// A message in the wire format: whether it is compressed, its length in four
// bytes, and the message.
constexpr size_t kGrpcPrefixBytes = 5;
std::string GrpcPrefix(size_t message_bytes, bool compressed);

// The value of grpc-message: all but printable ASCII becomes %XX, and % too.
std::string PercentEncode(absl::string_view text);

// The value of grpc-timeout, such as "30S" or "1500m". Returns false if it is
// none.
bool ParseGrpcTimeout(absl::string_view text,
                      std::chrono::steady_clock::duration* timeout);

// Whether a request with this content-type is one of gRPC.
bool IsGrpcContentType(absl::string_view text);

// What we say that we accept in requests, as a value of grpc-accept-encoding.
// All of it is easy: nobody looks at a request's bytes.
constexpr char kGrpcAcceptEncoding[] = "identity,deflate,gzip";
bool IsAcceptedGrpcEncoding(absl::string_view name);

// Whether a client that sends this grpc-accept-encoding takes gzip in replies.
bool AcceptsGrpcGzip(absl::string_view text);

// Reads the body of a request, which has to be one message. Keeps nothing of it:
// the message is a Void, whose bytes mean nothing.
class GrpcRequestReader {
 public:
  // Requests are empty, so even this is much.
  static constexpr size_t kMaxMessageBytes = 64 * 1024;

  enum class Result {
    kIncomplete,
    kComplete,
    kTooMany,     // more than one message
    kTooLong,     // the message, or what it says about its length
    kCompressed,  // which `encoding` does not tell how
    kBadFlag,
  };

  // The value of grpc-encoding; "identity" where there is none.
  void set_encoding(absl::string_view encoding) {
    compressed_allowed_ = encoding != "identity";
  }

  // Takes bytes of the body. What is neither kIncomplete nor kComplete is final.
  Result Read(absl::string_view bytes);

 private:
  Result ReadPrefix();

  bool compressed_allowed_ = false;
  uint8_t prefix_[kGrpcPrefixBytes] = {};
  size_t prefix_size_ = 0;
  size_t message_left_ = 0;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_EXPORTER_GRPC_PROTOCOL_H_
