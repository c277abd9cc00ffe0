// SPDX-License-Identifier: BSD-3-Clause
// The part of the life cycle that needs no meter; see also meter_root_test.cc.
#include "netmeter/meter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace netmeter {
namespace {

MeterOptions Nowhere() {
  MeterOptions options;
  options.pin_dir = testing::TempDir() + "/no-meter-here";
  return options;
}

TEST(Meter, OpenSaysThatTheLoaderHasNotRun) {
  const auto meter = Meter::Open(Nowhere());
  EXPECT_TRUE(absl::IsNotFound(meter.status())) << meter.status();
}

TEST(Meter, OpenChecksTheServiceName) {
  for (const bool wait : {false, true}) {
    MeterOptions options = Nowhere();
    options.wait_for_loader = wait;
    options.service = std::string(65, 'x');
    EXPECT_TRUE(absl::IsInvalidArgument(Meter::Open(options).status()));
    options.service = std::string("a\0b", 3);
    EXPECT_TRUE(absl::IsInvalidArgument(Meter::Open(options).status()));
    options.service = "mme";
    for (const std::string& pin_dir : {std::string(), std::string("/run\0x", 6),
                                       std::string(1000000, 'x')}) {
      options.pin_dir = pin_dir;
      const absl::Status status = Meter::Open(options).status();
      EXPECT_TRUE(absl::IsInvalidArgument(status));
      EXPECT_LT(status.message().size(), 100u);
    }
  }
}

TEST(Meter, WaitingMeterOpensAndIsUnavailable) {
  MeterOptions options = Nowhere();
  options.wait_for_loader = true;
  options.service = "mme";
  auto meter = Meter::Open(options);
  ASSERT_TRUE(meter.ok()) << meter.status();
  EXPECT_TRUE(absl::IsUnavailable((*meter)->ReadService().status()));
  EXPECT_TRUE(absl::IsUnavailable((*meter)->ReadService("x").status()));
  EXPECT_TRUE(absl::IsUnavailable((*meter)->ReadHost().status()));
  const absl::Status status = (*meter)->ReadHealth().status();
  EXPECT_TRUE(absl::IsUnavailable(status));
  // The message has the canonical path, whatever path was given.
  EXPECT_THAT(std::string(status.message()),
              testing::MatchesRegex("waiting for a meter: no meter at "
                                    "(/.*[^/]/no-meter-here) .run: "
                                    "netmeter-loader load --pin-dir "
                                    "/.*[^/]/no-meter-here."));
}

TEST(Meter, WaitingMeterKeepsTheNameForLater) {
  MeterOptions options = Nowhere();
  options.wait_for_loader = true;
  auto meter = Meter::Open(options);
  ASSERT_TRUE(meter.ok()) << meter.status();
  EXPECT_TRUE(absl::IsFailedPrecondition((*meter)->ReadService().status()));
  EXPECT_TRUE(absl::IsInvalidArgument((*meter)->Register("")));
  EXPECT_TRUE(absl::IsFailedPrecondition((*meter)->ReadService().status()));
  EXPECT_TRUE((*meter)->Register("mme").ok());
  EXPECT_TRUE(absl::IsUnavailable((*meter)->ReadService().status()));
}

TEST(TagSocket, ChecksItsArguments) {
  EXPECT_TRUE(absl::IsInvalidArgument(TagSocket(-1, "streamer")));
  EXPECT_TRUE(absl::IsInvalidArgument(TagSocket(0, "")));
}

TEST(Words, AreThoseOfTheMetrics) {
  EXPECT_STREQ(KindName(Kind::kService), "service");
  EXPECT_STREQ(KindName(Kind::kBinary), "binary");
  EXPECT_STREQ(KindName(Kind::kUnattributed), "unattributed");
  EXPECT_STREQ(KindName(Kind::kOverflow), "overflow");
  EXPECT_STREQ(KindName(Kind::kPending), "pending");
  EXPECT_STREQ(KindName(Kind::kEvicted), "evicted");
  EXPECT_STREQ(TransportName(Transport::kOther), "other");
  EXPECT_STREQ(TransportName(Transport::kTcp), "tcp");
  EXPECT_STREQ(TransportName(Transport::kUdp), "udp");
  EXPECT_STREQ(TransportName(Transport::kSctp), "sctp");
  EXPECT_STREQ(TransportName(Transport::kIcmp), "icmp");
  EXPECT_STREQ(PathName(Path::kDirect), "direct");
  EXPECT_STREQ(PathName(Path::kProxy), "proxy");
}

TEST(Words, AreNeverNull) {
  EXPECT_STREQ(KindName(static_cast<Kind>(99)), "unknown");
  EXPECT_STREQ(TransportName(static_cast<Transport>(99)), "unknown");
  EXPECT_STREQ(PathName(static_cast<Path>(99)), "unknown");
}

#ifndef NETMETER_FROM_SOURCE
// The bug: the uplink was there only if the library's struct was as long as the header's.
// So a program with the header of 1.1 would have lost it with the library of 1.0.
TEST(Meter, ALibraryWithAShorterSampleHasAnUplink) {
  netmeter_sample from = {};
  from.size = sizeof(from) - 8;
  from.name = from.destination = "";
  from.uplink = "satellite";
  from.uplink_length = 9;
  Sample sample;
  internal::AssignSample(from, &sample);
  EXPECT_EQ(sample.uplink, "satellite");
}
#endif

}  // namespace
}  // namespace netmeter
