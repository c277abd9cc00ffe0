// SPDX-License-Identifier: BSD-3-Clause
#include "lib/exporter/grpc_protocol.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace netmeter {
namespace internal {

std::string GrpcPrefix(size_t message_bytes, bool compressed) {
  std::string prefix(1, compressed ? '\1' : '\0');
  for (const int shift : {24, 16, 8, 0}) {
    prefix.push_back(static_cast<char>(message_bytes >> shift));
  }
  return prefix;
}

std::string PercentEncode(absl::string_view text) {
  constexpr char kHex[] = "0123456789ABCDEF";
  std::string result;
  for (const char c : text) {
    const uint8_t byte = static_cast<uint8_t>(c);
    if (byte >= 0x20 && byte <= 0x7e && c != '%') {
      result.push_back(c);
    } else {
      result.push_back('%');
      result.push_back(kHex[byte >> 4]);
      result.push_back(kHex[byte & 15]);
    }
  }
  return result;
}

bool ParseGrpcTimeout(absl::string_view text,
                      std::chrono::steady_clock::duration* timeout) {
  constexpr size_t kMaxDigits = 8;
  if (text.size() < 2 || text.size() > kMaxDigits + 1) return false;
  int64_t value = 0;
  for (const char c : text.substr(0, text.size() - 1)) {
    if (!absl::ascii_isdigit(static_cast<unsigned char>(c))) return false;
    value = 10 * value + (c - '0');
  }
  // 99,999,999 hours are more nanoseconds than 64 bits hold; a day is enough.
  using std::chrono::nanoseconds;
  constexpr int64_t kDayNs = int64_t{24} * 3600 * 1000000000;
  int64_t unit_ns;
  switch (text.back()) {
    case 'H':
      unit_ns = int64_t{3600} * 1000000000;
      break;
    case 'M':
      unit_ns = int64_t{60} * 1000000000;
      break;
    case 'S':
      unit_ns = 1000000000;
      break;
    case 'm':
      unit_ns = 1000000;
      break;
    case 'u':
      unit_ns = 1000;
      break;
    case 'n':
      unit_ns = 1;
      break;
    default:
      return false;
  }
  *timeout = nanoseconds(std::min(value, kDayNs / unit_ns) * unit_ns);
  return true;
}

bool IsGrpcContentType(absl::string_view text) {
  // "application/grpc", "application/grpc+proto", "application/grpc;x=y".
  return absl::ConsumePrefix(&text, "application/grpc") &&
         (text.empty() || text[0] == '+' || text[0] == ';');
}

bool IsAcceptedGrpcEncoding(absl::string_view name) {
  return name == "identity" || name == "deflate" || name == "gzip";
}

bool AcceptsGrpcGzip(absl::string_view text) {
  for (const absl::string_view name : absl::StrSplit(text, ',')) {
    if (absl::StripAsciiWhitespace(name) == "gzip") return true;
  }
  return false;
}

GrpcRequestReader::Result GrpcRequestReader::Read(absl::string_view bytes) {
  while (!bytes.empty()) {
    if (prefix_size_ == sizeof(prefix_)) {
      if (message_left_ == 0) return Result::kTooMany;
      const size_t step = std::min(message_left_, bytes.size());
      message_left_ -= step;
      bytes.remove_prefix(step);
      continue;
    }
    prefix_[prefix_size_++] = static_cast<uint8_t>(bytes[0]);
    bytes.remove_prefix(1);
    if (prefix_size_ == sizeof(prefix_)) {
      const Result result = ReadPrefix();
      if (result != Result::kComplete) return result;
    }
  }
  return prefix_size_ == sizeof(prefix_) && message_left_ == 0
             ? Result::kComplete
             : Result::kIncomplete;
}

// kComplete if the prefix is one that may stand there.
GrpcRequestReader::Result GrpcRequestReader::ReadPrefix() {
  if (prefix_[0] > 1) return Result::kBadFlag;
  if (prefix_[0] == 1 && !compressed_allowed_) return Result::kCompressed;
  for (size_t i = 1; i < sizeof(prefix_); ++i) {
    message_left_ = message_left_ << 8 | prefix_[i];
  }
  return message_left_ > kMaxMessageBytes ? Result::kTooLong
                                          : Result::kComplete;
}

}  // namespace internal
}  // namespace netmeter
