// SPDX-License-Identifier: BSD-3-Clause
#include "lib/exporter/grpc_protocol.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace netmeter {
namespace internal {
namespace {

using Result = GrpcRequestReader::Result;

TEST(GrpcProtocol, APrefixIsAFlagAndALength) {
  EXPECT_EQ(GrpcPrefix(0, false), std::string("\0\0\0\0\0", 5));
  EXPECT_EQ(GrpcPrefix(0x12345678, true), std::string("\1\x12\x34\x56\x78", 5));
}

TEST(GrpcProtocol, MessagesOfAStatusAreAscii) {
  EXPECT_EQ(PercentEncode("GetX is not implemented"),
            "GetX is not implemented");
  EXPECT_EQ(PercentEncode("100%\n\xc3\xa9~\x7f"), "100%25%0A%C3%A9~%7F");
  EXPECT_EQ(PercentEncode(""), "");
}

TEST(GrpcProtocol, TimeoutsHaveAUnit) {
  std::chrono::steady_clock::duration timeout;
  const auto ns = [&](const char* text) {
    EXPECT_TRUE(ParseGrpcTimeout(text, &timeout)) << text;
    return std::chrono::nanoseconds(timeout).count();
  };
  EXPECT_EQ(ns("1H"), 3600000000000);
  EXPECT_EQ(ns("2M"), 120000000000);
  EXPECT_EQ(ns("30S"), 30000000000);
  EXPECT_EQ(ns("1500m"), 1500000000);
  EXPECT_EQ(ns("7u"), 7000);
  EXPECT_EQ(ns("0n"), 0);
  EXPECT_EQ(ns("99999999n"), 99999999);
  EXPECT_EQ(ns("99999999H"), 24 * 3600000000000);  // a day is enough
  for (const char* text : {"", "S", "1", "1s", "-1S", "1.5S", "123456789S",
                           " 1S", "1S ", "0x1S"}) {
    EXPECT_FALSE(ParseGrpcTimeout(text, &timeout)) << text;
  }
}

TEST(GrpcProtocol, ContentTypesAreThoseOfGrpc) {
  for (const char* text : {"application/grpc", "application/grpc+proto",
                           "application/grpc;charset=utf-8"}) {
    EXPECT_TRUE(IsGrpcContentType(text)) << text;
  }
  for (const char* text : {"", "application/json", "application/grpc-web",
                           "application/grp", "text/plain"}) {
    EXPECT_FALSE(IsGrpcContentType(text)) << text;
  }
}

// Whether it comes at once or byte by byte.
Result Read(const std::string& body, const char* encoding = "identity") {
  GrpcRequestReader whole, pieces;
  whole.set_encoding(encoding);
  pieces.set_encoding(encoding);
  const Result result = whole.Read(body);
  Result last = Result::kIncomplete;
  for (const char c : body) {
    last = pieces.Read(absl::string_view(&c, 1));
    if (last != Result::kIncomplete && last != Result::kComplete) break;
  }
  EXPECT_EQ(last, result);
  return result;
}

TEST(GrpcRequestReader, WantsOneMessage) {
  const std::string empty(5, '\0');
  EXPECT_EQ(Read(""), Result::kIncomplete);
  EXPECT_EQ(Read(empty.substr(1)), Result::kIncomplete);
  EXPECT_EQ(Read(empty), Result::kComplete);
  EXPECT_EQ(Read(empty + "x"), Result::kTooMany);
  EXPECT_EQ(Read(empty + empty), Result::kTooMany);
  const std::string three("\0\0\0\0\3", 5);
  EXPECT_EQ(Read(three + "12"), Result::kIncomplete);
  EXPECT_EQ(Read(three + "123"), Result::kComplete);
  EXPECT_EQ(Read(three + "1234"), Result::kTooMany);
}

TEST(GrpcRequestReader, RefusesALongMessageByItsPrefix) {
  EXPECT_EQ(Read(std::string("\0\0\1\0\0", 5)), Result::kIncomplete);
  EXPECT_EQ(Read(std::string("\0\0\1\0\1", 5)), Result::kTooLong);
  EXPECT_EQ(Read(std::string("\0\xff\xff\xff\xff", 5)), Result::kTooLong);
}

TEST(GrpcRequestReader, TakesCompressedMessagesWhereTheEncodingSaysHow) {
  const std::string compressed("\1\0\0\0\2zz", 7);
  EXPECT_EQ(Read(compressed, "gzip"), Result::kComplete);
  EXPECT_EQ(Read(compressed, "identity"), Result::kCompressed);
  EXPECT_EQ(Read(std::string("\2\0\0\0\0", 5), "gzip"), Result::kBadFlag);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
