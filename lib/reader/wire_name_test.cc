// SPDX-License-Identifier: BSD-3-Clause
#include "lib/reader/wire_name.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace netmeter {
namespace internal {
namespace {

const std::vector<std::string>& Suffixes() {
  static const auto* const suffixes =
      new std::vector<std::string>{"-controller.magma.test", ".local"};
  return *suffixes;
}

std::string Label(const std::string& name, bool fold = false) {
  return LabelOfWireName(name, false, Suffixes(), fold);
}

TEST(WireNameTest, SuffixAndPortAreTakenOff) {
  EXPECT_EQ(Label("metricsd-controller.magma.test"), "metricsd");
  EXPECT_EQ(Label("metricsd-controller.magma.test:7443"), "metricsd");
  EXPECT_EQ(Label("Streamer-Controller.Magma.Test."), "streamer");
  EXPECT_EQ(Label("mobilityd.local"), "mobilityd");
  EXPECT_EQ(Label("127.0.0.1:8443"), "127.0.0.1");
  EXPECT_EQ(Label("[::1]:8443"), "[::1]");
  EXPECT_EQ(Label("fe80::1"), "fe80::1");
  EXPECT_EQ(Label("host:"), "host:");
  EXPECT_EQ(Label(":443"), ":443");
}

TEST(WireNameTest, AnUnknownHostIsKeptOrFolded) {
  EXPECT_EQ(Label("example.com:443"), "example.com");
  EXPECT_EQ(Label("example.com:443", true), "other");
  EXPECT_EQ(Label(".local"), ".local");
  EXPECT_EQ(Label("a.local", true), "a");
}

// The kernel part stores 64 bytes. The bug: a part of a long domain stayed in the label.
TEST(WireNameTest, OfACutNameTheBeginningOfASuffixIsTakenOff) {
  const std::string suffix =
      "-controller.gateways.a-country.an-operator.a-company.example";
  const auto label = [&](const std::string& name, bool fold = false) {
    return LabelOfWireName(name.substr(0, 64), false, {".local", suffix}, fold);
  };
  EXPECT_EQ(label("streamer" + suffix), "streamer");
  EXPECT_EQ(label("streamer" + suffix, true), "streamer");
  EXPECT_EQ(label("Bootstrapper" + suffix + ":443", true), "bootstrapper");
  const std::string long_name(50, 'a');
  EXPECT_EQ(label(long_name + suffix), long_name);
  // The name is cut at each byte of the suffix, and before the suffix.
  for (size_t length = 64 - suffix.size(); length < 64; length++) {
    const std::string name(length, 'b');
    EXPECT_EQ(label(name + suffix, true), name) << length;
  }
  EXPECT_EQ(label(std::string(70, 'c') + suffix), std::string(64, 'c'));
  EXPECT_EQ(label(std::string(70, 'c') + suffix, true), "other");
  // The name is cut in the port, or right before it.
  EXPECT_EQ(label(std::string(57, 'd') + ".local:443"), std::string(57, 'd'));
  EXPECT_EQ(label(std::string(56, 'd') + ".local:443"), std::string(56, 'd'));
  // A shorter name was not cut.
  EXPECT_EQ(label("streamer-controller"), "streamer-controller");
  EXPECT_EQ(label(suffix.substr(0, 50), true), "other");
}

TEST(WireNameTest, HuffmanOfRfc7541IsDecoded) {
  // RFC 7541, C.4.1
  const std::string code = "\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff";
  std::string text;
  ASSERT_TRUE(DecodeHuffman(code, &text));
  EXPECT_EQ(text, "www.example.com");
  EXPECT_EQ(LabelOfWireName(code, true, {".example.com"}, false), "www");
}

TEST(WireNameTest, WhatIsNoCodeIsOther) {
  std::string text = "unchanged";
  EXPECT_FALSE(DecodeHuffman("", &text));
  EXPECT_FALSE(DecodeHuffman("\xff\xff\xff\xff", &text));
  EXPECT_FALSE(DecodeHuffman(std::string(65, 'a'), &text));
  EXPECT_EQ(text, "unchanged");
  EXPECT_EQ(LabelOfWireName("\xff\xff\xff\xff", true, {}, false), "other");
  // "0" is five zero bits: the code may contain a NUL, but the name may not.
  ASSERT_TRUE(DecodeHuffman(std::string("\0\0\x0f", 3), &text));
  EXPECT_EQ(text, "0000");
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
