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

  // The first SYN has the number before `seq`, unless it is given.
  void Add(uint32_t seq, const std::string& text, uint64_t id = kId,
           uint16_t port = 80, uint64_t born_ns = 1) {
    if (!has_first_) first_seq_ = seq - 1;
    has_first_ = true;
    auto bytes = std::make_unique<nm_flow_bytes>();
    bytes->event.cookie = id;
    bytes->born_ns = born_ns;
    bytes->first_seq = first_seq_;
    bytes->seq = seq;
    bytes->port = port;
    bytes->length = static_cast<uint16_t>(text.size());
    memcpy(bytes->bytes, text.data(), text.size());
    names_.Add(*bytes);
  }

  std::string Take(bool ends = true, uint64_t id = kId, uint64_t born_ns = 1) {
    nm_flow_record record = {};
    record.event.end = ends ? NM_END_CLOSED : NM_END_ACTIVE;
    record.state.id = id;
    record.state.born_ns = born_ns;
    return names_.Take(record);
  }

  bool has_first_ = false;
  uint32_t first_seq_ = 0;
  nm_config config_ = {};
  FirstBytes names_{config_, 2};
};

TEST_F(FirstBytesTest, NamesADestinationUntilItsFlowEnds) {
  Add(100, kRequest);
  EXPECT_EQ(Take(false), "big.example.com");
  EXPECT_EQ(Take(), "big.example.com");
  EXPECT_EQ(Take(), "");
}

// The numbers pass 2^32, and the first part comes a second time.
TEST_F(FirstBytesTest, ReadsPartsInTheirOrder) {
  const std::string request = kRequest;
  const uint32_t begin = ~uint32_t{9};
  Add(begin, request.substr(0, 20));
  Add(begin, request.substr(0, 20));
  Add(begin + 10, request.substr(10, 15));
  Add(begin + 25, request.substr(25));
  EXPECT_EQ(Take(), "big.example.com");
}

TEST_F(FirstBytesTest, GuessesNothingAfterAGap) {
  const std::string request = kRequest;
  Add(0, request.substr(0, 20));
  Add(24, request.substr(24));
  EXPECT_EQ(Take(), "");
}

// The first payload had no room in the buffer. The second one is the body of a POST,
// which looked like a request, and named the connection.
TEST_F(FirstBytesTest, GuessesNothingWithoutTheFirstByte) {
  has_first_ = true;
  Add(1000, kRequest);
  EXPECT_EQ(Take(), "");
}

// Another host could choose ports and addresses so that its flow had the id of a
// victim's, whose connection it then named. And the name of a former connection on the
// same ports stayed if its record was lost.
TEST_F(FirstBytesTest, AnotherFlowWithTheSameIdNamesNothing) {
  Add(0, kRequest, kId, 80, 1);
  EXPECT_EQ(Take(true, kId, 2), "");
  EXPECT_EQ(Take(true, kId, 1), "big.example.com");
}

TEST_F(FirstBytesTest, ReadsTlsOnTheOtherPorts) {
  Add(0, kRequest, kId, 443);
  EXPECT_EQ(Take(), "");
}

TEST_F(FirstBytesTest, ForgetsRatherThanGrows) {
  for (uint64_t id = 1; id <= 3; ++id) Add(0, kRequest, id);
  EXPECT_EQ(Take(true, 1), "");
  EXPECT_EQ(Take(true, 3), "big.example.com");
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
