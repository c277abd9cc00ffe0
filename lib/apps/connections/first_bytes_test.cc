// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/connections/first_bytes.h"

#include <gtest/gtest.h>
#include <string.h>

#include <memory>
#include <string>

namespace netmeter {
namespace internal {
namespace {

constexpr uint64_t kId = 7;
constexpr char kRequest[] = "GET / HTTP/1.1\r\nHost: big.example.com\r\n\r\n";

class FirstBytesTest : public testing::Test {
 protected:
  FirstBytesTest() {
    config_.http_ports[0] = 80;
    config_.http_ports_count = 1;
    config_.sni_ports[0] = 443;
    config_.sni_ports_count = 1;
  }

  void Add(uint32_t seq, const std::string& text, uint64_t id = kId,
           uint16_t port = 80) {
    auto bytes = std::make_unique<nm_flow_bytes>();
    bytes->event.cookie = id;
    bytes->seq = seq;
    bytes->port = port;
    bytes->length = static_cast<uint16_t>(text.size());
    memcpy(bytes->bytes, text.data(), text.size());
    names_.Add(*bytes);
  }

  nm_config config_ = {};
  FirstBytes names_{config_, 2};
};

TEST_F(FirstBytesTest, NamesADestinationUntilItsFlowEnds) {
  Add(100, kRequest);
  EXPECT_EQ(names_.Take(kId, false), "big.example.com");
  EXPECT_EQ(names_.Take(kId, true), "big.example.com");
  EXPECT_EQ(names_.Take(kId, true), "");
}

// The numbers pass 2^32, and the first part comes a second time.
TEST_F(FirstBytesTest, ReadsPartsInTheirOrder) {
  const std::string request = kRequest;
  const uint32_t begin = ~uint32_t{9};
  Add(begin, request.substr(0, 20));
  Add(begin, request.substr(0, 20));
  Add(begin + 10, request.substr(10, 15));
  Add(begin + 25, request.substr(25));
  EXPECT_EQ(names_.Take(kId, true), "big.example.com");
}

TEST_F(FirstBytesTest, GuessesNothingAfterAGap) {
  const std::string request = kRequest;
  Add(0, request.substr(0, 20));
  Add(24, request.substr(24));
  EXPECT_EQ(names_.Take(kId, true), "");
}

TEST_F(FirstBytesTest, ReadsTlsOnTheOtherPorts) {
  Add(0, kRequest, kId, 443);
  EXPECT_EQ(names_.Take(kId, true), "");
}

TEST_F(FirstBytesTest, ForgetsRatherThanGrows) {
  for (uint64_t id = 1; id <= 3; ++id) Add(0, kRequest, id);
  EXPECT_EQ(names_.Take(1, true), "");
  EXPECT_EQ(names_.Take(3, true), "big.example.com");
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
